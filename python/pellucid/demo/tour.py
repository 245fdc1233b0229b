"""This module runs the stops of the demo and measures each of them.

Each stop is a few lines that use the public API. It returns what it found. `show.py` prints the results.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pellucid
from pellucid import KEY, F
from pellucid.demo.library import Key, Record, definitions, source_files

TABLE = "definitions"
BATCH = 4_000
"""Records in one transaction. Each commit waits for the disk, so use a few large ones."""
LOOKUPS = 10_000
ROUNDS = 5
"""How often small operations are timed. The fastest round counts."""
NEW_CALL = "pellucid.open"
ARGUMENTS_MANY = 7


@dataclass(slots=True)
class Timing:
    """How often an operation ran, and how long this took."""

    count: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def each(self) -> float:
        """Seconds for one operation."""
        return self.seconds / self.count if self.count else 0.0

    @contextmanager
    def running(self, count: int = 0) -> Iterator[None]:
        """Add the time of the block."""
        started = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - started
        self.count += count


@dataclass(slots=True)
class Stored:
    """What was read and stored."""

    files: int = 0
    source_size: int = 0
    not_python: list[str] = field(default_factory=list)
    parsing: Timing = field(default_factory=Timing)
    storing: Timing = field(default_factory=Timing)
    kinds: Counter[str] = field(default_factory=Counter)
    shapes: int = 0
    """How many different lists of fields the records have."""
    lines: int = 0
    """The sum of all sizes. A scan must find the same sum."""


def store(path: Path, limit: int | None, on_file: Callable[[str, int, int], None]) -> Stored:
    """Parse the library and store a record for each definition.

    After each file, call `on_file` with its module, the number of files so far, and the number of definitions
    so far.
    """
    stored = Stored()
    shapes: set[tuple[str, ...]] = set()
    batch: dict[Key, Record] = {}
    with pellucid.open(path, mode="n") as db:
        table = db.table(TABLE)
        for module, file in source_files():
            source = file.read_bytes()
            with stored.parsing.running():
                try:
                    found = dict(definitions(module, source))
                except (SyntaxError, ValueError):
                    stored.not_python.append(module)
                    continue
            stored.files += 1
            stored.source_size += len(source)
            if limit is not None:
                room = limit - stored.storing.count - len(batch)
                found = dict(list(found.items())[:room])
            for record in found.values():
                stored.kinds[record["kind"]] += 1
                stored.lines += record["size"]
                shapes.add(tuple(record))
            stored.parsing.count += len(found)
            batch.update(found)
            is_last = limit is not None and stored.parsing.count >= limit
            if len(batch) >= BATCH or is_last:
                with stored.storing.running(len(batch)):
                    table.update(batch)
                batch = {}
            on_file(module, stored.files + len(stored.not_python), stored.parsing.count)
            if is_last:
                break
        with stored.storing.running(len(batch)):
            table.update(batch)
    stored.shapes = len(shapes)
    return stored


@dataclass(slots=True)
class Read:
    """The results of reading, after the database was closed and opened again."""

    file_size: int
    opening: Timing
    example_key: Key
    example: Record
    one_field: Timing
    """For a record that is read by its key."""
    whole_record: Timing
    field_at_hand: Timing
    """For a record that was read before."""
    whole_at_hand: Timing
    loop: Timing
    native: Timing
    calls: Timing
    lines: int
    longest: list[tuple[int, str]]
    called: list[tuple[str, int]]
    with_doc: int
    rows: int


def read(path: Path) -> Read:
    """Open the closed database and read single fields, single records, and all records."""
    opening = Timing()
    with opening.running(1):
        db = pellucid.open(path, mode="r")
    with db:
        table = db.table(TABLE)
        keys: list[Key] = list(table)
        chosen = random.Random(2).choices(keys, k=min(LOOKUPS, len(keys) * 10))
        loop, native, calls = (Timing() for _ in range(3))
        one_field, whole_record, field_at_hand, whole_at_hand = _small(table, chosen)
        lines = 0
        with loop.running(len(keys)):
            for record in table.values():
                lines += record.size
        with native.running(len(keys)):
            native_lines = table.sum("size")
        if native_lines != lines:
            raise AssertionError(f"a loop adds the sizes up to {lines}, sum() to {native_lines}")

        called: Counter[str] = Counter()
        with_doc = 0
        with calls.running(len(keys)):
            for record in table.values():
                called.update(record.get("calls", ()))
                with_doc += "doc" in record
        # A kept row stays valid when the scan moves on, so you can sort the rows.
        longest = sorted(table.values(), key=lambda record: record.size, reverse=True)[:5]
        example_key = _example(table, keys)
        return Read(
            file_size=path.stat().st_size,
            opening=opening,
            example_key=example_key,
            example=table[example_key].to_dict(),
            one_field=one_field,
            whole_record=whole_record,
            field_at_hand=field_at_hand,
            whole_at_hand=whole_at_hand,
            loop=loop,
            native=native,
            calls=calls,
            lines=lines,
            longest=[(record.size, f"{record.module}.{record.name}") for record in longest],
            called=called.most_common(5),
            with_doc=with_doc,
            rows=len(keys),
        )


def _small(table: pellucid.Table, keys: list[Key]) -> list[Timing]:
    """Time one field and the whole record, read by key and read from a kept record.

    The fastest round counts. The first round does not count, because it reads the file. The four cases take
    turns, so that the load of the machine affects all of them.
    """
    records = [table[key] for key in keys]

    def fetch_field() -> None:
        for key in keys:
            _ = table[key].size

    def fetch_whole() -> None:
        for key in keys:
            _ = table[key].to_dict()["size"]

    def field_of() -> None:
        for record in records:
            _ = record.size

    def whole_of() -> None:
        for record in records:
            _ = record.to_dict()["size"]

    works = [fetch_field, fetch_whole, field_of, whole_of]
    best = [Timing(len(keys), float("inf")) for _ in works]
    for rounds_done in range(ROUNDS + 1):
        for work, timing in zip(works, best, strict=True):
            started = time.perf_counter()
            work()
            if rounds_done > 0:
                timing.seconds = min(timing.seconds, time.perf_counter() - started)
    return best


def _example(table: pellucid.Table, keys: list[Key]) -> Key:
    """Return the key of a well-known function; with a limit, the first one with a docstring and arguments."""
    if known := [key for key in keys if key[:2] == ("json", "dumps")]:
        return known[0]
    return next((key for key in keys if "doc" in table[key] and "args" in table[key]), keys[0])


@dataclass(slots=True)
class Asked:
    """The results of the queries."""

    modules: Timing
    longest: list[tuple[int, str]]
    """The longest function of each module; the five longest of these."""
    many: Timing
    many_count: int
    most_arguments: list[tuple[int, str]]
    decorated: Timing
    decorators: list[tuple[str, int]]
    sizes: list[int]
    """Lines for each function."""
    question: str
    explained: str


def ask(path: Path) -> Asked:
    """Find records by their content, without a loop in Python."""
    with pellucid.open(path, mode="r") as db:
        table = db.table(TABLE)
        modules, many, decorated = (Timing() for _ in range(3))
        functions = table.where(F.kind != "class")
        with modules.running(len(table)):
            groups = functions.group_by("module").agg(size=F.size.max())
        longest = [
            (size, f"{module}.{functions.find(module=module, size=size).column('name')[0]}")
            for size, module in sorted(((group["size"], group["module"]) for group in groups), reverse=True)[
                :5
            ]
        ]
        wide = functions.where(F.args.length() > ARGUMENTS_MANY)
        with many.running(len(table)):
            many_count = wide.count()
        widest = wide.order_by(F.args.length().desc()).limit(5).select(key=KEY, n=F.args.length())
        with decorated.running(len(table)):
            names = table.where(F.decorators.exists()).column(F.decorators.each())
        question = wide.order_by("module", F.size.desc()).limit(10)
        return Asked(
            modules=modules,
            longest=longest,
            many=many,
            many_count=many_count,
            most_arguments=[(row["n"], "{}.{}, line {}".format(*row["key"])) for row in widest],
            decorated=decorated,
            decorators=Counter(name for several in names for name in several).most_common(5),
            sizes=functions.column("size"),
            question=f"where(F.kind != 'class', F.args.length() > {ARGUMENTS_MANY})"
            '.order_by("module", F.size.desc()).limit(10)',
            explained=question.explain(analyze=True),
        )


@dataclass(slots=True)
class Changed:
    """What was changed, and that the changes were saved."""

    module: str
    moved: Timing
    moving: dict[str, int]
    """What the counters of the library counted meanwhile."""
    appended: Timing
    appending: dict[str, int]
    before: tuple[int, int]
    after: tuple[int, int]
    last_call: str


def change(path: Path) -> Changed:
    """Change fields of the largest module in place, open the database again, and check the changes."""
    moved, appended = Timing(), Timing()
    with pellucid.open(path, mode="w") as db:
        table = db.table(TABLE)
        modules = Counter(record.module for record in table.values())
        module, count = modules.most_common(1)[0]
        before = {key: _lines(record) for key, record in table.items(prefix=(module,))}
        # Suppose that a line is added at the top of that file: everything in it moves down by one.
        start = pellucid.counters()
        with moved.running(count), db.transaction():
            for record in table.values(prefix=(module,)):
                record.lines.first += 1
                record.lines.last += 1
        moving = _difference(start)
        # An append affects only this list. pellucid copies the bytes around it.
        start = pellucid.counters()
        with appended.running(count), db.transaction():
            for record in table.values(prefix=(module,)):
                if "calls" in record:
                    record.calls.append(NEW_CALL)
                else:
                    record.calls = [NEW_CALL]
        appending = _difference(start)
    with pellucid.open(path, mode="r") as db:
        table = db.table(TABLE)
        after = {key: _lines(record) for key, record in table.items(prefix=(module,))}
        if after != {key: (first + 1, last + 1) for key, (first, last) in before.items()}:
            raise AssertionError(f"not every definition of {module} kept its new lines")
        last_calls = {record.calls[-1] for record in table.values(prefix=(module,))}
        if last_calls != {NEW_CALL}:
            raise AssertionError(f"calls of {module} end in {last_calls}")
    key = next(iter(before))
    return Changed(module, moved, moving, appended, appending, before[key], after[key], NEW_CALL)


def _lines(record: Any) -> tuple[int, int]:
    return record.lines.first, record.lines.last


def _difference(start: dict[str, int]) -> dict[str, int]:
    """Return what the counters of the library counted since `start`."""
    return {name: count - start[name] for name, count in pellucid.counters().items()}
