"""This module uses RocksDB."""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`, `Queried` and `BigStore`)

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from pellucid_bench.contenders.big_stores import HEAD, BigStore, Row, packed
from pellucid_bench.contenders.dicts import Player, Session, of_mapping
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return RocksDB as a dict."""
    rocksdict = rivals.find("rocksdict")
    if rocksdict is None:
        return []
    return [Player("rocksdict", partial(_open_rocks, rocksdict), "d[k] = v", "d[k]", "kill -9")]


def _open_rocks(rocksdict: ModuleType, path: Path) -> Session:
    return of_mapping(rocksdict.Rdict(str(path)), fills=True)


class BigRocksDict(BigStore):
    """RocksDB, with packed rows, compressed as is its default."""

    name = module = "rocksdict"
    has_one_commit = False

    def __init__(self, folder: Path) -> None:
        import rocksdict

        self.library = rocksdict
        self.rows: Any = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))

    def commit(self, rows: Iterable[Row]) -> None:
        batch = self.library.WriteBatch(raw_mode=True)
        for row in rows:
            batch.put(row.key.encode(), packed(row))
        self.rows.write(batch)

    def putter(self) -> Callable[[Row], object]:
        rows = self.rows

        def put(row: Row) -> None:
            rows[row.key.encode()] = packed(row)

        return put

    def number_of(self, key: str) -> int:
        number: int = HEAD.unpack_from(self.rows[key.encode()])[0]
        return number

    def delete(self, keys: Iterable[str]) -> None:
        batch = self.library.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key.encode())
        self.rows.write(batch)

    def key_range(self, start: str, count: int) -> int:
        total = 0
        for value in islice(self.rows.values(from_key=start.encode()), count):
            total += HEAD.unpack_from(value)[1]
        return total

    def sum_ages(self) -> int:
        total = 0
        for value in self.rows.values():
            total += HEAD.unpack_from(value)[1]
        return total

    def snapshot(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext(self.rows.snapshot())

    def finish_writes(self) -> float:
        self.rows.flush()
        self.rows.flush_wal(sync=True)
        return 0.0

    def close(self) -> None:
        self.rows.close()
