"""Large values of a table on a server: strings, bytes and arrays that are stored beside their record, in
pieces.

Each has a random number of 63 bits as its id, so two clients never give the same one. A row that refers to
a large value is stored in one transaction with it. What a row refers to no more is deleted afterwards; if
that does not happen, it takes room and no more, since nothing refers to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from pellucid.postgres.schema.statements import Statements, big_int
from pellucid.postgres.session import Statement
from pellucid.postgres.table import keys
from pellucid.postgres.table.index_entries import Entering

PIECE_SIZE = 4 << 20


class Large(Entering):
    """What a table does with large values."""

    def _large_ids(self, count: int) -> list[int]:
        return [secrets.randbits(63) for _ in range(count)]

    def _large(self, code: bytes, number: int) -> bytes | None:
        """Return a large value of a row; None if it is gone."""
        pieces = self._ask(lambda sql: (sql.large_value, (keys.stored(code), big_int(number))))
        if not pieces:
            return None
        if len(pieces) == 1:
            return bytes(pieces[0][0])
        return b"".join(piece for (piece,) in pieces)

    def _put_large(
        self, sql: Statements, key: bytes, large: Sequence[tuple[int, bytes]]
    ) -> Iterator[Statement]:
        """Yield the statements that store large values."""
        for number, data in large:
            for piece, start in enumerate(range(0, max(1, len(data)), PIECE_SIZE)):
                part = data[start : start + PIECE_SIZE]
                yield sql.put_large, (key, big_int(number), big_int(piece), part)

    def _forget_large(self, key: bytes, numbers: Sequence[int]) -> None:
        """Delete large values that no row has any more."""
        if numbers:
            given: Any = [big_int(number) for number in numbers]
            self._change(lambda sql: [(sql.delete_large, (key, given))])
