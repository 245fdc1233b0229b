"""Tables whose rows other programs read as JSON, and what the server computes from it."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import math
import random
import uuid
from collections.abc import Iterator
from typing import Any

import pellucid
import pytest
from pellucid import F
from pellucid.postgres.query.reader import ServerReader

# What JSON has no value for, and how it is written.
ODD = [
    ("a\0b", "a\u2400b"),
    ("\ud800", "\ufffd"),
    (float("nan"), "NaN"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    (decimal.Decimal("1.10"), "1.10"),
    (decimal.Decimal("sNaN"), "sNaN"),
    (2**80, 2**80),
    (10**2000, str(10**2000)),
    (1e300, 1e300),
    (5e-324, 5e-324),
    (-0.0, 0.0),
    ((1, (2,)), [1, [2]]),
    ({1}, [1]),
    (b"\0\xff", "\\x00ff"),
    (bytearray(b"a"), "\\x61"),
    (1 + 2j, "(1.0+2.0j)"),
    (datetime.date(2024, 5, 17), "2024-05-17"),
    (datetime.datetime(2024, 5, 17, 1, 2, 3), "2024-05-17T01:02:03"),
    (datetime.datetime(2024, 5, 17, tzinfo=datetime.timezone.utc), "2024-05-17T00:00:00+00:00"),
    (datetime.time(1, 2), "01:02:00"),
    (datetime.timedelta(days=1, seconds=1), "PT86401S"),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ({1: "a", 2.5: "b", None: "c", (1, 2): "d", b"x": "e", "f": 1}, None),
    ("x" * 40_000, "<large value>"),
    ('quote " and \\', 'quote " and \\'),
    ("", ""),
    ({"": {"": None}}, {"": {"": None}}),
]
KEYS_OF_OTHER_TYPES = {"1": "a", "2.5": "b", "null": "c", "[1, 2]": "d", "\\x78": "e", "f": 1}


@pytest.fixture
def db(url: str) -> Iterator[Any]:
    """An empty database on the server."""
    with pellucid.open(url) as database:
        yield database


@dataclasses.dataclass
class Page:
    views: int = 0


def test_a_table_that_increment_creates_is_as_it_was_asked_for(db: Any) -> None:
    pages = db.table("pages", type=Page, queryable=True)
    assert pages.increment("home", "views", default=4) == 5
    assert pages["home"] == Page(5)
    assert rows_of(db, pages) == {'"home"': {"views": 5}}


def rows_of(db: Any, table: Any) -> dict[str, Any]:
    """What another program reads: the JSON of values, by that of keys."""
    with db._connection.pool.session() as session:
        found = session.rows(f"SELECT key::text, value::text FROM {table.sql_name}".encode())
    return {key: json.loads(value) for key, value in found}


def test_every_value_has_its_json_whichever_way_it_is_stored(db: Any) -> None:
    table = db.table("t", queryable=True)
    expected = [KEYS_OF_OTHER_TYPES if shown is None else shown for _, shown in ODD]
    for number, (value, _) in enumerate(ODD):
        table[number] = {"odd": value}
    table.update({number + 100: {"odd": value} for number, (value, _) in enumerate(ODD)})
    table.clear()
    table.extend([{"odd": value} for value, _ in ODD])
    numbers = list(table.keys())
    assert [rows_of(db, table)[str(number)]["odd"] for number in numbers] == expected
    for number, (value, _) in enumerate(ODD):
        table[number] = {"odd": value}
    table.update({number + 1000: {"odd": value} for number, (value, _) in enumerate(ODD)})
    with db.transaction():
        for number in numbers:
            table[number].odd = ODD[-1][0]
            table[number].odd = ODD[numbers.index(number)][0]
    table[-1] = {"odd": 0}
    for number, (value, shown) in enumerate(ODD):
        table[-1].odd = value
        wanted = KEYS_OF_OTHER_TYPES if shown is None else shown
        found = rows_of(db, table)
        assert [found[str(key)]["odd"] for key in (-1, number, number + 1000, numbers[number])] == [
            wanted
        ] * 4


def test_keys_and_values_that_are_no_dicts(db: Any) -> None:
    table = db.table("t", queryable=True)
    rows = {"a": 1, 2: [1, {"x": None}], (1, "b"): "text", b"\0": None, None: True, 2.5: 0.5}
    for key, value in rows.items():
        table[key] = value
    long = "k" * 5000
    table[long] = {"n": 1}
    table[long].n = 2
    assert rows_of(db, table) == {
        '"a"': 1,
        "2": [1, {"x": None}],
        '[1, "b"]': "text",
        '"\\\\x00"': None,
        "null": True,
        "2.5": 0.5,
        json.dumps(long): {"n": 2},
    }
    del table["a"]
    assert '"a"' not in rows_of(db, table)


def test_json_too_large_is_left_out(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pellucid.postgres.table.records import Records

    table = db.table("t", queryable=True)
    table[1] = {"n": 1}
    with monkeypatch.context() as patch:
        patch.setattr(Records, "json", lambda _self, _value: None)
        table[2] = {"n": 2}
        table.extend([{"n": 3}])
    assert (table.sum("n"), table.count("n"), table.max("n")) == (6, 3, 3)
    with db._connection.pool.session() as session:
        found = session.rows(f"SELECT count(*), count(value) FROM {table.sql_name}".encode())
    assert found == [(3, 1)]


def test_a_queryable_table_is_recognised(db: Any, url: str) -> None:
    table = db.table("t", queryable=True)
    table[1] = {"n": 1}
    table.create_index("n", F.n)
    table.create_index("tags", F.tags.each())
    db.table("plain")[1] = {"n": 1}
    with pellucid.open(url) as other:
        again = other.table("t")
        again[2] = {"n": 2, "tags": ["a"]}
        again[1].n = 5
        assert rows_of(other, again) == {"1": {"n": 5}, "2": {"n": 2, "tags": ["a"]}}
        assert other.table("t", queryable=True).sql_name == table.sql_name
        with pytest.raises(ValueError, match="is queryable; open it without"):
            other.table("t", queryable=False)
        with pytest.raises(ValueError, match=r"not queryable; .*rename_table"):
            other.table("plain", queryable=True)
        with pytest.raises(TypeError, match="queryable=True"):
            other.table("plain").sql_name
        with pytest.raises(TypeError, match="True or False"):
            other.table("new", queryable="yes")
        other.rename_table("t", "u")
        other.table("u")[3] = {"n": 3}
    assert rows_of(db, table)["3"] == {"n": 3}
    # The advice of the message.
    db.table("new", queryable=True).update(db.table("plain"))
    db.drop_table("plain")
    db.rename_table("new", "plain")
    assert rows_of(db, db.table("plain")) == {"1": {"n": 1}}
    db.drop_table("u")
    db.drop_table("plain")
    assert db.tables() == []


def test_other_programs_read_join_and_index_the_rows(db: Any) -> None:
    people, orders = db.table("people", queryable=True), db.table("orders", queryable=True)
    people.update({"ann": {"age": 30}, "bob": {"age": 40}})
    orders.extend([{"of": "ann", "price": 5}, {"of": "bob", "price": 7}, {"of": "ann", "price": 1}])
    joined = (
        f"SELECT p.key #>> '{{}}', sum((o.value->>'price')::int)::int FROM {people.sql_name} AS p "
        f"JOIN {orders.sql_name} AS o ON o.value->'of' = p.key GROUP BY 1 ORDER BY 1"
    )
    relation = db._tables.statements(db._tables.layout_named("orders")).rows.decode()
    with db._connection.pool.session() as session:
        assert session.rows(joined.encode()) == [("ann", 6), ("bob", 7)]
        session.execute(f"CREATE INDEX mine ON {relation} ((value->>'of'))".encode())
    orders.create_index("price", F.price)
    with db._connection.pool.session() as session:
        name = quoted_schema(db)
        assert session.rows(f"SELECT to_regclass('{name}.mine') IS NOT NULL".encode()) == [(True,)]


def quoted_schema(db: Any) -> str:
    return '"' + db._place.schema + '"'


@dataclasses.dataclass
class Thing:
    n: int


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The answers of the server to aggregates; None where it could not know."""
    answers: list[Any] = []
    aggregate = ServerReader.aggregate

    def noted(self: Any, *arguments: Any) -> Any:
        answers.append(aggregate(self, *arguments))
        return answers[-1]

    monkeypatch.setattr(ServerReader, "aggregate", noted)
    return answers


def test_the_server_computes_what_it_knows_exactly(db: Any, pushed: list[Any]) -> None:
    table = db.table("t", queryable=True)
    assert (table.sum("n"), table.min("n"), table.max("n"), table.count("n")) == (0, None, None, 0)
    table.extend({"n": number, "a": {"b": -number}, "none": None} for number in range(100))
    table[1000] = {"other": 1}
    table[1001] = {"n": None}
    assert (table.sum("n"), table.sum("a.b"), table.count("n"), table.count("a.b")) == (4950, -4950, 101, 100)
    assert (table.min("n"), table.max("a.b"), table.sum("none"), table.max("none")) == (0, 0, 0, None)
    assert all(answer is not None for answer in pushed[4:])
    assert len(pushed) == 8
    table.create_index("n", F.n)
    pushed.clear()
    assert table.where(F.n >= 90).sum("n") == sum(range(90, 100))
    assert table.where(F.n >= 90, F.a.b > -95).sum("n") == sum(range(90, 95))
    assert pushed == [(sum(range(90, 100)),)]
    assert "the server computes" in table.where(F.n >= 90).explain()
    assert "the server computes" not in table.where(F.n >= 90, F.a.b > -95).explain()
    assert table.where(F.n >= 90).limit(2).sum("n") == 181
    with db.transaction():
        table[50].n = 10_000
        assert table.max("n") == 10_000
    assert type(table.sum("n")) is int
    table[7].n = 2**100
    assert table.sum("n") == sum(range(100)) - 50 - 7 + 10_000 + 2**100


@pytest.mark.parametrize(
    "other", [True, 2.5, 1.0, 1e300, decimal.Decimal("1.5"), float("nan"), math.inf, 10**2000, -0.0]
)
def test_what_the_server_does_not_know_is_computed_here(db: Any, pushed: list[Any], other: Any) -> None:
    table = db.table("t", queryable=True)
    table.extend([{"n": 1}, {"n": other}, {"n": 2}])
    with pellucid.open(":memory:") as memory:
        same = memory.table("t")
        same.extend([{"n": 1}, {"n": other}, {"n": 2}])
        for verb in ("sum", "min", "max"):
            found, expected = getattr(table, verb)("n"), getattr(same, verb)("n")
            assert (repr(found), type(found)) == (repr(expected), type(expected))
        assert table.count("n") == 3
    assert pushed[0] is None


def test_names_that_a_key_of_another_type_has_in_json(db: Any) -> None:
    table = db.table("t", queryable=True)
    table[1] = {1: 5, "list": [7, 8], b"x": 9, None: 3, 2.5: 4, "deep": {1: 6}}
    for path in ("1", ("list", "0"), "\\x78", ("null",), ("2.5",), ("deep", "1")):
        assert (table.sum(path), table.count(path), table.max(path)) == (0, 0, None)
    assert table.sum(("deep", 1)) == 6
    assert table.sum(("list", 0)) == 7


def test_a_server_answers_as_a_table_in_memory_does(db: Any) -> None:
    chance = random.Random("queryable")
    names = ["a", "b", "list", "1", "x y", 'q"uote', "", "\xe9"]

    def value(depth: int) -> Any:
        kinds = [0, 1, -7, 2**62, None, "text", "5", True, 1.5, 3.0, 2**70, decimal.Decimal(4)]
        # Mostly ints, so that the server knows the answer at times.
        kind = chance.choice([*kinds, *range(40), *(["dict"] * 12), "list"])
        if kind == "dict" and depth:
            keys = [*chance.sample(names, 3), chance.choice([1, 2.5, None, "z"])]
            return {key: value(depth - 1) for key in keys}
        if kind in ("dict", "list"):
            return [value(0), 1]
        return kind

    with pellucid.open(":memory:") as memory:
        for turn in range(25):
            table, same = db.table(f"t{turn}", queryable=True), memory.table(f"t{turn}")
            rows = [
                {name: value(2) for name in chance.sample(names, 5)} for _ in range(chance.randrange(1, 6))
            ]
            table.extend(rows)
            same.extend(rows)
            for path in [(name,) for name in names] + [(one, other) for one in names for other in names[:4]]:
                for verb in ("sum", "count", "min", "max"):
                    assert answer(table, verb, path) == answer(same, verb, path), (rows, path, verb)


def answer(table: Any, verb: str, path: Any) -> Any:
    """What a verb gives or raises, with its type."""
    try:
        found = getattr(table, verb)(path)
    except (TypeError, ArithmeticError) as error:
        return type(error)
    plain = found.copy() if hasattr(found, "copy") else found
    return repr(plain), type(found)
