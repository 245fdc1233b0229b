"""This module writes Parquet and Arrow files; it needs pyarrow."""

from __future__ import annotations

import re
import warnings
from itertools import chain
from typing import Any, BinaryIO

import pellucid
from pellucid import errors
from pellucid.transfer.outgoing import Export
from pellucid.transfer.sources.arrow_file import pyarrow
from pellucid.transfer.targets.plain_text import HALF, encoder

__all__ = ["write"]

REPLACEMENT = re.compile("\ufffd".encode())
# As many columns as rows may have together.
COLUMNS_MAX = 1_024


def write(export: Export, target: BinaryIO) -> int:
    """Write the rows, and return their number."""
    library = pyarrow()
    columns = _columns(library, export)
    while export.is_flat and any(map(library.types.is_struct, columns.schema.types)):
        columns = columns.flatten()
    _note_halves(export, columns)
    if len(set(columns.column_names)) < columns.num_columns:
        raise ValueError("two fields have one name when they are flat; choose fields with select=")
    try:
        if export.format == "parquet":
            from pyarrow import parquet

            parquet.write_table(_without_empty_structs(library, export, columns), target)
        else:
            from pyarrow import ipc

            # A stream can be read while it is written, a file at any place.
            begin = ipc.new_stream if export.is_stream else ipc.new_file
            with begin(target, columns.schema) as file:
                file.write_table(columns)
    except (library.ArrowInvalid, library.ArrowNotImplementedError) as error:
        raise errors.UnsupportedValue(f"{export.format} cannot hold these columns: {error}") from error
    return int(columns.num_rows)


def _columns(library: Any, export: Export) -> Any:
    """The columns of all rows that can be columns."""
    try:
        columns = library.table(_stream(export, export.rows))
    except errors.UnsupportedValue:
        with pellucid.open(":memory:") as memory:
            table = memory.table(export.table)
            table.extend(_possible(export))
            return library.table(_stream(export, table))
    if export.key is not None and not export.has_keys:
        columns = _with_keys(library, export.rows, columns, export.key)
    return columns


def _stream(export: Export, rows: Any) -> Any:
    """The columns; what pellucid warns of them is noted in the report."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stream = rows.to_arrow()
    for warning in said:
        export.note(str(warning.message))
    return stream


def _possible(export: Export) -> list[Any]:
    """The rows that can be columns, each tried alone; the others are skipped."""
    possible = []
    names: dict[Any, None] = {}
    with pellucid.open(":memory:") as memory, warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DatabaseWarning)
        for number, row in enumerate(chain.from_iterable(export.values())):
            try:
                memory[0] = row
                memory.to_arrow()
                more = {**names, **dict.fromkeys(row if isinstance(row, dict) else ["value"])}
                if len(more) > COLUMNS_MAX:
                    raise errors.UnsupportedValue(
                        f"with its fields the rows have more than {COLUMNS_MAX:,} columns"
                    )
            except (errors.UnsupportedValue, errors.PickleDenied, errors.UnregisteredType) as error:
                export.skip(f"row {number}", _reason(error))
            else:
                names = more
                possible.append(row)
    return possible


def _note_halves(export: Export, columns: Any) -> None:
    """Note rows with half of a surrogate pair, for which the columns have another character."""
    chunks = chain.from_iterable(column.chunks for column in columns.columns)
    buffers = chain.from_iterable(chunk.buffers() for chunk in chunks)
    if not any(REPLACEMENT.search(buffer) for buffer in buffers if buffer is not None):
        return
    silent = export._replace(skip=lambda _place, _reason: None, step=lambda _done: None)
    numbers = [n for n, row in enumerate(chain.from_iterable(silent.values())) if _has_half(row)]
    if numbers:
        more = f" and {len(numbers) - 1:,} more" if len(numbers) > 1 else ""
        export.note(f"row {numbers[0]}{more}: half of a surrogate pair is written as U+FFFD")


def _has_half(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return HALF.search(value) is not None
    if kind is dict:
        return any(map(_has_half, value)) or any(map(_has_half, value.values()))
    return kind in (list, tuple, set, frozenset) and any(map(_has_half, value))


def _reason(error: Exception) -> str:
    """Why a row cannot be columns, in the words of the error for the table in which it was tried alone."""
    what, _, _ = str(error).partition("; ")
    return what.replace('record 0 of table "default"', "it").replace(' of table "default"', "")


def _without_empty_structs(library: Any, export: Export, columns: Any) -> Any:
    """The columns with JSON in place of dicts that never have a field: Parquet has no such type."""
    to_json = encoder()

    def is_empty(kind: Any) -> bool:
        if library.types.is_struct(kind):
            return kind.num_fields == 0 or any(is_empty(kind.field(at).type) for at in range(kind.num_fields))
        return bool(library.types.is_list(kind)) and is_empty(kind.value_type)

    for at, field in enumerate(columns.schema):
        if is_empty(field.type):
            values = columns.column(at).to_pylist()
            texts = [None if value is None else to_json(value).decode() for value in values]
            columns = columns.set_column(at, field.name, library.array(texts, library.string()))
            export.note(
                f"column {field.name!r} is JSON in a text: it has a dict without fields, and Parquet has no "
                "type for that"
            )
    return columns


def _with_keys(library: Any, rows: Any, columns: Any, name: str) -> Any:
    if name in columns.column_names:
        raise ValueError(f"key={name!r} names a field that the rows have already; choose another name")
    keys = library.table(rows.select(**{name: pellucid.KEY}))
    if len(keys) != len(columns):
        raise RuntimeError(
            "rows were stored or deleted while the table was exported; export a snapshot: "
            "export_to(db.snapshot().table(name), ...)"
        )
    return columns.add_column(0, name, keys.column(0))
