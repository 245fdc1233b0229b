"""This module finds records by their content, first by a scan and then by an index.

It asks each question twice: of a table without indexes, and directly of an index.
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
"""How often each question is asked. The fastest time counts."""


@dataclass(slots=True)
class Lookup:
    """The result of one question, by a scan and by an index."""

    query: str
    straight: str
    scan: float
    index: float
    """Seconds."""
    found: list[str]
    """The places of the records in the source."""


@dataclass(slots=True)
class Found:
    """The definitions of the indexes, their costs, and their results."""

    made: list[tuple[str, Timing]]
    """The call that creates each index, and its time."""
    bytes_each: float
    """Bytes of the file for one index entry."""
    lookups: list[Lookup]
    question: str
    explained: str
    refused: str
    """The message of a violated unique index."""


def find(path: Path) -> Found:
    """Ask by a scan, create indexes, ask again, and try to store what a unique index refuses."""
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
    # When the file is closed, it contains everything that was written.
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
    """Return the indexes of the tour: the source text of each call, and the call."""
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
    """Return each question as a query text, as the text of an index call, and as the call."""
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
    """Return the shortest time in seconds, and the places of the found records, in order."""
    best, rows = float("inf"), []
    for _ in range(TIMES):
        started = time.perf_counter()
        rows = ask()
        best = min(best, time.perf_counter() - started)
    return best, sorted(f"{row.module}.{row.name}:{row.lines.first}" for row in rows)


def _refused(table: pellucid.Table) -> str:
    """Return the message for a second record with the same place."""
    try:
        # If a library defines two on one line, this call already raises the error.
        table.create_index("one_place", (F.module, F.lines.first), unique=True)
        table["a copy"] = _example(table).to_dict()
    except pellucid.UniqueError as error:
        return str(error)
    finally:
        if any(index.name == "one_place" for index in table.indexes()):
            table.drop_index("one_place")
    raise AssertionError("a unique index has two records of one value")


def _example(table: pellucid.Table) -> Any:
    """Return a well-known record, if it is there."""
    return next(iter(table.values(prefix=("json", "dumps"))), None) or next(iter(table.values()))
