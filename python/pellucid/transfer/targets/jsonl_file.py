"""This module writes JSON Lines, where each row is JSON in a line of its own, and the same as one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pellucid
from pellucid.transfer.outgoing import Export
from pellucid.transfer.targets.plain_text import encoder, lines_encoder

__all__ = ["write"]


def write(export: Export, target: BinaryIO) -> int:
    """Write the rows, and return their number."""
    is_array = export.format == "json"
    between = b",\n" if is_array else b"\n"
    encode, encode_all = encoder(export.nan_as_null), lines_encoder(export.nan_as_null, between)
    keys_before = pellucid.counters()["other_keys_decoded"]
    written = done = 0
    if is_array:
        target.write(b"[\n")
    for rows in export.values():
        try:
            data, count = encode_all(rows), len(rows)
        except (TypeError, ValueError, RecursionError):
            lines = list(_one_by_one(export, encode, rows, done))
            data, count = between.join(lines), len(lines)
        if count:
            target.write(between + data if written else data)
        written += count
        done += len(rows)
    target.write(b"\n]\n" if is_array and written else b"]\n" if is_array else b"\n" if written else b"")
    if pellucid.counters()["other_keys_decoded"] != keys_before:
        export.note('keys of dicts that are no strings are names in JSON, as "1" for 1')
    return written


def _one_by_one(
    export: Export, encode: Callable[[Any], bytes], rows: list[Any], done: int
) -> Iterator[bytes]:
    for number, row in enumerate(rows, done):
        try:
            yield encode(row)
        except (TypeError, ValueError, RecursionError) as error:
            export.skip(f"row {number}", str(error))
