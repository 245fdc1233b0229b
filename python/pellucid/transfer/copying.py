"""This module copies tables from one database to another: between files, servers, or one of each."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pellucid
from pellucid import errors
from pellucid.transfer.arguments import check
from pellucid.transfer.progress import Pace
from pellucid.transfer.report import CopyReport, listed

if TYPE_CHECKING:
    from pellucid.postgres import verbs

__all__ = ["EXISTING", "Choices", "copy_tables", "is_new_file", "opened_target", "run", "shown"]

EXISTING = ("refuse", "replace", "merge", "resume")
SERVER = ("postgresql://", "postgres://")
MISSING = object()


class Choices(NamedTuple):
    """What the caller of a copy asked for; `copy` explains each."""

    tables: Any = None
    existing: str = "refuse"
    verify: bool = False
    batch: int | None = None
    pickle: Any = None
    progress: bool | Callable[[int, float | None], object] = False


def run(source: Any, target: Any, choices: Choices) -> CopyReport:
    """Copy tables, as `pellucid.copy` says."""
    check(choices._asdict())
    if choices.existing not in EXISTING:
        raise ValueError(f"existing= has no {choices.existing!r}; those are {', '.join(EXISTING)}")
    if choices.batch is not None and choices.batch < 1:
        raise ValueError(f"batch= is a number of rows, and at least 1, not {choices.batch}")
    report = CopyReport(shown(target))
    begun = time.monotonic()
    with ExitStack() as stack:
        state = stack.enter_context(_state(source, choices.pickle))
        names = _names(state, source, choices.tables)
        database = stack.enter_context(opened_target(target, choices.pickle))
        _refuse_itself(state, source, database)
        if choices.existing == "refuse":
            _refuse_rows(database, names, report.name)
        pace = Pace(choices.progress)
        work = _Copy(state, database, choices, report, pace)
        try:
            with database.transaction() if choices.batch is None else nullcontext():
                work.all_tables(names)
        finally:
            pace.clear()
    report.seconds = time.monotonic() - begun
    return report


def copy_tables(source: Any, target: Any, names: list[str]) -> int:
    """Copy tables of a snapshot in the running transaction of a database, and return the number of rows."""
    report, pace = CopyReport(""), Pace(True)
    try:
        _Copy(source, target, Choices(), report, pace).all_tables(names)
    finally:
        pace.clear()
    return report.rows


def shown(place: Any) -> str:
    """Return the name of a database for people: a path, or a URL without its password."""
    if isinstance(place, (str, bytes, os.PathLike)):
        name = os.fsdecode(place)
        if not name.startswith(SERVER):
            return name
        from pellucid.postgres import url

        return url.parse(name, 0).shown
    server = getattr(place, "_place", None)
    return str(server.shown if server is not None else getattr(place, "path", None) or repr(place))


def a_kind(value: object) -> str:
    """The type of an object with its article."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _is_server(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(SERVER)


@contextmanager
def _state(source: Any, pickle: Any) -> Iterator[verbs.Snapshot]:
    """A snapshot of the source for the block."""
    with ExitStack() as stack:
        if isinstance(source, (str, bytes, os.PathLike)):
            source = stack.enter_context(pellucid.open(os.fsdecode(source), "r", pickle=pickle))
        from pellucid import postgres

        if isinstance(source, (pellucid.Database, postgres.Database)):
            source = stack.enter_context(source.snapshot())
        if not isinstance(source, (pellucid.Snapshot, postgres.Snapshot)):
            raise TypeError(
                "copy() copies from a path, a URL, a Database or a Snapshot, not from a "
                f"{type(source).__name__}; tables=[name] chooses tables"
            )
        yield source


def is_new_file(target: Any) -> bool:
    """Whether this path names a file that is not there yet."""
    name = os.fsdecode(target)
    return not _is_server(name) and not os.path.exists(name)


@contextmanager
def opened_target(target: Any, pickle: Any, what: str = "copy() copies to") -> Iterator[verbs.Database]:
    """The target for the block; a file that was not there goes again if nothing got into it."""
    from pellucid import postgres

    if isinstance(target, (pellucid.Database, postgres.Database)):
        yield target
        return
    if not isinstance(target, (str, bytes, os.PathLike)):
        raise TypeError(f"{what} a path, a URL or a Database, not {a_kind(target)}")
    name = os.fsdecode(target)
    is_new = is_new_file(name)
    database = pellucid.open(name, pickle=pickle)
    try:
        yield database
    except BaseException:
        is_empty = is_new and not database.tables()
        database.close()
        if is_empty:
            for side in (name, f"{name}-log", f"{name}-lock"):
                with suppress(FileNotFoundError):
                    os.remove(side)
        raise
    database.close()


def _names(state: verbs.Snapshot, source: Any, wanted: Any) -> list[str]:
    there = state.tables()
    names = there if wanted is None else list(dict.fromkeys(wanted))
    for name in names:
        if name not in there:
            has = listed(there) or "none"
            raise KeyError(f"{shown(source)} has no table {name!r}; it has {has}")
    return names


def _refuse_itself(state: verbs.Snapshot, source: Any, target: verbs.Database) -> None:
    """Raise `ValueError` where source and target are one database."""
    origin = getattr(state, "_database", source)
    own, other = getattr(origin, "_identity", None), getattr(target, "_identity", None)
    path = getattr(target, "path", None)
    if isinstance(source, (str, bytes, os.PathLike)) and not _is_server(source):
        is_same = path is not None and os.path.exists(path) and os.path.samefile(source, path)
    else:
        is_same = origin is target or (own is not None and own == other)
        mine = getattr(origin, "path", None)
        if not is_same and mine is not None and path is not None:
            is_same = os.path.exists(mine) and os.path.exists(path) and os.path.samefile(mine, path)
    if is_same:
        raise ValueError(f"source and target are one database, {shown(target)}; name another target")


def _refuse_rows(database: verbs.Database, names: list[str], target: str) -> None:
    for name in sorted({*names} & {*database.tables()}):
        if database.table(name):
            raise ValueError(
                f"{target} has a table {name!r} already, with rows; drop or rename it first, or pass "
                'existing="replace", "merge" or "resume"'
            )


class _Copy:
    """Copies tables from a snapshot into a database."""

    def __init__(
        self,
        source: verbs.Snapshot,
        target: verbs.Database,
        choices: Choices,
        report: CopyReport,
        pace: Pace,
    ) -> None:
        self.source = source
        self.target = target
        self.choices = choices
        self.report = report
        self.pace = pace
        self.total = 0

    def all_tables(self, names: list[str]) -> None:
        """Copy tables one after the other, and compare them if that was asked for."""
        self.total = sum(len(self.source.table(name)) for name in names)
        for name in names:
            self.one_table(self.source.table(name), self.target.table(name), name)
        if self.choices.verify:
            for name in names:
                self.compare(self.source.table(name), self.target.table(name), name)
            self.report.verified = True
        self.pace.end(self.report.rows)

    def one_table(self, old: verbs.Reads, new: verbs.Table, name: str) -> None:
        """Copy the rows of a table, the number that `append` gives next, and the indexes."""
        before = self.report.rows
        pairs = old.items()
        if self.choices.existing == "replace" and new:
            with self.target.transaction():
                new.clear()
        elif self.choices.existing == "resume" and (last := new.last()) is not None:
            pairs = itertools.dropwhile(lambda pair: pair[0] == last[0], old.items(start=last[0]))
        # Only a table without rows can be loaded without looking for each key.
        load = new.update if new else getattr(new, "_load", new.update)
        pairs, size = iter(pairs), self.choices.batch
        while True:
            count = self.report.rows
            with self.target.transaction():
                load(self.counted(pairs if size is None else itertools.islice(pairs, size)))
            if size is None or self.report.rows - count < size:
                break
        if name not in self.target.tables():
            # An empty table is a table, too.
            new[""] = None
            del new[""]
        keep_number(old, new)
        there = {index.name: index for index in new.indexes()}
        for index in old.indexes():
            known = there.get(index.name)
            if known is None or said(known) != said(index):
                # In a transaction: a server that lets others write meanwhile waits for our own snapshot.
                with self.target.transaction():
                    new.create_index(index.name, index.parts, unique=index.unique, where=index.where)
        self.report.tables[name] = self.report.rows - before

    def counted(self, pairs: Iterator[Any]) -> Iterator[Any]:
        """Pass pairs on, and say how many there were."""
        for pair in pairs:
            yield pair
            self.report.rows += 1
            self.pace.step(self.report.rows, self.report.rows / max(self.total, self.report.rows))

    def compare(self, old: verbs.Reads, new: verbs.Table, name: str) -> None:
        """Raise `DatabaseError` if a table of the target has not the rows of the source."""
        if self.choices.existing == "merge":
            for key, value in old.items():
                self.check(name, key, value, key, new.get(key, MISSING))
            return
        if len(old) != len(new):
            raise errors.DatabaseError(
                f"table {name!r} has {len(new):,} rows in {self.report.name}, and {len(old):,} in the source"
            )
        for (key, value), (other_key, other) in zip(old.items(), new.items(), strict=True):
            self.check(name, key, value, other_key, other)

    def check(self, name: str, key: Any, value: Any, other_key: Any, other: Any) -> None:
        """Raise `DatabaseError` if a row is not the one of the source."""
        if type(key) is type(other_key) and key == other_key and other is not MISSING:
            dumps = pellucid.dumps
            if dumps(value, pickle="allow") == dumps(other, pickle="allow"):
                return
        raise errors.DatabaseError(
            f"table {name!r} of {self.report.name} has not the row of the source under key {key!r}"
        )


def said(index: pellucid.IndexInfo) -> tuple[Any, ...]:
    """Return what distinguishes an index from another one with its name."""
    return repr(index.parts), repr(index.where), index.unique


def keep_number(old: Any, new: Any) -> None:
    """Let `append` go on at the target with the number that it would give in the source."""
    number = old._next_int()
    if number is None or number <= (new._next_int() or 0):
        return
    if hasattr(new, "_raise_next_int"):
        new._raise_next_int(number)
        return
    # A file remembers the greatest number that ever was a key.
    new[number - 1] = None
    del new[number - 1]
