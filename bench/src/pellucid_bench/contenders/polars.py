"""This module uses polars."""

# ruff: noqa: D102 (the docstrings of the methods are at `Queried`)

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pellucid_bench.contenders.queries import ABOVE, FROM, PREFIX, TOP, Groups, cut
from pellucid_bench.contenders.stores import json_text
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Record


class Frame:
    """A polars DataFrame in memory, with the same columns."""

    is_ours = False

    def __init__(self, polars: Any, name: str, dumps: Callable[[object], str]) -> None:
        self._polars, self.name, self._dumps = polars, name, dumps
        self.frame: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        names = ["k", "name", "age", "amt", "end", "nested", "rest"]
        columns = zip(*cut(records, self._dumps), strict=True)
        self.frame = self._polars.DataFrame(dict(zip(names, columns, strict=True)))

    def _column(self, name: str) -> Any:
        return self._polars.col(name)

    def count_above(self) -> int:
        found: int = self.frame.select((self._column("age") > ABOVE).sum()).item()
        return found

    def count_prefix(self) -> int:
        found: int = self.frame.select(self._column("nested").str.starts_with(PREFIX).sum()).item()
        return found

    def groups(self) -> Groups:
        sums = self._column("amt").sum(), self._column("age").mean()
        found: Groups = self.frame.group_by("end").agg(*sums).sort("end").rows()
        return found

    def top(self) -> list[float]:
        found: list[float] = self.frame.top_k(TOP, by="amt").sort("amt", descending=True)["amt"].to_list()
        return found

    def add_matches(self) -> float:
        total = 0.0
        found = self.frame.lazy().filter(self._column("age") >= FROM).select("amt").collect()
        for amt in found["amt"].to_list():
            total += amt
        return total

    def ages(self) -> list[int]:
        found: list[int] = self.frame["age"].to_list()
        return found

    def grow_older(self) -> None:
        self.frame = self.frame.with_columns(self._column("age") + 1)

    def remove(self) -> None:
        self.frame = None


def queried(rivals: Rivals, _directory: Path) -> list[Frame]:
    """Return a frame in memory."""
    found = polars_of(rivals)
    return [Frame(*found, json_text(rivals))] if found else []


def polars_of(rivals: Rivals) -> tuple[ModuleType, str] | None:
    """Import polars on one thread. Return it, and its name in the measures.

    polars reads the number of threads from the environment once. If it was imported before, it may have more
    threads. Its name then says how many.
    """
    variable = "POLARS_MAX_THREADS"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        polars = rivals.find("polars")
        count = polars.thread_pool_size() if polars else 0
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
    name = "polars, in memory"
    return (polars, name if count == 1 else f"{name}, {count} threads") if polars else None
