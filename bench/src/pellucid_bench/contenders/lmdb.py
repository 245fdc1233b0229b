"""This module uses LMDB. Where it stores records, it stores the JSON of orjson."""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`, `Queried` and `BigStore`)

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from pellucid_bench.contenders.big_stores import HEAD, BigStore, Row, packed
from pellucid_bench.contenders.dicts import Pair, Player, Session
from pellucid_bench.contenders.queries import InPython
from pellucid_bench.contenders.stores import InFile, Number
from pellucid_bench.contenders.writers import PACK, Opened, Writer
from pellucid_bench.contenders.writers import Row as SmallRow
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import loop
from pellucid_bench.sample_records import VARIED, Population, Record


def players(rivals: Rivals) -> list[Player]:
    """Return LMDB with a transaction for each put, synced or not, and with one for all."""
    lmdb = rivals.find("lmdb")
    if lmdb is None:
        return []
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


class LmdbJson(InPython, InFile):
    """LMDB with orjson in its values: the usual document store made by hand."""

    name = "lmdb + orjson"
    suffix = ".lmdb"

    def __init__(self, population: Population, directory: Path, lmdb: Any, orjson: Any) -> None:
        super().__init__(population, directory)
        self._lmdb, self._orjson = lmdb, orjson
        self._environment: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._environment = self._lmdb.open(str(self.path), map_size=1 << 40, subdir=False)
        dumps = self._orjson.dumps
        with self._environment.begin(write=True) as txn:
            for number, record in enumerate(records):
                txn.put(number.to_bytes(8, "big"), dumps(record), append=True)

    def loop_sum(self) -> Callable[[], Number]:
        names = {"environment": self._environment, "loads": self._orjson.loads}
        rows = "environment.begin().cursor().iternext(keys=False)"
        return loop("row", rows, f"loads(row){self.population.by_item}", names)

    def own_sum(self) -> None:
        return None

    def field_line(self) -> tuple[str, dict[str, Any]]:
        names = {"begin": self._environment.begin, "loads": self._orjson.loads}
        return f"loads(begin(buffers=True).get(key.to_bytes(8, 'big'))){self.population.by_item}", names

    def set_all(self, values: Iterable[Number]) -> None:
        loads, dumps = self._orjson.loads, self._orjson.dumps
        with self._environment.begin(write=True) as txn:
            cursor = txn.cursor()
            for value in values:
                if not cursor.next():
                    break
                record = loads(cursor.value())
                record["age"] = value
                txn.put(cursor.key(), dumps(record))

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None
            self.path.with_name(self.path.name + "-lock").unlink(missing_ok=True)

    def rows(self) -> Iterable[Record]:
        with self._environment.begin() as txn:
            yield from map(self._orjson.loads, txn.cursor().iternext(keys=False))

    def grow_older(self) -> None:
        loads, dumps = self._orjson.loads, self._orjson.dumps
        with self._environment.begin(write=True) as txn:
            cursor = txn.cursor()
            while cursor.next():
                row = loads(cursor.value())
                row["age"] += 1
                txn.put(cursor.key(), dumps(row))


def stores(rivals: Rivals, population: Population, directory: Path) -> list[LmdbJson]:
    """Return the document store made by hand."""
    modules = rivals.found(lmdb="lmdb", orjson="orjson")
    return [LmdbJson(population, directory, **modules)] if modules else []


def queried(rivals: Rivals, directory: Path) -> list[LmdbJson]:
    """Return the same, which answers questions in Python."""
    return stores(rivals, VARIED, directory)


def _writer(lmdb: ModuleType, orjson: ModuleType) -> Writer:
    one = "txn.put(pack(k), dumps(v))"
    begin, cursor = "with begin(write=True) as txn:\n", "with begin() as txn:\n cursor = txn.cursor()\n"
    each, add = "cursor.iternext(keys=False, values=True)", "total += loads(found)['age']"
    return Writer(
        "lmdb + orjson",
        "lmdb",
        partial(_open_shared, lmdb, orjson),
        put=f"{begin} {one}",
        age="loads(begin().get(pack(k)))['age']",
        scan=f"{cursor} cursor.set_range(pack(k))\n for found in islice({each}, 100): {add}",
        change=f"{begin} v = loads(txn.get(pack(k)))\n v['age'] += 1\n {one}",
        transaction=f"{begin} for k, v in pairs: {one}",
        loop=f"{cursor} for found in {each}: {add}",
    )


def _open_shared(lmdb: ModuleType, orjson: ModuleType, path: Path, *, full: bool = False) -> Opened:
    environment = lmdb.open(str(path), map_size=1 << 40, subdir=False, sync=full)
    names = {
        "begin": environment.begin,
        "dumps": orjson.dumps,
        "loads": orjson.loads,
        "pack": PACK,
        "islice": itertools.islice,
    }

    def fill(rows: Iterable[SmallRow]) -> None:
        with environment.begin(write=True) as txn:
            for number, one in enumerate(rows):
                txn.put(PACK(number), orjson.dumps(one))
        finish_writes()

    def finish_writes() -> None:
        environment.sync(True)

    return Opened(lambda: names, fill, finish_writes, environment.close)


def writers(rivals: Rivals) -> list[Writer]:
    """Return LMDB with a transaction for each write."""
    modules = rivals.found(lmdb="lmdb", orjson="orjson")
    return [_writer(**modules)] if modules else []


class BigLmdb(BigStore):
    """LMDB, with packed rows."""

    name = module = "lmdb"

    def __init__(self, folder: Path) -> None:
        import lmdb

        self.environment: Any = lmdb.open(str(folder), map_size=1 << 40, sync=False)

    def commit(self, rows: Iterable[Row]) -> None:
        with self.environment.begin(write=True) as txn:
            for row in rows:
                txn.put(row.key.encode(), packed(row))

    def putter(self) -> Callable[[Row], object]:
        begin = self.environment.begin

        def put(row: Row) -> None:
            with begin(write=True) as txn:
                txn.put(row.key.encode(), packed(row))

        return put

    def number_of(self, key: str) -> int:
        with self.environment.begin(buffers=True) as txn:
            number: int = HEAD.unpack_from(txn.get(key.encode()))[0]
        return number

    def delete(self, keys: Iterable[str]) -> None:
        with self.environment.begin(write=True) as txn:
            for key in keys:
                txn.delete(key.encode())

    def key_range(self, start: str, count: int) -> int:
        total = 0
        with self.environment.begin(buffers=True) as txn, txn.cursor() as cursor:
            cursor.set_range(start.encode())
            for value in islice(cursor.iternext(keys=False), count):
                total += HEAD.unpack_from(value)[1]
        return total

    def sum_ages(self) -> int:
        total = 0
        with self.environment.begin(buffers=True) as txn, txn.cursor() as cursor:
            for value in cursor.iternext(keys=False):
                total += HEAD.unpack_from(value)[1]
        return total

    def snapshot(self) -> AbstractContextManager[object]:
        transaction: AbstractContextManager[object] = self.environment.begin()
        return transaction

    def finish_writes(self) -> float:
        self.environment.sync(True)
        return 0.0

    def close(self) -> None:
        self.environment.close()
