"""How are records found by what is in them, without a look at the others?

Each question is asked twice: of a table without indexes, which it scans, and straight of an index.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F
from pellucid.demo.tour import TABLE, Timing

NAME_START = "dump"
DECORATOR = "contextlib.contextmanager"
ARGUMENTS_WIDE = 15
TIMES = 5
"""How often a question is asked; the quickest answer counts."""


@dataclass(slots=True)
class Lookup:
    """One question, by a scan and by an index."""

    query: str
    straight: str
    scan: float
    index: float
    """Seconds."""
    found: list[str]
    """Where the records stand."""


@dataclass(slots=True)
class Found:
    """What indexes are made of, what they cost, and what they gave."""

    made: list[tuple[str, Timing]]
    """How each is made, and how long that took."""
    bytes_each: float
    """Of the file, for an entry of an index."""
    lookups: list[Lookup]
    question: str
    explained: str
    refused: str
    """What the violation of a unique index says."""


def find(path: Path) -> Found:
    """Ask by a scan, make indexes, ask again, and try to store what a unique index refuses."""
    size = path.stat().st_size
    with pellucid.open(path, mode="w") as db:
        table = db.table(TABLE)
        scanned = [_quickest(scan) for _, _, scan, _ in _questions(table)]
        made = []
        for text, create in _indexes(table):
            made.append((text, Timing()))
            with made[-1][1].running(len(table)):
                create()
        entries = sum(index.entries for index in table.indexes())
    # What was written lies in the file itself once that is closed.
    bytes_each = (path.stat().st_size - size) / max(entries, 1)
    with pellucid.open(path, mode="w") as db:
        table = db.table(TABLE)
        lookups = []
        for (query, straight, _, by_index), (scan, expected) in zip(_questions(table), scanned, strict=True):
            seconds, places = _quickest(by_index)
            if places != expected:
                raise AssertionError(f"{query} finds {expected} by a scan, {places} by an index")
            lookups.append(Lookup(query, straight, scan, seconds, places))
        asked = table.where(F.name.startswith(NAME_START), F.kind == "method").order_by(F.size.desc())
        question = f'where(F.name.startswith("{NAME_START}"), F.kind == "method").order_by(F.size.desc())'
        return Found(made, bytes_each, lookups, question, asked.explain(analyze=True), _refused(table))


def _indexes(table: pellucid.Table) -> list[tuple[str, Callable[[], None]]]:
    """The indexes of the tour: how each is written, and what makes it."""
    create = table.create_index
    return [
        ('create_index("by_name", F.name)', lambda: create("by_name", F.name)),
        (
            'create_index("by_arguments", F.args.length())',
            lambda: create("by_arguments", F.args.length()),
        ),
        (
            'create_index("by_decorator", F.decorators.each())',
            lambda: create("by_decorator", F.decorators.each()),
        ),
        (
            'create_index("by_place", (F.module, F.lines.first))',
            lambda: create("by_place", (F.module, F.lines.first)),
        ),
    ]


Question = tuple[str, str, Callable[[], list[Any]], Callable[[], list[Any]]]


def _questions(table: pellucid.Table) -> list[Question]:
    """Each as a query, as it is asked of an index, and what asks so."""
    example = _example(table)
    module, line = example.module, example.lines.first
    return [
        (
            f'where(F.name.startswith("{NAME_START}"))',
            f'index("by_name").prefix("{NAME_START}")',
            lambda: table.where(F.name.startswith(NAME_START)).to_list(),
            lambda: list(table.index("by_name").prefix(NAME_START)),
        ),
        (
            f"where(F.args.length() >= {ARGUMENTS_WIDE})",
            f'index("by_arguments").range({ARGUMENTS_WIDE})',
            lambda: table.where(F.args.length() >= ARGUMENTS_WIDE).to_list(),
            lambda: list(table.index("by_arguments").range(ARGUMENTS_WIDE)),
        ),
        (
            f'where(F.decorators.each() == "{DECORATOR}")',
            f'index("by_decorator").get_all("{DECORATOR}")',
            lambda: table.where(F.decorators.each() == DECORATOR).to_list(),
            lambda: list(table.index("by_decorator").get_all(DECORATOR)),
        ),
        (
            f'where(F.module == "{module}", F.lines.first == {line})',
            f'index("by_place").get_all(("{module}", {line}))',
            lambda: table.where(F.module == module, F.lines.first == line).to_list(),
            lambda: list(table.index("by_place").get_all((module, line))),
        ),
    ]


def _quickest(ask: Callable[[], list[Any]]) -> tuple[float, list[str]]:
    """Seconds of the quickest of some times, and where what was found stands, in order."""
    best, rows = float("inf"), []
    for _ in range(TIMES):
        started = time.perf_counter()
        rows = ask()
        best = min(best, time.perf_counter() - started)
    return best, sorted(f"{row.module}.{row.name}:{row.lines.first}" for row in rows)


def _refused(table: pellucid.Table) -> str:
    """What is said to who stores a second record of one place."""
    try:
        # Where a library defines two on one line, this is refused already.
        table.create_index("one_place", (F.module, F.lines.first), unique=True)
        table["a copy"] = _example(table).to_dict()
    except pellucid.UniqueError as error:
        return str(error)
    finally:
        if any(index.name == "one_place" for index in table.indexes()):
            table.drop_index("one_place")
    raise AssertionError("a unique index has two records of one value")


def _example(table: pellucid.Table) -> Any:
    """A record that everybody knows, where it is there."""
    return next(iter(table.values(prefix=("json", "dumps"))), None) or next(iter(table.values()))
