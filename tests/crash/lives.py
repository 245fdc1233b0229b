"""How does a process of the campaign live, and what is known of it after its death?

It is forked off the campaign, which costs a hundredth of a new interpreter, and says in memory that it
shares with the campaign what it is about to do and what has been acknowledged: that survives it.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import mmap
import os
import pickle
import random
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
from processes import fork

from crash.operations import Writer, apply_to_database, in_transaction, mark, sort_in
from crash.steps import Aim, StepPage

PHASES = [
    "between",
    "open",
    "replay",
    "join",
    "put",
    "large",
    "patch",
    "transaction",
    "bulk",
    "table",
    "index",
    "checkpoint",
    "close",
    "compact",
    "online",
    "sorted",
    "merged",
    "finished",
    "thin",
    "rest",
]
"""What one is in the middle of: "replay" opens what the dead have left, "join" opens it beside others.
Many rows are "sorted", then "merged", and then "finished": their index entries are merged, and all is
committed."""

OPENING = ("open", "replay", "join")
PHASE, ATTEMPTED, ACKNOWLEDGED, STOP, ENTERED = 0, 1, 2, 3, 4
"""Places of words in the shared page; from `ENTERED` on, how often each phase was entered."""
OPERATIONS_AT_ONCE = 20
"""So many are thought out ahead, so that most of the time something is being written."""
OPERATIONS_MAX = 20_000
"""A writer that has done so many waits for its end: the campaign does them all again."""
TIMEOUT = 60.0
LOOK_SHARE = 0.2
"""In so many stretches of its life a writer keeps a snapshot, and looks at it again at the end."""
LOOK_ROWS = 300
"""So many rows of each table does a look compare."""
OLD_SNAPSHOT = r"process \d+ keeps a snapshot of"
"""A warning that is no finding: looks keep snapshots on purpose, over any number of checkpoints."""
REST = 0.15
"""So long a writer does nothing when it rests: the thread that shortens its file looks every 50 ms."""


PDEATHSIG = 1
"""`PR_SET_PDEATHSIG` of Linux's prctl(2)."""


class Notes:
    """A page that outlives the process that writes it."""

    def __init__(self) -> None:
        self.words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self.parent = 0

    def is_over(self) -> bool:
        """Whether their writer is to come to its end: it was told to, or the campaign was killed itself."""
        return bool(self.words[STOP]) or os.getppid() != self.parent

    def enter(self, phase: str) -> None:
        number = PHASES.index(phase)
        self.words[ENTERED + number] += 1
        self.words[PHASE] = number

    def leave(self) -> None:
        self.words[PHASE] = 0

    @property
    def phase(self) -> str:
        return PHASES[self.words[PHASE]]

    def entered(self, phases: tuple[str, ...]) -> int:
        return sum(self.words[ENTERED + PHASES.index(phase)] for phase in phases)


class Process:
    """A forked process that runs `work`, and leaves a file with its error if that fails."""

    def __init__(
        self, name: str, folder: Path, work: Callable[[Notes], None], aim: Aim | None = None
    ) -> None:
        self.name = name
        self.notes = Notes()
        self.steps = StepPage()
        self.begun = time.monotonic()
        self.seconds = 0.0
        """How long it has lived."""
        if aim is not None:
            self.steps.choose(aim)
        self.status: int | None = None
        self.error_path = folder / f"error of {name}.txt"
        parent = os.getpid()
        self.pid = fork()
        if self.pid == 0:
            self.notes.parent = parent
            code = 0
            end_with_parent()
            try:
                # No power is cut here, so nothing can be lost.
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", OLD_SNAPSHOT, pellucid.DatabaseWarning)
                self.steps.watch()
                work(self.notes)
            except BaseException:
                self.error_path.write_text(traceback.format_exc())
                code = 1
            os._exit(code)

    def is_over(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended(status)
        return self.status is not None

    def kill(self) -> str:
        """Kill it; returns what it was in the middle of."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.ended(os.waitpid(self.pid, 0)[1])
        return self.notes.phase

    def ended(self, status: int) -> None:
        self.status = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.begun
        self.steps.close()

    def wait(self, seconds: float = TIMEOUT) -> None:
        """Wait for its end; one that does not come to it is killed, and that is a failure."""
        deadline = time.monotonic() + seconds
        while not self.is_over():
            if time.monotonic() > deadline:
                phase = self.kill()
                raise AssertionError(f"{self.name} did not end within {seconds:.0f} s; it was in {phase!r}")
            time.sleep(0.0005)

    def check(self) -> None:
        """Raise what it failed with, if it did; to be killed is no failure."""
        if self.error_path.exists():
            raise AssertionError(f"{self.name} failed:\n{self.error_path.read_text()}")
        if self.status not in (None, 0, -signal.SIGKILL):
            raise AssertionError(f"{self.name} ended with {self.status}")


def end_with_parent() -> None:
    """Have this process end when its parent does: one that is stopped at a step would never notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-log")


def opened(path: Path, notes: Notes, *, is_beside: bool, **options: Any) -> Any:
    """Open the database, and say meanwhile what that means."""
    notes.enter("join" if is_beside else "replay" if log_of(path).exists() else "open")
    db = pellucid.open(path, timeout=TIMEOUT, **options)
    notes.leave()
    return db


class Look:
    """A snapshot that is kept while others write: what it shows must stay as it is."""

    def __init__(self, db: Any) -> None:
        self.snapshot = db.snapshot()
        self.content = digest(self.snapshot)

    def end(self) -> None:
        assert digest(self.snapshot) == self.content, (
            f"snapshot {self.snapshot.version} has become another one"
        )
        self.snapshot.close()


def digest(snapshot: Any) -> str:
    """The names of all tables of a snapshot, and what is in the first rows of each."""
    sums = hashlib.blake2b(digest_size=16)
    for name in snapshot.tables():
        rows = itertools.islice(snapshot.table(name).items(), LOOK_ROWS)
        plain = [(key, row.to_dict() if isinstance(row, pellucid.Record) else row) for key, row in rows]
        sums.update(pickle.dumps((name, plain)))
    return sums.hexdigest()


def write(notes: Notes, path: Path, writer: Writer, *, is_beside: bool, durability: str) -> None:
    """A writer's life: one operation after the other until it is killed or told to stop."""
    db = opened(path, notes, is_beside=is_beside, durability=durability)
    operations, words = iter(writer), notes.words
    look: Look | None = None
    looks = random.Random(f"{writer.name} {writer.model.count}")
    while not notes.is_over():
        if words[ACKNOWLEDGED] >= OPERATIONS_MAX:
            time.sleep(0.001)
            continue
        ahead = [(next(operations), writer.model.count) for _ in range(OPERATIONS_AT_ONCE)]
        # Files are not replaced, and databases not closed, while snapshots of them are in use.
        is_open = all(operation.kind not in ("compact", "reopen") for operation, _ in ahead)
        if look is not None and (not is_open or looks.random() < 0.5):
            look.end()
            look = None
        if look is None and is_open and looks.random() < LOOK_SHARE:
            look = Look(db)
        for operation, number in ahead:
            words[ATTEMPTED] += 1
            notes.enter(operation.phase)
            if operation.kind == "change":
                apply_to_database(db, operation.changes)
            elif operation.kind == "transaction":
                in_transaction(db, operation.changes, keeps=operation.keeps)
            elif operation.kind == "sorted":
                sort_in(db, operation.changes, notes.enter)
            elif operation.kind == "rest":
                time.sleep(REST)
            elif operation.kind == "mark":
                mark(db, writer.name, number, operation.changes)
            elif operation.kind == "sync":
                db.sync()
            elif operation.kind == "compact":
                db.compact()
            elif operation.kind == "online":
                db.compact(online=True)
            elif operation.kind == "reopen":
                db.close()
                db = opened(path, notes, is_beside=not writer.is_alone, durability=durability)
            else:
                apply_to_database(db, operation.changes)
            words[ACKNOWLEDGED] += 1
            notes.leave()
            if words[STOP]:
                break
    if look is not None:
        look.end()
    notes.enter("close")
    db.close()
    notes.leave()


def read(notes: Notes, path: Path) -> None:
    """A reader's life: whatever it sees must go together."""
    db = opened(path, notes, is_beside=True, mode="r")
    dice = random.Random()
    while not notes.is_over():
        look = Look(db) if dice.random() < LOOK_SHARE else None
        with db.snapshot() as snap:
            journal = snap.table("journal")
            numbers, count = list(journal), len(journal)
            missing = sorted(set(range(count)) - set(numbers))
            assert numbers == list(range(count)), (
                f"version {snap.version}: of {count} rows that are counted, {missing} are missing; there are "
                f"{len(numbers)}, the last {numbers[-3:]}; {db.stats()}"
            )
            shared = snap.table("shared")
            assert (shared["total"].n if "total" in shared else 0) == len(numbers)
            newest: dict[str, int] = {}
            for row in journal.values():
                assert newest.get(row.writer, -1) < row.number
                newest[row.writer] = row.number
            notes.words[ACKNOWLEDGED] += 1
        if look is not None:
            time.sleep(dice.choice([0.001, 0.01, 0.1, 0.3]))
            look.end()
    db.close()


def struct_words(data: bytes, *offsets: int) -> list[int]:
    return [struct.unpack_from("<Q", data, offset)[0] for offset in offsets]


def autopsy(path: Path) -> list[str]:
    """What the dead have left in the log (docs/internals/write-path.md has its layout)."""
    try:
        data = log_of(path).read_bytes()[:8192]
    except FileNotFoundError:
        return ["no log"]
    if len(data) < 8192:
        return ["a log that was just being made"]
    tail, active, writer, applied, first, second = struct_words(data, 128, 136, 192, 256, 4096, 4160)
    begin, other = (second, first) if active & 1 else (first, second)
    found = []
    if writer:
        found.append("the writer lock held")
    if applied == other < begin:
        found.append("a checkpoint under way")
    found.append("commits to replay" if tail > applied else "an empty log")
    return found
