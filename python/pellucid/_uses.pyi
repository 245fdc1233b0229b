# The part of the compiled module with which a cache notes uses of its entries.
# There is no module of this name; `_native.pyi` takes these names from here.
from typing import Any, final

from typing_extensions import Buffer, Self

from pellucid._native import Table
from pellucid.typing import Key

__all__ = ["NotedTable", "UseSlots"]

@final
class UseSlots:
    def __new__(cls, slots: Buffer, counts: bool) -> Self: ...
    def slot(self, key: Key) -> int: ...
    def note(self, key: Key) -> None: ...

@final
class NotedTable:
    def __new__(cls, table: Table[Any], uses: UseSlots) -> Self: ...
    def get(self, key: Key, default: Any, /) -> Any: ...
