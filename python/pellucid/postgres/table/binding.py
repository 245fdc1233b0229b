"""Which table a handle is bound to, and how statements about it follow changes of its layout.

A handle is made for a name. Once the table is there, the handle is bound to it by its id, and follows it to
another name. It raises `StaleTable` when the table is dropped. The handle of a database's own mapping stays
with its name, and so do those of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable

from pellucid._native import ServerTable
from pellucid.errors import Busy, StaleTable
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.protocols import Connection, Tables
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.layout import CreateOptions, IndexInfo, Layout
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Rows, Statement
from pellucid.postgres.transaction import Running

LAYOUT_ATTEMPTS = 20


class TableBinding:
    """Which table a handle is bound to, and what its layout is now."""

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        records: ServerTable,
        *,
        stays_with_name: bool,
        options: CreateOptions,
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._cache = tables.cache
        # Has the name for messages, and the number by which shapes are counted.
        self._records = records
        # How the table is to be created.
        self.options = options
        self.stays_with_name = stays_with_name
        # The id of the table; None before it is found.
        self.table_id: int | None = None
        self._names_seen = -1
        # The transaction that made the table, while others do not see it, and its epoch then.
        self._made_in: tuple[Running, int] | None = None
        # The name that the handle has if that is rolled back.
        self._name_before = records.name
        # The layout whose name was passed to the native base last.
        self._named_after: Layout | None = None
        # The statements that were found last outside of a transaction, and the epoch then.
        self._quick: Statements | None = None
        self._quick_epoch = -1
        if not stays_with_name:
            layout = tables.layout_named(records.name)
            if layout is not None:
                self.bind(layout)
            elif not connection.is_snapshot:
                self._cache.unbound[id(self)] = self

    @property
    def name(self) -> str:
        """The table's name, as far as this client knows."""
        layout = None
        if self.table_id is not None and not self.stays_with_name and self._check_made():
            layout = self._tables.known_layout(self.table_id)
        return self._records.name if layout is None else layout.name

    def bind(self, layout: Layout) -> None:
        """Bind the handle to a table. Raises `ValueError` if its options are others."""
        refusal = self.options.refusal(layout)
        if refusal is not None:
            raise ValueError(refusal)
        self._name_before = self.name
        self.table_id = layout.id
        self._records.set_name(layout.name, layout.id)
        running = self._connection.running()
        is_uncommitted = running is not None and layout.id in running.layouts
        self._made_in = (running, running.epoch) if running is not None and is_uncommitted else None

    def follow(self, other: TableBinding) -> None:
        """Bind the handle to the table to which another one of the same client is bound."""
        other.statements()
        # The id of a table whose creation was rolled back may be given to another one.
        self._check_made()
        if other.table_id is not None and other.table_id != self.table_id:
            layout = self._tables.layout(other.table_id)
            if layout is not None:
                self.bind(layout)

    def _check_made(self) -> bool:
        """Forget a table whose creation was rolled back; return whether the caller sees the table."""
        if self._made_in is None:
            return True
        running, epoch = self._made_in
        if running.has_ended and running.is_committed:
            self._made_in = None
        elif running.has_ended or running.epoch != epoch:
            self._made_in = self.table_id = None
            self._records.set_name(self._name_before, 0)
        else:
            return self._connection.running() is running
        return True

    # The statements for the layout that the table has

    def statements(self) -> Statements | None:
        """Return the statements for the table; None if there is none of its name yet.

        Raises `StaleTable` if it was dropped.
        """
        running = self._connection.running()
        if running is None and self._quick_epoch == self._cache.epoch:
            return self._quick
        found = self._look_up()
        if running is None and self._made_in is None and found is not None:
            self._quick, self._quick_epoch = found, self._cache.epoch
        return found

    def _look_up(self) -> Statements | None:
        self._connection.check_open()
        is_seen = self._check_made()
        if self.stays_with_name and self._names_seen != self._cache.names_changed:
            self.table_id, self._names_seen = None, self._cache.names_changed
        tables = self._tables
        if self.table_id is None or not is_seen:
            layout = tables.layout_named(self.name)
            if layout is None:
                return None
            if is_seen:
                self.bind(layout)
            return tables.statements(layout)
        layout = tables.layout(self.table_id)
        if layout is None:
            self._dropped()
            return None
        if not self.stays_with_name and layout is not self._named_after:
            self._named_after = layout
            self._records.set_name(layout.name, layout.id)
        return tables.statements(layout)

    def _dropped(self) -> None:
        if self.stays_with_name or self._connection.is_snapshot:
            self.table_id = None
            return
        raise StaleTable(
            f"table {self.name!r} has been dropped; db.table({self.name!r}) gives the table of that name"
        )

    def for_writing(self) -> Statements:
        """Return the statements for the table, and create it if it is not there."""
        sql = self.statements()
        if sql is not None:
            return sql
        layout = self._tables.create(self.name, self.options)
        self.bind(layout)
        return self._tables.statements(layout)

    def fresh(self) -> Statements | None:
        """Return the statements for the layout as it is now."""
        sql = self.statements()
        if sql is None or self._connection.running() is not None or self._connection.is_snapshot:
            return sql
        self._tables.read_again(sql.layout.id)
        return self.statements()

    def index(self, name: str) -> IndexInfo | None:
        """Return what the catalog says of an index now; None if there is none of this name."""
        sql = self.statements()
        for _ in range(2):
            for index in sql.layout.indexes if sql is not None else ():
                if index.name == name:
                    return index
            sql = self.fresh()
        return None

    def layout_changed(self, sql: Statements, error: LayoutChanged) -> None:
        """Read the catalog again after a statement has named a relation that is not there."""
        if self._connection.running() is not None or self._connection.is_snapshot:
            self._tables.forget(sql.layout.id)
            raise Busy(
                f"another client has changed the layout of table {self.name!r} since this transaction "
                "began; begin it "
                "again, as db.run(function) does"
            ) from error.__cause__
        if self._tables.read_again(sql.layout.id) is None:
            self._dropped()
            self._cache.names_changed += 1
            self._cache.epoch += 1

    def too_many_changes(self) -> Busy:
        """Return the exception for a layout that changes again and again."""
        return Busy(
            f"other clients have changed the layout of table {self.name!r} {LAYOUT_ATTEMPTS} times meanwhile"
        )

    # Running them

    def ask(self, make: Callable[[Statements], Statement]) -> Rows | None:
        """Run a statement that reads; None if there is no table yet."""
        for _ in range(LAYOUT_ATTEMPTS):
            sql = self.statements()
            if sql is None:
                return None
            try:
                return self._connection.read(*citus.bound(sql, [make(sql)])[0])
            except LayoutChanged as error:
                self.layout_changed(sql, error)
        raise self.too_many_changes()

    def change(
        self, make: Callable[[Statements], list[Statement]], *, creates: bool = False
    ) -> list[Rows] | None:
        """Run statements that write; None if there is no table yet, and none was to be created."""
        for _ in range(LAYOUT_ATTEMPTS):
            sql = self.for_writing() if creates else self.statements()
            if sql is None:
                return None
            try:
                return self._connection.write(citus.bound(sql, make(sql)))
            except LayoutChanged as error:
                self.layout_changed(sql, error)
        raise self.too_many_changes()

    def ask_one_state(self, make: Callable[[Statements], Statement]) -> Rows | None:
        """As `ask`, for rows that have to come from one state of all servers."""

        def asked(sql: Statements) -> Statement:
            citus.check_one_state(self._connection.is_snapshot, sql.layout)
            return make(sql)

        return self.ask(asked)
