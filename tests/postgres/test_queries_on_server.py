"""Do queries on a server give what they give on embedded tables, and what does the server do of them?"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pellucid
import pyarrow
import pytest
from pellucid import KEY, F, count

Condition = Any
INDEXES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a": (F.a, {}),
    "b": (F.b, {}),
    "a_b": ((F.a, F.b), {}),
    "b_down": (F.b.desc(), {}),
    "c_a": ((F.c, F.a.desc()), {}),
    "tags": (F.tags.each(), {}),
    "lower": (F.c.lower(), {}),
    "some": (F.b, {"where": F.a > 3}),
    "inner": ("d.x", {}),
    "key": ((F.c, KEY), {}),
}
CONDITIONS: list[Condition] = [
    F.a == 3,
    F.a > 6,
    F.a >= 2,
    F.a < 4,
    F.a != 3,
    F.a.isin([1, 5, 99]),
    (F.a == 3) | (F.b == 7),
    (F.a == 1) | (F.c == "x1"),
    (F.a == 1) | ((F.c > "x1") & (F.b < 3)),
    (F.a == 1) | (F.b + 1 == 4),
    F.b < 10,
    F.b <= Decimal(7),
    F.b == 1.5,
    F.b.between(2, 12),
    ~(F.a == 3),
    F.c == "x4",
    F.c.startswith("x"),
    F.c.lower() == "x3",
    F.c.contains("4"),
    F.a == 99,
    F.a.is_none(),
    F.a.exists(),
    F.tags.each() == 2,
    F.tags.each() > 1,
    F.d.x > 5,
    F.big.length() > 10,
    F.born < dt.date(2001, 1, 1),
    KEY < 40,
    KEY >= 17,
    KEY == 3,
    KEY.isin([3, 17, 1000, "k5"]),
    KEY > "k",
    F.a + F.b > 20,
]
ORDERS: list[list[Any]] = [[], [], [F.a], [F.b.desc()], [F.c, F.a.desc()], [F.d.x], [F.a, F.b], [KEY]]


def record(chance: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"c": f"{chance.choice('xX')}{chance.randrange(6)}"}
    a = chance.choice(
        [*range(9), *range(9), None, 3.0, True, Decimal(3), "3", {}, [1], 7j, math.nan, math.inf]
    )
    if chance.random() < 0.9:
        made["a"] = a
    made["b"] = chance.choice([*range(20), 1.5, 7.0, Decimal("7.0"), 2**70, 7 + 0j])
    if chance.random() < 0.4:
        made["tags"] = [chance.randrange(4) for _ in range(chance.randrange(4))]
    if chance.random() < 0.5:
        made["d"] = {"x": chance.randrange(12), "y": "z" * chance.randrange(50)}
    if chance.random() < 0.05:
        made["big"] = "q" * chance.choice([5, 40_000])
    if chance.random() < 0.3:
        made["born"] = dt.date(1995 + chance.randrange(12), 1, 1)
    return made


def key(chance: random.Random, number: int) -> Any:
    return chance.choice([number, number, number, number, f"k{number}", Decimal(number), number + 0.5])


Tables = tuple[Any, Any]


@pytest.fixture
def tables(url: str) -> Iterator[Callable[[], Tables]]:
    """Makes a table on the server and one in memory, both empty."""
    with pellucid.open(url) as server, pellucid.open(":memory:") as memory:
        names = iter(range(1_000))

        def made() -> Tables:
            name = f"t{next(names)}"
            return server.table(name), memory.table(name)

        yield made


def shown(rows: Any) -> list[str]:
    """Rows as text: NaN does not equal itself."""
    return [repr(row.to_dict() if hasattr(row, "to_dict") else row) for row in rows]


ENDS: list[Callable[[Any], Any]] = [
    shown,
    lambda query: shown(query.keys()),
    lambda query: [(repr(one), repr(other.to_dict())) for one, other in query.items()],
    lambda query: query.count(),
    lambda query: query.exists(),
    lambda query: shown([query.first()]),
    lambda query: query.sum("d.x"),
    lambda query: query.count("d.x"),
    lambda query: query.max("d.x"),
    lambda query: query.min("c"),
    lambda query: query.column("c"),
    lambda query: shown(query.select(F.c, F.d, half=F.b / 2).to_list()),
    lambda query: shown(query.group_by("c").agg(n=count(), most=F.d.x.max())),
    lambda query: shown(query.to_dicts()),
]


def asked(table: Any, conditions: list[Condition], order: list[Any], offset: int, limit: int | None) -> Any:
    query = table.where(*conditions)
    query = query.order_by(*order) if order else query
    query = query.limit(limit) if limit is not None else query
    return query.offset(offset) if offset else query


@pytest.mark.parametrize("seed", range(12))
def test_a_server_answers_as_an_embedded_table_does(tables: Callable[[], Tables], seed: int) -> None:
    chance = random.Random(seed)
    server, memory = tables()
    rows = {key(chance, number): record(chance) for number in range(chance.choice([0, 30, 400]))}
    server.update(rows)
    memory.update(rows)
    for name in chance.sample(sorted(INDEXES), 4):
        parts, options = INDEXES[name]
        server.create_index(name, parts, **options)
        memory.create_index(name, parts, **options)
    for _ in range(3):
        for turn in range(20):
            conditions = chance.sample(CONDITIONS, chance.randrange(4))
            order, offset = chance.choice(ORDERS), chance.choice([0, 0, 0, 1, 7])
            limit, end = chance.choice([None, None, 0, 1, 5, 60]), chance.choice(ENDS)

            query = (conditions, order, offset, limit)
            case = f"seed {seed}, turn {turn}: {conditions} by {order}, {offset} to {limit}"
            assert end(asked(server, *query)) == end(asked(memory, *query)), case
        changed = {key(chance, number): record(chance) for number in range(10)}
        removed = chance.sample(sorted(rows, key=str), min(len(rows), 3))
        for table in (server, memory):
            table.update(changed)
            table.where(F.a == 2).update(b=F.b + 1, c="x9")
            table.where(F.c == "x5").limit(3).delete()
            for one in removed:
                table.pop(one, None)


def test_pages_after_a_row(tables: Callable[[], Tables]) -> None:
    server, memory = tables()
    for table in (server, memory):
        table.extend({"n": number % 3, "m": number} for number in range(20))
        for order in ([], [F.n], [F.n.desc(), F.m]):
            pages = table.where(F.m > 2).limit(4)
            pages = pages.order_by(*order) if order else pages
            page, seen = pages.to_list(), []
            while page:
                seen += [row.m for row in page]
                page = pages.after(page[-1]).to_list()
            expected = [
                row.m for row in (table.where(F.m > 2).order_by(*order) if order else table.where(F.m > 2))
            ]
            assert seen == expected


def test_a_python_function_filters_rows(tables: Callable[[], Tables]) -> None:
    for table in tables():
        table.extend({"n": number} for number in range(30))
        found = table.where(F.n > 3).filter(lambda row: row.n % 5 == 0).order_by(F.n.desc())
        assert [row.n for row in found.offset(1).limit(2)] == [20, 15]
        assert (found.count(), found.sum("n")) == (5, 75)


def test_columns_for_other_libraries(tables: Callable[[], Tables]) -> None:
    results = []
    for table in tables():
        table.extend({"n": number, "s": f"s{number % 4}"} for number in range(5_000))
        query = table.where(F.n > 20)
        results.append(
            (
                pyarrow.table(query.to_arrow()).to_pydict(),
                query.to_numpy("n").tolist(),
                query.to_pandas().to_dict("list"),
                query.to_polars().to_dict(as_series=False),
            )
        )
    assert results[0] == results[1]


def test_a_query_sees_one_state(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.extend({"n": number, "pad": "x" * 500} for number in range(6_000))
        rows = iter(table.where(F.n >= 0))
        next(rows)
        table.where(F.n >= 0).update(n=-1)
        assert all(row.n >= 0 for row in rows)


def test_an_end_inside_of_a_transaction_sees_its_writes(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.extend({"n": number} for number in range(10))
        table.create_index("n", F.n)
        with db.transaction():
            table[3] = {"n": 100}
            assert (table.where(F.n > 50).count(), table.sum("n")) == (1, 142)
            assert [row.n for row in table.where(F.n > 7).order_by(F.n)] == [8, 9, 100]
        with db.snapshot() as snapshot:
            table.clear()
            assert snapshot.table("t").where(F.n > 7).count() == 3


def test_a_left_loop_gives_its_connection_back(url: str) -> None:
    with pellucid.open(f"{url}&max_connections=2") as db:
        table = db.table("t")
        table.extend({"n": number, "pad": "x" * 500} for number in range(3_000))
        for _ in range(5):
            for row in table.where(F.n > 10):
                assert row.n == 11
                break
        assert table.where(F.n > 10).count() == 2_989


def statement(query: Any) -> str:
    return next(line for line in query.explain().splitlines() if line.startswith("ask the server"))


def test_explain_shows_the_statement_and_the_plan(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.extend({"n": number, "c": f"c{number % 5}"} for number in range(100))
        table.create_index("n", F.n)
        table.create_index("c", F.c)
        relation = table._binding.statements().layout.relation
        ask = f'ask the server: SELECT k, s, v, ver FROM "{db._place.schema}"."{relation}"'
        in_order = f'NOT (SELECT has_long FROM "{db._place.schema}"."indexes" WHERE id = {{}})'
        assert statement(table.where(F.c == "c3").limit(5)) == f"{ask} WHERE i2 = $1 ORDER BY k LIMIT 5"
        assert statement(table.where(F.c.startswith("c")).order_by(F.c.desc()).limit(3)) == (
            f"{ask} WHERE i2 >= $1 AND i2 < $2 AND (s2 IS NULL OR get_byte(s2, 0) & 1 = 0) "
            f"AND {in_order.format(2)} ORDER BY i2 DESC, k LIMIT 3"
        )
        assert (
            statement(table.order_by(F.n).limit(3))
            == f"{ask} WHERE {in_order.format(1)} ORDER BY i1, k LIMIT 3"
        )
        both = table.where((F.c == "c1") | (F.c == "c2"), F.n > 3, F.x == 1).explain()
        assert "WHERE (i1 >= $1 AND i1 < $2)" in both or "((i1 >= $1" in both
        assert "filter here: x == 1" in both
        assert "server: " in both
        # A row lacks what it is ordered by: only the client knows its place.
        table["x"] = {}
        assert "sort here by n" in table.order_by(F.n).limit(3).explain()


def test_names_of_fields_and_tables_are_not_in_a_statement(url: str) -> None:
    name = 'x"; DROP TABLE pellucid.catalog; --'
    with pellucid.open(url) as db:
        table = db.table(name)
        table["k"] = {name: 1}
        table.create_index(name, F[name])
        query = table.where(F[name] == 1)
        assert (query.count(), table.index(name).count(1)) == (1, 1)
        assert "DROP" not in statement(query)
        assert db.tables() == [name]


WALK = """
import resource, sys, pellucid
from pellucid import F
with pellucid.open(sys.argv[1]) as db:
    table = db.table("t")
    table.where(F.n < 10).sum("n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(1 for row in table.where(F.n >= 0, F.pad != "x"))
    total = table.where(F.pad != "x").sum("n")
    groups = len(table.group_by(F.n % 7).agg(n=pellucid.count()))
    first = [row.n for row in table.order_by(F.m.desc()).limit(3)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(count, total, groups, *first, (after - before) // 1024)
"""


def test_memory_does_not_grow_with_the_table(url: str) -> None:
    row_count = 40_000
    with pellucid.open(url) as db:
        table = db.table("t")
        table.extend({"n": n, "m": -n, "pad": f"{n:>2000}"} for n in range(row_count))
    child = subprocess.run(
        [sys.executable, "-c", WALK, url],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    count, total, groups, *first, grown = child.stdout.split()
    assert (int(count), int(total), int(groups)) == (row_count, sum(range(row_count)), 7)
    assert [int(one) for one in first] == [0, 1, 2]
    # The rows have 80 MB.
    assert int(grown) < 40
