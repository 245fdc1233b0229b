"""This package moves rows between databases, and between a database and the files of other programs.

`import pellucid` imports this module alone. Each source and each target has a module of its own, which is
imported when a file of that kind is met.
"""

from __future__ import annotations

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Any, BinaryIO, Literal, TypeAlias

    from pellucid import Cache, Database, Expression, Query, Snapshot, Table
    from pellucid.postgres import Database as ServerDatabase
    from pellucid.postgres import Snapshot as ServerSnapshot
    from pellucid.transfer.report import CopyReport, ExportReport, ImportReport
    from pellucid.typing import PicklePolicy

    FilePath: TypeAlias = str | PathLike[str]

__all__ = ["copy", "export_to", "import_from"]


def import_from(
    source: FilePath | BinaryIO | Iterable[FilePath | BinaryIO],
    into: FilePath | Database | ServerDatabase | Cache,
    *,
    table: str | None = None,
    format: str | None = None,  # noqa: A002  the field's name for it
    path: str | Sequence[str] | None = None,
    key: str | Sequence[str] | Callable[[Any], Any] | None = None,
    on_conflict: Literal["replace", "merge", "ignore", "error"] | None = None,
    types: str | Mapping[str, str] | None = None,
    dates: bool = False,
    encoding: str | None = None,
    columns: Sequence[str] | None = None,
    dialect: Mapping[str, Any] | None = None,
    pickle: PicklePolicy = "deny",
    strict: bool = False,
    dry_run: bool = False,
    verify: bool = False,
    batch: int | None = None,
    progress: bool | Callable[[int, float | None], object] = False,
) -> ImportReport:
    """Copy all rows of a file of another program into a database, and return a report.

    `source` is a path, a pattern such as `"logs/*.jsonl"`, a binary file, or a list of these. It may be
    compressed by gzip, bzip2 or Zstandard. The content decides its format; `format` overrides that. `into` is
    a database, a path to one, or the URL of a server; a file is created if necessary. A `Cache` takes the
    folders of diskcache, with times and tags. `table` names the
    table, or chooses one of a source that has several. `path` is where a JSON document has its rows, as in
    `"data.rows"`. `key` is the field that becomes the key of each row, a path such as `"user.name"`, a list
    of these for a tuple, or a function of the row. `on_conflict` says what becomes of a row whose key the
    table has: "replace" it, "merge" their fields, "ignore" the new one, or "error". `types` says how to read
    fields, as in `{"zip": "text", "u.data": "json"}`, or all of them, as in `"text"`. With `dates=True`, each
    string that is an ISO date or datetime becomes one; in CSV, each column of such. `encoding` is that of a
    text. `columns` names the columns of a CSV without a line of names. `dialect` says how a CSV is written,
    as in `{"decimal": ",", "null": ["NA"]}`: `delimiter`, `quote`, `escape`, `comment`, `skip`, `decimal`,
    `thousands` and `null`. `pickle` says which globals stored pickles may use beyond plain values.

    A row that cannot be read or stored is skipped, and the report says why; with `strict=True`, it raises
    `SourceError`. `dry_run=True` does everything, and rolls it back. `verify=True` reads the source again,
    and compares each row. The import is one transaction: an error leaves everything as it was. `batch` is a
    number of rows for each of several transactions, so that other writers need not wait for all of it.
    `progress` is True for a line on stderr, or a function that gets the number of rows and the part done,
    from 0 to 1 or None. A source that is unknown or damaged, or changes meanwhile, raises `SourceError`.

    >>> import pathlib, pellucid
    >>> _ = pathlib.Path("pets.jsonl").write_text('{"name": "Rex", "age": 3}\\n{"name": "Tom"}\\n')
    >>> db = pellucid.open(":memory:")
    >>> pellucid.import_from("pets.jsonl", db, table="pets", key="name")
    <ImportReport: 2 rows of pets.jsonl (jsonl) in table 'pets'>
    >>> db.table("pets")["Rex"].age
    3
    """
    # All arguments but the first two, by their names.
    choices = {**locals()}
    del choices["source"], choices["into"]
    from pellucid.transfer import incoming

    return incoming.run(source, into, incoming.Choices(**choices))


def export_to(
    rows: Table[Any] | Query[Any] | Database | Snapshot | ServerDatabase | ServerSnapshot,
    target: FilePath | BinaryIO,
    *,
    format: str | None = None,  # noqa: A002  the field's name for it
    table: str | None = None,
    key: str | None = None,
    where: str | Expression | None = None,
    select: Iterable[str] | Mapping[str, str | Expression] | None = None,
    flatten: bool = False,
    fields: Iterable[str] | None = None,
    overwrite: bool = False,
    spreadsheet: bool = False,
    nan_as_null: bool = False,
    progress: bool | Callable[[int, float | None], object] = False,
) -> ExportReport:
    """Write the rows of a table, a query or a database to a file for other programs, and return a report.

    `target` is a path or a binary file. Its suffix decides the format; `format` overrides that: "jsonl",
    "json", "csv", "tsv", "parquet", "arrow", "sqlite" or "shelve". A text whose name ends in `.gz` or `.zst`
    is compressed. With `key`, the key of each row becomes a field of that name; without it, keys are not
    written, except to a shelf.

    `rows` may be a database or a snapshot. SQLite then gets all of its tables. Other formats hold one table,
    so several tables with rows raise `ValueError`; `table` chooses one. With a table or a query for `rows`,
    `table` is the name that it gets in SQLite.

    `where` is a condition, `select` a list of field paths or a dict of names and expressions, as of a query.
    With `flatten=True`, the fields of dicts become fields with dots in their names. `fields` chooses the
    fields of CSV. With `spreadsheet=True`, a text in CSV that a spreadsheet would run as a formula gets an
    apostrophe before it. With `nan_as_null=True`, JSON has null for NaN and infinity.

    A row that the format cannot hold is skipped, and the report says why.

    The file is complete or not there: it gets its name at the end. A file that is there already raises
    `FileExistsError`; `overwrite=True` replaces it.

    >>> import pathlib, pellucid
    >>> pets = pellucid.open(":memory:").table("pets")
    >>> pets["Rex"] = {"age": 3}
    >>> pellucid.export_to(pets, "pets.csv", key="name")
    <ExportReport: 1 row in pets.csv (csv)>
    >>> pathlib.Path("pets.csv").read_text()
    'name,age\\nRex,3\\n'
    """
    from pellucid.transfer import outgoing

    return outgoing.run(
        rows,
        target,
        outgoing.Choices(
            format,
            table,
            key,
            where,
            select,
            flatten,
            fields,
            overwrite,
            spreadsheet,
            nan_as_null,
            progress,
        ),
    )


def copy(
    source: FilePath | Database | Snapshot | ServerDatabase | ServerSnapshot,
    target: FilePath | Database | ServerDatabase,
    *,
    tables: Iterable[str] | None = None,
    existing: str = "refuse",
    verify: bool = False,
    batch: int | None = None,
    pickle: PicklePolicy | None = None,
    progress: bool | Callable[[int, float | None], object] = False,
) -> CopyReport:
    """Copy tables with their indexes from one database to another, and return a report.

    `source` and `target` are paths, URLs of servers, or databases that are open; a target is created if
    necessary. The copy equals a snapshot of the source. `tables` names the tables; without it, all are
    copied. Keys keep their spelling, and `append` goes on with the same number.

    A table that the target has with rows raises `ValueError`, unless `existing` says what becomes of them:
    "replace" removes them, "merge" keeps those under other keys, and "resume" goes on after the last key.

    All is one transaction at the target: an error leaves everything as it was. `batch` is a number of rows
    for each of several transactions, so that other writers need not wait for all. After an error or a kill,
    the same call with `existing="resume"` goes on where it stopped.

    `verify=True` then reads both again, counts, and compares each row; a difference raises `DatabaseError`.
    `pickle` is the policy for a source and a target that are opened here. `progress` is True for a line on
    stderr, or a function that gets the number of rows and the part done, from 0 to 1.

    >>> import pellucid
    >>> db = pellucid.open("zoo.pel")
    >>> db.table("pets").update({"Rex": {"age": 3}, "Tom": {"age": 5}})
    >>> pellucid.copy(db, "archive.pel", verify=True)
    <CopyReport: 2 rows in 1 table of archive.pel, verified>
    """
    from pellucid.transfer import copying

    choices = copying.Choices(tables, existing, verify, batch, pickle, progress)
    return copying.run(source, target, choices)
