"""This module uses plain dicts in memory."""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`, `Queried` and `BigStore`)

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pellucid_bench.contenders.dicts import Player, Session
from pellucid_bench.contenders.queries import InPython
from pellucid_bench.contenders.stores import Number
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import loop
from pellucid_bench.sample_records import VARIED, Population, Record


def players(_rivals: Rivals) -> list[Player]:
    """Return a dict."""
    return [Player("dict", _open_dict, "d[k] = v", "d[k]", "nothing", in_memory=True)]


def _open_dict(_path: Path) -> Session:
    mapping: dict[str, str] = {}
    return Session({"d": mapping}, lambda: None, lambda: {"d": mapping}, mapping.clear, mapping.update)


class LiveDicts(InPython):
    """The yardstick: a list of dicts in memory. Nothing is stored, and nothing is decoded."""

    name = "list of live dicts"
    is_ours = False

    def __init__(self, population: Population) -> None:
        self.population = population
        self.records: Sequence[Record] = ()

    def fill(self, records: Sequence[Record]) -> None:
        self.records = records

    def loop_sum(self) -> Callable[[], Number]:
        return loop("row", "rows", f"row{self.population.by_item}", {"rows": self.records})

    def own_sum(self) -> None:
        return None

    def field_line(self) -> tuple[str, dict[str, Any]]:
        return f"rows[key]{self.population.by_item}", {"rows": self.records}

    def set_all(self, values: Iterable[Number]) -> None:
        for row, value in zip(self.records, values, strict=False):
            row["age"] = value

    def size(self) -> None:
        return None

    def close(self) -> None:
        self.records = ()

    remove = close

    def rows(self) -> Iterable[Record]:
        return self.records

    def grow_older(self) -> None:
        for row in self.records:
            row["age"] += 1


def stores(_rivals: Rivals, population: Population, _directory: Path) -> list[LiveDicts]:
    """Return dicts in a list."""
    return [LiveDicts(population)]


def queried(_rivals: Rivals, _directory: Path) -> list[LiveDicts]:
    """Return dicts in a list."""
    return [LiveDicts(VARIED)]
