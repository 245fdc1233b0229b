"""A database on a server: its tables, its transactions, and its maintenance."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from pellucid.postgres import maintenance
from pellucid.postgres.attempts import repeated
from pellucid.postgres.connection import DatabaseConnection
from pellucid.postgres.default_table import DefaultTable
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.layout import CreateOptions
from pellucid.postgres.schema.tables import DatabaseTables, check_name, name_of
from pellucid.postgres.snapshot import Snapshot, SnapshotConnection
from pellucid.postgres.table.table import Table
from pellucid.postgres.transaction import TransactionContext
from pellucid.postgres.url import Place, parse

T = TypeVar("T")
MODES = ("r", "w", "c", "n")
DEFAULT_TABLE = "default"


class Database(DefaultTable):
    """A database on a PostgreSQL server, with the verbs of `pellucid.Database`.

    It is a mapping over its table "default". Threads may share it: each has a connection of its own while it
    waits for the server, and a transaction belongs to the thread or task that began it.
    """

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
        self._connection = DatabaseConnection(place, mode, durability, pickle, timeout)
        self._identity = self._connection.identity
        self._tables = DatabaseTables(self._connection)
        # Their connections, which their tables need as well.
        self._snapshots: weakref.WeakValueDictionary[int, SnapshotConnection] = weakref.WeakValueDictionary()
        self._default = Table(self._connection, self._tables, DEFAULT_TABLE, stays_with_name=True)

    def __repr__(self) -> str:
        return self._connection.shown

    @property
    def path(self) -> None:
        """None: the database is not in a file of this machine."""
        return

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._connection.is_closed

    def __enter__(self) -> Database:
        self._connection.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. A transaction that runs is rolled back, and records raise `StaleRecord`."""

        def end_snapshots() -> None:
            for snapshot in list(self._snapshots.values()):
                snapshot.close()

        self._connection.close(end_snapshots)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a database on a server is not pickled, since its URL may have a password; open it in the "
            "other process"
        )

    # Tables

    def table(
        self,
        name: str,
        /,
        *,
        type: type | None = None,
        run_init: bool = False,
        fast: bool = False,
        validate: bool = False,
        ignore_extra: bool = False,
        renames: Any = None,
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
        connection = self._connection
        connection.check_open()
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
        citus.check_options(self._place, connection.catalog.has_citus, distributed, distribute_by)
        if distributed and not connection.is_read_only and connection.running() is None:
            # Not in the transaction that stores the first row, which would not see the catalog any more.
            self._tables.share()
        options = CreateOptions(distributed, queryable, distribute_by)
        return Table(
            connection,
            self._tables,
            name,
            options=options,
            type=type,
            run_init=run_init,
            fast=fast,
            validate=validate,
            ignore_extra=ignore_extra,
            renames=renames,
        )

    def tables(self) -> list[str]:
        """Return the names of all tables, in order."""
        return self._tables.names()

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows. Raises `KeyError` if there is none."""
        self._connection.check_writable()
        self._tables.drop(name_of(name, "name"))

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name.

        Raises `KeyError` if there is none, and `ValueError` if the new name is taken.
        """
        self._connection.check_writable()
        name, new_name = name_of(name, "name"), name_of(new_name, "new_name")
        check_name(new_name)
        self._tables.rename(name, new_name)

    # Transactions

    def transaction(self) -> TransactionContext:
        """Return a transaction, as a context manager; inside of another one, it is a savepoint.

        It sees one state of the database (REPEATABLE READ), and what it writes itself. If another client
        changes a row that it writes, too, it raises `Busy`, and nothing is stored: `run` begins again then.
        """
        return self._connection.transaction()

    def run(self, function: Callable[[], T], /) -> T:
        """Call a function in a transaction, and again from its beginning where another client was in the way.

        Returns what the function returns. Raises what the function raises, and `Busy` if it was not done
        within `timeout` seconds.
        """
        return repeated(self._connection, function)

    def snapshot(self) -> Snapshot:
        """Return a view of the database as it is now; it has a connection until it is closed."""
        self._connection.check_open()
        connection = SnapshotConnection(self._connection)
        self._snapshots[id(connection)] = connection
        return Snapshot(self, connection)

    # Maintenance

    def watch(self, *, since: int | None = None, timeout: float | None = None) -> Any:
        """Return the changes of all tables, in order; see the guide for what differs from a file.

        Raises `HistoryGone` if those since a version are not kept any more.
        """
        from pellucid.postgres.query.watch import Watch

        self._connection.check_open()

        def tables_of() -> Iterable[Any]:
            return map(self.table, self.tables())

        return Watch(self._connection, self._tables, since=since, timeout=timeout, tables_of=tables_of)

    def stats(self, *, pickles: bool = False) -> dict[str, int]:
        """Return figures of the database, with the keys that a file's have; those of a file alone are 0."""
        self._connection.check_open()
        return maintenance.stats(self._connection, self._tables, pickles=pickles)

    def backup(self, _path: Any, **_options: Any) -> None:
        """Raise `TypeError`, which says how a server is backed up."""
        self._connection.check_open()
        schema = self._place.schema
        raise TypeError(
            "backup() copies a file, and this database is on a server: pg_dump "
            f"--schema='\"{schema}\"' saves it as the server has it, and "
            "pellucid.copy(db, 'backup.pel') copies it to a file"
        )

    def check(self) -> list[str]:
        """Read all rows and return what is damaged; an empty list says that nothing is."""
        return maintenance.check(self._connection, self._tables)

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
        self._connection.check_writable()
        maintenance.compact(self._connection, self._tables)

    def sync(self) -> None:
        """Do nothing: the server has made each commit as lasting as it is set to (`synchronous_commit`)."""
        self._connection.check_open()


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
