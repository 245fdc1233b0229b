"""This module keeps a cache within its limit: what each entry takes, in which order entries go, and when.

Only a cache with a limit, or with rows in the order of their insertion, has a table of order: a row for each
entry, with its number, its size and its place. It is written in the transaction that stores the entry. The
index over the places is the order of eviction. A use does not move a row: it is noted in shared memory. When
the walk from the lowest place comes to an entry that was used since, it moves the row to where the use puts
it, and goes on. So the order is exact where slots are not shared, and uses are stored with an eviction.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from time import monotonic, sleep, time

from pellucid import F, dumps
from pellucid.cache.entries import EXPIRE
from pellucid.cache.flights import Claim, claim
from pellucid.cache.uses import Uses
from pellucid.errors import Busy

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["POLICIES", "SIZE_LIMIT_MIN", "Order", "entry_size", "log_memory"]

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
# What a value that cannot be stored counts as.
UNKNOWN_SIZE = 64
# How many rows one transaction evicts at most, so that other writers get their turn.
BATCH = 1000
# Which part of the limit is written between two looks at the file.
LOOKS = 16
# How often, and how long, a writer waits for pages that short reads of other processes keep.
WAITS, PAUSE = 50, 0.005
# An older reader, in seconds, is none of these.
READ_TIME = 1
# By which part of the limit the file may be longer than it should be before it is made shorter.
EXCESS = 8
# What is kept of the need from look to look while there is room, and how much it may be.
NEED_KEPT, NEED_MAX = 0.95, 3.0
# Below this, what is in the log makes no difference.
PENDING_MAX = 256 << 10
# The claim of the one process that makes room.
CLAIM = b"the room"
# In seconds: a process that has it for longer may be stopped.
CLAIM_TIME = 10.0


def log_memory(size_limit: int) -> int:
    """The memory for commits with which the log of a cache of this size stays small beside it."""
    return max(8 << 20, min(256 << 20, size_limit // 16))


def size_of(value: Any) -> int:
    """About how many bytes a key or value takes."""
    if type(value) in (bytes, bytearray):
        return len(value)
    if type(value) in (int, float, bool, type(None)):
        return 8
    if type(size := getattr(value, "nbytes", None)) is int:
        return size
    try:
        return len(dumps(value, pickle="allow"))
    except Exception:
        # What does not let itself be stored says why when it is.
        return UNKNOWN_SIZE


def entry_size(key: Any, row: Any) -> int:
    """About how many bytes an entry takes, with its row of order."""
    return size_of(key) + size_of(row) + ENTRY_SIZE


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
        # What all entries took, and how much may be written before the next look at the file, when this
        # process stored an entry.
        self.size = self.left = 0

    @property
    def totals(self) -> dict[str, int]:
        """What all entries take as `size_of` sees them, the number of the next, and what may be written."""
        return self._info.get("totals") or {"size": 0, "next": 0, "left": 0}

    def begin(self) -> None:
        """Make the table of order, with a row for each entry that there is."""
        with self._db.transaction():
            self.rows.create_index("place", (F.at, F.since))
            self.rows.create_index("number", F.number)
            self.rows.clear()
            self._info["totals"] = {"size": 0, "next": 0, "left": 0}
            for key, row in self._table.items():
                self.add(key, entry_size(key, row))

    def add(self, key: Any, size: int) -> None:
        """Note an entry of this size that is stored, in the transaction that stores it."""
        now, totals, old = time(), self.totals, self.rows.get(key)
        number = totals["next"] if old is None else old.number
        at = now
        if self.policy == FREQUENT:
            at = 0.0 if old is None else old.at
            if old is None:
                self._uses.slots[self._uses.slot(key)] = 0.0
        self.rows[key] = {"number": number, "size": size, "at": at, "since": now}
        totals["size"] += size - (0 if old is None else old.size)
        totals["next"] += old is None
        totals["left"] = self.left = totals.get("left", 0) - size
        self.size = totals["size"]
        self._info["totals"] = totals

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

    def make_room(self, size: int, is_asked: bool = False) -> int:
        """Evict until this many more bytes fit into the limit; returns how many entries went.

        Not in a transaction. One process at a time does that: the others wait, and look whether there is room
        then. What was evicted gives room only when a checkpoint has written it into the file. Pages that an
        older snapshot sees are waited for as long as it is young, and are room that the file takes beyond its
        limit otherwise. `is_asked` looks even if there seems to be room.
        """
        if not self.size_limit or self.policy == NONE:
            return 0
        if self._db.path is None:
            wanted = max(size, self.size_limit // LOOKS)
            self.look_soon(wanted)
            return self.evict_down_to(self.size_limit - wanted)
        claimed = self._claim()
        try:
            self.left = self.totals.get("left", 0)
            if self.left >= size and not is_asked:
                return 0
            return self._make_room(size, self.size_limit // LOOKS)
        finally:
            if claimed is not None:
                claimed.release()

    def _claim(self) -> Claim | None:
        """The right to make room; None if a process has it for so long that it may be stopped."""
        until = monotonic() + CLAIM_TIME
        while True:
            claimed = claim(self._uses.path, CLAIM, waits=False)
            if claimed is not None or monotonic() > until:
                return claimed
            sleep(0.001)

    def _make_room(self, size: int, step: int) -> int:
        """Evict for a value of this size, and for `step` bytes of values like those that there are."""
        count, need, wanted = None, 1.0, max(size, step)
        for _ in range(WAITS):
            stats = self._written_out()
            room, live, file = self._room(stats), stats["live_size"], stats["file_size"]
            # Small entries take more than their bytes, and a large value does not.
            ratio = min(4.0, max(1.0, live / max(1, self.totals["size"])))
            taken = max(size, step * ratio)
            if count is None:
                need = self._need(stats, room)
                # Pages can be used again from the second checkpoint after the one that frees them.
                target = min(room - 2 * taken, (room - taken) / need)
                count = self.evict_down_to(max(0, int(target / ratio)))
            if stats["free_size"] + max(0, room - file) >= taken:
                break
            if stats["pinned_size"]:
                if stats["oldest_reader_age"] >= READ_TIME:
                    break
                sleep(PAUSE)
        if file - room > max(self.size_limit // EXCESS, 2 * stats["pinned_size"]):
            # A transaction, a snapshot or a larger limit has made the file longer.
            with suppress(Busy):
                self._db.compact(online=True)
        self.look_soon(wanted, need)
        return count or 0

    def _need(self, stats: Any, room: int) -> float:
        """How many bytes of the file a byte of it that is in use needs.

        A checkpoint writes each page anew that it changes, and a large value needs pages side by side. So the
        pages that are free while the file grows are needed.
        """
        totals, live = self.totals, max(1, stats["live_size"])
        need, used = totals.get("need", 1.0), stats["file_size"] - stats["pinned_size"]
        if used <= totals.get("file", 0):
            return float(need if used > room else 1 + (need - 1) * NEED_KEPT)
        if stats["file_size"] < room:
            # Evictions, which come soon, change as many pages again.
            used += stats["free_size"]
        return float(min(NEED_MAX, max(need, used / live)))

    def _room(self, stats: Any) -> int:
        """How long the file may be, beside the log and the file of uses."""
        # A process that had the file open before there was a limit has a longer log.
        log = max(stats["log_size"], min(stats["log_limit"], self.size_limit // 4))
        return int(max(self.size_limit - self.beside() - log, self.size_limit // 4))

    def _written_out(self) -> Any:
        """The sizes of the file, after a checkpoint."""
        for _ in range(WAITS):
            self._db.sync()
            stats = self._db.stats()
            if stats["log_pending"] <= PENDING_MAX:
                break
            # A writer was in the way.
            sleep(0.001)
        return stats

    def look_soon(self, left: int = 0, need: float = 1.0) -> None:
        """Have all processes look at the file after `left` more bytes, and note how it is now."""
        file = 0 if self._db.path is None else os.stat(self._db.path).st_size
        with self._db.transaction():
            self._info["totals"] = {**self.totals, "left": left, "file": file, "need": need}
        self.left = left

    def evict_down_to(self, size: int) -> int:
        """Evict until all entries take this many estimated bytes, in transactions with pauses between."""
        count, moves_left = 0, 2 * len(self.rows)
        while (excess := self.totals["size"] - size) > 0:
            with self._db.transaction():
                evicted, moved = self.evict(excess)
            count, moves_left = count + evicted, moves_left - moved
            # Readers may use entries faster than they are moved.
            if not (evicted or moved) or moves_left < 0:
                break
        return count

    def beside(self) -> int:
        """What the file of uses takes."""
        try:
            return os.stat(f"{self._db.path}-uses").st_blocks * 512
        except OSError:
            return 0

    def evict(self, excess: int, count_max: int = BATCH) -> tuple[int, int]:
        """Evict entries by the policy until this many estimated bytes are free.

        It runs in one transaction, and stops after `count_max` entries. Returns how many are gone, and how
        many were moved to where their uses put them.
        """
        if self.policy == NONE or excess <= 0:
            return 0, 0
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
        return count, moves

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
        with suppress(KeyError):
            del self._table[key]
        return size

    def _evict_expired(self, count_max: int) -> list[int]:
        if not any(info.name == "expire" for info in self._table.indexes()):
            return []
        expired = list(self._table.where(F[EXPIRE] < time()).limit(count_max).keys())
        return [self.delete(key) for key in expired]
