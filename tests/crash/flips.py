"""Does damage in a database's files end the process that reads them, pass for sound, or cost what is whole?

A flip takes one of the databases of `images.py`, changes one bit of the data file or the log, and does what
users do with such files: open, replay the log, check, read a copy with `untrusted=True`; and open them once
more, since the first one may hide what the second one meets. Nothing may end the process. Where `check`
finds nothing and nobody was warned, every row is as it was. Where the log is damaged, no commit before the
damage is lost. Whoever is refused has thrown away nothing.

What is not promised is not done: rows of a file in which `check` finds damage are not read through the
engine, which believes its pages.

A seed says which bit of which database is changed. Other kinds of damage than a bit are there too: several
bits, some bytes, whole pages.
"""

from __future__ import annotations

import collections
import mmap
import os
import pickle
import random
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pellucid
from processes import fork

from crash.images import HEAD_SIZE, SECONDS_MAX, Image, content_of, in_child, index_order_of, log_of, rows_of

PAGE = 4096
KINDS = ["bit", "bits", "bytes", "pages"]


@dataclass
class Tally:
    """What a campaign has done."""

    flips: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    """What became of those who used the damaged files."""

    def add(self, other: Tally) -> None:
        self.flips += other.flips
        self.outcomes += other.outcomes


class FailedFlipError(Exception):
    """Damage that ended a process, or that nobody noticed: says with which seed, and where the files are."""

    def __init__(self, seed: int, folder: Path, what: str, *, is_copy: bool = False) -> None:
        super().__init__(seed, folder, what)
        self.seed, self.folder, self.what, self.is_copy = seed, folder, what, is_copy

    def __str__(self) -> str:
        return f"the flip of seed {self.seed} failed; its files are in {self.folder}\n{self.what}"


# Damage


@dataclass
class Damage:
    """What is done to which file."""

    kind: str
    is_log: bool
    places: list[tuple[int, bytes]]
    """Where bytes are written, and which."""

    def done_to(self, original: bytes) -> bytes:
        changed = bytearray(original)
        for at, there in self.places:
            changed[at : at + len(there)] = there
        return bytes(changed)

    def __str__(self) -> str:
        which = "log" if self.is_log else "data file"
        places = ", ".join(f"{len(there)} bytes at {at} (page {at // PAGE})" for at, there in self.places[:4])
        return f"{self.kind} of the {which}: {places}"


def damage_of(dice: random.Random, image: Image, kind: str) -> Damage:
    """Think of some damage: everywhere, but more of it where the structure is than where the values are."""
    is_log = bool(image.log) and dice.random() < 0.4
    original = image.log.rstrip(b"\0") if is_log else image.data
    if kind == "pages":
        return Damage(kind, is_log, [_page(dice, original)])
    count = dice.randint(2, 8) if kind == "bits" else 1
    places: list[tuple[int, bytes]] = []
    for _ in range(count):
        at = _place(dice, original, is_log=is_log)
        if kind == "bytes":
            places.append((at, dice.randbytes(min(dice.randint(1, 16), len(original) - at))))
        else:
            places.append((at, bytes([original[at] ^ 1 << dice.randrange(8)])))
    return Damage(kind, is_log, places)


def _page(dice: random.Random, original: bytes) -> tuple[int, bytes]:
    """A page that the disk lost, never wrote, or wrote elsewhere."""
    count = len(original) // PAGE
    at, other = dice.randrange(count) * PAGE, dice.randrange(count) * PAGE
    there = dice.choice([bytes(PAGE), b"\xff" * PAGE, dice.randbytes(PAGE), original[other : other + PAGE]])
    size = dice.choice([PAGE, PAGE, 512])
    start = dice.randrange(0, PAGE, size)
    return at + start, there[start : start + size]


def _place(dice: random.Random, original: bytes, *, is_log: bool) -> int:
    chance = dice.random()
    if is_log:
        # Its head, of which most is the table of members, and what the commits have.
        if chance < 0.3:
            return dice.randrange(min(2 * PAGE, len(original)))
        return dice.randrange(min(HEAD_SIZE, len(original) - 1), len(original))
    if chance < 0.4:
        return dice.randrange(len(original))
    if chance < 0.7:
        # What stands at the beginning of a page: its head, and where its entries are.
        return dice.randrange(len(original) // PAGE) * PAGE + dice.randrange(64)
    # A page that is neither a leaf nor part of a large value.
    kinds = [original[at + 10] for at in range(0, len(original) - 11, PAGE)]
    inner = [number for number, kind in enumerate(kinds) if kind in (1, 8)]
    start = dice.choice(inner) * PAGE
    used = range(start, start + 200) if start < 2 * PAGE else range(start, start + PAGE)
    return dice.choice(used)


# Use


class UnnoticedError(Exception):
    """Nobody was told anything, and yet something is not as it was; or what is whole was thrown away."""


REFUSALS = (pellucid.DatabaseCorrupt, pellucid.NotADatabase, pellucid.NewerFormat)


@dataclass(frozen=True)
class Expected:
    """What may be in a database that was damaged, if nothing is found in it."""

    contents: Sequence[int]
    """After each commit in the log, the last one is what was there."""
    whole: int
    """So many of these commits cannot be lost."""
    is_synced: bool = False
    """Whether all of them were known to be on the disk, so that no power cut explains that one is lost."""
    index_order: str | None = None
    """What the indexes lead to if nothing is lost."""
    is_new: bool = False
    """Whether a database may be made of the files as of none."""

    def compare(self, db: Any, told: list[str]) -> str:
        """Check a database; where nothing is found, what is in it must be what was."""
        if db.check():
            return "found by check"
        became = self.judge(content_of(rows_of(db)), told)
        if became == "sound" and self.index_order not in (None, index_order_of(db)):
            raise UnnoticedError("an index leads elsewhere")
        return became

    def judge(self, content: int, told: list[str]) -> str:
        """What it means that this is there, and that one was told so; raises what may not be."""
        if self.is_new and content == 0:
            return "new"
        if content == self.contents[-1]:
            return "sound"
        if content not in self.contents[self.whole :]:
            count = self.contents.index(content) if content in self.contents else None
            what = (
                f"after {count} commits, of which {self.whole} were whole" if count is not None else "never"
            )
            raise UnnoticedError(f"nothing is found in it, and it is as it was {what}; warned of: {told}")
        if not told:
            raise UnnoticedError("commits are lost, and nobody is warned")
        if self.is_synced:
            raise UnnoticedError(f"damage passes for a power cut; warned of: {told}")
        return "warned of lost commits"


class Files:
    """A database's files, as they are when nobody has used them yet."""

    def __init__(self, folder: Path, data: bytes, log: bytes) -> None:
        self.path, self.data, self.log = folder / "used.pel", data, log

    def renew(self) -> Path:
        """Make them what they were."""
        for file in self.path.parent.iterdir():
            file.unlink()
        self.path.write_bytes(self.data)
        if self.log:
            log_of(self.path).write_bytes(self.log)
        return self.path

    def is_kept(self) -> bool:
        """Whether the log has all commits that it had, or the data file has taken all of them."""
        is_changed = self.path.read_bytes()[2 * PAGE :] != self.data[2 * PAGE :]
        if not self.log:
            return not is_changed
        if not log_of(self.path).exists():
            return is_changed
        return log_of(self.path).read_bytes()[HEAD_SIZE : len(self.log)] == self.log[HEAD_SIZE:]


def opened_and(path: Path, mode: str, use: Callable[[Any, list[str]], str], **how: Any) -> str:
    """Open a database, and use it, unless that is refused; `use` is told of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with pellucid.open(path, mode, **how) as db:  # type: ignore[call-overload]
                return use(db, [str(warning.message) for warning in caught])
        except REFUSALS:
            return "refused"


def use_all(files: Files, expected: Expected) -> list[str]:
    """Use the files in all ways, each time twice; returns what became of it."""
    told: list[str] = []
    path = files.renew()
    read = opened_and(path, "r", expected.compare)
    told.append(f"read: {read}")
    if not files.log:
        files.renew()
        untrusted = opened_and(
            path, "r", lambda db, told: expected.judge(content_of(rows_of(db)), told), untrusted=True
        )
        told.append(f"untrusted: {untrusted}")
        path = files.renew()
    written = opened_and(path, "c", expected.compare)
    told.append(f"write: {written}")
    if written == "refused" and not files.is_kept():
        raise UnnoticedError("it was refused to a writer, and commits were thrown away")
    # The same files again, after one has used them.
    again = (
        opened_and(path, "r", expected.compare) if written == "refused" else _again(path, expected, written)
    )
    told.append(f"again: {again}")
    if written == "refused" and again == "sound":
        raise UnnoticedError("it was refused to a writer, and nothing is found in it")
    return told


def _again(path: Path, expected: Expected, before: str) -> str:
    """Open once more what a writer has opened."""
    if before == "warned of lost commits":
        # The first one was told.
        return opened_and(path, "c", lambda db, _: expected.compare(db, ["before"]))
    again = opened_and(path, "c", expected.compare)
    if before == "sound" and again != "sound":
        raise UnnoticedError(f"a sound database is not at the next open: {again}")
    if before == "found by check" and again == "sound":
        raise UnnoticedError("what a check has found is hidden at the next open")
    return again


def run(seed: int, folder: Path, made: list[Image], kind: str = "bit") -> Tally:
    """Do the damage of one seed in this process, and use the files; they are removed if all was well."""
    dice = random.Random(seed)
    image = dice.choice(made)
    damage = damage_of(dice, image, kind)
    if damage.is_log:
        first = min(at for at, _ in damage.places)
        expected = expected_of_log(image, first)
    else:
        expected = Expected(image.contents, whole_without(image), index_order=image.index_order)
    data = image.data if damage.is_log else damage.done_to(image.data)
    log = damage.done_to(image.log) if damage.is_log else image.log
    return use_copy(seed, folder, f"'{image.name}', after {damage}", (data, log), expected)


def expected_of_log(image: Image, at: int) -> Expected:
    """What may be in an image whose log is not as it was from this byte of the file on."""
    if at < HEAD_SIZE:
        return Expected(image.contents, 0, index_order=image.index_order)
    return Expected(image.contents, image.whole_before(at), image.is_synced, image.index_order)


def whole_without(image: Image) -> int:
    """How many commits of an image's log are whole, wherever the data file is damaged."""
    # Large values of commits that were not known to be on the disk are lost as by a power cut.
    return 0 if image.name == "large values, with a log" else len(image.ends)


def use_copy(
    seed: int,
    folder: Path,
    name: str,
    copy: tuple[bytes, bytes],
    expected: Expected,
    *,
    is_copy: bool = False,
) -> Tally:
    """Use a data file and its log in a new folder, which is removed if all was well."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(folder, *copy)
    try:
        outcomes = use_all(files, expected)
    except Exception:
        files.renew()
        raise FailedFlipError(seed, folder, f"{name}\n{traceback.format_exc()}", is_copy=is_copy) from None
    shutil.rmtree(folder)
    which = "with a log" if copy[1] else "at rest"
    return Tally(1, collections.Counter(f"{which}, {outcome}" for outcome in outcomes))


# Many at a time, in children that may die of it

One = Callable[[int, Path], Tally]
"""Does what a seed says, in a new folder."""


def run_all(seeds: Sequence[int], one: One, base: Path, jobs: int, end: float) -> Tally:
    """Run many seeds, in so many children at a time, until this moment; what dies or fails ends it."""
    children: dict[int, _Child] = {}
    tally = Tally()
    try:
        for job in range(jobs):
            child = _Child(seeds[job::jobs], one, base, end)
            children[child.pid] = child
        while children:
            pid, status = os.wait()
            tally.add(children.pop(pid).ended(status))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return tally


class _Child:
    """A forked process that runs seeds one after the other, and says at which it is."""

    def __init__(self, seeds: Sequence[int], one: One, base: Path, end: float) -> None:
        self.seeds, self.one, self.base, self.end = seeds, one, base, end
        self.page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self.pid = fork()
        if self.pid == 0:
            in_child(self.work)

    @property
    def told(self) -> Path:
        return self.base / f"told by {os.getpid() if self.pid == 0 else self.pid}"

    def work(self) -> None:
        tally, failed = Tally(), None
        for number, seed in enumerate(self.seeds):
            if time.monotonic() > self.end:
                break
            self.page[0] = number
            signal.alarm(SECONDS_MAX)
            try:
                tally.add(self.one(seed, self.base / str(seed)))
            except FailedFlipError as error:
                failed = error
                break
        self.told.write_bytes(pickle.dumps((tally, failed)))

    def ended(self, status: int) -> Tally:
        """What it has done; raises what it failed with."""
        if status == 0:
            tally, failed = pickle.loads(self.told.read_bytes())
            self.told.unlink()
            if failed is not None:
                raise failed
            assert isinstance(tally, Tally)
            return tally
        seed = self.seeds[self.page[0]] if self.seeds else 0
        died = (
            f"it was ended by {signal.Signals(os.WTERMSIG(status)).name}"
            if os.WIFSIGNALED(status)
            else f"status {status}"
        )
        raise FailedFlipError(seed, self.base / str(seed), died)
