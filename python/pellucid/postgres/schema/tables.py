"""The tables of a database, as this client and its transactions see them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pellucid.errors import DatabaseError, ReadOnly
from pellucid.postgres import errors
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.catalog import Catalog
from pellucid.postgres.schema.layout import CreateOptions, Layout
from pellucid.postgres.schema.races import again
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import big_int
from pellucid.postgres.session import Lost, Session
from pellucid.postgres.table.sequence import Block

if TYPE_CHECKING:
    from pellucid.postgres.connection import DatabaseConnection
    from pellucid.postgres.table.binding import TableBinding

T = TypeVar("T")
NAME_SIZE_MAX = 480
FROZEN = "this belongs to a snapshot, which does not change; write through the database"


class LayoutCache:
    """The layouts that were committed when this client read them, and the handles that depend on them."""

    def __init__(self) -> None:
        self.layouts: dict[int, Layout] = {}
        # Grows when a layout changes that a handle may have, and when the database is closed.
        self.epoch = 0
        # How often a table was dropped or renamed here.
        self.names_changed = 0
        # The handles on tables that are not there yet.
        self.unbound: weakref.WeakValueDictionary[int, TableBinding] = weakref.WeakValueDictionary()

    def put(self, layout: Layout) -> None:
        """Take a layout as the committed one."""
        if self.layouts.get(layout.id) != layout:
            self.layouts[layout.id] = layout
            self.epoch += 1

    def remove(self, number: int) -> None:
        """Forget the layout of a table."""
        self.layouts.pop(number, None)
        self.epoch += 1

    def apply(self, layouts: dict[int, Layout | None]) -> None:
        """Take what a committed transaction knows of tables; None for one that it has dropped."""
        if layouts:
            self.epoch += 1
        for number, layout in layouts.items():
            if layout is None:
                self.layouts.pop(number, None)
            else:
                self.layouts[number] = layout

    def rename(self, name: str, layout: Layout) -> None:
        """Bind the handles that wait for a table of this name to the table that had it until now."""
        self.names_changed += 1
        self.epoch += 1
        for binding in list(self.unbound.values()):
            if binding.name == name and binding.table_id is None:
                binding.bind(layout)


class DatabaseTables:
    """The tables of a database, as its transactions and the other callers see them."""

    def __init__(self, connection: DatabaseConnection) -> None:
        self._connection = connection
        self.catalog = connection.catalog
        self.cache = connection.cache
        self.blocks: dict[int | None, Block] = {}

    def names(self) -> list[str]:
        """Return the names of all tables, in order."""
        return self._connection.with_session(self.catalog.names)

    def statements(self, layout: Layout) -> Statements:
        """Return the statements for a layout, the same ones for the same layout."""
        return self.catalog.statements(layout)

    def layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, as it was read last; None if it was dropped."""
        running = self._connection.running()
        if running is not None and number in running.layouts:
            return running.layouts[number]
        known = self.cache.layouts.get(number)
        return known if known is not None else self.read_again(number)

    def known_layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, without asking the server; None if it is not known."""
        running = self._connection.running()
        if running is not None and number in running.layouts:
            return running.layouts[number]
        return self.cache.layouts.get(number)

    def layout_named(self, name: str) -> Layout | None:
        """Return the layout of the table with this name as the caller sees it now."""
        layout = self._connection.with_session(lambda session: self.catalog.named(session, name))
        return self._keep(layout) if layout is not None else None

    def read_again(self, number: int) -> Layout | None:
        """Read the layout of a table again; None if it was dropped."""
        layout = self._connection.with_session(lambda session: self.catalog.numbered(session, number))
        if layout is None:
            self.cache.remove(number)
            return None
        return self._keep(layout)

    def forget(self, number: int) -> None:
        """Read the layout of a table again in the next transaction; this one sees an older state."""
        self.cache.remove(number)

    def note(self, layout: Layout) -> None:
        """Take a layout as the present one, after this client has changed it."""
        running = self._connection.running()
        if running is not None:
            running.layouts[layout.id] = layout
        else:
            self.cache.layouts[layout.id] = layout
            self.cache.epoch += 1

    def _keep(self, layout: Layout) -> Layout:
        running = self._connection.running()
        if running is not None and running.has_changed_tables:
            running.layouts[layout.id] = layout
        else:
            self.cache.put(layout)
        return layout

    # Changes

    def create(self, name: str, options: CreateOptions) -> Layout:
        """Create a table in the transaction that runs, or in one of its own."""
        check_name(name)
        connection = self._connection
        running = connection.running()
        if options.is_distributed and running is None:
            self.share()
        elif options.is_distributed:
            with connection.pool.session() as session:
                citus.check_shared(session, self.catalog.schema)
        if running is None:
            layout = connection.with_session(
                lambda session: self.catalog.create(session, name, options, is_alone=True)
            )
        else:
            layout = self._changed(
                lambda session: self.catalog.create(session, name, options, is_alone=False)
            )
        return self._keep(layout)

    def share(self) -> None:
        """Give the catalog to all servers of a cluster."""
        with self._connection.pool.session() as session:
            again(session, lambda: citus.share(session, self.catalog.schema))

    def drop(self, name: str) -> None:
        """Drop a table with its rows. Raises `KeyError` if there is none."""

        def drop(session: Session) -> Layout:
            layout = self.catalog.drop(session, name)
            if layout is None:
                raise self._no_table(session, name)
            return layout

        layout = self._changed(drop)
        self.cache.rename(name, layout)
        running = self._connection.running()
        if running is None:
            self.cache.remove(layout.id)
        else:
            running.layouts[layout.id] = None

    def rename(self, name: str, new_name: str) -> None:
        """Give a table another name. Raises `KeyError` if there is none, and `ValueError` if it is taken."""
        check_name(new_name)

        def rename(session: Session) -> Layout:
            layout = self.catalog.named(session, name)
            if layout is None:
                raise self._no_table(session, name)
            if name != new_name and self.catalog.named(session, new_name) is not None:
                raise ValueError(f"table {new_name!r} exists already; drop it first, or choose another name")
            return self.catalog.rename(session, layout, new_name)

        try:
            layout = self._keep(self._changed(rename))
            self.cache.rename(name, layout)
        except DatabaseError as error:
            if errors.sqlstate(error.__cause__) == "23505":
                raise ValueError(
                    f"table {new_name!r} exists already; drop it first, or choose another name"
                ) from error
            raise

    def _no_table(self, session: Session, name: str) -> KeyError:
        others = ", ".join(map(repr, self.catalog.names(session)))
        return KeyError(f"{session.place.shown} has no table {name!r}; it has {others or 'none'}")

    def _changed(self, work: Callable[[Session], T]) -> T:
        """Run `work` in the transaction that runs, or in one of its own."""
        running = self._connection.running()
        if running is None:
            with self._connection.transaction():
                return self._changed(work)
        running.has_changed_tables = True
        try:
            return work(running.ready())
        except Lost as lost:
            raise running.lost(lost) from lost.args[0]

    def next_ints(self, layout: Layout, least: int, wanted: int, needed: int) -> tuple[int, int] | None:
        """Take numbers for rows; return the first one, and how many there are.

        They are taken in a transaction of its own, where the table is there for all and a connection is free.
        Else they go with the caller's transaction, so that no more are taken than are needed.
        """
        running = self._connection.running()
        take = self.catalog.next_ints
        with self._connection.pool.beside(running) as session:
            is_own = running is None or session is not running.session
            count = wanted if is_own else needed
            first = take(session, layout, big_int(least), big_int(count))
        if first is None and running is not None and is_own:
            first, count = take(running.ready(), layout, big_int(least), big_int(needed)), needed
        return None if first is None else (first, count)


class FrozenTables:
    """The tables of a state that does not change."""

    def __init__(self, catalog: Catalog, cache: LayoutCache) -> None:
        self.catalog = catalog
        self.cache = cache
        self.blocks: dict[int | None, Block] = {}

    def statements(self, layout: Layout) -> Statements:
        """Return the statements for a layout, the same ones for the same layout."""
        return self.catalog.statements(layout)

    def read_again(self, _number: int) -> Layout | None:
        """Raise `ReadOnly`: only the database has a layout that changes."""
        raise ReadOnly(FROZEN)

    def forget(self, _number: int) -> None:
        """Do nothing: the snapshot sees the older layout."""

    def note(self, _layout: Layout) -> None:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)

    def create(self, _name: str, _options: CreateOptions) -> Layout:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)

    def next_ints(self, _layout: Layout, _least: int, _wanted: int, _needed: int) -> tuple[int, int] | None:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)


def name_of(name: object, argument: str) -> str:
    """Return an argument that names a table. Raises `TypeError` if it is no str."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} has to be a str, the name of a table, not {type(name).__name__}")
    return name


def check_name(name: str) -> None:
    """Raise `ValueError` for a name that no table can have."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not name or size > NAME_SIZE_MAX:
        raise ValueError(f"a table's name has 1 to {NAME_SIZE_MAX} bytes, and this name has {size}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a table's name is text, and {name!r} has a lone surrogate") from None
