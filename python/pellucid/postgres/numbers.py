"""The numbers that a client has taken for `append`, and what its own writes say about them."""

from __future__ import annotations

import math

from pellucid.postgres.large import Large

INT_MAX = 2**63 - 1


class Block:
    """The numbers that a client has taken for a table, and not used yet."""

    def __init__(self) -> None:
        self.next = 0
        self.stop = 0
        # How many to take the next time.
        self.size = 1


class Numbering(Large):
    """What a table notes of numbers when it stores and deletes rows."""

    def _note_own_key(self, code: bytes, spelling: bytes | None) -> None:
        """Forget the block if this client stores or deletes a row under a number of it, or a greater one."""
        block = self._source._blocks.get(self._found) if self._found is not None else None
        if block is not None and code >= self._key(block.next)[0] and code <= self._key(math.inf)[0]:
            self._drop_block(block, code, spelling)

    def _drop_block(self, block: Block, code: bytes, spelling: bytes | None) -> None:
        value = self._key_object(code, spelling)
        least = block.next
        if value < INT_MAX:
            # Numbers that were set and deleted count, too.
            least = max(least, math.floor(value) + 1)
        block.next = block.stop = least
        block.size = 1
