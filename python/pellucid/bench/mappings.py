"""How does each rival play a dict of str to str that lies on disk?

A player opens at a path and says, as lines of Python, how a program puts `v` under `k` and gets it back. The
lines are compiled into the same loop for everybody. Each also says what a single put survives, since a
fast put that a crash takes back is another thing than a slow one that it does not.
"""

from __future__ import annotations

import contextlib
import shelve
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pellucid
from pellucid.bench.rivals import Rivals

Names = dict[str, Any]
Survives = Literal["nothing", "kill -9", "power loss"]


@dataclass(frozen=True, slots=True)
class Session:
    """An open rival."""

    names: Names
    """What the put line needs."""
    finish: Callable[[], Names]
    """Complete the writes (commit, build the index) and return what the get line needs."""
    close: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Player:
    """One rival in one way of use."""

    name: str
    open: Callable[[Path], Session]
    put: str
    get: str
    survives: Survives
    """What a put survives as soon as it has returned."""
    is_ours: bool = False
    puts_blocks: bool = False
    """The put line takes a `block` of (key, value) pairs, not one."""


def players(rivals: Rivals) -> list[Player]:
    """Everybody who is installed, ours first."""
    found = [*_ours(), Player("dict, in memory", _open_dict, "d[k] = v", "d[k]", "nothing")]
    found += _dbm(rivals)
    rivals.find("sqlite3")
    found += _sqlite()
    if lmdb := rivals.find("lmdb"):
        found += _lmdb(lmdb)
    if rocksdict := rivals.find("rocksdict"):
        found.append(
            Player(
                "rocksdict", lambda path: _mapping(rocksdict.Rdict(str(path))), "d[k] = v", "d[k]", "kill -9"
            )
        )
    if diskcache := rivals.find("diskcache"):
        # Its default limit would evict; the other databases keep what they are given.
        found.append(
            Player(
                "diskcache",
                lambda path: _mapping(diskcache.Cache(str(path), size_limit=1 << 40)),
                "d[k] = v",
                "d[k]",
                "kill -9",
            )
        )
    if sqlitedict := rivals.find("sqlitedict"):
        found += _sqlitedict(sqlitedict)
    return found


def _mapping(mapping: Any, finish: Callable[[], object] = lambda: None) -> Session:
    """Something that is used as `d[k] = v` throughout."""

    def done() -> Names:
        finish()
        return {"d": mapping}

    return Session({"d": mapping}, done, mapping.close)


def _open_dict(_path: Path) -> Session:
    mapping: dict[str, str] = {}
    return Session({"d": mapping}, lambda: {"d": mapping}, mapping.clear)


def _ours() -> list[Player]:
    return [
        Player("pellucid", _open_ours, "table[k] = v", "table[k]", "power loss", is_ours=True),
        Player(
            "pellucid, one transaction",
            _open_ours_in_transaction,
            "table[k] = v",
            "table[k]",
            "nothing",
            is_ours=True,
        ),
        Player(
            "pellucid, update()",
            _open_ours,
            "table.update(block)",
            "table[k]",
            "power loss",
            is_ours=True,
            puts_blocks=True,
        ),
        Player(
            "pellucid, in memory", _open_ours_in_memory, "table[k] = v", "table[k]", "nothing", is_ours=True
        ),
    ]


def _ours_at(target: Path | str) -> tuple[pellucid.Database, Names]:
    database = pellucid.open(target)
    return database, {"table": database.table("words")}


def _open_ours(path: Path) -> Session:
    database, names = _ours_at(path)
    return Session(names, lambda: names, database.close)


def _open_ours_in_memory(_path: Path) -> Session:
    database, names = _ours_at(":memory:")
    return Session(names, lambda: names, database.close)


def _open_ours_in_transaction(path: Path) -> Session:
    database, names = _ours_at(path)
    transaction = contextlib.ExitStack()
    transaction.enter_context(database.transaction())

    def finish() -> Names:
        transaction.close()
        return names

    return Session(names, finish, database.close)


def _dbm(rivals: Rivals) -> list[Player]:
    found = []
    kinds: list[tuple[str, Survives]] = [("dbm.gnu", "kill -9"), ("dbm.sqlite3", "power loss")]
    for name, survives in kinds:
        if module := rivals.find(name):
            found.append(Player(name, _opener(module), "d[k] = v", "d[k].decode()", survives))
    rivals.find("shelve")
    import dbm

    # Which dbm shelve uses depends on the build of Python, and with it what a put survives.
    backend = getattr(dbm, "_defaultmod", None) or _first_dbm(rivals)
    backend_name = getattr(backend, "__name__", "dbm")
    shelved: Survives = "nothing" if backend_name == "dbm.dumb" else dict(kinds).get(backend_name, "nothing")
    player = Player(f"shelve on {backend_name}", _open_shelf, "d[k] = v", "d[k]", shelved)
    return [*found, player]


def _open_shelf(path: Path) -> Session:
    # It reads only what this run has written, and its session closes it.
    return _mapping(shelve.open(str(path), "n"))


def _first_dbm(rivals: Rivals) -> ModuleType | None:
    """The module that `dbm.open` takes for a new file."""
    import dbm

    names = getattr(dbm, "_names", ["dbm.gnu", "dbm.ndbm", "dbm.dumb"])
    return next((module for name in names if (module := rivals.find(name)) is not None), None)


def _opener(module: ModuleType) -> Callable[[Path], Session]:
    return lambda path: _mapping(module.open(str(path), "n"))


@dataclass(frozen=True, slots=True)
class _Sqlite:
    """One way to write a key and a value with SQLite; the names say what is settable."""

    name: str
    in_file: bool = True
    wal: bool = False
    index_first: bool = True
    one_transaction: bool = True
    executemany: bool = False

    def open(self, path: Path) -> Session:
        connection = sqlite3.connect(path if self.in_file else ":memory:", isolation_level=None)
        if self.wal:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"CREATE TABLE words (k TEXT {'PRIMARY KEY' if self.index_first else ''}, v TEXT)")
        if self.one_transaction:
            connection.execute("BEGIN")

        def finish() -> Names:
            if not self.index_first:
                connection.execute("CREATE UNIQUE INDEX by_k ON words (k)")
            if self.one_transaction:
                connection.execute("COMMIT")
            return {"execute": connection.execute}

        names = {"execute": connection.execute, "executemany": connection.executemany}
        return Session(names, finish, connection.close)

    @property
    def player(self) -> Player:
        survives: Survives = "nothing"
        if self.in_file and not self.one_transaction:
            survives = "kill -9" if self.wal else "power loss"
        one = "execute('INSERT INTO words VALUES (?, ?)', (k, v))"
        many = "executemany('INSERT INTO words VALUES (?, ?)', block)"
        return Player(
            f"sqlite3, {self.name}",
            self.open,
            many if self.executemany else one,
            "execute('SELECT v FROM words WHERE k = ?', (k,)).fetchone()[0]",
            survives,
            puts_blocks=self.executemany,
        )


def _sqlite() -> list[Player]:
    ways = [
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
    return [way.player for way in ways]


def _lmdb(lmdb: ModuleType) -> list[Player]:
    def open_each(path: Path, *, sync: bool) -> Session:
        environment = lmdb.open(str(path), map_size=1 << 40, subdir=False, sync=sync)
        return Session({"begin": environment.begin}, lambda: {"begin": environment.begin}, environment.close)

    def open_one(path: Path) -> Session:
        environment = lmdb.open(str(path), map_size=1 << 40, subdir=False)
        writer = environment.begin(write=True)

        def finish() -> Names:
            writer.commit()
            return {"get": environment.begin().get}

        return Session({"put": writer.put}, finish, environment.close)

    put = "with begin(write=True) as txn: txn.put(k.encode(), v.encode())"
    get = "begin().get(k.encode()).decode()"
    return [
        Player(
            "lmdb, a transaction for each", lambda path: open_each(path, sync=True), put, get, "power loss"
        ),
        Player(
            "lmdb, a transaction for each, sync off",
            lambda path: open_each(path, sync=False),
            put,
            get,
            "kill -9",
        ),
        Player(
            "lmdb, one transaction",
            open_one,
            "put(k.encode(), v.encode())",
            "get(k.encode()).decode()",
            "nothing",
        ),
    ]


def _sqlitedict(sqlitedict: ModuleType) -> list[Player]:
    def open_it(path: Path, *, autocommit: bool) -> Session:
        # Its puts go to a thread through a queue; commit() waits for it.
        mapping = sqlitedict.SqliteDict(str(path), autocommit=autocommit)
        return _mapping(mapping, mapping.commit)

    return [
        Player(
            "sqlitedict, autocommit",
            lambda path: open_it(path, autocommit=True),
            "d[k] = v",
            "d[k]",
            "nothing",
        ),
        Player(
            "sqlitedict, one commit",
            lambda path: open_it(path, autocommit=False),
            "d[k] = v",
            "d[k]",
            "nothing",
        ),
    ]
