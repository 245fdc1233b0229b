"""Do CPython's own tests of mappings pass over a table?

`BasicTestMappingProtocol` and `TestMappingProtocol` of `test.mapping_tests`, as they are. Some systems
ship Python without its `test` package; there this file holds no test, and `tests/contract/` alone says that
a table is a dict. The hash tests (`TestHashMappingProtocol`) do not apply: keys are compared by their stored
bytes, and Python's hash is never asked.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any

import pellucid


class TableDict:
    """`dict(...)` as a table: what a dict's class can do and a table cannot, since it has a database."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.table = pellucid.open(":memory:").table("t")
        self.table.update(*arguments, **fields)

    @classmethod
    def fromkeys(cls, keys: Iterable[Any], value: Any = None) -> Any:
        made = cls()
        for key in keys:
            made[key] = value
        return made

    def copy(self) -> TableDict:
        return type(self)(self.table)

    def __eq__(self, other: object) -> bool:
        return bool(self.table == (other.table if isinstance(other, TableDict) else other))

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        """`get`, `keys`, `update` and all other verbs: the table's own."""
        return getattr(self.table, name)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.table[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.table[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.table

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


class DatabaseDict(TableDict):
    """The same over a database, which is a mapping over its default table."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.table = pellucid.open(":memory:")
        self.table.update(*arguments, **fields)


if importlib.util.find_spec("test") and importlib.util.find_spec("test.mapping_tests"):
    from test import mapping_tests

    class TestTable(mapping_tests.TestMappingProtocol):
        type2test = TableDict

    class TestDatabase(mapping_tests.TestMappingProtocol):
        type2test = DatabaseDict

    class TestPlainTable(mapping_tests.BasicTestMappingProtocol):
        """Without the class around it."""

        def _empty_mapping(self) -> pellucid.Table:
            return pellucid.open(":memory:").table("t")
