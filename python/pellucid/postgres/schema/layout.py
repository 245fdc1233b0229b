"""The layout of one table: what the catalog says of it and of its indexes.

A relation's name has the generation of its layout: `t7_3` is table 7 in its third layout.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class IndexInfo:
    """What the catalog says of an index."""

    id: int
    name: str
    definition: str
    is_unique: bool
    # Whether a row may have several entries: they are in a relation of their own then.
    has_each: bool
    # "building" or "ready".
    state: str
    # Whether a code was too long to be stored whole, so that the server does not know the order of all rows.
    has_long: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the catalog says of a table."""

    id: int
    name: str
    generation: int
    # In ascending order of their ids.
    indexes: tuple[IndexInfo, ...] = ()
    # Whether its rows are on several servers, by the hashes of their keys (`citus.py`).
    is_distributed: bool = False
    # Whether its rows have key and value as JSON, too.
    is_queryable: bool = False
    # Of a distributed table, by how many of the first parts of a key; 0: by all of it.
    distribute_by: int = 0

    @property
    def has_derived(self) -> bool:
        """Whether a row has columns that are made of its key and its value."""
        return bool(self.indexes) or self.is_queryable

    @property
    def relation(self) -> str:
        """The name of the relation with the rows."""
        return f"t{self.id}_{self.generation}"


@dataclasses.dataclass(frozen=True)
class CreateOptions:
    """Options for a new table; None: no preference."""

    is_distributed: bool | None = None
    is_queryable: bool | None = None
    distribute_by: int | None = None

    def refusal(self, layout: Layout) -> str | None:
        """Return why a table that is there is another one; None if it is not."""
        is_other = self.is_distributed is not None and self.is_distributed != layout.is_distributed
        if is_other:
            state = "" if layout.is_distributed else "not "
            return (
                f"table {layout.name!r} is there and is {state}distributed; open it without distributed=, or "
                "copy its rows to a table with another name"
            )
        if self.distribute_by not in (None, layout.distribute_by):
            parts = layout.distribute_by
            by = (
                f"the first {parts} part{'s' if parts > 1 else ''} of its keys" if parts else "its whole keys"
            )
            return (
                f"table {layout.name!r} is there and is distributed by {by}; open it without distribute_by=, "
                "or copy its rows to a table with another name"
            )
        if self.is_queryable is None or self.is_queryable == layout.is_queryable:
            return None
        if layout.is_queryable:
            return f"table {layout.name!r} is there and is queryable; open it without queryable="
        return (
            f"table {layout.name!r} is there and is not queryable; open it without queryable=, or copy its "
            f"rows: db.table('new', queryable=True).update(db.table({layout.name!r})), then drop_table and "
            "rename_table"
        )


ANY = CreateOptions()
