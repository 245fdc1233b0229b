"""This module uses pellucid itself."""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`, `Queried` and `BigStore`)

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F

from pellucid_bench.contenders.big_stores import INDEXES, BigStore, Row
from pellucid_bench.contenders.dicts import Player, Session
from pellucid_bench.contenders.queries import ABOVE, FROM, PREFIX, TOP, Groups
from pellucid_bench.contenders.readers import Reader
from pellucid_bench.contenders.stores import InFile, Number
from pellucid_bench.contenders.writers import TIMEOUT, Names, Opened, Writer
from pellucid_bench.contenders.writers import Row as SmallRow
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import loop
from pellucid_bench.sample_records import VARIED, Population, Record

IDLE_SECONDS = 15.0
"""Seconds without a change, beside the time to read it, after which pellucid's file has its final size."""
READ_RATE = 200e6
"""Bytes a second."""
SMALL_FILE = 16 << 20
"""A file of less than this does not get shorter by itself."""


def players(_rivals: Rivals) -> list[Player]:
    """Return the ways to use a table as a dict."""
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


def readers(_rivals: Rivals, population: Population) -> list[Reader]:
    """Return the view of bytes."""
    return [
        Reader(
            "pellucid",
            pellucid.dumps,
            f"view(buf){population.by_attribute}",
            "view(buf).mydict.c.num",
            {"view": pellucid.view},
            is_ours=True,
        )
    ]


class Pellucid(InFile):
    """pellucid: one table, with rows under ascending int keys."""

    name = "pellucid"
    is_ours = True
    suffix = ".pel"

    def __init__(self, population: Population, directory: Path) -> None:
        super().__init__(population, directory)
        self._database: pellucid.Database | None = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._database = pellucid.open(self.path, mode="n")
        self.table.extend(records)

    @property
    def database(self) -> pellucid.Database:
        """Return the open database; open it again after a close."""
        if self._database is None:
            self._database = pellucid.open(self.path, mode="w")
        return self._database

    @property
    def table(self) -> pellucid.Table:
        """Return the table that holds the records."""
        return self.database.table("people")

    def loop_sum(self) -> Callable[[], Number]:
        return loop("row", "table.values()", f"row{self.population.by_attribute}", {"table": self.table})

    def own_sum(self) -> Callable[[], Number]:
        table = self.table
        return lambda: table.sum("age")

    def field_line(self) -> tuple[str, dict[str, Any]]:
        # `extend` numbers rows from the next key of the table on. Read the first key instead of guessing it.
        first = next(iter(self.table))
        table_key = "key" if first == 0 else f"key + {first}"
        return f"table[{table_key}]{self.population.by_attribute}", {"table": self.table}

    def set_all(self, values: Iterable[Number]) -> None:
        with self.database.transaction():
            for row, value in zip(self.table.values(), values, strict=False):
                row.age = value

    def set_all_by_key(self, values: Iterable[Number]) -> None:
        """Do the same, with each record looked up by its key."""
        table = self.table
        with self.database.transaction():
            for key, value in zip(table.keys(), values, strict=False):
                table[key].age = value

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def stores(_rivals: Rivals, population: Population, directory: Path) -> list[Pellucid]:
    """Return a table of records."""
    return [Pellucid(population, directory)]


class Ours(Pellucid):
    """pellucid. The file is opened again after it was filled, so nothing is pending in the log."""

    def fill(self, records: Sequence[Record]) -> None:
        super().fill(records)
        self.close()

    def count_above(self) -> int:
        return self.table.where(F.age > ABOVE).count()

    def count_prefix(self) -> int:
        return self.table.where(F.mydict.c.nested.startswith(PREFIX)).count()

    def groups(self) -> Groups:
        found = self.table.group_by("end").agg(total=F.amt.sum(), mean=F.age.mean())
        return [(group["end"], group["total"], group["mean"]) for group in found]

    def top(self) -> list[float]:
        return [row.amt for row in self.table.order_by(F.amt.desc()).limit(TOP)]

    def add_matches(self) -> float:
        total = 0.0
        for row in self.table.where(F.age >= FROM):
            total += row.amt
        return total

    def ages(self) -> list[int]:
        return self.table.column("age")

    def grow_older(self) -> None:
        self.table.where().update(age=F.age + 1)

    @contextlib.contextmanager
    def in_changed_transaction(self) -> Iterator[None]:
        """Open a transaction that changes a row and is dropped at the end. Its queries see the change."""
        with contextlib.suppress(_DroppedError), self.database.transaction():
            next(iter(self.table.values())).name = "Fred"
            yield
            raise _DroppedError


class _DroppedError(Exception):
    """Ends a transaction without a commit."""


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Run our queries on this number of threads."""
    pellucid.set_threads(count)
    try:
        yield
    finally:
        pellucid.set_threads(1)


def queried(_rivals: Rivals, directory: Path) -> list[Ours]:
    """Return a table of records that answers questions."""
    return [Ours(VARIED, directory)]


def _open_shared(path: Path, *, full: bool = False) -> Opened:
    database = pellucid.open(path, durability="full" if full else "process", timeout=TIMEOUT)
    table = database.table("people")
    names: Names = {"table": table, "transaction": database.transaction}

    def fill(rows: Iterable[SmallRow]) -> None:
        table.extend(rows)
        database.sync()

    return Opened(lambda: names, fill, database.sync, database.close, database.stats)


OURS = Writer(
    "pellucid",
    "pellucid",
    _open_shared,
    put="table[k] = v",
    age="table[k].age",
    scan="for found in table.range(k, k + 100): total += found.age",
    change="table[k].age += 1",
    transaction="with transaction():\n for k, v in pairs: table[k] = v",
    loop="for found in table.values(): total += found.age",
    sum="table.sum('age')",
    is_ours=True,
)


def writers(_rivals: Rivals) -> list[Writer]:
    """Return a table that several processes write to."""
    return [OURS]


class BigTable(BigStore):
    """pellucid: one table of dicts."""

    name = module = "pellucid"
    has_indexes = True

    def __init__(self, folder: Path) -> None:
        self.database = pellucid.open(folder / "rows.pel")
        self.table: Any = self.database.table("rows")

    def create_indexes(self, count: int) -> None:
        for field in INDEXES[:count]:
            self.table.create_index(field, field)

    def commit(self, rows: Iterable[Row]) -> None:
        self.table.update((row.key, _fields(row)) for row in rows)

    def putter(self) -> Callable[[Row], object]:
        table = self.table

        def put(row: Row) -> None:
            table[row.key] = _fields(row)

        return put

    def number_of(self, key: str) -> int:
        number: int = self.table[key].number
        return number

    def delete(self, keys: Iterable[str]) -> None:
        with self.database.transaction():
            for key in keys:
                del self.table[key]

    def key_range(self, start: str, count: int) -> int:
        total = 0
        for row in islice(self.table.range(start, None), count):
            total += row.age
        return total

    def sum_ages(self) -> int:
        total: int = self.table.sum("age")
        return total

    def by_index(self, number: int) -> str:
        text: str = self.table.index("number").get(number).text
        return text

    def index_range(self, start: int, stop: int) -> int:
        total = 0
        for row in self.table.index("number").range(start, stop):
            total += row.age
        return total

    def snapshot(self) -> AbstractContextManager[object]:
        return self.database.snapshot()

    def live_size(self, count: int) -> int:
        stats: dict[str, int] = self.table.stats()
        # Of a compressed table, what it would be without.
        return (stats["key_size"] + stats["plain_size"]) // stats["rows"] * count

    def finish_writes(self) -> float:
        self.database.sync()
        # At rest, the file gets shorter by itself.
        sizes, since = None, time.monotonic()
        while True:
            stats = self.database.stats()
            found = (stats["file_size"], stats["free_size"], stats["log_size"])
            if found != sizes:
                sizes, since = found, time.monotonic()
            waited = time.monotonic() - since
            # All of a large tree is read before the first of its pages moves.
            if waited >= IDLE_SECONDS + stats["file_size"] / READ_RATE or stats["file_size"] < SMALL_FILE:
                return waited
            time.sleep(0.1)

    def close(self) -> None:
        self.database.close()


class CompressedBigTable(BigTable):
    """pellucid: the same in a compressed table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table = self.database.table("rows", compress=True)


def _fields(row: Row) -> dict[str, Any]:
    return {"number": row.number, "town": row.town, "age": row.age, "text": row.text}
