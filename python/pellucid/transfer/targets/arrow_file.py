"""This module writes Parquet and Arrow files; it needs pyarrow."""

from __future__ import annotations

from typing import Any, BinaryIO

import pellucid
from pellucid.transfer.outgoing import Export
from pellucid.transfer.sources.arrow_file import pyarrow

__all__ = ["write"]


def write(export: Export, target: BinaryIO) -> int:
    """Write the rows, and return their number."""
    library = pyarrow()
    columns = library.table(export.rows)
    if export.key is not None:
        columns = _with_keys(library, export.rows, columns, export.key)
    if export.format == "parquet":
        from pyarrow import parquet

        parquet.write_table(columns, target)
    else:
        from pyarrow import ipc

        # A stream can be read while it is written, a file at any place.
        begin = ipc.new_stream if export.is_stream else ipc.new_file
        with begin(target, columns.schema) as file:
            file.write_table(columns)
    return int(columns.num_rows)


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
