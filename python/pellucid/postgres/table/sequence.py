"""The numbers that a client has taken for `append`, and what its own writes say about them."""

from __future__ import annotations

import math
import os
import threading

from pellucid.postgres.table.overflow import Large

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


class Numbering(Large):
    """What a table notes of numbers when it stores and deletes rows."""

    def _note_own_key(self, code: bytes, spelling: bytes | None) -> None:
        """Forget the block if this client stores or deletes a row under a number of it, or a greater one."""
        block = self._source._blocks.get(self._found) if self._found is not None else None
        if block is not None and block.is_foreign:
            return
        if block is not None and code >= self._key(block.next)[0] and code <= self._key(math.inf)[0]:
            self._drop_block(block, code, spelling)

    def _drop_block(self, block: Block, code: bytes, spelling: bytes | None) -> None:
        value = self._key_object(code, spelling)
        least = block.next
        if value < INT_MAX:
            # Numbers that were set and deleted count, too.
            least = max(least, math.floor(value) + 1)
        block.begin_at(least)
