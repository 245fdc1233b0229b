"""A database on a server: its tables, its transactions, and how statements reach the server."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from pellucid._native import ServerCodec, ServerGate
from pellucid.errors import Busy, Closed, DatabaseError, ReadOnly, TransactionError
from pellucid.postgres import errors, maintenance, pool, transaction
from pellucid.postgres.background import begun
from pellucid.postgres.pool import Connections
from pellucid.postgres.schema import catalog
from pellucid.postgres.schema.catalog import Catalog
from pellucid.postgres.schema.layout import Layout, Making
from pellucid.postgres.schema.shapes import Shapes
from pellucid.postgres.schema.statements import big_int
from pellucid.postgres.session import Lost, Parameters, Rows, Session
from pellucid.postgres.snapshot import Snapshot
from pellucid.postgres.source import Source
from pellucid.postgres.table.binding import Standing
from pellucid.postgres.table.sequence import Block
from pellucid.postgres.table.table import Mapping, Table
from pellucid.postgres.transaction import Owned, Running, TransactionContext
from pellucid.postgres.url import Place, parse

T = TypeVar("T")
MODES = {"r": "r", "w": "w", "c": "c", "n": "n"}
RUN_ATTEMPTS = 100
NAME_SIZE_MAX = 480
KEY_PARTS_MAX = 100
DEFAULT_TABLE = "default"


class Database(Mapping, Source):
    """A database on a PostgreSQL server, with the verbs of `pellucid.Database`.

    It is a mapping over its table "default". Threads may share it: each has a connection of its own while it
    waits for the server, and a transaction belongs to the thread or task that began it.
    """

    _is_snapshot = False

    def __init__(
        self,
        place: Place,
        mode: str = "c",
        *,
        durability: str = "process",
        pickle: Any = None,
        timeout: float = 10.0,
    ) -> None:
        self._place = place
        self._mode = mode
        self._options = {"durability": durability, "pickle": pickle, "timeout": timeout}
        self._timeout = timeout
        self._codec = ServerCodec(pickle)
        self._open_gate = ServerGate()
        self._closed = False
        self._connections = Connections(place, timeout, setup_of(place, mode, durability, timeout))
        # Settings that each transaction gets in addition.
        self._begin_settings = b""
        self._catalog = Catalog(place.schema)
        self._shapes = Shapes(self._codec, place.schema)
        # The layouts that were committed when they were read.
        self._layouts: dict[int, Layout] = {}
        # Handles on tables that are not there yet, and how often a table was dropped or renamed here.
        self._pending: weakref.WeakValueDictionary[int, Standing] = weakref.WeakValueDictionary()
        self._names_changed = 0
        self._epoch = 0
        self._snapshots: weakref.WeakValueDictionary[int, Snapshot] = weakref.WeakValueDictionary()
        self._blocks: dict[int | None, Block] = {}
        self._owned = Owned()
        try:
            with self._connections.lent() as session:
                self._identity = self._catalog.open(session, mode)
                self._begin_settings = settings_within(place, durability, timeout, self._catalog.has_citus)
                session.has_citus = self._connections.has_citus = self._catalog.has_citus
                self._shapes.learn(session)
        except BaseException:
            self._connections.close()
            raise
        self._default = Table(self, DEFAULT_TABLE, stays_with_name=True)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<pellucid.Database {self._place.shown!r}{state}>"

    def _table(self) -> Table:
        return self._default

    @property
    def path(self) -> None:
        """None: the database is not in a file of this machine."""
        return

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __enter__(self) -> Database:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. A transaction that runs is rolled back, and records raise `StaleRecord`."""
        if self._closed:
            return
        self._closed = True
        self._epoch += 1
        self._open_gate.close()
        for snapshot in list(self._snapshots.values()):
            snapshot.close()
        running = self._running()
        if running is not None:
            self._roll_back(running)
        self._connections.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a database on a server is not pickled, since its URL may have a password; open it in the "
            "other process"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this database is closed; open it again with pellucid.open()")

    def _check_writable(self) -> None:
        self._check_open()
        if self._mode == "r":
            raise ReadOnly('the database was opened with mode="r"; open it with "w" or "c" to write')

    # Tables

    def table(
        self,
        name: str,
        /,
        *,
        type: type | None = None,
        run_init: bool = False,
        fast: bool = False,
        distributed: bool | None = None,
        queryable: bool | None = None,
        compress: bool | None = None,
        distribute_by: int | None = None,
    ) -> Table:
        """Return the table with this name; its first write creates it.

        `distributed=True` creates a table whose rows are on several servers, by their keys; the server needs
        Citus for it. With `distribute_by=n`, it is by the first n parts of keys that are tuples: rows that
        have them in common are on one server. `queryable=True` creates a table whose rows have key and value
        as JSON, too, for other programs. Raises `ValueError` where there is no Citus, or if the table is
        there and is another one.

        Only the tables of a file can be compressed: `compress=True` raises `ValueError`. The other keywords
        are as in a file.
        """
        self._check_open()
        name = name_of(name, "name")
        for argument, given in (
            ("distributed", distributed),
            ("queryable", queryable),
            ("compress", compress),
        ):
            if given not in (None, True, False):
                raise TypeError(f"{argument}= is True or False, not {given!r}")
        if compress:
            raise ValueError(
                f"tables on a server cannot be created with compress=True, and {self._place.shown} is one: "
                "leave it out; PostgreSQL itself compresses rows of more than about 2 kB"
            )
        if distribute_by is not None:
            if isinstance(distribute_by, bool) or not isinstance(distribute_by, int):
                raise TypeError(f"distribute_by= is a number of parts of a key, not {distribute_by!r}")
            if not distributed or not 1 <= distribute_by <= KEY_PARTS_MAX:
                raise ValueError(
                    f"distribute_by={distribute_by} has to be from 1 to {KEY_PARTS_MAX}, with "
                    "distributed=True"
                )
        if distributed and not self._catalog.has_citus:
            raise ValueError(
                f"{self._place.shown} has no extension citus, so its tables cannot be distributed: leave out "
                "distributed=True, or install Citus and run CREATE EXTENSION citus"
            )
        if distributed and self._mode != "r" and self._running() is None:
            # Not in the transaction that stores the first row, which would not see the catalog any more.
            self._share()
        return Table(
            self,
            name,
            type=type,
            run_init=run_init,
            fast=fast,
            making=Making(distributed, queryable, distribute_by),
        )

    def tables(self) -> list[str]:
        """Return the names of all tables, in order."""
        return self._with_session(self._catalog.names)

    def _no_table(self, session: Session, name: str) -> KeyError:
        others = ", ".join(map(repr, self._catalog.names(session)))
        return KeyError(f"{session.place.shown} has no table {name!r}; it has {others or 'none'}")

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows. Raises `KeyError` if there is none."""
        self._check_writable()
        name = name_of(name, "name")

        def drop(session: Session) -> Layout:
            layout = self._catalog.drop(session, name)
            if layout is None:
                raise self._no_table(session, name)
            return layout

        layout = self._changing_tables(drop)
        self._tell(name, layout)
        running = self._running()
        if running is None:
            self._layouts.pop(layout.id, None)
            self._epoch += 1
        else:
            running.layouts[layout.id] = None

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name.

        Raises `KeyError` if there is none, and `ValueError` if the new name is taken.
        """
        self._check_writable()
        name, new_name = name_of(name, "name"), name_of(new_name, "new_name")
        check_name(new_name)

        def rename(session: Session) -> Layout:
            layout = self._catalog.named(session, name)
            if layout is None:
                raise self._no_table(session, name)
            if name != new_name and self._catalog.named(session, new_name) is not None:
                raise ValueError(f"table {new_name!r} exists already; drop it first, or choose another name")
            return self._catalog.rename(session, layout, new_name)

        try:
            layout = self._keep(self._changing_tables(rename))
            self._tell(name, layout)
        except DatabaseError as error:
            if errors.sqlstate(error.__cause__) == "23505":
                raise ValueError(
                    f"table {new_name!r} exists already; drop it first, or choose another name"
                ) from error
            raise

    def _tell(self, name: str, layout: Layout) -> None:
        """Tell the handles that wait for a table of this name which it was."""
        self._names_changed += 1
        self._epoch += 1
        for table in list(self._pending.values()):
            if table.name == name and table._found is None:
                table._stand_for(layout)

    def _changing_tables(self, work: Callable[[Session], T]) -> T:
        """Run `work` in the transaction that runs, or in one of its own."""
        running = self._running()
        if running is None:
            with self.transaction():
                return self._changing_tables(work)
        running.has_changed_tables = True
        try:
            return work(running.ready())
        except Lost as lost:
            raise running.lost(lost) from lost.args[0]

    def _keep(self, layout: Layout) -> Layout:
        running = self._running()
        if running is not None and running.has_changed_tables:
            running.layouts[layout.id] = layout
        elif self._layouts.get(layout.id) != layout:
            self._layouts[layout.id] = layout
            self._epoch += 1
        return layout

    def _layout_named(self, name: str) -> Layout | None:
        """Return the layout of the table with this name as the caller sees it now."""
        layout = self._with_session(lambda session: self._catalog.named(session, name))
        return self._keep(layout) if layout is not None else None

    def _layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, as it was read last; None if it was dropped."""
        running = self._running()
        if running is not None and number in running.layouts:
            return running.layouts[number]
        known = self._layouts.get(number)
        return known if known is not None else self._layout_anew(number)

    def _known_layout(self, number: int) -> Layout | None:
        running = self._running()
        if running is not None and number in running.layouts:
            return running.layouts[number]
        return self._layouts.get(number)

    def _forget_layout(self, number: int) -> None:
        self._layouts.pop(number, None)
        self._epoch += 1

    def _note_layout(self, layout: Layout) -> None:
        running = self._running()
        if running is not None:
            running.layouts[layout.id] = layout
            running.has_changed_tables = True
        else:
            self._layouts[layout.id] = layout
            self._epoch += 1

    def _layout_anew(self, number: int) -> Layout | None:
        layout = self._with_session(lambda session: self._catalog.numbered(session, number))
        if layout is None:
            self._layouts.pop(number, None)
            self._epoch += 1
            return None
        return self._keep(layout)

    def _create_table(self, name: str, making: Making) -> Layout:
        """Create a table in the transaction that runs, or in one of its own."""
        check_name(name)
        running = self._running()
        if making.is_distributed and running is None:
            self._share()
        elif making.is_distributed:
            self._check_shared()
        if running is None:
            layout = self._with_session(
                lambda session: self._catalog.create(session, name, making, is_alone=True)
            )
        else:
            layout = self._changing_tables(
                lambda session: self._catalog.create(session, name, making, is_alone=False)
            )
        return self._keep(layout)

    def _share(self) -> None:
        """Give the catalog to all servers of a cluster."""
        with self._connections.lent() as session:
            catalog.again(session, lambda: self._catalog.share(session))

    def _check_shared(self) -> None:
        """Raise if the catalog would have to be given to all servers, which a transaction keeps back."""
        with self._connections.lent() as session:
            if self._catalog.unshared(session):
                raise TransactionError(
                    "the first distributed table of a database cannot be made in a transaction: make it "
                    "before, with db.table(name, distributed=True)"
                )

    # Transactions

    def transaction(self) -> TransactionContext:
        """Return a transaction, as a context manager; inside of another one, it is a savepoint.

        It sees one state of the database (REPEATABLE READ), and what it writes itself. If another client
        changes a row that it writes, too, it raises `Busy`, and nothing is stored: `run` begins again then.
        """
        self._check_open()
        return TransactionContext(self)

    def run(self, function: Callable[[], T], /) -> T:
        """Call a function in a transaction, and again from its beginning where another client was in the way.

        Returns what the function returns. Raises `Busy` after 100 times, and what the function raises.
        """
        for attempt in range(RUN_ATTEMPTS):
            try:
                with self.transaction():
                    return function()
            except Busy as error:
                if (
                    self._running() is not None
                    or not errors.is_conflict(error)
                    or attempt == RUN_ATTEMPTS - 1
                ):
                    raise
            pool.pause(attempt)
        raise AssertionError

    def snapshot(self) -> Snapshot:
        """Return a view of the database as it is now; it has a connection until it is closed."""
        self._check_open()
        return Snapshot(self)

    def _running(self) -> Running | None:
        """Return the caller's transaction; None if it has none."""
        return self._owned.mine()

    def _gate(self) -> ServerGate:
        running = self._running()
        return self._open_gate if running is None else running.gate

    def _begin(self) -> Running:
        session = self._connections.take()
        try:
            session.script(transaction.BEGIN + self._begin_settings)
        except Lost as lost:
            self._connections.give(session)
            raise errors.of_lost(lost.args[0], self._place, was_sent=False) from lost.args[0]
        except BaseException:
            self._connections.give(session)
            raise
        running = Running(self, session)
        self._owned.add(running)
        return running

    def _commit(self, running: Running) -> None:
        try:
            transaction.commit(running, self)
        except BaseException:
            self._roll_back(running)
            raise
        running.is_committed = True
        self._leave(running)
        if running.layouts:
            self._epoch += 1
        for number, layout in running.layouts.items():
            if layout is None:
                self._layouts.pop(number, None)
            else:
                self._layouts[number] = layout

    def _roll_back(self, running: Running) -> None:
        try:
            running.session.roll_back()
        finally:
            self._leave(running)
            if running.has_changed_tables:
                self._names_changed += 1
                self._epoch += 1
            for gate in (gate for gates in running.gates for gate in gates):
                gate.take_back()

    def _abandon(self, running: Running) -> None:
        """Roll back a transaction that no code is left to end, wherever the collector has found that."""
        running.leave()
        if running.session.is_in_use and begun(lambda: self._roll_back(running)) is not None:
            return
        self._roll_back(running)

    def _leave(self, running: Running) -> None:
        running.has_ended = True
        running.backlog.clear()
        running.leave()
        self._connections.give(running.session)

    # Statements

    def _with_session(self, work: Callable[[Session], T]) -> T:
        """Run work that may be done twice, over the transaction's connection or another one."""
        self._check_open()
        running = self._running()
        if running is not None:
            try:
                return work(running.ready())
            except Lost as lost:
                raise running.lost(lost) from lost.args[0]
        for attempt in range(2):
            with self._connections.lent() as session:
                try:
                    return work(session)
                except Lost as lost:
                    if attempt:
                        raise errors.of_lost(lost.args[0], self._place, was_sent=False) from lost.args[0]
        raise AssertionError

    def _read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement that reads, and learn the shapes that its rows need elsewhere."""
        self._check_open()
        running = self._running()
        if running is not None:
            return running.rows(statement, parameters)
        for attempt in range(2):
            session = self._connections.take()
            try:
                return session.rows(statement, parameters)
            except Lost as lost:
                if attempt:
                    raise errors.of_lost(lost.args[0], self._place, was_sent=False) from lost.args[0]
            finally:
                self._connections.give(session)
        raise AssertionError

    def _write(self, statements: list[tuple[bytes, Parameters]]) -> list[Rows]:
        """Run statements that write, in the caller's transaction or in one of their own."""
        self._check_open()
        running = self._running()
        if running is not None:
            if len(statements) == 1:
                return [running.rows(*statements[0])]
            return running.batch(statements)
        session = self._connections.take()
        try:
            if len(statements) == 1:
                return [session.rows(*statements[0])]
            return session.batch(statements)
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self._place, was_sent=True) from lost.args[0]
        finally:
            self._connections.give(session)

    def _learn_up_to(self, count: int) -> None:
        """Learn the shapes of other clients, if there are `count` of them."""
        if count <= self._codec.shape_count:
            return
        running = self._running()
        with self._connections.beside(running) as session:
            self._shapes.learn(session)
        is_beside = running is None or session is not running.session
        if self._catalog.has_citus and not is_beside and count > self._codec.shape_count:
            # It sees a newer row of another server, and not its shapes.
            raise Busy(errors.CONFLICT)

    def _admit(self, shapes: list[bytes]) -> list[int] | None:
        return self._shapes.admit(self._connections, shapes)

    def _next_ints(self, layout: Layout, least: int, wanted: int, needed: int) -> tuple[int, int] | None:
        """Take numbers for rows; return the first one, and how many there are.

        They are taken in a transaction of its own, where the table is there for all and a connection is free.
        Else they go with the caller's transaction, so that no more are taken than are needed.
        """
        running = self._running()
        take = self._catalog.next_ints
        with self._connections.beside(running) as session:
            is_own = running is None or session is not running.session
            count = wanted if is_own else needed
            first = take(session, layout, big_int(least), big_int(count))
        if first is None and running is not None and is_own:
            first, count = take(running.ready(), layout, big_int(least), big_int(needed)), needed
        return None if first is None else (first, count)

    # Care

    def watch(self, *, since: int | None = None, timeout: float | None = None) -> Any:
        """Return the changes of all tables, in order; see the guide for what differs from a file.

        Raises `HistoryGone` if those since a version are not kept any more.
        """
        from pellucid.postgres.query.watch import Watch

        self._check_open()
        return Watch(self, since=since, timeout=timeout)

    def stats(self, *, pickles: bool = False) -> dict[str, int]:
        """Return figures of the database, with the keys that a file's have; those of a file alone are 0."""
        self._check_open()
        return maintenance.stats(self, pickles=pickles)

    def backup(self, _path: Any, **_options: Any) -> None:
        """Raise `TypeError`, which says how a server is backed up."""
        self._check_open()
        schema = self._place.schema
        raise TypeError(
            "backup() copies a file, and this database is on a server: pg_dump "
            f"--schema='\"{schema}\"' saves it as the server has it, and "
            "pellucid.copy(db, 'backup.pel') copies it to a file"
        )

    def check(self) -> list[str]:
        """Read all rows and return what is damaged; an empty list says that nothing is."""
        return maintenance.check(self)

    def compact(self, *, online: bool = True) -> None:
        """Free the room of old rows (VACUUM), and of large values that no row has any more.

        Others read and write meanwhile. `online=False` is refused: VACUUM FULL is for the server's owner.
        Raises `TransactionError` inside a transaction.
        """
        if not online:
            raise ValueError(
                "online=False is about files: a server is compacted while it is in use; VACUUM FULL in psql "
                "rewrites its tables"
            )
        self._check_writable()
        maintenance.compact(self)

    def sync(self) -> None:
        """Do nothing: the server has made each commit as lasting as it is set to (`synchronous_commit`)."""
        self._check_open()


def milliseconds_of(timeout: float) -> int:
    """Return a timeout as the server has it; 0 would mean that locks are waited for without end."""
    return max(1, min(int(timeout * 1000), 2**31 - 1))


def settings_within(place: Place, durability: str, timeout: float, has_citus: bool) -> bytes:
    """Return what follows the BEGIN of a transaction: settings that do not outlive it."""
    settings = []
    if has_citus:
        # Settings reach the other servers only if this is set.
        settings.append("SET LOCAL citus.propagate_set_commands = 'local'")
    if has_citus or not place.prepares:
        settings.append(f"SET LOCAL lock_timeout = {milliseconds_of(timeout)}")
    if (has_citus or not place.prepares) and durability == "full":
        settings.append("SET LOCAL synchronous_commit = on")
    return "".join(f";{setting}" for setting in settings).encode()


def setup_of(place: Place, mode: str, durability: str, timeout: float) -> bytes:
    """Return the settings of each connection; none behind a pooler, where other clients would have them."""
    if not place.prepares:
        return b""
    milliseconds = milliseconds_of(timeout)
    settings = [
        f"SET lock_timeout = {milliseconds}",
        "SET client_min_messages = error",
        "SET bytea_output = 'hex'",
    ]
    if mode == "r":
        settings.append("SET default_transaction_read_only = on")
    if durability == "full":
        settings.append("SET synchronous_commit = on")
    return ";".join(settings).encode()


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


def connect(
    target: str,
    mode: str = "c",
    *,
    durability: str = "process",
    pickle: Any = None,
    timeout: float = 10.0,
    untrusted: bool = False,
    keep: Any = None,
    memory: Any = None,
    auto_compact: bool = True,
) -> Database:
    """Open the database at a URL: what `pellucid.open` does for one that begins with "postgresql://"."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is unknown; use 'r', 'w', 'c' or 'n'")
    if durability not in ("process", "full"):
        raise ValueError(f"durability={durability!r} is unknown; use 'process' or 'full'")
    if untrusted:
        raise ValueError("untrusted=True is about files; of a server, each record is checked as it is read")
    if keep is not None:
        raise ValueError("keep= is about files")
    if memory is not None:
        raise ValueError("memory= is about files: a server has no log here; leave it out")
    if not auto_compact:
        raise ValueError("auto_compact= is about files: a server has no file of its own here; leave it out")
    if not timeout >= 0:
        raise ValueError(f"timeout={timeout} is no number of seconds from 0 on")
    return Database(parse(target, timeout), mode, durability=durability, pickle=pickle, timeout=timeout)
