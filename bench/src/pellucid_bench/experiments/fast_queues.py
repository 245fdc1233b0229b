"""This module measures a table that is used as a queue, and whether many items make its steps slower.

One step is: put an item at the end, find the first one, take it away. *first()* finds it by the key; *by
state* finds the first of its state in an index, and marks it as done instead of deleting it. So the index
has all items that are done, beside those that wait.
"""

# ruff: noqa: D102 (the names of the methods say what they do)

from __future__ import annotations

import itertools
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F

from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import timed

STEP = "a step of a queue in which {items:,} items wait"
STEPS = 2_000
"""Steps of a sample."""


class Ours:
    """pellucid."""

    def __init__(self, directory: Path, items: int) -> None:
        self.path = directory / "queue.pel"
        self.database = pellucid.open(self.path)
        self.table = self.database.table("items")
        self.table.create_index("waiting", (F.state, F.due))
        self.table.extend({"state": "new", "due": number} for number in range(items))
        self.numbers = itertools.count(items)

    def steps_by_key(self, count: int) -> None:
        table = self.table
        for number in itertools.islice(self.numbers, count):
            table.append({"state": "new", "due": number})
            first = table.first()
            assert first is not None
            del table[first[0]]

    def steps_by_state(self, count: int) -> None:
        table = self.table
        waiting = table.where(F.state == "new").order_by(F.due).limit(1)
        for number in itertools.islice(self.numbers, count):
            table.append({"state": "new", "due": number})
            first = waiting.first()
            assert first is not None
            first.state = "done"

    def remove(self) -> None:
        self.database.close()
        self.path.unlink()


class Sqlite:
    """The same in sqlite3, which never waits for the disk."""

    def __init__(self, directory: Path, items: int) -> None:
        self.path = directory / "queue.sqlite"
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, state, due)")
        self.connection.execute("CREATE INDEX waiting ON items (state, due)")
        self.connection.execute("BEGIN")
        rows = (("new", number) for number in range(items))
        self.connection.executemany("INSERT INTO items (state, due) VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")
        self.numbers = itertools.count(items)

    def steps_by_key(self, count: int) -> None:
        execute = self.connection.execute
        for number in itertools.islice(self.numbers, count):
            execute("INSERT INTO items (state, due) VALUES ('new', ?)", (number,))
            key, _state, _due = execute("SELECT * FROM items ORDER BY id LIMIT 1").fetchone()
            execute("DELETE FROM items WHERE id = ?", (key,))

    def steps_by_state(self, count: int) -> None:
        execute = self.connection.execute
        for number in itertools.islice(self.numbers, count):
            execute("INSERT INTO items (state, due) VALUES ('new', ?)", (number,))
            [key] = execute("SELECT id FROM items WHERE state = 'new' ORDER BY due LIMIT 1").fetchone()
            execute("UPDATE items SET state = 'done' WHERE id = ?", (key,))

    def remove(self) -> None:
        self.connection.close()
        for path in self.path.parent.glob(self.path.name + "*"):
            path.unlink()


def run(run: Run) -> None:
    """Measure the steps with few items and with many."""
    for items in run.settings.items:
        title = STEP.format(items=items)
        if not run.wants(title):
            continue
        run.pace.on_progress(title)
        steps = min(STEPS, items // 2)
        queues: dict[str, Any] = {
            "pellucid": Ours(run.directory, items),
            "sqlite3": Sqlite(run.directory, items),
        }
        ways = {"first()": "steps_by_key", "by state": "steps_by_state"}
        run.measure(
            title,
            Unit.TIME,
            [
                timed(
                    f"{library}, {way}",
                    partial(getattr(queue, method), steps),
                    steps,
                    is_ours=library == "pellucid",
                    like="" if library == "pellucid" else f"pellucid, {way}",
                )
                for way, method in ways.items()
                for library, queue in queues.items()
            ],
            targets=[Target(1.0, f"sqlite3, {way}", f"pellucid, {way}") for way in ways],
            notes=["an append, the first item that waits, and its end: a delete, or a change of its state"],
            group="queue",
            size=items,
            size_unit="items",
        )
        for queue in queues.values():
            queue.remove()
