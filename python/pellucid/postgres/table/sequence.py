"""`append`: the numbers of rows, which are never given twice.

The server counts for each table. A client takes numbers in blocks that grow, in a transaction of its own,
so a transaction that runs for long holds up no other client. So numbers are left out where a transaction
was rolled back or a client has ended, and the rows of two clients are not in the order of their time.
"""

from __future__ import annotations

import math
import os
import threading
from typing import TYPE_CHECKING, Any

from pellucid._native import ServerTable, server_key

if TYPE_CHECKING:
    from pellucid.postgres.protocols import Tables
    from pellucid.postgres.table.binding import TableBinding

INT_MAX = 2**63 - 1
# Numbers that a client takes at once, at most.
BLOCK_MAX = 1024


class Block:
    """The numbers that a client has taken for a table, and not used yet. Threads share it."""

    def __init__(self) -> None:
        self.next = 0
        self.stop = 0
        # How many to take the next time.
        self.size = 1
        # A forked child takes numbers of its own.
        self._process = os.getpid()
        # A signal handler may append, too.
        self._lock = threading.RLock()

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self._process != os.getpid()

    def taken(self, count: int) -> tuple[list[int], int]:
        """Take up to `count` numbers; return them, and the end of the range that the client has reserved."""
        with self._lock:
            numbers = list(range(self.next, min(self.stop, self.next + count)))
            self.next += len(numbers)
            return numbers, self.stop

    def put(self, start: int, stop: int) -> None:
        """Add numbers that the server has just given, unless another thread has got later ones."""
        with self._lock:
            self.size = min(self.size * 2, BLOCK_MAX)
            if start >= self.stop:
                self.next, self.stop = start, stop

    def skip(self) -> None:
        """Leave the numbers out that are left."""
        with self._lock:
            self.next = self.stop

    def begin_at(self, number: int) -> None:
        """Forget all numbers; the next ones are not below this one."""
        with self._lock:
            self.next = self.stop = number
            self.size = 1


class Sequences:
    """The numbers of one table's rows: those that `append` gives, and what other writes say of them."""

    def __init__(self, tables: Tables, binding: TableBinding, codec: ServerTable) -> None:
        self._tables = tables
        self._binding = binding
        self._codec = codec

    def block(self) -> Block:
        """Return the block of numbers that this client has taken for the table."""
        self._binding.for_writing()
        blocks = self._tables.blocks
        block = blocks.get(self._binding.table_id)
        if block is None or block.is_foreign:
            block = blocks[self._binding.table_id] = Block()
        return block

    def numbers(self, count: int) -> list[int]:
        """Take `count` numbers, in ascending order."""
        block = self.block()
        numbers, least = block.taken(count)
        missing = count - len(numbers)
        if missing:
            # Not while the block is locked: the server may have another transaction wait, that of a thread
            # which comes here next.
            first, taken = self.take(max(missing, block.size), missing, least)
            numbers += range(first, first + missing)
            block.put(first + missing, first + taken)
        return numbers

    def take(self, wanted: int, needed: int, least: int) -> tuple[int, int]:
        """Take numbers of the server from `least` on; return the first one, and how many there are."""
        least = max(least, self._after_keys())
        if least + wanted <= INT_MAX:
            layout = self._binding.for_writing().layout
            taken = self._tables.next_ints(layout, least, wanted, needed)
            if taken is not None:
                return taken
        raise ValueError(
            f"table {self._binding.name!r} has a number key of 2**63 - 1 or more, after which append() has "
            "no next int; put the value under a key of your own"
        )

    def _after_keys(self) -> int:
        """Return the first number after all keys that are numbers, at most `INT_MAX`."""
        lowest, highest = (self._codec.encode_key(edge)[0] for edge in (-math.inf, math.inf))
        last = self._binding.ask(lambda sql: (sql.greatest(), (lowest, highest)))
        if not last:
            return 0
        greatest: Any = server_key(*last[0])
        return max(0, math.floor(greatest) + 1) if greatest < INT_MAX else INT_MAX

    def next_int(self) -> int | None:
        """Return the first number that no client has taken for `append`; None if none is left."""
        least = self._after_keys()
        found = self._binding.ask(lambda sql: (sql.counter, ()))
        number = max(least, int(found[0][0]) if found else 0)
        return number if number < INT_MAX else None

    def raise_next_int(self, number: int) -> None:
        """Let `append` give no number before this one."""
        self.block().begin_at(0)
        self._tables.next_ints(self._binding.for_writing().layout, number, 0, 0)

    def note_key(self, code: bytes, spelling: bytes | None) -> None:
        """Forget the block if this client stores or deletes a row under a number of it, or a greater one."""
        number = self._binding.table_id
        block = self._tables.blocks.get(number) if number is not None else None
        if block is None or block.is_foreign:
            return
        encode = self._codec.encode_key
        if code >= encode(block.next)[0] and code <= encode(math.inf)[0]:
            value = server_key(code, spelling)
            least = block.next
            if value < INT_MAX:
                # Numbers that were set and deleted count, too.
                least = max(least, math.floor(value) + 1)
            block.begin_at(least)
