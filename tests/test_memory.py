"""Does all memory come back, and may code that runs in the middle of things use the database?"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pellucid
import pytest
from processes import PEAK_MEMORY

Database = pellucid.Database


class Reenters:
    """A value whose encoding runs code that uses the database again."""

    def __init__(self, db: Database, victim: Any) -> None:
        self.db, self.victim = db, victim

    def __reduce__(self) -> Any:
        self.victim.clear()
        gc.collect()
        self.db["inner"] = {"from": "inside", "list": [1, 2, 3]}
        return (int, (7,))


def test_code_that_runs_while_a_value_is_encoded_may_use_the_database() -> None:
    with pellucid.open(":memory:", pickle="allow") as db:
        victim: dict[str, Any] = {}
        victim.update(a=1, b=Reenters(db, victim), c=[1, 2])
        with contextlib.suppress(RuntimeError):
            db["outer"] = victim
        assert db["inner"] == {"from": "inside", "list": [1, 2, 3]}
        values: list[Any] = [1, 2]
        values += [Reenters(db, values), {"a": 1}]
        with contextlib.suppress(RuntimeError):
            db["outer"] = values
        db["after"] = {"a": [1]}
        assert db["after"] == {"a": [1]}


def test_finalizers_may_use_the_database(db: Database) -> None:
    calls = []

    class Finalized:
        def __init__(self, number: int) -> None:
            self.number = number
            self.me = self

        def __del__(self) -> None:
            db.table("log").append({"n": self.number})
            calls.append([row.n for row in db.table("log").values()][-1:])

    db.table("log").append({"n": -1})
    for number in range(20):
        Finalized(number)
        db["r"] = {"n": number, "l": [{"x": number}] * 5}
        db["r"].l[0].x += 1
        if number % 5 == 0:
            gc.collect()
    gc.collect()
    assert len(calls) == 20
    assert sorted(row.n for row in db.table("log").values()) == list(range(-1, 20))


def test_a_dict_that_changes_while_it_is_encoded_is_refused_or_stored_whole(db: Database) -> None:
    class Evil:
        def __init__(self, target: dict[str, Any]) -> None:
            self.target = target

    def grow(evil: Evil) -> str:
        evil.target[f"more {len(evil.target)}"] = 1
        return "evil"

    pellucid.register(Evil, grow, lambda value: value)
    target: dict[str, Any] = {"a": 1}
    target["b"] = Evil(target)
    target["c"] = 2
    db["x"] = target
    pellucid.validate(bytes(db["x"]))
    assert {"a": 1, "b": "evil", "c": 2}.items() <= db["x"].items()

    def shrink(evil: Evil) -> str:
        evil.target.clear()
        return "evil"

    pellucid.register(Evil, shrink, lambda value: value)
    odd: dict[Any, Any] = {1: 1}
    numbers: list[Any] = [1, 2]
    for shrinking in (target, odd, numbers):
        if isinstance(shrinking, list):
            shrinking += [Evil(shrinking), 3]
        else:
            shrinking.update(b=Evil(shrinking), c=2)
        with pytest.raises(RuntimeError, match="changed"):
            db["z"] = shrinking
    assert "z" not in db
    db["y"] = {"fine": 1}
    assert db["y"].fine == 1


def test_records_in_cycles_are_freed_with_what_holds_them(db: Database) -> None:
    table = db.table("t")
    table["a"] = {"l": [1], "d": {"x": 1}}
    before = sys.getrefcount(table)
    for _ in range(100):
        record = table["a"]
        holder = {"record": record, "list": record.l, "view": record.d.items(), "rows": iter(table.values())}
        holder["self"] = holder
    assert sys.getrefcount(table) > before
    del record, holder
    gc.collect()
    assert sys.getrefcount(table) == before


GROWTH = """
import gc
import pellucid

db = pellucid.open(":memory:")
db.table("t").extend({"n": n, "s": "text " * 5, "l": [n, {"x": n}]} for n in range(2000))
table, data = db.table("t"), pellucid.dumps({"a": [1, {"b": 2}]})


def work():
    for key, row in table.items():
        row.l[1].x, row.s, row["n"], row.to_dict(), row.copy().l, bytes(row)
        table[key].n
        pellucid.view(data).a[1].b, pellucid.loads(data)
        table.get("missing"), key in table
        try:
            row.missing
        except AttributeError:
            pass


for _ in range(3):
    work()
gc.collect()
before = peak_memory()
for _ in range(12):
    work()
gc.collect()
print(peak_memory() - before)
"""


def test_many_reads_take_no_memory_for_good() -> None:
    # A leak of one object in each of these 24,000 rounds of ten accesses would be 15 MB.
    run = subprocess.run(
        [sys.executable, "-c", PEAK_MEMORY + GROWTH],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert int(run.stdout) < 4_000, f"grew by {run.stdout} KiB"


EXTENDS = """
import sys, pellucid
rows = [{"text": "x" * 1000}] * 1000
with pellucid.open(sys.argv[1]) as db, db.transaction():
    for round in range(200):
        db.table("rows").extend(rows)
        if round == 50:
            before = peak_memory()
    print(peak_memory() - before)
"""


def test_many_batches_of_one_transaction_take_the_memory_of_few(tmp_path: Path) -> None:
    # Each batch is a savepoint, and the 150 MB of these were kept until the commit.
    run = subprocess.run(
        [sys.executable, "-c", PEAK_MEMORY + EXTENDS, tmp_path / "a.pel"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < 50_000, f"grew by {run.stdout} KiB"
