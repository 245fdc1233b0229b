"""A handle on a table of a server: which table it stands for, and how its statements reach the server.

A handle is made for a name. Once the table is there, the handle stands for that table by its id, and
follows it to another name. It raises `StaleTable` when the table is dropped. The handle of a database's own
mapping stays with its name, and so do those of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pellucid._native import ServerGate, ServerTable
from pellucid.errors import Busy, StaleTable, TransactionError
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.schema.layout import Layout, Making
from pellucid.postgres.schema.statements import Statements, values_of
from pellucid.postgres.session import Array, Rows, Statement
from pellucid.postgres.source import Source
from pellucid.postgres.table import keys
from pellucid.postgres.transaction import Running

LAYOUT_ATTEMPTS = 20
ANY = Making()


class Standing(ServerTable):
    """A handle on a table: which table it is, and what its layout is now."""

    _source: Source

    def __new__(
        cls,
        source: Source,
        name: str,
        *,
        stays_with_name: bool = False,
        type: type | None = None,
        run_init: bool = False,
        fast: bool = False,
        making: Making = ANY,
    ) -> Standing:
        """Make a handle on the table with this name."""
        why = "snapshot" if source._is_snapshot else "r" if source._mode == "r" else None
        made = super().__new__(cls, source._codec, name, 0, why, type=type, run_init=run_init, fast=fast)
        made._source = source
        made._making = making
        made._stays_with_name = stays_with_name
        made._found = None
        made._names_seen = -1
        made._made_in = None
        made._name_before = name
        made._shown = None
        made._quick = None
        made._quick_epoch = -1
        return made

    def __init__(self, *_arguments: object, **_keywords: object) -> None:
        # The id of the table; None before it is found.
        self._found: int | None
        # The transaction that made the table, while others do not see it, and its epoch then.
        self._made_in: tuple[Running, int] | None
        # The statements that were found last outside of a transaction, and the source's epoch then.
        self._quick: Statements | None
        self._quick_epoch: int
        # The layout that was passed to the native base last.
        self._shown: Layout | None
        # The name that the handle has if that is rolled back.
        self._name_before: str
        self._stays_with_name: bool
        self._names_seen: int
        # How the table is to be created.
        self._making: Making
        if not self._stays_with_name:
            source = self._source
            layout = source._layout_named(self.name)
            if layout is not None:
                self._stand_for(layout)
            elif not source._is_snapshot:
                source._pending[id(self)] = self

    @property
    def name(self) -> str:
        """The table's name, as far as this client knows."""
        layout = None
        if self._found is not None and not self._stays_with_name and self._check_made():
            layout = self._source._known_layout(self._found)
        return ServerTable.name.__get__(self) if layout is None else layout.name

    def _stand_for(self, layout: Layout) -> None:
        refusal = self._making.refusal(layout)
        if refusal is not None:
            raise ValueError(refusal)
        self._name_before = self.name
        self._found = layout.id
        self._set_standing(layout.name, layout.id)
        running = self._source._running()
        is_uncommitted = running is not None and layout.id in running.layouts
        self._made_in = (running, running.epoch) if running is not None and is_uncommitted else None

    def _check_made(self) -> bool:
        """Forget a table that was made in a transaction and taken back; return whether the caller sees it."""
        if self._made_in is None:
            return True
        running, epoch = self._made_in
        if running.has_ended and running.is_committed:
            self._made_in = None
        elif running.has_ended or running.epoch != epoch:
            self._made_in = self._found = None
            self._set_standing(self._name_before, 0)
        else:
            return self._source._running() is running
        return True

    def _statements(self) -> Statements | None:
        """Return the statements for the table; None if there is none of its name yet.

        Raises `StaleTable` if it was dropped.
        """
        source = self._source
        running = source._running()
        if running is None and self._quick_epoch == source._epoch:
            return self._quick
        found = self._looked_up_statements()
        if running is None and self._made_in is None and found is not None:
            self._quick, self._quick_epoch = found, source._epoch
        return found

    def _looked_up_statements(self) -> Statements | None:
        source = self._source
        source._check_open()
        is_seen = self._check_made()
        if self._stays_with_name and self._names_seen != source._names_changed:
            self._found, self._names_seen = None, source._names_changed
        if self._found is None or not is_seen:
            layout = source._layout_named(self.name)
            if layout is None:
                return None
            if is_seen:
                self._stand_for(layout)
            return source._catalog.statements(layout)
        layout = source._layout(self._found)
        if layout is None:
            return self._dropped()
        if not self._stays_with_name and layout is not self._shown:
            self._shown = layout
            self._set_standing(layout.name, layout.id)
        return source._catalog.statements(layout)

    def _dropped(self) -> Statements | None:
        if self._stays_with_name or self._source._is_snapshot:
            self._found = None
            return None
        raise StaleTable(
            f"table {self.name!r} has been dropped; db.table({self.name!r}) gives the table of that name"
        )

    def _changed(self, sql: Statements, error: LayoutChanged) -> None:
        """Read the catalog again after a statement has named a relation that is not there."""
        source = self._source
        if source._running() is not None or source._is_snapshot:
            source._forget_layout(sql.layout.id)
            raise Busy(
                f"another client has changed the layout of table {self.name!r} since this transaction "
                "began; begin it "
                "again, as db.run(function) does"
            ) from error.__cause__
        if source._layout_anew(sql.layout.id) is None and self._dropped() is None:
            source._names_changed += 1
            source._epoch += 1

    def _ask(self, make: Callable[[Statements], Statement]) -> Rows | None:
        """Run a statement that reads; None if there is no table yet."""
        for _ in range(LAYOUT_ATTEMPTS):
            sql = self._statements()
            if sql is None:
                return None
            try:
                return self._source._read(*self._bound(sql, [make(sql)])[0])
            except LayoutChanged as error:
                self._changed(sql, error)
        raise self._restless()

    def _change(
        self, make: Callable[[Statements], list[Statement]], *, creates: bool = False
    ) -> list[Rows] | None:
        """Run statements that write; None if there is no table yet, and none was to be created."""
        for _ in range(LAYOUT_ATTEMPTS):
            sql = self._for_writing() if creates else self._statements()
            if sql is None:
                return None
            try:
                return self._source._write(self._bound(sql, make(sql)))
            except LayoutChanged as error:
                self._changed(sql, error)
        raise self._restless()

    def _bound(self, sql: Statements, statements: list[Statement]) -> list[Statement]:
        """Return statements as a distributed table needs them: each names the server of its row."""
        if not sql.layout.is_distributed:
            return statements
        found: list[Statement] = []
        for text, given in statements:
            if sql.layout.distribute_by and (text in (sql.put_many, sql.swap_many) or b"$d" in text):
                key = given[0]
                is_many = isinstance(key, Array)
                places = [self._place_of(sql, k) for k in (key.elements if is_many else [key])]
                given = (*given, self._array_of(places) if is_many else places[0])
            if text is sql.put_many:
                found += values_of(
                    sql, [array.elements if isinstance(array, Array) else array for array in given]
                )
            else:
                found.append((text.replace(b"$d", b"$%d" % len(given)), given))
        return found

    def _place_of(self, sql: Statements, key: bytes) -> bytes:
        """Return what a row is distributed by. Raises `ValueError` for a key that has too few parts."""
        count = sql.layout.distribute_by
        place = self._distribution(key, count)
        if place is None:
            shown = "a key" if keys.is_long(key) else f"key {self._key_object(key)!r}"
            raise ValueError(
                f"{shown} of table {self.name!r} is no tuple of {count} part{'s' if count > 1 else ''} or "
                f"more, by which its rows are distributed (distribute_by={count})"
            )
        return place

    def _common_place(self, sql: Statements, low: bytes | None, high: bytes | None) -> bytes | None:
        """Return what all keys from `low` on, below `high`, are distributed by; None if they differ."""
        if not sql.layout.distribute_by or low is None or high is None:
            return None
        place = self._distribution(low, sql.layout.distribute_by)
        if place is None:
            return None
        behind = place.rstrip(b"\xff")
        return place if behind and high <= behind[:-1] + bytes([behind[-1] + 1]) else None

    def _check_one_state(self, sql: Statements, place: bytes | None = None) -> None:
        """Raise where rows that are on several servers would have to come from one state."""
        if self._source._is_snapshot and sql.layout.is_distributed and place is None:
            raise TransactionError(
                f"table {self.name!r} is distributed, and its servers have no common snapshot: a read of "
                "several rows may see one part of a transaction and not the other. A snapshot reads one row, "
                "or the rows of a prefix that has all parts of distribute_by=; keep what must agree there"
            )

    def _for_writing(self) -> Statements:
        sql = self._statements()
        if sql is not None:
            return sql
        layout = self._source._create_table(self.name, self._making)
        self._stand_for(layout)
        return self._source._catalog.statements(layout)

    def _restless(self) -> Busy:
        return Busy(
            f"other clients have changed the layout of table {self.name!r} {LAYOUT_ATTEMPTS} times meanwhile"
        )

    # Calls of the native base

    def _has_json(self) -> bool:
        """Return whether the rows have key and value as JSON."""
        sql = self._statements()
        return sql is not None and sql.layout.is_queryable

    def _array_of(self, elements: list[Any]) -> Array:
        """Return a parameter with many bytes."""
        return Array(self._array(elements), elements)

    def _check_writable(self) -> None:
        self._source._check_writable()

    def _gate(self) -> ServerGate:
        return self._source._gate()

    def _admit(self, shapes: list[bytes]) -> list[int] | None:
        return self._source._admit(shapes) if shapes else []

    def _known(self, rows: Rows) -> bool:
        """Learn the shapes of fetched rows; return whether one has a long key."""
        count, has_long = self._surveyed(rows)
        self._source._learn_up_to(count)
        return has_long

    def _within(self) -> Any:
        """Return a transaction of the table's database."""
        return self._source.transaction()
