"""This module writes JSON Lines: each row is JSON in a line of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from pellucid.transfer.outgoing import Export
from pellucid.transfer.targets.plain_text import encoder, lines_encoder

__all__ = ["write"]


def write(export: Export, target: BinaryIO) -> int:
    """Write the rows, and return their number."""
    encode, encode_all = encoder(), lines_encoder()
    written = done = 0
    for rows in export.values():
        try:
            target.write(encode_all(rows))
            written += len(rows)
        except (TypeError, ValueError, RecursionError):
            for line in _one_by_one(export, encode, rows, done):
                target.write(line + b"\n")
                written += 1
        done += len(rows)
    return written


def _one_by_one(
    export: Export, encode: Callable[[Any], bytes], rows: list[Any], done: int
) -> Iterator[bytes]:
    for number, row in enumerate(rows, done):
        try:
            yield encode(row)
        except (TypeError, ValueError, RecursionError) as error:
            export.skip(f"row {number}", str(error))
