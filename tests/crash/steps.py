"""At which named steps of the write path does a process die?

A build with the feature `failpoints` counts the steps that `crates/store/src/sys/steps.rs` names, in a page
that it shares with the campaign, and dies, stops or sleeps at one that was chosen there. Other builds name
none.
"""

from __future__ import annotations

import collections
import mmap
import os
import random
from dataclasses import dataclass

from pellucid._native import _testing

STEP_NAMES: list[str] = list(getattr(_testing, "STEP_NAMES", ()))
CHOSEN, LEFT, STOPS, SLEEPS, COUNTS = 0, 1, 2, 3, 16
"""Places of words in the shared page."""


@dataclass(frozen=True)
class Aim:
    """The step at which a process is to end."""

    step: str
    count: int
    """How many times the process takes it, the last time included."""
    stops: bool
    """Only the thread that takes it stops; the others go on until the process is killed."""
    sleeps: int = 0
    """If not 0, nothing ends there: the thread that takes it sleeps for these milliseconds, from then on each
    time, and the process is killed some time later."""


class StepPage:
    """The page in which a process counts its steps; it outlives the process."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("steps")
        os.truncate(self.descriptor, mmap.PAGESIZE)
        self.words = memoryview(mmap.mmap(self.descriptor, mmap.PAGESIZE)).cast("Q")

    def choose(self, aim: Aim) -> None:
        self.words[LEFT], self.words[STOPS], self.words[SLEEPS] = aim.count, aim.stops, aim.sleeps
        self.words[CHOSEN] = STEP_NAMES.index(aim.step) + 1

    def watch(self) -> None:
        """Have this process count its steps here."""
        if STEP_NAMES:
            _testing.watch_steps(f"/proc/self/fd/{self.descriptor}")

    def close(self) -> None:
        """The process has ended: only the counts are read from now on."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def is_aimed(self) -> bool:
        """Whether a step was chosen for the process."""
        return bool(self.words[CHOSEN])

    @property
    def has_come(self) -> bool:
        """Whether the chosen step was taken as often as it was to be."""
        # It is counted down from `count`; the last time it is 1, and 0 from then on, or far beyond.
        return self.is_aimed and not 0 < self.words[LEFT] < 1 << 63

    @property
    def is_hit(self) -> bool:
        """Whether the process, or one of its threads, has come to its end at the chosen step."""
        return self.has_come and not self.words[SLEEPS]

    def taken(self) -> collections.Counter[str]:
        counts = {name: self.words[COUNTS + number] for number, name in enumerate(STEP_NAMES)}
        return collections.Counter({name: count for name, count in counts.items() if count})


@dataclass(frozen=True)
class Setting:
    """What a round must be like for its writers to come to a step."""

    favourites: tuple[str, ...] = ()
    """The phases of the operations that lead there. One that is named twice is chosen twice as often."""
    beside: tuple[str, ...] | None = None
    """Those of a second writer, if it is to do something else meanwhile. Then both do little but their
    favourites, so that each of them meets the other one in the middle of one."""
    count: int = 3
    """The process ends at one of the first so many times that it takes the step."""
    is_wide: bool = False
    is_compressed: bool = False
    writers: int = 1
    segment_size: int | None = None
    takes_over: bool = False
    """The first writer comes there after the death of the second one."""
    by_opener: bool = False
    """A process that opens what the dead have left comes there, rather than a writer."""
    has_reader: bool = False
    """A reader process stays: the verifier, which opens what a dead writer has left, is not alone with it."""


SETTINGS: dict[str, Setting] = {
    "log: a new one is about to be valid": Setting(count=1),
    "replay: the end of the log is known": Setting(by_opener=True, count=1),
    "replay: all words of the head are set": Setting(by_opener=True, count=1),
    "append: written, not acknowledged": Setting(("large",), count=1000, has_reader=True),
    "append: between tail and sequence": Setting(("large",) * 3, writers=2, count=1000),
    "log: has grown": Setting(("bulk",), count=6),
    "log: is about to give room back": Setting(("bulk", "rest"), is_wide=True, count=1, segment_size=0),
    "log: has given room back": Setting(("bulk", "rest"), is_wide=True, count=1, segment_size=0),
    "seal: the next segment is begun": Setting(("checkpoint",)),
    "seal: the next segment is active": Setting(("checkpoint",)),
    "checkpoint: writes an entry": Setting(("checkpoint",), count=300),
    "checkpoint: is about to commit": Setting(("checkpoint",)),
    "checkpoint: committed, not told": Setting(("checkpoint",)),
    "dictionary: trained, not stored": Setting(("checkpoint",), is_compressed=True, count=6),
    "online compaction: leaves are filled": Setting(("online",), is_wide=True, count=6),
    "online compaction: pages are moved": Setting(("online",), is_wide=True),
    "automatic compaction: begins": Setting(("rest",), is_wide=True, count=2),
    "compact: the log is gone, the old file there": Setting(("compact",), count=1),
    "compact: the new file is in its place": Setting(("compact",), count=1),
    "large value: pages are reserved, not known": Setting(("large",)),
    "large value: the reserve is freed, and still known": Setting(
        ("large", "online"), count=2, has_reader=True
    ),
    "large value: written, not in the log": Setting(("large", "checkpoint"), ("online",), count=20),
    "sorted load: a run is written": Setting(("sorted",), count=6),
    "sorted load: rows are about to be merged": Setting(("sorted",), count=2),
    "bulk: is about to commit": Setting(("sorted",), count=2),
    "takeover: the lock is taken from the dead": Setting(takes_over=True, writers=2, count=1),
    "takeover: the log is recovered": Setting(takes_over=True, writers=2, count=1),
    "index: entries are built, not put": Setting(("index",)),
    "close: the last process is about to remove the log": Setting(("close",), count=1),
    "close: the log is removed": Setting(("close",), count=1),
}
"""How a round comes to each step. A test compares the names with those of the build."""


def aim_at(step: str, dice: random.Random) -> Aim:
    """Choose one of the first times that the step is taken, and what the process does there."""
    count = max(1, round(SETTINGS[step].count ** dice.random()))
    chance = dice.random()
    if chance < 0.3:
        # Others do something meanwhile, and what comes after the step is killed as well.
        return Aim(step, count, stops=False, sleeps=dice.choice([1, 10, 100]))
    return Aim(step, count, stops=chance < 0.6)
