"""This module stores small rows under int keys in each library, with one commit for each write.

A writer opens a file, which other processes may also have open. It gives the lines of Python that a program
would write. The same loops run the lines of all writers. If a library stores JSON, orjson encodes it.
"""

from __future__ import annotations

import itertools
import sqlite3
import struct
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pellucid

from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import compiled

Names = dict[str, Any]
Row = dict[str, Any]

SCANNED = 100
"""Rows of one scan."""
TIMEOUT = 60.0
"""Seconds that a writer waits for others. A writer that gives up has no rate."""


def row(number: int, age: int | None = None) -> Row:
    """Make the small row with this number."""
    return {"name": f"user {number:07}", "age": number % 90 if age is None else age}


@dataclass(frozen=True, slots=True)
class Opened:
    """A library that has a file open."""

    names: Callable[[], Names]
    """Names for the lines, in the calling thread."""
    fill: Callable[[Iterable[Row]], object]
    """Store the rows under 0, 1, 2 ... in bulk, and finish all pending writes."""
    settle: Callable[[], object]
    """Write all pending commits to their final place."""
    close: Callable[[], object]
    stats: Callable[[], dict[str, int]] = dict
    """The figures of our `stats()`."""


class Open(Protocol):
    """Open or create the file. With `full`, a commit is on the disk before it returns."""

    def __call__(self, path: Path, *, full: bool = False) -> Opened:
        """Open it."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One library, as lines of Python."""

    name: str
    module: str
    """The module that a process imports to open it."""
    open: Open
    put: str
    """Put `v` under `k`."""
    age: str
    """An expression: the age of row `k`."""
    scan: str
    """Add the ages of the rows from `k` on, up to `k + 100`, to `total`."""
    change: str
    """Add 1 to the age of row `k`."""
    transaction: str
    """Put all (k, v) of `pairs`, or none."""
    loop: str
    """Add the ages of all rows to `total`."""
    sum: str = ""
    """An expression: the same sum by the library's own function."""
    is_ours: bool = False
    is_shared: bool = True
    """Whether several processes may have the file open."""


def writers(rivals: Rivals) -> list[Writer]:
    """Return all writers whose libraries are installed, ours first."""
    found = [OURS, SQLITE]
    rivals.find("sqlite3")
    if modules := rivals.found(lmdb="lmdb", orjson="orjson"):
        found.append(_lmdb(**modules))
    if modules := rivals.found(plyvel="plyvel", orjson="orjson"):
        found.append(_plyvel(**modules))
    return found


def repeated(head: str, line: str, names: Names, parameters: str = "") -> Callable[..., Any]:
    """Compile `line` under `head` into a function that returns `total`."""
    known = "".join(f", {name}=_names[{name!r}]" for name in names)
    body = textwrap.indent(line, "  ")
    given = f"{parameters}{known}".removeprefix(", ")
    return compiled(f"def work({given}):\n total = 0\n {head}\n{body}\n return total\n", names)


def _open_ours(path: Path, *, full: bool = False) -> Opened:
    database = pellucid.open(path, durability="full" if full else "process", timeout=TIMEOUT)
    table = database.table("people")
    names = {"table": table, "transaction": database.transaction}

    def fill(rows: Iterable[Row]) -> None:
        table.extend(rows)
        database.sync()

    return Opened(lambda: names, fill, database.sync, database.close, database.stats)


OURS = Writer(
    "pellucid",
    "pellucid",
    _open_ours,
    put="table[k] = v",
    age="table[k].age",
    scan="for found in table.range(k, k + 100): total += found.age",
    change="table[k].age += 1",
    transaction="with transaction():\n for k, v in pairs: table[k] = v",
    loop="for found in table.values(): total += found.age",
    sum="table.sum('age')",
    is_ours=True,
)


def _open_sqlite(path: Path, *, full: bool = False) -> Opened:
    connections: list[sqlite3.Connection] = []

    def names() -> Names:
        connection = sqlite3.connect(path, isolation_level=None, timeout=TIMEOUT, check_same_thread=False)
        connections.append(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        return {"execute": connection.execute, "executemany": connection.executemany}

    execute, executemany = names().values()
    execute("CREATE TABLE IF NOT EXISTS people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")

    def fill(rows: Iterable[Row]) -> None:
        execute("BEGIN")
        values = ((number, one["name"], one["age"]) for number, one in enumerate(rows))
        executemany("REPLACE INTO people VALUES (?, ?, ?)", values)
        execute("COMMIT")
        settle()

    def settle() -> None:
        execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close() -> None:
        for connection in connections:
            connection.close()

    return Opened(names, fill, settle, close)


_SQLITE_PUT = "execute('REPLACE INTO people VALUES (?, ?, ?)', (k, v['name'], v['age']))"
SQLITE = Writer(
    "sqlite3, WAL",
    "sqlite3",
    _open_sqlite,
    put=_SQLITE_PUT,
    age="execute('SELECT age FROM people WHERE id = ?', (k,)).fetchone()[0]",
    scan=(
        "for (age,) in execute('SELECT age FROM people WHERE id >= ? AND id < ?', (k, k + 100)):\n"
        " total += age"
    ),
    change="execute('UPDATE people SET age = age + 1 WHERE id = ?', (k,))",
    transaction=f"execute('BEGIN IMMEDIATE')\nfor k, v in pairs: {_SQLITE_PUT}\nexecute('COMMIT')",
    loop="for (age,) in execute('SELECT age FROM people'): total += age",
    sum="execute('SELECT sum(age) FROM people').fetchone()[0]",
)

# The keys are bytes. Big-endian bytes sort as the numbers do.
_PACK = struct.Struct(">Q").pack


def _lmdb(lmdb: ModuleType, orjson: ModuleType) -> Writer:
    one = "txn.put(pack(k), dumps(v))"
    begin, cursor = "with begin(write=True) as txn:\n", "with begin() as txn:\n cursor = txn.cursor()\n"
    each, add = "cursor.iternext(keys=False, values=True)", "total += loads(found)['age']"
    return Writer(
        "lmdb + orjson",
        "lmdb",
        partial(_open_lmdb, lmdb, orjson),
        put=f"{begin} {one}",
        age="loads(begin().get(pack(k)))['age']",
        scan=f"{cursor} cursor.set_range(pack(k))\n for found in islice({each}, 100): {add}",
        change=f"{begin} v = loads(txn.get(pack(k)))\n v['age'] += 1\n {one}",
        transaction=f"{begin} for k, v in pairs: {one}",
        loop=f"{cursor} for found in {each}: {add}",
    )


def _open_lmdb(lmdb: ModuleType, orjson: ModuleType, path: Path, *, full: bool = False) -> Opened:
    environment = lmdb.open(str(path), map_size=1 << 40, subdir=False, sync=full)
    names = {
        "begin": environment.begin,
        "dumps": orjson.dumps,
        "loads": orjson.loads,
        "pack": _PACK,
        "islice": itertools.islice,
    }

    def fill(rows: Iterable[Row]) -> None:
        with environment.begin(write=True) as txn:
            for number, one in enumerate(rows):
                txn.put(_PACK(number), orjson.dumps(one))
        settle()

    def settle() -> None:
        environment.sync(True)

    return Opened(lambda: names, fill, settle, environment.close)


def _plyvel(plyvel: ModuleType, orjson: ModuleType) -> Writer:
    each = "iterator(start=pack(k), stop=pack(k + 100), include_key=False)"
    return Writer(
        "plyvel + orjson",
        "plyvel",
        partial(_open_plyvel, plyvel, orjson),
        put="put(pack(k), dumps(v))",
        age="loads(get(pack(k)))['age']",
        scan=f"for found in {each}: total += loads(found)['age']",
        change="v = loads(get(pack(k)))\nv['age'] += 1\nput(pack(k), dumps(v))",
        transaction="with batch() as puts:\n for k, v in pairs: puts.put(pack(k), dumps(v))",
        loop="for found in iterator(include_key=False): total += loads(found)['age']",
        is_shared=False,
    )


def _open_plyvel(plyvel: ModuleType, orjson: ModuleType, path: Path, *, full: bool = False) -> Opened:
    database = plyvel.DB(str(path), create_if_missing=True)
    names = {
        "put": database.put,
        "get": database.get,
        "iterator": database.iterator,
        "batch": partial(database.write_batch, sync=full),
        "dumps": orjson.dumps,
        "loads": orjson.loads,
        "pack": _PACK,
    }

    def fill(rows: Iterable[Row]) -> None:
        with database.write_batch() as batch:
            for number, one in enumerate(rows):
                batch.put(_PACK(number), orjson.dumps(one))
        settle()

    def settle() -> None:
        database.compact_range()

    return Opened(lambda: names, fill, settle, database.close)
