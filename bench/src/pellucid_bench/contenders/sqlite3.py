"""This module uses SQLite through the module of the standard library."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pellucid_bench.contenders.dicts import Pair, Player, Session, Survives
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return the ways to write a table of keys and values."""
    rivals.find("sqlite3")
    return [way.player for way in SQLITE_WAYS]


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
