"""This module uses each library as a dict of str to str on disk.

A player opens a path and gives two lines of Python: how a program puts `v` under `k`, and how it reads it.
The same loop runs the lines of all players. Each player also says what a single put survives, because a fast
put that a crash loses is not the same as a slow put that it does not lose.
"""

from __future__ import annotations

import contextlib
import shelve
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pellucid

from pellucid_bench.rivals import Rivals

Names = dict[str, Any]
Pair = tuple[str, str]
Survives = Literal["nothing", "kill -9", "power loss"]


@dataclass(frozen=True, slots=True)
class Session:
    """An open library."""

    names: Names
    """Names for the put line."""
    complete: Callable[[], object]
    """The call that must follow the last put: a commit, an index. Its time counts as writing."""
    reading: Callable[[], Names]
    """Names for the get line, when the writing is complete."""
    close: Callable[[], object]
    fill: Callable[[Iterable[Pair]], object] | None = None
    """Put the pairs that a stopped writer did not write, in bulk and not timed. So all contenders read from
    the same number of keys. None if bulk puts are as slow as single puts."""


@dataclass(frozen=True, slots=True)
class Player:
    """One library, used in one way."""

    name: str
    open: Callable[[Path], Session]
    put: str
    get: str
    survives: Survives
    """What a put survives when it returns."""
    is_ours: bool = False
    puts_blocks: bool = False
    """Whether the put line takes a `block` of (key, value) pairs instead of one pair."""
    in_memory: bool = False

    @property
    def like(self) -> str:
        """Return the name of our player with the same promise, with which this one is compared."""
        if self.in_memory:
            return "pellucid, in memory"
        if self.puts_blocks:
            return "pellucid, update()"
        ways = {"nothing": "pellucid, one transaction", "kill -9": "pellucid", "power loss": "pellucid, full"}
        return ways[self.survives]


def players(rivals: Rivals) -> list[Player]:
    """Return all players whose libraries are installed, ours first."""
    found = [*_ours(), Player("dict", _open_dict, "d[k] = v", "d[k]", "nothing", in_memory=True)]
    found += _dbm(rivals)
    rivals.find("sqlite3")
    found += [way.player for way in SQLITE_WAYS]
    if lmdb := rivals.find("lmdb"):
        found += _lmdb(lmdb)
    if rocksdict := rivals.find("rocksdict"):
        found.append(Player("rocksdict", partial(_open_rocks, rocksdict), "d[k] = v", "d[k]", "kill -9"))
    if plyvel := rivals.find("plyvel"):
        put, get = "put(k.encode(), v.encode())", "get(k.encode()).decode()"
        found.append(Player("plyvel", partial(_open_plyvel, plyvel), put, get, "kill -9"))
    if diskcache := rivals.find("diskcache"):
        found.append(Player("diskcache", partial(_open_cache, diskcache), "d[k] = v", "d[k]", "kill -9"))
    if sqlitedict := rivals.find("sqlitedict"):
        for name, autocommit in (("autocommit", True), ("one commit", False)):
            opened = partial(_open_sqlitedict, sqlitedict, autocommit=autocommit)
            found.append(Player(f"sqlitedict, {name}", opened, "d[k] = v", "d[k]", "nothing"))
    return found


def _mapping(mapping: Any, complete: Callable[[], object] = lambda: None, *, fills: bool = False) -> Session:
    """Make a session of an object that is used only as `d[k] = v` and `d[k]`."""

    def fill(pairs: Iterable[Pair]) -> None:
        for key, value in pairs:
            mapping[key] = value

    names = {"d": mapping}
    return Session(names, complete, lambda: names, mapping.close, fill if fills else None)


def _open_dict(_path: Path) -> Session:
    mapping: dict[str, str] = {}
    return Session({"d": mapping}, lambda: None, lambda: {"d": mapping}, mapping.clear, mapping.update)


def _ours() -> list[Player]:
    put, get = "table[k] = v", "table[k]"
    in_transaction = partial(_open_ours, in_transaction=True)
    in_memory = partial(_open_ours, in_memory=True)
    return [
        Player("pellucid", _open_ours, put, get, "kill -9", is_ours=True),
        Player("pellucid, full", partial(_open_ours, full=True), put, get, "power loss", is_ours=True),
        Player("pellucid, one transaction", in_transaction, put, get, "nothing", is_ours=True),
        Player(
            "pellucid, update()",
            _open_ours,
            "table.update(block)",
            get,
            "kill -9",
            is_ours=True,
            puts_blocks=True,
        ),
        Player("pellucid, in memory", in_memory, put, get, "nothing", is_ours=True, in_memory=True),
    ]


def _open_ours(
    path: Path, *, in_transaction: bool = False, in_memory: bool = False, full: bool = False
) -> Session:
    database = pellucid.open(":memory:" if in_memory else path, durability="full" if full else "process")
    transaction = contextlib.ExitStack()
    if in_transaction:
        transaction.enter_context(database.transaction())
    table = database.table("words")
    names = {"table": table}
    return Session(names, transaction.close, lambda: names, database.close, table.update)


def _dbm(rivals: Rivals) -> list[Player]:
    found = []
    kinds: list[tuple[str, Survives]] = [
        ("dbm.gnu", "kill -9"),
        ("dbm.sqlite3", "power loss"),
        ("dbm.ndbm", "nothing"),
        ("dbm.dumb", "nothing"),
    ]
    for name, survives in kinds:
        if module := rivals.find(name):
            opened = partial(_open_dbm, module, fills=name == "dbm.gnu")
            found.append(Player(name, opened, "d[k] = v", "d[k].decode()", survives))
    rivals.find("shelve")
    # The build of Python decides which dbm shelve uses, and so what a put survives.
    backend = _first_dbm(rivals)
    shelved = dict(kinds).get(backend, "nothing")
    return [*found, Player(f"shelve on {backend}", _open_shelf, "d[k] = v", "d[k]", shelved)]


def _first_dbm(rivals: Rivals) -> str:
    """Return the name of the module that `dbm.open` uses for a new file."""
    import dbm

    names: list[str] = getattr(dbm, "_names", ["dbm.gnu", "dbm.ndbm", "dbm.dumb"])
    return next((name for name in names if rivals.find(name) is not None), "dbm")


def _open_dbm(module: ModuleType, path: Path, *, fills: bool) -> Session:
    return _mapping(module.open(str(path), "n"), fills=fills)


def _open_shelf(path: Path) -> Session:
    # It reads only what this run has written, and its session closes it.
    return _mapping(shelve.open(str(path), "n"))


def _open_rocks(rocksdict: ModuleType, path: Path) -> Session:
    return _mapping(rocksdict.Rdict(str(path)), fills=True)


def _open_plyvel(plyvel: ModuleType, path: Path) -> Session:
    database = plyvel.DB(str(path), create_if_missing=True)

    def fill(pairs: Iterable[Pair]) -> None:
        with database.write_batch() as batch:
            for key, value in pairs:
                batch.put(key.encode(), value.encode())

    names = {"put": database.put, "get": database.get}
    return Session(names, lambda: None, lambda: names, database.close, fill)


def _open_cache(diskcache: ModuleType, path: Path) -> Session:
    # The default limit would evict values. The other databases keep all of them.
    return _mapping(diskcache.Cache(str(path), size_limit=1 << 40))


def _open_sqlitedict(sqlitedict: ModuleType, path: Path, *, autocommit: bool) -> Session:
    # Puts go to a thread through a queue; commit() waits for this thread.
    mapping = sqlitedict.SqliteDict(str(path), autocommit=autocommit)
    return _mapping(mapping, mapping.commit)


@dataclass(frozen=True, slots=True)
class _Sqlite:
    """One way to write a key and a value with SQLite. The names say which settings it has."""

    name: str
    in_file: bool = True
    wal: bool = False
    index_first: bool = True
    one_transaction: bool = True
    executemany: bool = False

    INSERT = "INSERT INTO words VALUES (?, ?)"

    def open(self, path: Path) -> Session:
        connection = sqlite3.connect(path if self.in_file else ":memory:", isolation_level=None)
        if self.wal:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"CREATE TABLE words (k TEXT {'PRIMARY KEY' if self.index_first else ''}, v TEXT)")
        if self.one_transaction:
            connection.execute("BEGIN")

        def complete() -> None:
            if not self.index_first:
                connection.execute("CREATE UNIQUE INDEX by_k ON words (k)")
            if self.one_transaction:
                connection.execute("COMMIT")

        def fill(pairs: Iterable[Pair]) -> None:
            connection.execute("BEGIN")
            connection.executemany(self.INSERT, pairs)
            connection.execute("COMMIT")
            # Otherwise closing, which is timed, would have to do this.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        names = {"execute": connection.execute, "executemany": connection.executemany}
        return Session(names, complete, lambda: {"execute": connection.execute}, connection.close, fill)

    @property
    def player(self) -> Player:
        survives: Survives = "nothing"
        if self.in_file and not self.one_transaction:
            survives = "kill -9" if self.wal else "power loss"
        one, many = f"execute({self.INSERT!r}, (k, v))", f"executemany({self.INSERT!r}, block)"
        return Player(
            f"sqlite3, {self.name}",
            self.open,
            many if self.executemany else one,
            "execute('SELECT v FROM words WHERE k = ?', (k,)).fetchone()[0]",
            survives,
            puts_blocks=self.executemany,
            in_memory=not self.in_file,
        )


SQLITE_WAYS = [
    _Sqlite("file, INSERT and commit", one_transaction=False),
    _Sqlite("file, WAL, INSERT and commit", wal=True, one_transaction=False),
    _Sqlite("file, INSERT, one transaction"),
    _Sqlite("file, INSERT, one transaction, index after", index_first=False),
    _Sqlite("file, executemany", executemany=True),
    _Sqlite("file, executemany, index after", executemany=True, index_first=False),
    _Sqlite("file, WAL, executemany", executemany=True, wal=True),
    _Sqlite("memory, INSERT", in_file=False),
    _Sqlite("memory, INSERT, index after", in_file=False, index_first=False),
    _Sqlite("memory, executemany", in_file=False, executemany=True),
    _Sqlite("memory, executemany, index after", in_file=False, executemany=True, index_first=False),
]


def _lmdb(lmdb: ModuleType) -> list[Player]:
    put = "with begin(write=True) as txn: txn.put(k.encode(), v.encode())"
    get = "begin().get(k.encode()).decode()"
    one_put, one_get = "put(k.encode(), v.encode())", "get(k.encode()).decode()"
    each, unsynced = partial(_open_lmdb, lmdb), partial(_open_lmdb, lmdb, sync=False)
    one = partial(_open_lmdb, lmdb, one_transaction=True)
    return [
        Player("lmdb, a transaction for each", each, put, get, "power loss"),
        Player("lmdb, a transaction for each, sync off", unsynced, put, get, "kill -9"),
        Player("lmdb, one transaction", one, one_put, one_get, "nothing"),
    ]


def _open_lmdb(lmdb: ModuleType, path: Path, *, sync: bool = True, one_transaction: bool = False) -> Session:
    environment = lmdb.open(str(path), map_size=1 << 40, subdir=False, sync=sync)

    def fill(pairs: Iterable[Pair]) -> None:
        with environment.begin(write=True) as txn:
            for key, value in pairs:
                txn.put(key.encode(), value.encode())

    if one_transaction:
        writer = environment.begin(write=True)
        names, complete = {"put": writer.put}, writer.commit
        return Session(names, complete, lambda: {"get": environment.begin().get}, environment.close, fill)
    names = {"begin": environment.begin}
    return Session(names, lambda: None, lambda: names, environment.close, fill)
