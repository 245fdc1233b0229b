"""Is a transaction of nothing but small rows what any is: a dict that is changed all at once or not at all?

Such transactions take shorter ways, as long as nothing needs more. So few keys are put, changed and
deleted again and again, now and then with something that needs more, beside the same done to dicts.
"""

from __future__ import annotations

import contextlib
import copy
import random
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from processes import Child
from values import plain

Model = dict[str, dict[Any, Any]]

KEYS: list[Any] = [*range(6), "a", "b", "key", -1, 70_000]
RARE_KEYS: list[Any] = ["long" * 300, 1.5, ("a", 1), 2.0, True]


class UndoError(Exception):
    """Leaves a transaction so that it is dropped."""


def some_value(chance: random.Random) -> Any:
    """A value as most are, or one that has no way of its own."""
    number = chance.randrange(1_000_000)
    return chance.choice(
        [
            {"name": f"user {number}", "age": number},
            {"name": f"user {number}", "age": number},
            {"name": "user " * 40, "age": number},
            number,
            f"text {number}",
            None,
            {"name": "other", f"field {number % 3}": [number]},
            {},
            [number] * (number % 40),
            b"large" * (10_000 if number % 20 == 0 else 1),
        ]
    )


def check(tables: dict[str, Any], model: Model) -> None:
    """What is read is what a dict has."""
    for name, table in tables.items():
        rows = model[name]
        assert len(table) == len(rows)
        assert {key: plain(value) for key, value in table.items()} == rows
        assert list(reversed(list(table))) == list(table.keys(reverse=True))
        for key in KEYS:
            assert (key in table) == (key in rows)


def change(chance: random.Random, table: Any, rows: dict[Any, Any]) -> None:
    """Do one thing to a table and to a dict."""
    key = chance.choice(RARE_KEYS if chance.random() < 0.05 else KEYS)
    what = chance.randrange(10)
    if what < 5:
        table[key] = value = some_value(chance)
        rows[key] = copy.deepcopy(value)
    elif what < 7:
        assert (table.pop(key, None) is not None) == (rows.pop(key, None) is not None)
    elif what == 7:
        if type(rows.get(key)) is dict and "age" in rows[key]:
            table[key].age += 1
            rows[key]["age"] += 1
        elif type(rows.get(key)) is list:
            table[key].append("more")
            rows[key].append("more")
    elif what == 8:
        assert plain(table.get(key)) == rows.get(key)
    else:
        assert len(table) == len(rows)


def block(chance: random.Random, db: Any, tables: dict[str, Any], model: Model, depth: int) -> None:
    """A transaction, perhaps with others in it, that is kept or not."""
    before = copy.deepcopy(model)
    try:
        with db.transaction():
            for _ in range(chance.randrange(25)):
                name = chance.choice(list(tables))
                if depth < 3 and chance.random() < 0.08:
                    block(chance, db, tables, model, depth + 1)
                elif chance.random() < 0.03:
                    check(tables, model)
                else:
                    change(chance, tables[name], model[name])
            if chance.random() < 0.3:
                raise UndoError
    except UndoError:
        model.clear()
        model.update(before)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("where", ["file", "memory"])
def test_transactions_of_rows_are_dicts(tmp_path: Path, where: str, indexed: bool) -> None:
    chance = random.Random(f"{where} {indexed}")
    target = str(tmp_path / "rows.pel") if where == "file" else ":memory:"
    db = pellucid.open(target)
    names = ["people", "things"]
    model: Model = {name: {} for name in names}
    tables: dict[str, Any] = {name: db.table(name) for name in names}
    if indexed:
        tables["people"].create_index("by_age", F.age)
    for turn in range(150):
        block(chance, db, tables, model, 0)
        for name in names:
            # By themselves, in between: they go other ways still.
            change(chance, tables[name], model[name])
        check(tables, model)
        if where == "file" and turn % 40 == 39:
            with contextlib.suppress(UndoError), db.snapshot() as snapshot:
                check({name: snapshot.table(name) for name in names}, model)
            assert db.check() == []
            db.close()
            db = pellucid.open(target)
            tables = {name: db.table(name) for name in names}
            check(tables, model)
    db.close()


def test_another_process_counts_what_a_transaction_put(tmp_path: Path) -> None:
    path = tmp_path / "rows.pel"
    with pellucid.open(path) as db, Child(path) as other:
        db["first"] = 0
        for turn in range(1, 20):
            with db.transaction():
                for number in range(turn):
                    db[number] = {"turn": turn}
                del db[turn // 2]
            assert other("len(db)") == len(db) == turn
            assert other(f"[row.turn for row in db.range(0, {turn})]") == [turn] * (turn - 1)
            assert other(f"{turn // 2} in db") is False
            other(f"db[{turn // 2}] = {{'turn': 0}}")
            assert len(db) == turn + 1
        with contextlib.suppress(UndoError), db.transaction():
            db["never"] = 1
            raise UndoError
        assert other("len(db)") == len(db) == 20
