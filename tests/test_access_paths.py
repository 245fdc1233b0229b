"""Compares the answers along each access path with those of a scan, and holds `explain()` to its text."""

from __future__ import annotations

import datetime
import random
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pellucid
import pyarrow
import pytest
from pellucid import KEY, F, count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UTC = datetime.timezone.utc
EAST = datetime.timezone(datetime.timedelta(hours=5))

#: Values that are near each other across types, beside some that nothing compares with.
ODD = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        2.5,
        -0.0,
        float("nan"),
        float("inf"),
        2**70,
        Decimal(1),
        Decimal("2.5"),
        1 + 0j,
    ),
    *("", "a", "ab", "a\0", "b", b"a", bytearray(b"a"), [1], {"a": 1}, (1, 2)),
    *(1.0, -0.5, 2**63, -(2**70), Decimal("1.0"), Decimal("-7E+3"), "longer than a slot", "\ud800", "\u00e9"),
    *((1.0, "a", None), (b"a", (True,)), uuid.UUID(int=7), "l" * 600, b"l" * 600, complex("inf"), -0.0j),
    *(
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1, 12),
        datetime.datetime(2020, 1, 1, 12, tzinfo=UTC),
    ),
    datetime.datetime(2020, 1, 1, 17, tzinfo=EAST),
    *(
        np.int64(1),
        np.int8(-3),
        np.uint64(2**63),
        np.float64(2.5),
        np.float32(-0.0),
        np.bool_(True),
        np.str_("a"),
    ),
    *(
        np.bytes_(b"a"),
        np.datetime64("2020-01-01"),
        np.datetime64("2020-01-01T12", "us"),
        np.timedelta64(1, "s"),
    ),
    *(np.complex128(1), np.float64("nan"), np.array([1, 2])),
]

INDEXES: list[tuple[str, Any, dict[str, Any]]] = [
    ("by_age", F.age, {}),
    ("by_age_down", F.age.desc(), {}),
    ("by_city_age", (F.city, F.age), {}),
    ("by_city_age_down", (F.city, F.age.desc()), {}),
    ("by_odd", F.odd, {}),
    ("by_odd_down", F.odd.desc(), {}),
    ("by_tag", F.tags.each(), {}),
    ("by_tag_age", (F.tags.each(), F.age), {}),
    ("by_lower", F.city.lower(), {}),
    ("of_adults", F.city, {"where": F.age >= 18}),
    ("of_few", F.age, {"where": F.city == "Bath"}),
    ("by_number", F.number, {"unique": True}),
    ("by_odd_number", (F.odd, F.number), {}),
    ("by_city_odd_age", (F.city.desc(), F.odd, F.age.desc()), {}),
    ("by_sum", F.age + F.number, {}),
    ("of_cities", (F.age, F.odd), {"where": F.city == "Bath"}),
    ("by_tag_number", (F.number, F.tags.each()), {}),
]

#: What is asked of rows beside the rows themselves: most of it an index may tell.
VALUES: list[Any] = [
    *(F.age, F.age * 2, F.city, F.odd, F.odd[0], F.number, F.city.lower()),
    *(F.age + F.number, KEY, F.tags.each(), F.tags),
]
# Conditions have a value in every row, and are not counted.
READS = [*VALUES, F.odd.is_none(), F.odd.exists(), F.age > F.number, (F.age > 3) & (F.odd == 1)]


def row(rng: random.Random, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "number": number,
        "age": rng.randrange(40),
        "city": rng.choice(["Bath", "York", "Ely", "bath"]),
    }
    made["odd"] = rng.choice(ODD)
    made["tags"] = [rng.choice(["a", "b", 1, 2, None]) for _ in range(rng.randrange(4))]
    for name in ("age", "city", "odd", "tags"):
        if rng.random() < 0.1:
            del made[name]
    if rng.random() < 0.05:
        made["tags"] = rng.choice(["ab", {"a": 1}, {1, 2}, 1])
    return made


def condition(rng: random.Random, depth: int = 0) -> Any:
    odd = rng.choice([value for value in ODD if not isinstance(value, (list, dict))])
    age = rng.randrange(40)
    simple = [
        lambda: F.age == age,
        lambda: F.age >= age,
        lambda: F.age < age,
        lambda: F.age.between(age, age + 4),
        lambda: F.age.isin([age, age + 1, 99]),
        lambda: F.city == rng.choice(["Bath", "York", "Rome"]),
        lambda: F.city.startswith(rng.choice(["", "B", "Ba", "Y"])),
        lambda: F.city.isin(["Bath", "Ely"]),
        lambda: F.city.lower() == "bath",
        lambda: F.odd == odd,
        lambda: F.odd <= odd if not isinstance(odd, complex) else F.odd != odd,
        lambda: F.odd > odd if not isinstance(odd, complex) else F.odd == odd,
        lambda: F.odd.isin([odd, 1]),
        F.odd.is_none,
        F.odd.exists,
        lambda: F.tags.each() == rng.choice(["a", 1, None, "c"]),
        lambda: F.tags.each() > 1,
        lambda: F.tags.contains("a"),
        lambda: F.number == rng.randrange(400),
        lambda: F.number < rng.randrange(100),
        lambda: rng.randrange(40) > F.age,
        lambda: KEY < rng.randrange(400),  # noqa: SIM300 (it is no constant)
        lambda: F.age != age,
    ]
    if depth < 2 and rng.random() < 0.3:
        one, other = condition(rng, depth + 1), condition(rng, depth + 1)
        return rng.choice([lambda: one & other, lambda: one | other, lambda: ~one])()
    return rng.choice(simple)()


def query(rng: random.Random, table: Any) -> Any:
    asked = table.where(*[condition(rng) for _ in range(rng.randrange(1, 4))])
    if rng.random() < 0.4:
        orders = [F.age, F.age.desc(), F.city, F.odd, F.odd.desc(), F.number.desc(), F.city.lower()]
        asked = asked.order_by(*rng.sample(orders, rng.randrange(1, 3)))
    if rng.random() < 0.4:
        asked = asked.limit(rng.randrange(12))
    if rng.random() < 0.2:
        asked = asked.offset(rng.randrange(5))
    return asked


def values_of(asked: Any, rng: random.Random) -> Any:
    """The values of a few expressions, by each method that gives them; with types, where values are equal."""
    few = {f"f{place}": node for place, node in enumerate(rng.sample(READS, rng.randrange(1, 3)))}
    one, some = rng.choice(READS), rng.choice(VALUES)
    number = rng.choice([F.age, F.number, F.age + F.number, F.age * 0.1])
    plain = rng.choice([F.age, F.number, F.city, F.age > 7])
    asks = [
        lambda: repr(asked.column(one)),
        lambda: repr(asked.select(**few).to_list()),
        lambda: asked.count(some),
        lambda: asked.agg(
            n=count(), of=count(some), sum=number.sum(), mean=number.mean(), least=number.min()
        ),
        lambda: repr((asked.min(number), asked.max(F.city), asked.mean(number))),
        lambda: repr(asked.group_by(one=one).agg(n=count(), most=number.max())),
        lambda: pyarrow.table(asked.select(a=plain)).to_pylist(),
        lambda: repr(asked.to_numpy(number).tolist()),
    ]
    return [ask() for ask in rng.sample(asks, 3)]


def answers(asked: Any, seed: float) -> Any:
    return (
        values_of(asked, random.Random(seed)),
        list(asked.keys()),
        asked.count(),
        asked.exists(),
        repr(asked.to_dicts()),
        [str(value) for value in asked.column("number")],
        asked.sum("number"),
    )


@pytest.fixture(params=["file", "memory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    target = tmp_path / "paths.pel" if request.param == "file" else ":memory:"
    with pellucid.open(target) as opened:
        yield opened


def fill(db: Any, rng: random.Random, row_count: int) -> tuple[Any, Any]:
    rows = [row(rng, number) for number in range(row_count)]
    plain, indexed = db.table("plain"), db.table("indexed")
    plain.extend(rows)
    indexed.extend(rows)
    return plain, indexed


def test_answers_are_those_of_a_scan(db: Any) -> None:
    rng = random.Random(5)
    plain, indexed = fill(db, rng, 400)
    used = 0
    for round_ in range(16):
        kept = rng.sample(INDEXES, rng.randrange(1, 6))
        for name, parts, options in kept:
            indexed.create_index(name, parts, **options)
        for _ in range(20):
            seed = rng.random()
            wanted, asked = query(random.Random(seed), plain), query(random.Random(seed), indexed)
            used += "index" in asked.explain()
            assert answers(asked, seed) == answers(wanted, seed), (asked, asked.explain())
            if round_ % 5 == 0:
                with db.snapshot() as snap:
                    again = query(random.Random(seed), snap.table("indexed"))
                    assert answers(again, seed) == answers(wanted, seed), again.explain()
                with db.transaction():
                    changed = {"number": 1000 + used, "age": 7, "city": "Bath", "odd": 1, "tags": ["a"]}
                    for table in (plain, indexed):
                        table[-1] = changed
                        table.where(F.number == 7).delete()
                    assert answers(asked, seed) == answers(wanted, seed), asked.explain()
                    for table in (plain, indexed):
                        del table[-1]
        for name, _, _ in kept:
            indexed.drop_index(name)
    assert used > 150, "the test is about indexes"


def test_what_an_index_covers_is_read_from_it_alone(db: Any) -> None:
    plain, indexed = db.table("plain"), db.table("indexed")
    rows = [
        {"age": age % 90, "pair": (age % 90, ("x", None)), "odd": odd, "n": age, "text": "x" * 50}
        for age, odd in enumerate(ODD * 12)
    ]
    for table in (plain, indexed):
        table.extend(rows)
    indexed.create_index("by_odd_age", (F.odd, F.age))
    indexed.create_index("by_age", F.age.desc())
    indexed.create_index("by_age_pair", (F.age, F.pair))
    cases: list[tuple[list[Any], list[Any], bool]] = [
        ([F.age.between(3, 5)], [F.age, KEY], True),
        ([F.age.between(3, 5)], [F.age, F.n], False),
        ([F.odd == 1, F.age > 3], [F.odd, F.age + 1, F.age > 7], True),
        ([F.odd.startswith("a"), F.age > 3], [F.odd, F.odd[0]], True),
        ([F.odd.isin([2**63, "longer than a slot"]), F.age > 3], [F.odd], True),
        ([F.age == 4], [F.pair[-1], F.pair], True),
        # Of bytes it does not tell whether they are a bytearray's, nor which scalar of NumPy it equals.
        ([F.odd.between(b"a", b"b"), F.age > 3], [F.odd, F.age], True),
        ([F.odd.isin([-3, 2**63, datetime.date(2020, 1, 1)]), F.age > 3], [F.odd, F.age], True),
        ([F.odd == 1, F.age > 3, F.n > 100], [F.odd], False),
    ]
    for conditions, chosen, is_covered in cases:
        for order in ([], [F.age, KEY], [F.age.desc()]):
            asked = indexed.where(*conditions).order_by(*order).select(*chosen)
            # For an order another path may be taken to cost less.
            assert ("from there alone" in asked.explain()) == is_covered or order, asked.explain()
            wanted = plain.where(*conditions).order_by(*order).select(*chosen)
            assert repr(asked.to_list()) == repr(wanted.to_list())
            with db.transaction():
                for table in (plain, indexed):
                    table[-7] = {"age": 4, "odd": 1.0, "pair": (1.0,), "n": 5}
                    table.where(F.age == 3).update(age=5)
                assert repr(asked.to_list()) == repr(wanted.to_list())
                for table in (plain, indexed):
                    table.where(F.age == 5).delete()
                assert list(asked.keys()) == list(wanted.keys())
                plain.clear()
                indexed.clear()
                for table in (plain, indexed):
                    table.extend(rows)


def test_rows_of_which_most_others_are_gone_are_found(tmp_path: Path) -> None:
    # What the pages of the tree tell comes to less than one entry, as all that was deleted waits in the log.
    # That there is none would not be taken for a guess.
    path, kept = tmp_path / "few.pel", range(30_000, 30_120)
    with pellucid.open(path) as db:
        db.extend({"x": number} for number in range(60_000))
        db.create_index("by_x", F.x)
    with pellucid.open(path) as db:
        for start in range(0, 60_000, 2000):
            with db.transaction():
                for key in range(start, start + 2000):
                    if key not in kept:
                        del db[key]
        query = db.where(F.x.between(29_900, 30_300))
        assert (query.count(), list(query.keys())) == (120, list(kept))


def test_an_order_does_not_change_how_many_rows_there_are(db: Any) -> None:
    # The rows are counted that entries tell, in the order of the index; some are left out by key.
    plain, indexed = db.table("plain"), db.table("indexed")
    for table in (plain, indexed):
        table.extend({"x": number * 7 % 1000, "y": number % 3} for number in range(1000))
    indexed.create_index("by_x", (F.x, F.y))
    for conditions in ([F.x >= 900, KEY < 800], [F.x >= 900, F.y != 1]):
        queries = [table.where(*conditions).order_by(F.y.desc(), F.x) for table in (plain, indexed)]
        for part in (
            lambda query: query,
            lambda query: query.limit(20),
            lambda query: query.offset(5).limit(30),
        ):
            wanted, asked = (part(query) for query in queries)
            assert (asked.count(), asked.exists()) == (wanted.count(), True) == (len(list(wanted)), True)
        left = {query.after(query.limit(11).to_list()[-1]).count() for query in queries}
        assert left == {queries[0].count() - 11}


def test_pages_are_those_of_a_scan(db: Any) -> None:
    rng = random.Random(6)
    plain, indexed = fill(db, rng, 300)
    for name, parts, options in INDEXES:
        indexed.create_index(name, parts, **options)
    orders: list[list[Any]] = [[], [F.age], [F.odd.desc()], [F.city, F.age.desc()]]
    for order in orders:
        for wanted in (plain, indexed):
            pages, page = [], wanted.where(F.age > 5).order_by(*order).limit(17).to_list()
            while page:
                pages += [row.number for row in page]
                page = wanted.where(F.age > 5).order_by(*order).limit(17).after(page[-1]).to_list()
            assert pages == [row.number for row in plain.where(F.age > 5).order_by(*order)]


def test_an_order_is_the_same_by_a_scan_and_along_an_index(db: Any) -> None:
    # Each row has an entry, so that the index serves every order; each value stands by what it equals.
    values = [2, 1 + 0j, 1, True, 0.5, b"b", bytearray(b"a"), b"a", "x", None] * 20
    plain, indexed = db.table("plain"), db.table("indexed")
    for table in (plain, indexed):
        table.extend({"odd": value} for value in values)
    indexed.create_index("by_odd", F.odd)
    walked: list[tuple[list[Any], bool]] = [
        ([], True),
        ([F.odd == 1], True),
        ([F.odd >= b""], True),
        # Two ranges have no order together.
        ([F.odd.isin([1, 2])], False),
    ]
    for order in (F.odd, F.odd.desc()):
        for conditions, is_walked in walked:
            asked = indexed.where(*conditions).order_by(order).limit(70)
            assert asked.explain().startswith('walk along index "by_odd"') == is_walked
            assert list(asked.keys()) == list(plain.where(*conditions).order_by(order).limit(70).keys())


def test_what_is_changed_through_an_index_is_what_a_scan_changes(db: Any) -> None:
    rng = random.Random(7)
    plain, indexed = fill(db, rng, 300)
    for name, parts, options in INDEXES:
        indexed.create_index(name, parts, **options)
    for _ in range(40):
        seed = rng.random()
        for table in (plain, indexed):
            chosen = random.Random(seed)
            asked = table.where(condition(chosen))
            if chosen.random() < 0.3:
                asked.delete()
            else:
                asked.update(age=F.age + 1, city=chosen.choice(["Bath", "Ely"]))
        assert repr(plain.where().to_dicts()) == repr(indexed.where().to_dicts())
    assert db.check() == []


def test_explain_shows_the_access_path(db: Any) -> None:
    people = db.table("people")
    people.extend(
        {"age": number % 50, "city": f"c{number % 300}", "tags": [number % 7]} for number in range(3000)
    )
    people.create_index("by_age", F.age)
    people.create_index("by_city", F.city)
    lines = people.where(F.city == "c7", F.tags.each() == 3).explain().splitlines()
    assert lines[0] == "read keys from index \"by_city\" where city == 'c7', about 10"
    assert lines[1] == 'look up the rows of table "people", about 10 of 3000, in the order of keys'
    assert lines[2] == "filter natively: tags[*] == 3"
    assert lines[4].startswith('expected to take: "by_city" ')
    assert "the scan " in lines[4]
    lines = people.where(F.age >= 0).order_by(F.age).limit(3).explain().splitlines()
    assert lines[0] == 'walk along index "by_age" where age >= 0'
    lines = people.where((F.age == 3) | (F.city == "c9")).explain().splitlines()
    assert lines[:3] == [
        "keys that are in any of",
        '  read keys from index "by_age" where age == 3, about 60',
        "  read keys from index \"by_city\" where city == 'c9', about 10",
    ]
    lines = people.where(F.city == "c9", F.age == 9).explain(analyze=True).splitlines()
    assert any(line.startswith("met 10 entries: 10 passed, in ") for line in lines)


def test_what_equals_a_number_is_not_looked_for_among_the_greater_ones(db: Any) -> None:
    # A complex number equals 1, and is neither greater nor less: the index lacks it, and the scan finds it.
    table = db.table("t")
    table.extend({"x": x} for x in [1, 1 + 0j, 1.0, True, 2, b"b", bytearray(b"b")] * 3)
    table.extend({"x": f"a{number}"} for number in range(3000))
    conditions = [F.x == 1, F.x.isin([1, 7]), F.x >= 1, F.x == b"b"]
    scanned = [list(table.where(condition).keys()) for condition in conditions]
    table.create_index("numbers", F.x, where=F.x >= 0)
    table.create_index("bytes", F.x, where=F.x >= b"a")
    assert [list(table.where(condition).keys()) for condition in conditions] == scanned
    assert len(scanned[0]) == 12
    assert 'index "numbers"' in table.where(F.x >= 1).explain()
    assert 'index "bytes"' in table.where(F.x == b"b").explain()


def test_an_order_that_leaves_one_value_leaves_no_complex_number(db: Any) -> None:
    table = db.table("t")
    table["c"] = {"x": 1 + 0j, "y": 2 + 0j}
    table.extend({"x": x, "y": x + 1} for x in range(500))
    conditions = [
        [F.x.between(1, 1)],
        [F.x >= 1, F.x <= 1],
        [F.x == 1, F.x > 0],
        [F.x.isin([1, 2]), F.x <= 5],
        [F.x.isin([1, 7]), F.y >= 2, F.y <= 2],
        [F.x == 1, F.y.isin([2, 3])],
    ]
    scanned = [list(table.where(*one).keys()) for one in conditions]
    # Only `between` with equal bounds finds what equals both and has no order.
    assert [len(keys) for keys in scanned] == [2, 1, 1, 2, 1, 2]
    for parts in [(F.x,), (F.x, F.y), (F.y, F.x)]:
        table.create_index("i", parts)
        for one, keys in zip(conditions, scanned, strict=True):
            query = table.where(*one)
            assert (list(query.keys()), query.count(), query.column(F.y + 0)) == (
                keys,
                len(keys),
                [table[key].y + 0 if key != "c" else None for key in keys],
            )
        table.drop_index("i")
    table.create_index("i", F.x)
    assert table.where(F.x == 1, F.x > 0).delete() == 1
    assert "c" in table


def test_a_row_with_a_number_and_its_decimal_has_that_value_once(db: Any) -> None:
    table = db.table("t")
    table.update(a={"l": [1, Decimal(1), 2]}, b={"l": [Decimal("1.0")]}, c={"l": [True, 1.0]}, d={"l": []})
    table.create_index("l", F.l.each())
    table.create_index("two", (F.l.each(), F.l.length()))
    for asked in (1, Decimal(1), 1.0):
        rows = table.where(F.l.each() == asked)
        lists = [row.l for row in rows]
        assert table.index("l").count(asked) == rows.count() == 3
        assert [row.l for row in table.index("l").get_all(asked)] == lists
        assert [row.l for row in table.index("l").get_all(asked, reverse=True)] == lists[::-1]
    assert table.index("two").count((1, 3)) == len(list(table.index("two").get_all((1, 3)))) == 1
    assert table.index("l").count(2) == 1
    with db.transaction():
        table["e"] = {"l": [Decimal(1), 1]}
        assert table.index("l").count(1) == len(list(table.index("l").get_all(1))) == 4


def test_a_number_and_its_decimal_in_one_row_are_found_as_equals_by_each_path(db: Any) -> None:
    table = db.table("t")
    one = Decimal("1.0")
    lists = [
        [1, one],
        [one],
        [1.0],
        [True, 2],
        [2],
        [],
        [Decimal("1.5"), 1],
        "1",
        1,
        one,
        {1: 2},
        (1, (one,)),
        [(1,)],
    ]
    table.extend({"tags": tags, "one": 1, "decimal": one} for tags in lists)
    conditions = [
        condition
        for asked in (1, one, 1.0, True, Decimal("1.5"), 2, (1,), (one,))
        for condition in (
            F.tags.contains(asked),
            F.tags == asked,
            F.tags != asked,
            F.tags.isin([asked]),
            F.tags.isin([asked, "no", 7]),
            F.tags.each() == asked,
            F.tags.each().isin([asked, 7]),
            F.tags.each().between(asked, asked),
            F.tags.each() <= asked,
        )
    ]
    conditions += [
        F.tags.each() == F.one,
        F.tags.each() == F.decimal,
        F.tags.contains(F.decimal),
        F.one == F.decimal,
    ]
    scanned = [table.where(condition).keys() for condition in conditions]
    scanned = [sorted(keys) for keys in scanned]
    assert scanned[0] == scanned[9] == scanned[18]
    table.create_index("tags", F.tags)
    table.create_index("each", F.tags.each())
    for condition, keys in zip(conditions, scanned, strict=True):
        query = table.where(condition)
        assert sorted(query.keys()) == keys, condition
        assert query.count() == len(keys), condition
    for asked in (1, one):
        assert table.index("each").count(asked) == table.where(F.tags.each() == asked).count()
        assert table.index("tags").count(asked) == table.where(F.tags == asked).count()


def test_a_scalar_of_32_bits_is_the_number_that_it_is_by_each_path(db: Any) -> None:
    table, stored = db.table("t"), np.float32(0.1)
    table.extend(
        {"x": value}
        for value in (stored, 0.1, float(stored), np.float64(0.1), Decimal("0.1"), np.float16(0.1))
    )
    # NumPy rounds the Python float: two numbers that differ are both equal to one.
    exact = [
        (0.1, [1, 3]),
        (stored, [0, 2]),
        (float(stored), [0, 2]),
        (np.float16(0.1), [5]),
        (Decimal("0.1"), [4]),
    ]
    for has_index in (False, True):
        if has_index:
            table.create_index("x", F.x)
        for asked, keys in exact:
            assert sorted(table.where(F.x == asked).keys()) == keys
            assert sorted(table.where(F.x.isin([asked])).keys()) == keys
            assert sorted(table.where(F.x.between(asked, asked)).keys()) == keys
            assert table.where((F.x < asked) | (F.x > asked)).count() == 6 - len(keys)


def of_ages(db: Any, ages: list[int]) -> Any:
    """People of these ages, named by number, with an index."""
    people = db.table("people")
    people.extend({"age": age, "name": str(number)} for number, age in enumerate(ages))
    people.create_index("by_age", F.age)
    return people


@pytest.mark.parametrize("each", [2, 5, 40])
def test_first_rows_that_are_all_that_is_wanted_are_what_explain_shows(db: Any, each: int) -> None:
    # Whether they are read again, or looked up by their keys; and no index is read then.
    people = of_ages(db, [number % each for number in range(5000)])
    query = people.where(F.age < 1).limit(3)
    assert [row.name for row in query] == [str(number * each) for number in range(3)]
    assert [row.name for row in query.offset(2)] == [str(number * each) for number in range(2, 5)]
    assert (query.count(), query.sum("age"), list(query.keys())) == (3, 0, [0, each, 2 * each])
    said = query.explain(analyze=True).splitlines()
    assert said[0] == 'scan table "people", all 5000 rows, in the order of keys'
    assert said[1] == f"all that is wanted is among the first {2 * each + 1} rows"
    assert any(line.startswith(f"met {2 * each + 1} rows: 3 passed") for line in said)


@pytest.mark.parametrize("each", [2, 4000])
def test_the_first_rows_of_a_value_are_read_from_the_index_without_counting_them(db: Any, each: int) -> None:
    # A queue: most rows may have the value, and they may all lie behind the others.
    people = of_ages(db, [0 if number % each else 1 for number in range(5000)] + [1] * 5000)
    for age, first in ((0, [number for number in range(5000) if number % each]), (1, range(5000, 5064))):
        query = people.where(F.age == age, KEY.between(first[0], 9999)).limit(8)
        assert list(query.keys()) == list(first)[:8]
        assert query.count() == 8
    said = people.where(F.age == 0).limit(8).explain(analyze=True)
    assert 'read keys from index "by_age" where age == 0, about 8' in said
    assert "met 8 entries" in said, said


def test_rows_that_lie_far_are_found_by_the_index_whatever_the_first_ones_say(db: Any) -> None:
    ages = [0] * 40 + [1] * 19_000 + [0] * 960
    query = of_ages(db, ages).where(F.age == 0).limit(60)
    assert query.explain().startswith('read keys from index "by_age" where age == 0, about ')
    assert [row.name for row in query] == [str(place) for place, age in enumerate(ages) if age == 0][:60]


def test_the_first_of_many_rows_that_equal_a_value_are_those_of_a_scan(db: Any) -> None:
    # An entry or two are read then; numbers and Decimals that are equal stand apart in the index.
    plain, indexed = db.table("plain"), db.table("indexed")
    for table in (plain, indexed):
        table.extend(
            {"x": [2, Decimal(1), 1, 1.0, True][number % 5], "y": number % 3} for number in range(300)
        )
    indexed.create_index("by_x", F.x)
    for more in ([], [F.y == 1], [KEY > 5], [F.x >= 1]):
        for offset, limit in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 5), (0, 300), (300, 1)):
            wanted, asked = (
                table.where(F.x == 1, *more).offset(offset).limit(limit) for table in (plain, indexed)
            )
            assert list(asked.keys()) == list(wanted.keys()), asked.explain()
            assert repr(asked.to_dicts()) == repr(wanted.to_dicts())
            assert (asked.count(), asked.sum("y")) == (wanted.count(), wanted.sum("y"))
            assert asked.filter(lambda row: row.y > 0).count() == wanted.filter(lambda row: row.y > 0).count()
    found = [table.where(F.x == 1).after(table[7]).limit(2).to_dicts() for table in (plain, indexed)]
    assert found[0] == found[1]


def test_many_rows_of_the_same_value_come_in_the_order_of_keys_from_the_end_on(db: Any) -> None:
    plain, indexed = db.table("plain"), db.table("indexed")
    ages = [*range(50), *([7] * 99 + [3] * 100 + [9] * 101 + [-1, 4] * 300)]
    random.Random(8).shuffle(ages)
    for table in (plain, indexed):
        table.extend({"age": age, "n": number % 3} for number, age in enumerate(ages))
    indexed.create_index("by_age", F.age)
    for conditions in ([], [F.age >= 3], [F.age.between(4, 9), F.n == 1], [F.age == 4]):
        for offset, limit in ((0, 10), (41, 300), (0, 2000), (400, 1)):
            wanted, asked = (
                table.where(*conditions).order_by(F.age.desc()).offset(offset).limit(limit)
                for table in (plain, indexed)
            )
            assert list(asked.keys()) == list(wanted.keys()), asked.explain()
            assert [row.n for row in asked] == [row.n for row in wanted]
            with db.transaction():
                for table in (plain, indexed):
                    table[-1] = {"age": 4, "n": 1}
                assert [row.n for row in asked] == [row.n for row in wanted]
                for table in (plain, indexed):
                    del table[-1]


def fill_far(db: Any) -> tuple[Any, Any]:
    """Two tables of the same rows, three of each score: the highest are of kind 1, the lowest of kind 2."""
    tables = db.table("plain"), db.table("indexed")
    kinds = {**dict.fromkeys(range(12), 2), **dict.fromkeys(range(5988, 6000), 1)}
    for table in tables:
        table.extend(
            {"score": number * 7 % 6000 // 3, "kind": kinds.get(number * 7 % 6000, 0), "number": number}
            for number in range(6000)
        )
    tables[1].create_index("by_score", F.score)
    return tables


def all_results(query: Any) -> dict[str, Any]:
    """What a query comes to, whatever is asked of it."""
    return {
        "rows": [row.copy() for row in query],
        "keys": list(query.keys()),
        "first": query.first() and query.first().copy(),
        "count": query.count(),
        "exists": query.exists(),
        "sum": query.sum("number"),
        "column": list(query.column("number")),
        "select": query.select("number", key=KEY).to_list(),
        "covered": query.select("score").to_list(),
        "agg": query.agg(n=count(), least=F.score.min()),
        "group": query.group_by("score").agg(n=count()),
        "arrow": pyarrow.table(query.select("number", "score")).to_pylist(),
    }


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_rows_that_lie_at_the_far_end_of_an_order_are_found(db: Any, kind: int, is_descending: bool) -> None:
    # A sample says how many pass, and not where. Entries with the same score come in the order of keys.
    plain, indexed = fill_far(db)
    order = F.score.desc() if is_descending else F.score
    is_near = kind == 0 or (kind == 1) == is_descending
    for offset, limit in ((0, 1), (0, 5), (2, 4), (20, 10), (0, 3000)):
        for more in ([], [F.score != 700], [KEY >= 0], [(F.kind == kind) | (F.score == 5)]):
            wanted, asked = (
                table.where(F.kind == kind, *more).order_by(order).offset(offset).limit(limit)
                for table in (plain, indexed)
            )
            said = asked.explain(analyze=True)
            if (offset, limit, more) == (0, 5, []):
                assert said.startswith("walk along index") == is_near, said
                assert ("all that is wanted is among the first" in said) == is_near
                assert ("what is wanted is not among the first" in said) != is_near
            assert all_results(asked) == all_results(wanted), said
            if more:
                continue
            with db.transaction():
                for table in (plain, indexed):
                    table[-1] = {"score": 1999 * (kind == 2), "kind": kind, "number": -1}
                    table[-2] = {"score": 1999 * (kind == 1), "kind": kind, "number": -2}
                assert all_results(asked) == all_results(wanted), asked.explain(analyze=True)
                for table in (plain, indexed):
                    del table[-1], table[-2]


@pytest.mark.parametrize("is_descending", [False, True])
def test_what_is_changed_at_the_far_end_of_an_order_is_what_a_scan_changes(
    db: Any, is_descending: bool
) -> None:
    tables = fill_far(db)
    order = F.score.desc() if is_descending else F.score
    for kind in (1, 2):
        for table in tables:
            table.where(F.kind == kind).order_by(order).offset(1).limit(3).update(number=F.number + 10_000)
            table.where(F.kind == kind).order_by(order).limit(2).delete()
        with db.transaction():
            for table in tables:
                table.where(F.kind == kind).order_by(order).limit(2).update(kind=3)
                table.where(F.kind == kind).order_by(order).limit(2).delete()
    assert tables[0].where().to_dicts() == tables[1].where().to_dicts()
    assert db.check() == []


def test_explain_says_how_far_an_index_was_walked_along(db: Any) -> None:
    _, indexed = fill_far(db)
    said = indexed.where(F.kind == 0).order_by(F.score.desc()).limit(2).explain(analyze=True).splitlines()
    assert said[:4] == [
        'walk along index "by_score", from its end on',
        'look up the rows of table "indexed", about 14 of 6000',
        "all that is wanted is among the first 14 rows",
        "filter natively: kind == 0",
    ]
    assert "met 14 entries: 2 passed" in said
    said = indexed.where(F.kind == 1).order_by(F.score).limit(2).explain(analyze=True).splitlines()
    assert said[0] == 'scan table "indexed", all 6000 rows, in the order of keys'
    assert said[1].startswith('no walk along index "by_score": what is wanted is not among the first ')
    assert said[1].endswith(" rows there")
    assert "met 6000 rows: 12 passed" in said


@pytest.mark.parametrize("parts", [KEY, KEY.desc(), (KEY, KEY), (KEY, F.number)], ids=repr)
def test_keys_that_an_index_over_keys_leads_to_are_all_that_is_read(db: Any, parts: Any) -> None:
    # Few rows are found by having their keys alone; of others the entries tell.
    half = Decimal("0.5")
    plain, indexed = db.table("plain"), db.table("indexed")
    rows = [{"number": number, "score": number % 7} for number in range(300)]
    for table in (plain, indexed):
        table.extend(rows)
    indexed.create_index("by_key", parts)
    conditions = [
        *([], [F.number > 9], [F.score == 3, KEY >= 40], [KEY == 97], [KEY == 98, F.score == 0]),
        *([KEY.is_none()], [KEY.isin([3, 44, None])], [KEY.between(40, 42)], [KEY == half]),  # noqa: SIM300 (it is no constant)
    ]
    for key in (0, None, half, (1, "a"), b"b"):
        for table in (plain, indexed):
            table[key] = {"number": 1, "score": 3}
        for condition in conditions:
            for order in ([], [KEY], [KEY.desc()], [F.number, KEY.desc()]):
                for limit in (1, 3, 1000):
                    wanted, asked = (
                        table.where(*condition).order_by(*order) if order else table.where(*condition)
                        for table in (plain, indexed)
                    )
                    assert keys_of(asked.limit(limit)) == keys_of(wanted.limit(limit)), asked.explain()


def keys_of(query: Any) -> list[str]:
    """The keys of a query's rows, by each method that gives them."""
    met = [
        query.column(KEY),
        query.select(K=KEY).to_list(),
        query.agg(n=KEY.count(), least=KEY.min(), most=KEY.max()),
        query.group_by(K=KEY).agg(n=count()),
        list(query.keys()),
        query.count(),
    ]
    assert "select K" in query.select(K=KEY).explain(analyze=True)
    return [repr(one) for one in met]


#: Values of which an index has entries, but for the last few.
NUMBERS_ALONE = [3, 3.0, True, -0.0, 0, 2.5, 2**70, -(2**70), float("inf"), np.int8(3), 7 + 0j]
KEYS = [
    *("", "b", "b\0", "\ud800", b"b", bytearray(b"b"), (1, "a"), (1.0,), None, None, uuid.UUID(int=7)),
    *(
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1),
        datetime.datetime(2020, 1, 1, 17, tzinfo=EAST),
    ),
]
NO_KEYS = [
    float("nan"),
    [1],
    {"a": 1},
    1j,
    datetime.time(1),
    datetime.timedelta(1),
    Decimal("NaN"),
    (np.int8(1),),
]
EXTREMES: list[tuple[list[Any], bool]] = [
    # Of which each row has, or some; and whether a row lacks the field.
    (NUMBERS_ALONE, False),
    (NUMBERS_ALONE, True),
    ([*NUMBERS_ALONE, *KEYS], False),
    ([*NUMBERS_ALONE, *KEYS], True),
    ([*NUMBERS_ALONE, *KEYS, *NO_KEYS], False),
    ([*NUMBERS_ALONE, Decimal("2.5"), Decimal(3), Decimal("1E+90"), Decimal("-Infinity")], False),
    ([Decimal("2.5"), Decimal("2.50"), Decimal(3), None], False),
    ([None], False),
    ([None, float("nan")], True),
    (KEYS, True),
]


@pytest.mark.parametrize(("values", "is_sparse"), EXTREMES, ids=range(len(EXTREMES)))
@pytest.mark.parametrize("parts", [F.x, F.x.desc(), (F.x, F.y), F.l.each()], ids=repr)
def test_the_ends_of_an_index_are_the_extremes_of_the_table(
    db: Any, values: list[Any], is_sparse: bool, parts: Any
) -> None:
    rng = random.Random(repr(values))
    plain, indexed = db.table("plain"), db.table("indexed")
    indexed.create_index("by_x", parts)

    def extremes(table: Any) -> str:
        asks = [
            table.min("x"),
            table.max("x"),
            table.where().min(F.x),
            table.agg(least=F.x.min(), most=F.x.max(), other=F.y.max()),
            table.agg(n=count(), most=F.x.max()),
            table.min(F.l.each()),
            table.max(F.l.each()),
            table.limit(7).max("x"),
        ]
        return repr(asks)

    for _ in range(3):
        # Of few values, so that one of each family is at the end now and then.
        some = rng.sample(values, rng.randrange(1, len(values) + 1))
        rows = [{"x": rng.choice(some), "l": rng.choices(some, k=2), "y": number} for number in range(150)]
        if is_sparse:
            for row in rng.sample(rows, 20):
                del row["x"]
        for table in (plain, indexed):
            table.extend(rows)
        assert extremes(indexed) == extremes(plain)
        with db.transaction():
            for table in (plain, indexed):
                table.append({"x": rng.choice([values[0]]), "y": 5, "l": []})
                table.where(F.y < 20).delete()
            assert extremes(indexed) == extremes(plain)
        plain.clear()
        indexed.clear()


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A table with indexes of which the row 3 is damaged, and the same that is whole."""
    path, marker = tmp_path / "damaged.pel", "the text of the row that is damaged"
    with pellucid.open(path) as db:
        for name, text in (("damaged", marker), ("whole", "plain")):
            table = db.table(name)
            table.extend({"age": n % 50, "n": n, "text": text if n == 3 else "plain"} for n in range(5000))
            table.create_index("by_age", F.age)
            table.create_index("by_n", F.n)
    data = bytearray(path.read_bytes())
    place = data.index(marker.encode())
    # Its slots, their tags, and some of its head.
    data[place - 30 : place] = b"\xff" * 30
    path.write_bytes(data)
    with pellucid.open(path) as db:
        yield db.table("damaged"), db.table("whole")


def test_a_damaged_row_among_the_first_ones_is_named_or_not_met(damaged: tuple[Any, Any]) -> None:
    met = []
    conditions = [
        [F.age == 7],
        [F.age == 3],
        [F.age < 9, F.n > 1],
        [F.age == 2],
        [F.n.between(1, 4)],
        [F.age == 99],
    ]
    for condition in conditions:
        for count_ in (1, 2, 5, 150):
            queries = [table.where(*condition).limit(count_) for table in damaged]
            asks: list[Any] = [
                lambda query: [row.n for row in query],
                lambda query: list(query.keys()),
                lambda query: (query.count(), query.exists()),
                lambda query: query.column("age"),
                lambda query: query.sum("n"),
                lambda query: [row.n for row in query.order_by(F.age.desc())],
                lambda query: [row.n for row in query.offset(1)],
            ]
            for ask in asks:
                try:
                    answer = ask(queries[0])
                except pellucid.CorruptRecord as error:
                    met.append(str(error))
                else:
                    assert answer == ask(queries[1]), queries[0].explain()
    assert len(met) > 20, "the test is about rows that are met"
    assert all("record 3 of table" in message for message in met)


def test_extremes_are_read_at_the_ends_of_an_index_alone(damaged: tuple[Any, Any]) -> None:
    table, _ = damaged
    assert (table.min("n"), table.max(F.n), table.agg(a=F.age.min(), b=F.n.max())) == (
        0,
        4999,
        {"a": 0, "b": 4999},
    )
    with pytest.raises(pellucid.CorruptRecord):
        table.agg(a=F.n.max(), all=count(F.n))
