"""Overflow values of a table on a server: large strings, bytes and arrays, which are stored beside their
record, in pieces.

Each has a random number of 63 bits as its id, so two clients never give the same one. A row that refers to
an overflow value is stored in one transaction with it. What a row refers to no more is deleted afterwards;
if that does not happen, it takes room and no more, since nothing refers to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from pellucid.postgres.protocols import OverflowValues
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import big_int
from pellucid.postgres.session import Statement
from pellucid.postgres.table.binding import TableBinding

PIECE_SIZE = 4 << 20


class Overflow:
    """The overflow values of one table."""

    def __init__(self, binding: TableBinding) -> None:
        self._binding = binding

    def new_ids(self, count: int) -> list[int]:
        """Return ids for overflow values."""
        return [secrets.randbits(63) for _ in range(count)]

    def value(self, code: bytes, number: int) -> bytes | None:
        """Return an overflow value of a row; None if it is gone."""
        pieces = self._binding.ask(lambda sql: (sql.overflow_value, (keys.stored(code), big_int(number))))
        if not pieces:
            return None
        if len(pieces) == 1:
            return bytes(pieces[0][0])
        return b"".join(piece for (piece,) in pieces)

    def forget(self, key: bytes, numbers: Sequence[int]) -> None:
        """Delete overflow values that no row has any more."""
        if numbers:
            given: Any = [big_int(number) for number in numbers]
            self._binding.change(lambda sql: [(sql.delete_overflow, (key, given))])

    def sweep(self, key: bytes, kept: Sequence[int], version: int) -> None:
        """Delete the overflow values that a row had before this version."""
        given: Any = [big_int(number) for number in kept]
        self._binding.change(lambda sql: [(sql.sweep_overflow, (key, given, big_int(version)))])


def stored(sql: Statements, key: bytes, values: OverflowValues) -> Iterator[Statement]:
    """Yield the statements that store overflow values."""
    for number, data in values:
        for piece, start in enumerate(range(0, max(1, len(data)), PIECE_SIZE)):
            part = data[start : start + PIECE_SIZE]
            yield sql.put_overflow, (key, big_int(number), big_int(piece), part)
