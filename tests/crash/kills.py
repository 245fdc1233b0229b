"""Does a database survive the death of those who use it, wherever it hits them?

A round makes a database and lets processes die on it, several times over: writers at work, alone or two at
once, one of them or both; openers while they replay what was left; the last one while it closes. After each
life another process opens it and compares it with what was acknowledged: every acknowledged operation is
there, of the one that was under way all or nothing, and nothing else.

A seed says what a round does and when it kills. The operations are the same whenever it is run again; the
moments of the kills are as much the same as the machine allows.
"""

from __future__ import annotations

import collections
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pellucid
from pellucid._native import _testing

from crash.lives import ACKNOWLEDGED, ATTEMPTED, OPENING, STOP, Notes, Process, autopsy, opened, read, write
from crash.operations import Model, Tables, Writer, apply_to_model
from crash.steps import SETTINGS, STEP_NAMES, Aim, Setting, aim_at

SEGMENT_SIZES = [1 << 16, 1 << 16, 1 << 17, 1 << 20, 0]
"""Areas of the log: the small ones are full after some hundred operations; 0 is the usual size."""

SEGMENT_SIZE_WIDE = 1 << 17

SORT_MEMORY = 1 << 16
"""So much memory have large updates to sort their rows in: what is more goes into runs in a file."""

COMPRESSED_SHARE = 0.3
"""So many rounds have all tables compressed, and train many dictionaries."""

WIDE_SHARE = 0.15
"""In so many rounds each writer has a table of some hundred leaves, most of whose rows are put and deleted
again, and the file is made shorter without being asked."""

BUSY_SHARE = 0.4
"""In so many rounds that aim at no step, writers put, change and delete small rows alone, as quickly as they
can, and are killed after a time."""

TIMED_SHARE = 0.4
"""So many writers that aim at no step are killed after a time alone."""

CLOSED_SHARE = 0.5
"""Share of readers that close the database themselves, instead of being killed."""

# Where to kill: in these phases, after at most so many seconds in them.
Target = tuple[tuple[str, ...], float]
TARGETS: list[Target] = [
    (OPENING, 0.004),
    (("put",), 0.000_03),
    (("large",), 0.001),
    (("patch",), 0.000_03),
    (("transaction",), 0.000_08),
    (("bulk",), 0.004),
    (("checkpoint",), 0.003),
    (("close",), 0.004),
    (("compact",), 0.008),
    (("online",), 0.03),
    (("sorted",), 0.03),
    (("table",), 0.000_08),
]
WEIGHTS = [16, 10, 12, 10, 12, 14, 22, 6, 6, 12, 12, 6]
TARGETS_WIDE: list[Target] = [
    (("sorted",), 0.02),
    (("merged",), 0.008),
    (("finished",), 0.012),
    (("thin",), 0.03),
    (("checkpoint",), 0.03),
    (("online",), 0.2),
    (("rest",), 0.15),
    (("table",), 0.003),
]
WEIGHTS_WIDE = [10, 12, 12, 6, 6, 20, 20, 6]
PATIENCE, PATIENCE_WIDE, PATIENCE_STEP = 0.1, 1.0, 2.0
"""Whoever does not come to the phase in which it is to be killed is killed then anyway."""


@dataclass
class Tally:
    """What a campaign has done."""

    rounds: int = 0
    seconds: float = 0.0
    writes: int = 0
    """Writes that were acknowledged."""
    snapshots: int = 0
    """Snapshots in which a reader beside the writers found everything together."""
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    """Kills by what the process was in the middle of."""
    found: collections.Counter[str] = field(default_factory=collections.Counter)
    """What was found in the log afterwards."""
    unacknowledged: collections.Counter[str] = field(default_factory=collections.Counter)
    """What became of operations that a kill came in between."""
    steps: collections.Counter[str] = field(default_factory=collections.Counter)
    """How often processes took each named step."""
    ends: collections.Counter[str] = field(default_factory=collections.Counter)
    """How many processes ended at each of them, or were killed while a thread stood there."""
    lives: collections.Counter[str] = field(default_factory=collections.Counter)
    """Killed processes by how long they had lived."""

    def add(self, other: Tally) -> None:
        self.rounds += other.rounds
        self.seconds += other.seconds
        self.writes += other.writes
        self.snapshots += other.snapshots
        self.kills += other.kills
        self.steps += other.steps
        self.ends += other.ends
        self.lives += other.lives
        self.found += other.found
        self.unacknowledged += other.unacknowledged


class FailedRoundError(Exception):
    """A round whose database is not what it must be: says with which seed, and where its files are."""

    def __init__(self, seed: int, folder: Path, cause: str, step: str | None = None) -> None:
        super().__init__(seed, folder, cause, step)
        self.seed, self.folder, self.cause, self.step = seed, folder, cause, step

    def __str__(self) -> str:
        at = f", with kills at {self.step!r}," if self.step else ""
        return f"the round of seed {self.seed}{at} failed; its files are in {self.folder}\n{self.cause}"


LENGTHS = [(0.05, "under 50 ms"), (0.5, "50 to 500 ms"), (5, "0.5 to 5 s"), (1e9, "over 5 s")]


def length_of(seconds: float) -> str:
    """The class of a life of this length."""
    return next(name for end, name in LENGTHS if seconds < end)


def life(dice: random.Random) -> float:
    """How long a process lives, in seconds: 5 ms to 10 s, each power of ten as often; one in fifty longer."""
    return 10 + 5 * dice.random() if dice.random() < 0.02 else 0.005 * 2000 ** dice.random()


def step_of(seed: int) -> str | None:
    """The step that a round of this seed aims at: in turn; every second round aims at none."""
    return STEP_NAMES[seed // 2 % len(STEP_NAMES)] if STEP_NAMES and seed % 2 else None


def run_round(seed: int, folder: Path, step: str | None = None) -> Tally:
    """Run a round in a new folder, with kills at a step if one is named; its files go if all was well."""
    folder.mkdir(parents=True)
    tally = Tally(rounds=1)
    begin = time.monotonic()
    round_ = Round(seed, folder, tally, step)
    try:
        round_.run()
    except BaseException as error:
        raise FailedRoundError(seed, folder, str(error) or repr(error), step) from error
    finally:
        # A reader may have outlived everybody.
        round_.kill_all()
        for process in round_.processes:
            tally.steps += process.steps.taken()
        _testing.limit_log(0)
        _testing.limit_sorts(0)
        _testing.compress_all(False)
        _testing.rest_soon(False)
    shutil.rmtree(folder)
    tally.seconds = time.monotonic() - begin
    return tally


class Round:
    """One database, and those who live and die on it."""

    def __init__(self, seed: int, folder: Path, tally: Tally, step: str | None) -> None:
        self.seed = seed
        self.step = step
        self.setting = SETTINGS[step] if step else Setting()
        self.dice = random.Random(seed)
        self.folder = folder
        self.path = folder / "round.pel"
        self.tally = tally
        writers = max(self.setting.writers, self.dice.choice([1, 1, 2]))
        if "compact" in self.setting.favourites:
            writers = 1
        self.models = {name: Model() for name in ("anna", "bert")[:writers]}
        # Of dice of their own: the other rounds are what they were before there was this.
        self.is_compressed = random.Random(f"{seed} compressed").random() < COMPRESSED_SHARE
        self.is_wide = random.Random(f"{seed} wide").random() < WIDE_SHARE
        self.is_busy = step is None and random.Random(f"{seed} busy").random() < BUSY_SHARE
        self.is_wide &= not self.is_busy
        self.is_compressed |= self.setting.is_compressed
        self.is_wide |= self.setting.is_wide
        self.processes: list[Process] = []
        self.reader: Process | None = None
        self.story: list[str] = []

    def run(self) -> None:
        segment_size = self.dice.choice(SEGMENT_SIZES)
        if self.is_wide:
            # More rows than a log takes are sorted outside of it.
            segment_size = min(segment_size or SEGMENT_SIZE_WIDE, SEGMENT_SIZE_WIDE)
        if self.setting.segment_size is not None:
            segment_size = self.setting.segment_size
        kind = f"{'wide ' * self.is_wide}{'busy ' * self.is_busy}{'compressed ' * self.is_compressed}tables"
        self.tell(f"{len(self.models)} writers of {kind}, segments of {segment_size or 'the usual'} bytes")
        _testing.limit_log(segment_size)
        _testing.limit_sorts(SORT_MEMORY)
        # Dictionaries are trained at 1, 2, 4, 8, ... rows.
        _testing.compress_all(self.is_compressed)
        _testing.rest_soon(self.is_wide)
        for number in range(self.dice.randint(2, 3)):
            self.live(number)
            for _ in range(2 if self.setting.by_opener else self.dice.choice([0, 0, 1, 1, 2, 4])):
                self.die_opening()
            self.verify()
        if self.reader is not None:
            self.end_reader()
            self.verify()

    def tell(self, line: str) -> None:
        """For whoever looks into the folder of a failed round."""
        self.story.append(line)
        (self.folder / "story.txt").write_text("\n".join(self.story) + "\n")

    def start(self, name: str, work: Callable[[Notes], None], aim: Aim | None = None) -> Process:
        process = Process(name, self.folder, work, aim)
        self.processes.append(process)
        return process

    def live(self, number: int) -> None:
        """Let all writers write, and kill them, or some of them."""
        writers: dict[str, Process] = {}
        plans: dict[str, Target] = {}
        durability = self.dice.choice(["process", "process", "process", "full"])
        for name, model in self.models.items():
            dice = random.Random(f"{self.seed} {number} {name}")
            targets, weights = (TARGETS_WIDE, WEIGHTS_WIDE) if self.is_wide else (TARGETS, WEIGHTS)
            (plans[name],) = self.dice.choices(targets, weights)
            is_beside = bool(writers or self.reader)
            # What it does follows from these alone: `expect` does it once more.
            writer = self.writer(name, model.copy(), dice, plans[name])
            aims = self.step is not None and not self.setting.by_opener and not writers
            aim = aim_at(self.step, self.dice) if aims and self.step else None
            work = self.writing(writer, is_beside=is_beside, durability=durability)
            writers[name] = self.start(name, work, aim)
        wants_reader = (self.setting.has_reader or self.dice.random() < 0.25) and self.reader is None
        first = next(iter(writers.values()))
        if wants_reader and wait_for(first, ("put", "large", "patch", "transaction", "bulk"), 1):
            self.reader = self.start("reader", lambda notes: read(notes, self.path))
        order = self.dice.sample(list(writers), len(writers))
        if self.setting.takes_over:
            # Only then is there something to take over.
            order.sort(key=lambda name: writers[name].steps.is_aimed)
        for name in order:
            self.end(writers[name], plans[name], may_live=len(writers) > 1)
        for process in writers.values():
            process.wait()
            process.check()
        if not self.setting.has_reader and self.dice.random() < 0.6:
            self.end_reader()
        self.tally.found.update(autopsy(self.path))
        for name, process in writers.items():
            self.expect(name, number, process, plans[name])

    def writer(self, name: str, model: Model, dice: random.Random, target: Target) -> Writer:
        favourites = self.setting.favourites if self.step else (target[0][0],)
        is_alone = len(self.models) == 1
        if self.step and self.setting.beside is not None and name != next(iter(self.models)):
            favourites = self.setting.beside
        return Writer(
            name,
            model,
            dice,
            is_alone=is_alone,
            is_wide=self.is_wide,
            is_busy=self.is_busy,
            favourites=favourites,
            has_others=not self.step or self.setting.beside is None,
        )

    def writing(self, writer: Writer, **how: Any) -> Callable[[Notes], None]:
        return lambda notes: write(notes, self.path, writer, **how)

    def end(self, process: Process, target: Target, *, may_live: bool) -> None:
        """Kill a writer where the dice say, or let it come to its end."""
        if may_live and self.dice.random() < 0.2 and not process.steps.is_aimed:
            self.tell(f"{process.name} may come to its end")
            process.notes.words[STOP] = 1
            return
        phases, seconds = target
        seconds, is_timed = seconds * self.dice.random(), self.dice.random() < TIMED_SHARE or self.is_busy
        if process.steps.is_aimed:
            self.wait_for_step(process, PATIENCE_STEP)
        elif is_timed:
            self.wait(process, life(self.dice))
        else:
            count = 1 if phases == OPENING else self.dice.choice([1, 1, 2, 3, 8])
            if phases == ("close",) and self.dice.random() < 0.7:
                # Few close by themselves in so short a life.
                time.sleep(self.dice.random() * 0.02)
                process.notes.words[STOP] = 1
            wait_for(process, phases, count, PATIENCE_WIDE if self.is_wide else PATIENCE)
            pause(seconds)
        self.killed(process)

    def wait_for_step(self, process: Process, seconds: float) -> None:
        """Wait until a process has died at its step, or has gone on for a while after it has come there."""
        self.wait(process, seconds, lambda: process.steps.has_come)
        if "close" in self.setting.favourites:
            process.notes.words[STOP] = 1
            self.wait(process, PATIENCE_STEP)
        if process.steps.has_come:
            self.wait(process, min(0.5, life(self.dice)))

    def wait(self, process: Process, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not process.is_over() and not is_over():
            time.sleep(0.000_5)

    def killed(self, process: Process) -> None:
        steps = process.steps
        has_died_there = process.is_over() and steps.is_hit
        if process.is_over() and not has_died_there:
            return
        phase = process.kill()
        process.check()
        self.tally.kills[phase] += 1
        self.tally.lives[length_of(process.seconds)] += 1
        if steps.is_hit:
            self.tally.ends[self.step or ""] += 1
        self.tell(f"{process.name} killed in {phase}{', at its step' if steps.is_hit else ''}")

    def die_opening(self) -> None:
        """Kill somebody who opens what was left."""
        mode = self.dice.choice(["c", "c", "c", "r"])
        delay = self.dice.random() * 0.003
        is_beside = self.reader is not None

        def work(notes: Notes) -> None:
            try:
                db = opened(self.path, notes, is_beside=is_beside, mode=mode)
            except (FileNotFoundError, pellucid.NotADatabase):
                # Its creator died before it was one.
                return
            notes.enter("close")
            db.close()

        aims = self.setting.by_opener and mode == "c"
        aim = aim_at(self.step, self.dice) if self.step and aims else None
        process = self.start("opener", work, aim)
        if aim is None and mode == "r" and self.dice.random() < CLOSED_SHARE:
            # A reader leaves the log for the next writer.
            process.wait()
        elif aim is None:
            wait_for(process, OPENING, 1)
            pause(delay)
        else:
            self.wait_for_step(process, PATIENCE_STEP)
        self.killed(process)
        process.check()

    def expect(self, name: str, number: int, process: Process, target: Target) -> None:
        """Do in the model what was acknowledged, and keep the next operation for `verify`."""
        attempted, acknowledged = process.notes.words[ATTEMPTED], process.notes.words[ACKNOWLEDGED]
        self.tally.writes += acknowledged
        assert attempted - acknowledged in (0, 1), "it notes one after the other"
        self.tell(
            f"{name} of {self.models[name].count}: {acknowledged} acknowledged of {attempted} attempted"
        )
        model = self.models[name]
        dice = random.Random(f"{self.seed} {number} {name}")
        writer = self.writer(name, model, dice, target)
        operations = iter(writer)
        # The generator does an operation in the model when it is asked for the next one.
        last = None
        for _ in range(acknowledged + 1):
            last = next(operations)
        self.pending[name] = (writer, last) if attempted > acknowledged else None

    @property
    def pending(self) -> dict[str, Any]:
        return self.__dict__.setdefault("_pending", {})

    def verify(self) -> None:
        """Let a process of its own compare the database with the models, then go on with what it found."""
        is_beside = self.reader is not None
        # After ["r"], the next writer finds what the dead have left.
        modes = ["w"] if is_beside else self.dice.choice([["r", "w"], ["r"], ["w"], ["w"]])
        answers = set()
        for mode in modes:
            answer = self.folder / "answer.txt"

            def work(notes: Notes, mode: str = mode, answer: Path = answer) -> None:
                answer.write_text(repr(self.compare(notes, mode, is_beside=is_beside)))

            process = self.start("verifier", work)
            process.wait()
            process.check()
            answers.add(answer.read_text())
            answer.unlink()
        assert len(answers) == 1, f"opened again, it has become another one: {answers}"
        happened = answers.pop()
        for name, pending in self.pending.items():
            if pending is None:
                continue
            writer, operation = pending
            is_there = name in happened
            self.tally.unacknowledged["there" if is_there else "not there"] += 1
            if is_there:
                writer.done(operation)
        self.pending.clear()
        if not self.setting.has_reader and self.dice.random() < 0.5:
            self.end_reader()
        if not is_beside and "w" in modes:
            left = sorted(set(os.listdir(self.folder)) - {"story.txt"})
            assert left == [self.path.name], f"{left} lie there after all have closed"

    def compare(self, notes: Notes, mode: str, *, is_beside: bool) -> list[str]:
        """Compare everything; returns whose last operation happened without being acknowledged."""
        try:
            db = opened(self.path, notes, is_beside=is_beside, mode=mode if mode == "r" else "c")
        except (FileNotFoundError, pellucid.NotADatabase):
            assert mode == "r", "who may create it does"
            assert not any(model.count for model in self.models.values()), "a database has become none"
            return []
        with db:
            if is_beside:
                # A commit that a death came in between is neither there nor not until somebody takes the
                # writer lock.
                db.sync()
            happened = self.compare_tables(db)
            findings = db.check()
            assert findings == [], findings
            assert db.stats()["rows"] == sum(len(db.table(name)) for name in db.tables())
        return happened

    def compare_tables(self, db: Any) -> list[str]:
        tables = {name: rows_of(db.table(name)) for name in db.tables()}
        journal = tables.pop("journal", {})
        total = tables.pop("shared", {}).get("total", {"n": 0})["n"]
        assert list(journal) == list(range(total)), "each transaction is counted once"
        happened = []
        for name, model in self.models.items():
            own = {table: tables.pop(table) for table in list(tables) if table.startswith(f"{name} ")}
            marks = [row["number"] for row in journal.values() if row["writer"] == name]
            pending = self.pending.get(name)
            before = difference(own, marks, model)
            if before == "":
                # Also where the operation that was under way changes nothing.
                continue
            assert pending is not None, f"{name}: {before}"
            writer, operation = pending
            after_model = model.copy()
            if operation.kind == "mark":
                after_model.marks.append(model.count)
            if operation.keeps:
                apply_to_model(after_model.tables, operation.changes)
            after = difference(own, marks, after_model)
            assert after == "", f"{name}: neither as before {operation}: {before}; nor as behind it: {after}"
            happened.append(writer.name)
        assert tables == {}, f"tables that nobody made: {list(tables)}"
        return happened

    def end_reader(self) -> None:
        """Kill the reader, if there is one, or let it close the database."""
        if self.reader is None:
            return
        if self.dice.random() < CLOSED_SHARE:
            self.tell("the reader may come to its end")
            self.reader.notes.words[STOP] = 1
            self.reader.wait()
        else:
            self.killed(self.reader)
        self.reader.check()
        self.tally.snapshots += self.reader.notes.words[ACKNOWLEDGED]
        self.reader = None

    def kill_all(self) -> None:
        for process in self.processes:
            process.kill()


def wait_for(process: Process, phases: tuple[str, ...], count: int, patience: float = PATIENCE) -> bool:
    """Wait until a process has come to one of these phases so many times; false when it takes too long."""
    deadline = time.monotonic() + patience
    while process.notes.entered(phases) < count and time.monotonic() < deadline and not process.is_over():
        # Not without a pause: the other one needs the processor.
        time.sleep(0.000_02)
    return process.notes.entered(phases) >= count


def pause(seconds: float) -> None:
    """Wait, also for less than the system sleeps at least."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if left > 0.000_2:
            time.sleep(left / 2)


def rows_of(table: Any) -> dict[Any, Any]:
    rows = {key: plain(value) for key, value in table.items()}
    assert len(table) == len(rows), f"table {table.name!r} has {len(rows)} rows, and says {len(table)}"
    assert list(reversed(table)) == list(reversed(rows)), f"table {table.name!r} is another one backwards"
    for key, value in rows.items():
        assert plain(table[key]) == value, f"table {table.name!r}: a walk and a look find other rows"
    return rows


def plain(value: Any) -> Any:
    return value.to_dict() if isinstance(value, pellucid.Record) else value


def difference(tables: Tables, marks: list[int], model: Model) -> str:
    """What is not as in the model; nothing if all is."""
    if marks != model.marks:
        wanted = model.marks
        return f"of {len(marks)} marks the last are {marks[-3:]}, expected {wanted[-3:]} of {len(wanted)}"
    if set(tables) != set(model.tables):
        return f"tables {sorted(tables)}, expected {sorted(model.tables)}"
    for name, rows in tables.items():
        expected = model.tables[name]
        for key in {**rows, **expected}:
            there, wanted = rows.get(key, "nothing"), expected.get(key, "nothing")
            if there != wanted:
                return (
                    f"table {name!r}, key {str(key)[:40]!r}: {str(there)[:200]}, expected {str(wanted)[:200]}"
                )
    return ""
