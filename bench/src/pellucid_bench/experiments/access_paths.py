"""This module compares the access path that a query chooses with the best one.

It runs random queries on tables of random rows with random indexes. The same rows are also in a table without
indexes, and in one table for each single index. The fastest of all these tables counts as the best access
path. The measure compares the time of the chosen access path with it.

A query takes microseconds, and the load of the machine varies. So each table is queried for some
milliseconds, one table after the other, and the least time counts. A pair of table and query that is far from
the best is timed again; all of its tables are timed equally often.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import pellucid
from pellucid import F

from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run

WAYS = "time of the way that a query takes, beside the best one"
TITLES = [WAYS]
PAIRS = 500
QUERIES = 25
"""Queries for each table."""
ROWS_MAX = 60_000
AGAIN = 1.5
"""A factor above this is timed again."""
ENOUGH = 0.002
"""Seconds for which a query is repeated. A query that takes longer runs four times."""

INDEXES: list[tuple[str, Any, dict[str, Any]]] = [
    ("by age", F.age, {}),
    ("by city", F.city, {}),
    ("by city and age", (F.city, F.age), {}),
    ("by price", F.price, {}),
    ("by price, falling", F.price.desc(), {}),
    ("by tag", F.tags.each(), {}),
    ("by last name", F.name.last, {}),
    ("of the old, by city", F.city, {"where": F.age >= 60}),
    ("by number", F.number, {"unique": True}),
]


def row(rng: random.Random, number: int, cities: int, ages: int) -> dict[str, Any]:
    """Make a row. Low ages and cities are more frequent."""
    return {
        "number": number,
        "age": int(ages * rng.random() ** 2),
        "city": f"c{int(cities * rng.random() ** 2)}",
        "price": rng.random() * 1000,
        "tags": [rng.randrange(50) for _ in range(rng.randrange(4))],
        "name": {"first": "x" * 8, "last": f"n{rng.randrange(20_000):05}"},
        "text": "t" * 60,
    }


def condition(rng: random.Random, rows: int, cities: int, ages: int) -> Any:
    """Make a condition that matches some rows, many, or none."""
    age, price, width = rng.randrange(ages), rng.random() * 1000, 10 ** rng.uniform(-2, 3)
    few = [f"c{rng.randrange(cities)}" for _ in range(rng.randrange(1, 6))]
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 5)))
    return rng.choice(
        [
            F.age == age,
            F.age >= age,
            F.age.between(age, age + rng.randrange(5)),
            F.city == few[0],
            F.city.isin(few),
            F.price.between(price, price + width),
            F.price < price,
            F.tags.each() == rng.randrange(60),
            F.name.last.startswith("n" + digits),
            F.number == rng.randrange(rows),
            F.number.between(age * 100, age * 100 + int(width)),
            F.age >= 60,
        ]
    )


def query(rng: random.Random, table: Any, rows: int, cities: int, ages: int) -> Callable[[], object]:
    """Make a query of up to three conditions, with or without an order, and with a random end."""
    conditions = [condition(rng, rows, cities, ages) for _ in range(rng.randrange(1, 4))]
    if len(conditions) > 1 and rng.random() < 0.25:
        conditions[:2] = [conditions[0] | conditions[1]]
    asked = table.where(*conditions)
    chance = rng.random()
    if chance < 0.25:
        order = rng.choice([F.age, F.price, F.price.desc(), F.number.desc(), F.city])
        asked = asked.order_by(order).limit(rng.choice([1, 10, 100]))
    elif chance < 0.35:
        asked = asked.limit(rng.choice([1, 10, 100]))
    asks: list[Callable[[], object]] = [
        asked.count,
        lambda: asked.sum("number"),
        lambda: sum([row.number for row in asked]),
    ]
    return rng.choice(asks)


def run(run: Run) -> None:
    """Measure the factors of all pairs: the worst, and the one that most stay below."""
    if not run.wants(WAYS) or not run.takes("pellucid"):
        return
    run.pace.on_progress(WAYS)
    rng = random.Random(run.settings.seed)
    is_full = run.settings.rows >= ROWS_MAX
    factors: list[float] = []
    while len(factors) < (PAIRS if is_full else QUERIES):
        factors += of_tables(run, rng, rng.choice([20, 4, 1]))
    factors.sort()
    shown = {
        "pellucid, the worst": factors[-1],
        "pellucid, 98 of 100 stay below": factors[len(factors) * 98 // 100],
        "pellucid, the middle one": statistics.median(factors),
    }
    results = [Result(name, is_ours=True, costs=[factor]) for name, factor in shown.items()]
    note = f"{len(factors)} pairs of a table and a query, of seed {run.settings.seed}"
    run.add(Measure(WAYS, Unit.FACTOR, results, [Target(3)], [note]))


def of_tables(run: Run, rng: random.Random, share: int) -> list[float]:
    """Return the factors of some queries of the same rows with the same indexes."""
    count = min(ROWS_MAX, run.settings.rows) // share
    cities, ages = rng.choice([5, 100, 3000]), rng.choice([20, 80])
    rows = [row(rng, number, cities, ages) for number in range(count)]
    indexes = rng.sample(INDEXES, rng.randrange(2, 6))
    path = run.directory / "ways.pel"
    with pellucid.open(path, "n") as database:
        for name in ("none", "all", *(name for name, _, _ in indexes)):
            table = database.table(name)
            table.extend(rows)
            for index, parts, options in indexes:
                if name in ("all", index):
                    table.create_index(index, parts, **options)
    with pellucid.open(path) as database:
        tables = {name: database.table(name) for name in database.tables()}
        factors = []
        for _ in range(QUERIES):
            seed = rng.random()
            asked = {
                name: query(random.Random(seed), table, count, cities, ages) for name, table in tables.items()
            }
            factors.append(factor_of(asked))
    path.unlink()
    return factors


def factor_of(asked: dict[str, Callable[[], object]]) -> float:
    """Return the time of the query with all indexes, divided by the least time of all."""
    times = dict.fromkeys(asked, float("inf"))
    for _ in range(4):
        for name, ask in asked.items():
            times[name] = min(times[name], timed(ask))
        if times["all"] <= AGAIN * min(times.values()):
            break
    return times["all"] / min(times.values())


def timed(ask: Callable[[], object]) -> float:
    """Return the least of a few times; of more if the time is short."""
    least, spent, count = float("inf"), 0.0, 0
    while count < 4 or spent < ENOUGH:
        start = time.perf_counter()
        ask()
        took = time.perf_counter() - start
        least, spent, count = min(least, took), spent + took, count + 1
        if spent > 0.2:
            break
    return least
