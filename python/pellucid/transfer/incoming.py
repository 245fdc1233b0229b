"""This module imports the rows of a source into a database, in one transaction."""

from __future__ import annotations

import glob
import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import Any, NamedTuple

import pellucid
from pellucid import errors
from pellucid.transfer.arguments import check, check_encoding
from pellucid.transfer.collector import paused
from pellucid.transfer.convert import converter, with_dicts
from pellucid.transfer.copying import is_new_file, opened_target
from pellucid.transfer.detect import FORMATS, detect
from pellucid.transfer.job import Chunk, Group, Input, Job, Part
from pellucid.transfer.keys import CONFLICTS, key_reader
from pellucid.transfer.outgoing import plain
from pellucid.transfer.progress import Pace
from pellucid.transfer.report import ImportReport, listed

__all__ = ["Choices", "run"]

# The module and the function that read each format. A dbm may be a file of SQLite.
READERS = {
    "jsonl": ("jsonl", "parts"),
    "json": ("json_file", "parts"),
    "tinydb": ("json_file", "parts_of_tinydb"),
    "csv": ("csv_file", "parts"),
    "tsv": ("csv_file", "parts"),
    "parquet": ("arrow_file", "parts_of_parquet"),
    "arrow": ("arrow_file", "parts"),
    "sqlite": ("sqlite", "parts"),
    "sqlitedict": ("sqlitedict_file", "parts"),
    "diskcache": ("diskcache_file", "parts"),
    "lmdb": ("lmdb_file", "parts"),
    "dbm": ("dbm_file", "parts"),
    "shelve": ("dbm_file", "parts_of_shelf"),
    "pickle": ("pickle_file", "parts"),
}
READERS_IN_SQLITE = {
    "dbm": ("sqlitedict_file", "parts_of_dbm"),
    "shelve": ("sqlitedict_file", "parts_of_shelf"),
}

# What a table raises for a row that it cannot store. Other errors end the import.
REFUSED = (
    errors.UnsupportedKey,
    errors.UnsupportedValue,
    errors.RecordTooLarge,
    errors.UniqueError,
    errors.PickleDenied,
    errors.UnreadableValue,
    errors.UnregisteredType,
)
MISSING = object()
OF_JSON = ("json", "jsonl", "tinydb")
OF_CSV = ("csv", "tsv")
OF_PICKLES = ("pickle", "shelve", "sqlitedict", "diskcache")
# The share of reading in an import in one transaction. The rest is merging rows into their tables.
READING = 0.7


class Choices(NamedTuple):
    """What the caller of an import asked for; `import_from` explains each."""

    table: str | None
    format: str | None
    key: Any
    types: Any
    dates: bool
    encoding: str | None
    pickle: Any
    strict: bool
    dry_run: bool
    verify: bool
    batch: int | None
    progress: bool | Callable[[int, float | None], object]
    path: Any = None
    on_conflict: str | None = None
    columns: Any = None
    dialect: Any = None
    # For a cache: what makes its rows.
    entry: Any = None


class _DryRun(Exception):
    """Ends a transaction whose work is not wanted."""


def run(source: Any, into: Any, choices: Choices) -> ImportReport:
    """Import a source, as `import_from` says."""
    # `key_reader` checks the key.
    if hasattr(into, "_importing"):
        with into._importing() as (database, entry):
            return run(source, database, choices._replace(table="cache", entry=entry))
    check({**choices._asdict(), "key": None})
    if choices.format is not None and choices.format not in FORMATS:
        raise ValueError(f"format= has no {choices.format!r}; those are {', '.join(FORMATS)}")
    if choices.batch is not None and choices.batch < 1:
        raise ValueError(f"batch= is a number of rows, and at least 1, not {choices.batch}")
    if isinstance(choices.pickle, str) and choices.pickle not in ("deny", "allow"):
        raise ValueError(f'pickle= has no {choices.pickle!r}; it is "deny", "allow" or a list of names')
    if choices.on_conflict not in (None, *CONFLICTS):
        raise ValueError(f"on_conflict= has no {choices.on_conflict!r}; those are {', '.join(CONFLICTS)}")
    if choices.verify and choices.on_conflict in ("merge", "ignore"):
        raise ValueError(
            f'verify=True compares with the source, and on_conflict="{choices.on_conflict}" keeps more'
        )
    if choices.verify and choices.dry_run and choices.batch is not None:
        raise ValueError(
            "verify=True needs rows to compare, and a dry run in batches keeps none; leave out batch="
        )
    begun = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(paused())
        sources = [stack.enter_context(closing(Input(each))) for each in _each_of(source)]
        if choices.verify and any(found.stream is not None for found in sources):
            raise ValueError(
                "verify=True reads the source twice, and a stream can be read once; import a file"
            )
        report = ImportReport(sources[0].name if len(sources) == 1 else f"{len(sources):,} files")
        formats = [_format_of(found, choices) for found in sources]
        report.format = ", ".join(dict.fromkeys(formats))
        if choices.entry is not None and report.format != "diskcache":
            raise ValueError(f"a cache takes folders of diskcache, and {report.name} is {report.format}")
        database = stack.enter_context(_database(into, choices))
        _run_in(database, list(zip(sources, formats, strict=True)), choices, report)
    report.seconds = time.monotonic() - begun
    report.end()
    return report


def _each_of(source: Any) -> list[Any]:
    """The files that a source is: one, those of a pattern, or those of a list."""
    if hasattr(source, "read"):
        return [source]
    if isinstance(source, (str, bytes, os.PathLike)):
        path = os.fsdecode(source)
        if not glob.has_magic(path) or os.path.lexists(path):
            return [path]
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise FileNotFoundError(2, "no file has a name of this pattern", path)
        return found
    if not isinstance(source, Iterable):
        raise TypeError(f"import_from() reads a path, a binary file, or a list of these; not {source!r:.40}")
    files = [file for each in source for file in _each_of(each)]
    if not files:
        raise ValueError("the list of files to import is empty")
    return files


def _format_of(found: Input, choices: Choices) -> str:
    form = choices.format or detect(found)
    # Strings of Python 2 may become bytes.
    if choices.encoding is not None and not (choices.encoding == "bytes" and form in OF_PICKLES):
        check_encoding(choices.encoding)
    if (choices.columns or choices.dialect) and form not in OF_CSV:
        raise ValueError(f"columns= and dialect= are for CSV, and {found.name} is {form}")
    if choices.path is None:
        return form
    if form not in OF_JSON:
        raise ValueError(f"path= is for JSON, and {found.name} is {form}")
    # With a path, values that follow each other are documents that each have rows.
    return "json"


def _path(path: Any) -> tuple[str, ...] | None:
    """The names of a path: those between the dots of a text, or those of a list."""
    if path is None or isinstance(path, (list, tuple)):
        return None if path is None else tuple(path)
    return tuple(path.split(".")) if path else ()


def _run_in(database: Any, sources: list[tuple[Input, str]], choices: Choices, report: ImportReport) -> None:
    pace = Pace(choices.progress)
    work = _Import(database, sources, choices, report, pace)
    try:
        work.run()
    except KeyboardInterrupt:
        # The commits of a server are those of all its clients.
        if not work.is_file:
            raise
        said = "rows were stored already" if work.is_stored() else "nothing was imported"
        raise KeyboardInterrupt(said) from None
    finally:
        pace.clear()


@contextmanager
def _database(into: Any, choices: Choices) -> Iterator[Any]:
    if isinstance(into, (str, bytes, os.PathLike)) and choices.dry_run and is_new_file(into):
        with pellucid.open(":memory:", pickle=choices.pickle) as memory:
            yield memory
        return
    with opened_target(into, choices.pickle, "import_from() imports into") as database:
        yield database


class _Import:
    def __init__(
        self,
        database: Any,
        sources: list[tuple[Input, str]],
        choices: Choices,
        report: ImportReport,
        pace: Pace,
    ) -> None:
        self.database = database
        self.is_file = isinstance(database, pellucid.Database)
        self.sources = sources
        self.choices = choices
        self.report = report
        self.pace = pace
        self.has_rows = False
        # The columns of all files of CSV get their types together.
        numbers = [number for number, (_, form) in enumerate(sources) if form == "csv"]
        self.group = Group(list(map(self.job_of, numbers)), {}, report.note)
        self.begin(0)
        report.dry_run = choices.dry_run
        report.on_conflict = choices.on_conflict
        # The transactions that were committed, and the version of the database before the first one was.
        self.commits = 0
        self.version: int | None = None

    def job_of(self, number: int) -> Job:
        """What the reader of a source gets to know."""
        choices, (source, format) = self.choices, self.sources[number]  # noqa: A001
        key = choices.key
        return Job(
            source,
            choices.encoding,
            choices.types if choices.types is None or isinstance(choices.types, str) else dict(choices.types),
            choices.pickle,
            _path(choices.path),
            self.skip,
            self.note,
            (key,) if isinstance(key, str) else tuple(key) if isinstance(key, (list, tuple)) else (),
            choices.dates,
            None if choices.columns is None else tuple(choices.columns),
            {**({"delimiter": "\t"} if format == "tsv" else {}), **(choices.dialect or {})},
            entry=choices.entry,
        )

    def begin(self, number: int) -> None:
        """Turn to one of the sources."""
        self.number = number
        self.source, self.format = self.sources[number]
        self.job = self.job_of(number)
        if self.format == "csv":
            self.job = self.job._replace(group=self.group)
        # The fields of `types=` that no row of this source had so far.
        self.unseen: set[str] = set()
        self.convert = converter(self.job.types, self.choices.dates, self.job.unpickle, self.unseen)
        self.written: list[tuple[_Writer, str | None]] = []

    def skip(self, place: str, reason: str) -> None:
        """Note a row that is left out, or raise if none may be."""
        if self.choices.strict:
            raise errors.SourceError(f"{self.source.name}, {place}: {reason}")
        self.report.skip(f"{self.source.name}, {place}" if len(self.sources) > 1 else place, reason)

    def note(self, what: str) -> None:
        """Note what the reader of the report should know of the source."""
        self.report.note(f"{self.source.name}: {what}" if len(self.sources) > 1 else what)

    def run(self) -> None:
        """Import everything, in one transaction or in batches."""
        if self.choices.batch is not None:
            self.all_sources()
            return
        try:
            with self.transaction():
                self.all_sources()
                self.before_commit()
        except _DryRun:
            return
        self.commits += 1

    def before_commit(self) -> None:
        """The last step of a transaction: end a dry run, or note the version for `is_stored`."""
        if self.choices.dry_run:
            raise _DryRun
        if self.is_file and not self.commits:
            self.version = self.database.stats()["version"]

    def is_stored(self) -> bool:
        """Whether rows were committed, after an exception that may have come in the middle of that.

        No other process commits while a transaction runs. So a version that was read in it changes with the
        commit of the transaction itself.
        """
        is_ending = self.version is not None and not self.commits
        return self.commits > 0 or (is_ending and self.database.stats()["version"] != self.version)

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction for the whole import. A file merges its rows at the end, and says how far it is."""
        if self.is_file:
            return self.database.transaction(progress=self.merging)  # type: ignore[no-any-return]
        return self.database.transaction()  # type: ignore[no-any-return]

    def attempt(self) -> AbstractContextManager[object]:
        """A block for rows that may be refused. On a server that ends the transaction, or this savepoint."""
        return nullcontext() if self.is_file else self.database.transaction()

    def merging(self, done: int, total: int) -> None:
        """Say how far the rows that were read are merged into their tables."""
        self.pace.step(self.report.rows, READING + (1 - READING) * done / max(total, 1))

    def parts(self, job: Job) -> Any:
        readers = READERS | (READERS_IN_SQLITE if self.source.head.startswith(b"SQLite format 3\x00") else {})
        module, function = readers[self.format]
        found = getattr(importlib.import_module(f"pellucid.transfer.sources.{module}"), function)
        return closing(found(job))

    def all_sources(self) -> None:
        unseen: list[set[str]] = []
        for number in range(len(self.sources)):
            self.begin(number)
            self.all_tables()
            unseen.append(self.unseen)
        if self.has_rows and (never := set.intersection(*unseen)):
            raise ValueError(
                f"types= names {listed(sorted(never))}, and no row of {self.report.name} has such a field"
            )
        self.pace.end(self.report.rows)

    def all_tables(self) -> None:
        wanted, names = self.choices.table, []
        if self.format == "tinydb" and self.choices.format is None:
            self.note(
                "it is an object of objects with numbers for names, and was taken for tables of TinyDB; "
                "format='json' reads it as other JSON"
            )
        with self.parts(self.job) as parts:
            for part in parts:
                if part.name is not None:
                    names.append(part.name)
                if wanted is None or part.name is None or part.name == wanted:
                    self.one_table(part, wanted or part.name or "default", part.name)
        if wanted is not None and names and wanted not in names:
            # A source with one table: its name may be another one here.
            if len(names) > 1 or self.source.stream is not None:
                raise errors.SourceError(
                    f"{self.source.name} has no table {wanted!r}; it has {listed(names)}"
                )
            with self.parts(self.job) as parts:
                for part in parts:
                    self.one_table(part, wanted, part.name)
        if self.choices.verify:
            # A source can be open once: LMDB refuses to open a file twice.
            self.verify()
        self.source.check_unchanged()

    def one_table(self, part: Part, name: str, source_name: str | None) -> None:
        # A cache has any objects; a table of a server has no such option.
        exact = {} if self.choices.entry is None else {"type": object}
        table = self.database.table(name, **exact)
        before, stored = len(table), self.report.rows
        writer = _Writer(self, table, part)
        chunks = iter(part.chunks)
        if self.choices.batch is None:
            self.store(writer, chunks, None)
        else:
            while self.batch(writer, chunks, self.choices.batch):
                pass
        writer.check_keys()
        if part.columns is not None:
            self.report.columns = self.report.columns | part.columns
            self.unseen -= part.columns.keys()
        rows = self.report.rows - stored
        self.report.tables[name] = self.report.tables.get(name, 0) + rows
        if self.choices.on_conflict is not None:
            self.report.replaced = self.report.changed
        elif self.choices.batch is None or not self.choices.dry_run:
            self.report.replaced += rows - (len(table) - before)
        self.written.append((writer, source_name))

    def batch(self, writer: _Writer, chunks: Iterator[Chunk], size: int) -> bool:
        """Store one batch; say whether there may be more."""
        try:
            with self.database.transaction():
                more = self.store(writer, chunks, size)
                self.before_commit()
        except _DryRun:
            return more
        self.commits += 1
        return more

    def store(self, writer: _Writer, chunks: Iterator[Chunk], size: int | None) -> bool:
        end = None if size is None else self.report.rows + size
        for chunk in chunks:
            self.has_rows = self.has_rows or len(chunk.rows) > 0
            self.report.rows += writer.store(chunk)
            share = None if chunk.share is None else (self.number + chunk.share) / len(self.sources)
            self.pace.step(self.report.rows, share if size is not None or not share else share * READING)
            if end is not None and self.report.rows >= end:
                return True
        return False

    def verify(self) -> None:
        """Read the source again, and compare its rows with what is stored."""
        job = self.job._replace(skip=lambda _place, _reason: None, is_verification=True)
        with self.parts(job) as parts:
            for part in parts:
                for writer, name in self.written:
                    if name == part.name:
                        writer.compare(part, job.skip)
        self.report.verified = True


class _Writer:
    """Stores the rows of one table, and compares them."""

    def __init__(self, work: _Import, table: Any, part: Part) -> None:
        self.work = work
        self.table = table
        self.kind = part.kind
        self.skip = work.skip
        self.convert = work.convert if part.columns is None else None
        key = work.choices.key
        if part.kind == "pairs" and key is not None:
            raise ValueError(f"{work.source.name} has keys; key= is for sources that have only rows")
        if key is None:
            key = part.key or None
        self.key_of = None if key is None else key_reader(key)
        self.is_keyed = part.kind == "pairs" or self.key_of is not None
        self.on_conflict = work.choices.on_conflict
        if self.on_conflict is not None and not self.is_keyed:
            raise ValueError(
                f"on_conflict= is for rows with keys, and those of {work.source.name} have none; pass key="
            )
        # How many rows have a key, and why the first one that has none has none.
        self.with_keys = 0
        self.without_key: str | None = None
        # For the comparison: the first key that was given, and the rows that the table refused.
        self.first_key: int | None = None
        self.count = 0
        self.refused: set[int] = set()
        self.is_plain = False

    def store(self, chunk: Chunk) -> int:
        """Store a chunk, and return how many of its rows were stored."""
        if self.kind == "columns" and not (self.is_keyed or self.convert or self.work.choices.verify):
            return self.extend(self.table, chunk, self.skip)
        chunk = self.ready(chunk, self.skip)
        if not chunk.rows:
            return 0
        if self.on_conflict is not None:
            return self.one_by_one(chunk)
        if self.work.choices.verify and self.first_key is None and not self.is_keyed:
            return self.one_by_one(chunk)
        if any(map(self.has_other_dicts, chunk.rows)):
            return self.one_by_one(chunk)
        try:
            with self.work.attempt():
                if self.is_keyed:
                    self.table.update(chunk.rows)
                else:
                    self.table.extend(chunk.rows)
        except REFUSED:
            return self.one_by_one(chunk)
        self.count += len(chunk.rows)
        return len(chunk.rows)

    def extend(self, table: Any, chunk: Chunk, skip: Callable[[str, str], None]) -> int:
        """Store columns, and return the number of their rows; a row that cannot be stored is skipped."""
        try:
            with self.work.attempt():
                return int(table.extend(chunk.rows))
        except REFUSED:
            stored = 0
        for position in range(len(chunk.rows)):
            try:
                with self.work.attempt():
                    stored += int(table.extend(chunk.rows.slice(position, 1)))
            except REFUSED as error:
                skip(chunk.place(position), str(error).removesuffix(", in row 0 of its batch"))
        return stored

    def add(self, row: Any) -> None:
        """Store one row. If its class is a reason to refuse it, a plain dict is stored instead."""
        try:
            key = self.add_exactly(row)
        except (errors.UnsupportedValue, errors.PickleDenied) as refused:
            try:
                plain = with_dicts(row)
            except RecursionError:
                raise refused from None
            if plain is row:
                raise
            self.add_exactly(plain)
            self.note_dicts()
            return
        if self.has_other_dicts(row):
            plain = with_dicts(row)
            stored = pellucid.dumps(self.table[key], pickle="allow")
            if stored == pellucid.dumps(plain[1] if self.is_keyed else plain, pickle="allow"):
                self.note_dicts()

    def has_other_dicts(self, row: Any) -> bool:
        """Whether the row has a dict of another class, which is stored as a dict or as a pickle."""
        try:
            return self.work.format in OF_PICKLES and with_dicts(row) is not row
        except RecursionError:
            return False

    def note_dicts(self) -> None:
        """Note that a row was stored with plain dicts in place of others."""
        self.is_plain = True
        self.work.report.made_dicts += 1

    def add_exactly(self, row: Any) -> Any:
        """Store one row, and return its key."""
        with self.work.attempt():
            if self.is_keyed:
                self.table[row[0]] = row[1]
                return row[0]
            key = self.table.append(row)
        self.first_key = key if self.first_key is None else self.first_key
        return key

    def resolved(self, pair: tuple[Any, Any], place: str) -> tuple[str, tuple[Any, Any]]:
        """What becomes of a row as `on_conflict` says, in a word of the report; and what is stored then."""
        key, row = pair
        there = self.table.get(key, MISSING)
        if there is MISSING:
            return "new", pair
        if self.on_conflict == "error":
            raise errors.SourceError(
                f"{self.work.source.name}, {place}: the table has a row with the key {key!r:.40} already; "
                'on_conflict="replace", "merge" or "ignore" says what becomes of it'
            )
        old = plain(there)
        if self.on_conflict == "merge" and isinstance(old, dict) and isinstance(row, dict):
            row = {**old, **row}
        if self.is_same(old, row):
            return "same", pair
        return "ignored" if self.on_conflict == "ignore" else "changed", (key, row)

    def one_by_one(self, chunk: Chunk) -> int:
        """Store rows one by one, so that one which is refused does not keep out the others."""
        stored = 0
        for position, row in enumerate(chunk.rows):
            self.count += 1
            what = "new"
            try:
                if self.on_conflict is not None:
                    what, row = self.resolved(row, chunk.place(position))
                if what in ("new", "changed"):
                    self.add(row)
            except REFUSED as error:
                self.skip(chunk.place(position), str(error))
                self.refused.add(self.count - 1)
            else:
                self.work.report.became(what)
                stored += what != "ignored"
        return stored

    def ready(self, chunk: Chunk, skip: Callable[[str, str], None]) -> Chunk:
        """The rows as they are stored: converted, and under their keys."""
        if self.kind == "columns":
            chunk = self.decoded(chunk, skip)
        if self.convert is not None:
            convert = self.convert if self.kind != "pairs" else self.convert_pair
            chunk = _each(chunk, convert, skip)
        if self.key_of is not None:
            chunk = self.keyed(chunk, skip)
        return chunk

    def decoded(self, chunk: Chunk, skip: Callable[[str, str], None]) -> Chunk:
        """The rows of columns, as a table without conversions would have them."""
        skipped: list[int] = []

        def note(place: str, reason: str) -> None:
            skipped.append(int(place.removeprefix(f"{chunk.word} ")))
            skip(place, reason)

        with pellucid.open(":memory:") as memory:
            self.extend(memory, chunk, note)
            rows = memory.where().to_dicts()
        gone = set(skipped)
        return chunk._replace(rows=rows, places=[place for place in chunk.places if place not in gone])

    def convert_pair(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return pair[0], self.convert(pair[1]) if self.convert else pair[1]

    def keyed(self, chunk: Chunk, skip: Callable[[str, str], None]) -> Chunk:
        """The rows of a chunk that have keys, each with its key."""
        key_of: Any = self.key_of

        def skipped(place: str, reason: str) -> None:
            self.without_key = self.without_key or f"{place}: {reason}"
            skip(place, reason)

        chunk = _each(chunk, lambda row: (key_of(row), row), skipped)
        self.with_keys += len(chunk.rows)
        return chunk

    def check_keys(self) -> None:
        """Raise `ValueError` if `key=` fits no row at all: it is wrong then, and not the rows."""
        if self.without_key is not None and not self.with_keys:
            raise ValueError(
                f"key={self.work.choices.key!r} fits no row of {self.work.source.name}; {self.without_key}"
            )

    def compare(self, part: Part, skip: Callable[[str, str], None]) -> None:
        """Raise `SourceError` if the table has not exactly the rows of the source."""
        count = 0
        stored_rows = iter(self.table.values(start=self.first_key)) if not self.is_keyed else iter(())
        differing: dict[Any, str] = {}
        for chunk in part.chunks:
            ready = self.ready(chunk, skip)
            for position, row in enumerate(ready.rows):
                count += 1
                if count - 1 in self.refused:
                    continue
                if self.is_keyed:
                    key, row = row
                    stored = self.table.get(key, MISSING)
                else:
                    key, stored = count, next(stored_rows, MISSING)
                if stored is not MISSING and self.is_same(stored, row):
                    # A later row may be under the same key, and is the one that is stored.
                    differing.pop(key, None)
                else:
                    differing[key] = ready.place(position)
        if differing or count != self.count:
            where = next(iter(differing.values()), f"{count:,} rows were read, and {self.count:,} before")
            raise errors.SourceError(
                f"{self.work.source.name}: what was stored is not what was read again: {where}"
            )

    def is_same(self, stored: Any, row: Any) -> bool:
        """Whether the stored value is the row, or a plain dict for it if there are such."""
        data = pellucid.dumps(stored, pickle="allow")
        return data == pellucid.dumps(row, pickle="allow") or (
            self.is_plain and data == pellucid.dumps(with_dicts(row), pickle="allow")
        )


def _each(chunk: Chunk, change: Callable[[Any], Any], skip: Callable[[str, str], None]) -> Chunk:
    """The chunk with each row changed, without those for which that fails."""
    try:
        return chunk._replace(rows=list(map(change, chunk.rows)))
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError):
        rows, places = [], []
    for position, row in enumerate(chunk.rows):
        try:
            rows.append(change(row))
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            skip(chunk.place(position), str(error))
        else:
            places.append(chunk.places[position])
    return chunk._replace(rows=rows, places=places)
