# The part of the compiled module with which the import of CSV reads the cells of columns.
# There is no module of this name; `_native.pyi` takes these names from here.
from collections.abc import Iterator, Sequence
from typing import Any, final

from typing_extensions import Self

__all__ = ["CellRows", "cell_kinds"]

def cell_kinds(cells: Sequence[str], nulls: frozenset[str], /) -> set[str]: ...

@final
class CellRows:
    def __new__(
        cls, names: list[str], kinds: list[str], columns: list[Sequence[Any]], missing: object, /
    ) -> Self: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
