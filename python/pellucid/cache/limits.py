"""This module keeps a cache within its limit: what each entry takes, in which order entries go, and when.

Only a cache with a limit, or with rows in the order of their insertion, has a table of order: a row for each
entry, with its number, its size and its place. It is written in the transaction that stores the entry. The
index over the places is the order of eviction. A use does not move a row: it is noted in shared memory. When
the walk from the lowest place comes to an entry that was used since, it moves the row to where the use puts
it, and goes on. So the order is exact where slots are not shared, and uses are stored with an eviction.
"""

from __future__ import annotations

import os
from itertools import islice
from time import time

from pellucid import F, dumps
from pellucid.cache.entries import ABSENT, EXPIRE
from pellucid.cache.uses import Uses
from pellucid.errors import Error

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["POLICIES", "SIZE_LIMIT_MIN", "Order", "log_memory"]

STORED, USED, FREQUENT, NONE = POLICIES = (
    "least-recently-stored",
    "least-recently-used",
    "least-frequently-used",
    "none",
)
# Less than this, the log alone may take.
SIZE_LIMIT_MIN = 32 << 20
# What an entry takes beside its key and value: two rows, an index entry, and their share of pages.
ENTRY_SIZE = 160
# How many rows one transaction evicts at most, so that other writers get their turn.
BATCH = 1000
LOOKS = 256
# What free pages in pieces take, of a file of mixed sizes.
SHARE_MAX = 0.86


def log_memory(size_limit: int) -> int:
    """The memory for commits with which the log of a cache of this size stays small beside it."""
    return max(8 << 20, min(256 << 20, size_limit // 16))


def size_of(value: Any) -> int:
    """About how many bytes a key or value takes."""
    if type(value) in (bytes, bytearray):
        return len(value)
    if type(value) in (int, float, bool, type(None)):
        return 8
    if (size := getattr(value, "nbytes", None)) is not None:
        return int(size)
    try:
        return len(dumps(value))
    except Error:
        # A pickle, whose size is not known before it is made.
        return _size_of_object(value, 0)


def _size_of_object(value: Any, depth: int) -> int:
    if type(value) in (bytes, str):
        return len(value)
    if depth > 8:
        return 64
    parts = (
        value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    )
    parts = parts or getattr(value, "__dict__", {}).values()
    return 64 + sum(_size_of_object(each, depth + 1) for each in parts)


class Order:
    """The order and the sizes of the entries of one cache."""

    def __init__(self, db: Any, table: Any, uses: Uses) -> None:
        self._db = db
        self._table = table
        self._uses = uses
        self.rows = db.table("cache order")
        self._info = db.table("cache info", type=object, fast=True)
        self.policy = STORED
        self.size_limit = 0
        self._written = 0
        # What all entries took when this process stored one.
        self.size = 0
        # How many bytes of the file an estimated byte takes.
        self._ratio = 1.0
        # Which part of the room in the file the entries may need, and how long the file was at the last look.
        self._share = SHARE_MAX
        self._grown = 0
        # The pages in use at the last look, and what was evicted of them since.
        self._live = self._evicted = 0

    @property
    def totals(self) -> dict[str, int]:
        """What all entries take as `size_of` sees them, and the number of the next entry."""
        return self._info.get("totals") or {"size": 0, "next": 0}

    def begin(self) -> None:
        """Make the table of order, with a row for each entry that there is."""
        with self._db.transaction():
            self.rows.create_index("place", (F.at, F.since))
            self.rows.create_index("number", F.number)
            self.rows.clear()
            self._info["totals"] = {"size": 0, "next": 0}
            for key, row in self._table.items():
                self.add(key, row)

    def add(self, key: Any, row: Any) -> int:
        """Note an entry that is stored, in the transaction that stores it; returns its estimated size."""
        now, totals, old = time(), self.totals, self.rows.get(key)
        size = size_of(key) + size_of(row) + ENTRY_SIZE
        number = totals["next"] if old is None else old.number
        at = now
        slot = self._uses.slot(key)
        if self.policy == FREQUENT:
            at = 0.0 if old is None else old.at
            if old is None:
                self._uses.slots[slot] = 0.0
        self.rows[key] = {"number": number, "size": size, "at": at, "since": now}
        totals["size"] += size - (0 if old is None else old.size)
        totals["next"] += old is None
        self._info["totals"] = totals
        self._written += size
        self.size = totals["size"]
        return size

    def drop(self, key: Any) -> None:
        """Note that an entry is gone, in the transaction that deletes it."""
        old = self.rows.get(key)
        if old is not None:
            totals = self.totals
            totals["size"] -= old.size
            self._info["totals"] = totals
            del self.rows[key]

    def clear(self) -> None:
        """Note that all entries are gone."""
        self.rows.clear()
        self._info["totals"] = {**self.totals, "size": 0}

    def note(self, key: Any) -> None:
        """Note a use, in shared memory alone."""
        if self.policy == USED:
            self._uses.slots[self._uses.slot(key)] = time()
        elif self.policy == FREQUENT:
            self._uses.slots[self._uses.slot(key)] += 1.0

    def is_due(self) -> bool:
        """Say whether this process has written so much that the size is to be looked at."""
        return self.size_limit > 0 and self._written >= min(self.size_limit // LOOKS, 8 << 20)

    def excess(self) -> int:
        """How many estimated bytes to evict, so that file and log stay within the limit.

        The file is as large as its pages, and free pages in it are used again. So what counts is how many
        pages the entries will need, and what the log may take until then.
        """
        self._written = 0
        if not self.size_limit:
            return 0
        stats, size = self._db.stats(), max(1, self.totals["size"])
        if self._db.path is None:
            return size - self.size_limit
        if stats["live_size"] != self._live:
            # A checkpoint has freed the pages of what was evicted.
            self._live, self._evicted = stats["live_size"], 0
        needed = self._live + stats["log_pending"] - self._evicted
        self._ratio = min(4.0, max(1.0, needed / size))
        room = self.size_limit - self.beside() - max(stats["log_size"], stats["log_limit"])
        # Large values need free pages side by side. While the file grows near its limit, more is left free.
        if stats["file_size"] > max(self._grown, room * 0.97):
            self._share = max(0.5, self._share - 0.01)
        self._grown = stats["file_size"]
        return int(size - max(room, self.size_limit // 4) * self._share / self._ratio)

    def beside(self) -> int:
        """What the file of uses takes."""
        try:
            return os.stat(f"{self._db.path}-uses").st_blocks * 512
        except OSError:
            return 0

    def evict(self, excess: int, count_max: int = BATCH) -> int:
        """Evict entries by the policy until this many estimated bytes are free; returns their number.

        It runs in one transaction, and stops after `count_max` entries.
        """
        if self.policy == NONE or excess <= 0:
            return 0
        gone = self._evict_expired(count_max)
        count, freed, moves = len(gone), sum(gone), 0
        while freed < excess and count < count_max and moves < 10 * count_max:
            lowest = list(islice(self.rows.index("place").keys(), 128))
            if not lowest:
                break
            for (at, _since), key in lowest:
                place = self._place(key, at)
                if place > at:
                    self._move(key, place)
                    moves += 1
                    continue
                freed += self.delete(key)
                count += 1
                if freed >= excess or count >= count_max:
                    break
        self._evicted += int(freed * self._ratio)
        return count

    def _place(self, key: Any, at: float) -> float:
        """Where the uses since the last look put an entry."""
        slot = self._uses.slot(key)
        if self.policy == USED:
            return self._uses.slots[slot]
        if self.policy == FREQUENT:
            uses, self._uses.slots[slot] = self._uses.slots[slot], 0.0
            return at + uses
        return at

    def _move(self, key: Any, place: float) -> None:
        row = self.rows[key].copy()
        row["at"] = place
        self.rows[key] = row

    def delete(self, key: Any) -> int:
        """Delete an entry with its row of order; returns its estimated size."""
        old = self.rows.get(key)
        size = 0 if old is None else old.size
        self.drop(key)
        self._table.pop(key, ABSENT)
        return size

    def _evict_expired(self, count_max: int) -> list[int]:
        if not any(info.name == "expire" for info in self._table.indexes()):
            return []
        expired = list(self._table.where(F[EXPIRE] < time()).limit(count_max).keys())
        return [self.delete(key) for key in expired]
