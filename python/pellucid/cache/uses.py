"""This module notes the uses of entries in memory that all processes share, so that a hit writes no commit.

The memory is a file beside the cache. Each key has a slot in it, by a number that is the same in every
process. Two keys may share a slot: then both count as used when one is, so that one of them stays longer
than it should. The file may be lost. Then what was not yet taken over into the table is forgotten, and
nothing else.
"""

from __future__ import annotations

import mmap
import os
import stat
from time import time_ns

from pellucid._native import NotedTable, UseSlots
from pellucid.errors import DatabaseError

__all__ = ["NotedTable", "Uses", "slot_count"]

HEAD_SIZE = 4096
MAGIC = 0x7065_6C6C_7573_6532
# The words of the head.
AT_MAGIC, AT_CHANGES, AT_COUNT = 0, 1, 2

# The number of changes while one is made.
CHANGING = 1

# How many slots there may be.
COUNTS = frozenset(1 << power for power in range(14, 23))


def slot_count(size_limit: int | None) -> int:
    """How many slots a cache of this size gets: one for each KiB, between 16 Ki and 4 Mi."""
    count = 1 << 14
    while size_limit is not None and count < 1 << 22 and count * 1024 < size_limit:
        count *= 2
    return count


class Uses:
    """The words that the processes of one cache share. `path` is None for a cache in memory."""

    def __init__(self, path: str | None, count: int) -> None:
        self.path = path
        self._open(count)
        if self.head[AT_MAGIC] == MAGIC:
            self.follow()
        else:
            self.head[AT_COUNT] = count
            self.head[AT_MAGIC] = MAGIC

    def _open(self, count: int) -> None:
        self._size = HEAD_SIZE + 8 * count
        self._map = mmap.mmap(-1, self._size) if self.path is None else self._mapped(self.path)
        words = memoryview(self._map)
        self.head = words[:HEAD_SIZE].cast("Q")
        self.slots = words[HEAD_SIZE : self._size].cast("d")
        # Each keeps the map that it was made of: a reader may note a use while another thread takes over a
        # larger one.
        self._times, self._counts = UseSlots(self.slots, False), UseSlots(self.slots, True)
        self.slot = self._times.slot

    def notes(self, counts: bool) -> UseSlots:
        """What notes the times of uses, or counts them."""
        return self._counts if counts else self._times

    def follow(self) -> None:
        """Take over the count of slots, if another process has changed it."""
        count = self.head[AT_COUNT]
        if count != len(self.slots) and count in COUNTS:
            # Another thread may be about to store into the old map, which goes with its last user.
            self._open(count)

    def resize(self, count: int) -> None:
        """Have more slots. What was noted in the old ones is forgotten."""
        if self.path is not None and count > len(self.slots):
            self.head[AT_COUNT] = count
            self.follow()

    def _mapped(self, path: str) -> mmap.mmap:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        mode = stat.S_IMODE(os.stat(path.removesuffix("-uses")).st_mode) & 0o666
        file = os.open(path, flags, mode)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise DatabaseError(f"'{path}' is no ordinary file; remove it, and open the cache again")
            if found.st_size < self._size:
                # Room is taken now: a full disk is an error here, and would end the process at a later store.
                os.posix_fallocate(file, 0, self._size)
            return mmap.mmap(file, self._size)
        finally:
            os.close(file)

    @property
    def changes(self) -> int:
        """A number that is another one when a process changes the settings of the cache."""
        return self.head[AT_CHANGES]

    def begin_change(self) -> None:
        """Tell all processes that the settings are about to change."""
        self.head[AT_CHANGES] = CHANGING

    def tell_change(self) -> None:
        """Tell all processes that the settings have changed."""
        # Not a count: two processes that count at once would make one of two changes.
        self.head[AT_CHANGES] = time_ns()
