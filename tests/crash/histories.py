"""Do concurrent clients see one database, at every moment?

Several processes of several threads each work on a few keys, one by one and in transactions, while others
fill the log and write it into the tree; in some histories a process is killed. Each client notes when it
called and when that returned, by the clock that all processes share, in memory that outlives it.
`checker.py` looks for an order.
"""

from __future__ import annotations

import json
import mmap
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
from pellucid._native import _testing

from crash.checker import Event, order_of
from crash.lives import TIMEOUT, Notes, Process
from crash.operations import Undone

KEYS = 3
PAGE_SIZE = 1 << 16


class FailedHistoryError(Exception):
    """A history that has no order, or did not come to its end; its events lie in a file."""

    def __init__(self, seed: int, path: Path, what: str) -> None:
        super().__init__(f"the history of seed {seed}: {what}; see {path}")
        self.seed = seed


class Record:
    """What one client notes: a line before each call and one behind it."""

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, PAGE_SIZE)
        self.size = 8

    def note(self, *words: Any) -> None:
        line = json.dumps(words).encode() + b"\n"
        self.page[self.size : self.size + len(line)] = line
        self.size += len(line)
        self.page[:8] = self.size.to_bytes(8, "little")

    def events(self, client: int) -> list[Event]:
        size = int.from_bytes(self.page[:8], "little")
        lines = [json.loads(line) for line in self.page[8 : max(8, size)].splitlines()]
        found = []
        for called, answer in zip(lines[::2], [*lines[1::2], None], strict=False):
            returned, result = answer or (None, None)
            found.append(Event(client, called[0], returned, called[1], tuple(called[2]), result))
        return found


class Client:
    """One thread that works on the keys."""

    def __init__(self, number: int, db: Any, record: Record, dice: random.Random) -> None:
        self.number = number
        self.db = db
        self.table = db.table("keys")
        self.record = record
        self.dice = dice
        self.last: dict[int, Any] = {}
        self.values = iter(range(number * 1000 + 1, number * 1000 + 1000))

    def work(self, count: int) -> None:
        for _ in range(count):
            kind, arguments = self.choose()
            work: Callable[..., Any] = getattr(self, kind.replace(" ", "_"))
            self.record.note(time.monotonic_ns(), kind, arguments)
            result = work(*arguments)
            self.record.note(time.monotonic_ns(), result)
            if self.dice.random() < 0.3:
                time.sleep(self.dice.random() * 0.000_3)
            if self.dice.random() < 0.1:
                self.db.table("ballast")[self.dice.randrange(50)] = "b" * self.dice.choice([10, 3_000])

    def choose(self) -> tuple[str, list[Any]]:
        key, other = self.dice.sample(range(KEYS), 2)
        value = next(self.values)
        everything: list[tuple[str, list[Any]]] = [
            ("get", [key]),
            ("get", [key]),
            ("put", [key, value]),
            ("delete", [key]),
            ("bump", [key]),
            ("compare and set", [key, self.last.get(key), value]),
            ("move", [key, other, value]),
            ("put unless", [key, other, value]),
            ("undone", [key, value]),
            ("range", sorted(self.dice.sample(range(KEYS + 1), 2))),
            ("count", []),
        ]
        return self.dice.choice(everything)

    def think(self) -> None:
        """Let others come in between, if they can."""
        if self.dice.random() < 0.3:
            time.sleep(self.dice.random() * 0.000_2)

    def get(self, key: int) -> Any:
        self.last[key] = self.table.get(key)
        return self.last[key]

    def put(self, key: int, value: Any) -> None:
        self.table[key] = value

    def delete(self, key: int) -> Any:
        return self.table.pop(key, None)

    def bump(self, key: int) -> Any:
        with self.db.transaction():
            old = self.get(key)
            self.think()
            self.table[key] = (old or 0) + 1
        return old

    def compare_and_set(self, key: int, expected: Any, value: Any) -> Any:
        with self.db.transaction():
            old = self.get(key)
            self.think()
            if old == expected:
                self.table[key] = value
        return old

    def move(self, key: int, other: int, value: Any) -> Any:
        with self.db.transaction():
            seen = [self.get(key), self.get(other)]
            self.set(other, seen[0])
            self.think()
            self.set(key, value)
        return seen

    def set(self, key: int, value: Any) -> None:
        if value is None:
            self.table.pop(key, None)
        else:
            self.table[key] = value

    def put_unless(self, key: int, other: int, value: Any) -> Any:
        with self.db.transaction():
            seen = [self.get(key), self.get(other)]
            self.think()
            if seen[1] is None:
                self.table[key] = value
        return seen

    def undone(self, key: int, value: Any) -> Any:
        try:
            with self.db.transaction():
                old = self.get(key)
                self.table[key] = value
                self.think()
                raise Undone
        except Undone:
            return old

    def range(self, start: int, stop: int) -> Any:
        found = []
        for key, value in self.table.items(start=start, stop=stop):
            found.append([key, value])
            self.think()
        return found

    def count(self) -> int:
        return len(self.table)


def work_together(
    notes: Notes, path: Path, records: dict[int, Record], seed: int, count: int, durability: str
) -> None:
    """A process of the history: a thread for each client."""
    failed: list[BaseException] = []

    def run(client: Client) -> None:
        try:
            client.work(count)
        except BaseException as error:  # it is raised again, by the thread that can tell
            failed.append(error)

    with pellucid.open(path, timeout=TIMEOUT, durability=durability) as db:  # type: ignore[call-overload]
        clients = [
            Client(number, db, record, random.Random(f"{seed} {number}"))
            for number, record in records.items()
        ]
        threads = [threading.Thread(target=run, args=(client,)) for client in clients]
        notes.words[1] = 1
        while not notes.words[2]:
            time.sleep(0.000_05)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failed:
        raise error


def disturb(notes: Notes, path: Path, dice: random.Random) -> None:
    """Move what is in the log into the tree, and write there past the log."""
    with pellucid.open(path, timeout=TIMEOUT) as db:
        notes.words[1] = 1
        while not notes.is_over():
            time.sleep(dice.random() * 0.002)
            if dice.random() < 0.5:
                db.sync()
            else:
                size = dice.choice([10, 100, 500])
                db.table("ballast").update({100 + n: "d" * 30 for n in range(size)})


def run(seed: int, folder: Path) -> int:
    """Record a history in a new folder and check it; returns how many operations it had."""
    folder.mkdir(parents=True)
    try:
        events = recorded(seed, folder)
    except AssertionError as error:
        raise FailedHistoryError(seed, folder, str(error)) from error
    if order_of(events, (None,) * KEYS) is None:
        kept = Path(f"history-{seed}.txt").absolute()
        kept.write_text("\n".join(map(str, sorted(events, key=lambda event: event.called))) + "\n")
        raise FailedHistoryError(seed, kept, "no order explains what its clients saw")
    shutil.rmtree(folder)
    return len(events)


def recorded(seed: int, folder: Path) -> list[Event]:
    """What the clients of a history did and saw, and at last what is there."""
    dice = random.Random(seed)
    path = folder / "history.pel"
    _testing.limit_log(dice.choice([1 << 16, 1 << 17, 0]))
    processes: list[Process] = []
    records: list[Record] = []
    count, durability = dice.choice([12, 20]), dice.choice(["process", "process", "full"])
    try:
        for name in range(dice.choice([2, 3])):
            own = {len(records) + number: Record() for number in range(dice.choice([1, 2, 2]))}
            records += own.values()

            def work(notes: Notes, own: dict[int, Record] = own) -> None:
                work_together(notes, path, own, seed, count, durability)

            processes.append(Process(f"process {name}", folder, work))
        disturber = None
        if dice.random() < 0.5:
            disturber = Process("disturber", folder, lambda notes: disturb(notes, path, dice))
        everybody = [*processes, disturber] if disturber else processes
        while not all(process.notes.words[1] or process.is_over() for process in everybody):
            time.sleep(0.000_1)
        for process in processes:
            process.notes.words[2] = 1
        if dice.random() < 0.35:
            time.sleep(dice.random() * 0.008)
            processes[0].kill()
        for process in processes:
            process.wait()
            process.check()
        if disturber:
            disturber.notes.words[3] = 1
            disturber.wait()
            disturber.check()
        events = [event for number, record in enumerate(records) for event in record.events(number)]
        return [*events, last_look(folder, path, len(records))]
    finally:
        for process in processes:
            process.kill()
        _testing.limit_log(0)


def last_look(folder: Path, path: Path, client: int) -> Event:
    """Read everything, in a process of its own: this one is never to have a database open."""
    record = Record()

    def work(_notes: Notes) -> None:
        with pellucid.open(path, "r") as db:
            record.note(time.monotonic_ns(), "range", [0, KEYS])
            rows = [[key, value] for key, value in db.table("keys").items()]
            record.note(time.monotonic_ns(), rows)
            assert db.check() == []

    process = Process("last look", folder, work)
    process.wait()
    process.check()
    return record.events(client)[0]
