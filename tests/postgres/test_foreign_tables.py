"""Are existing tables of pickles and JSON read as they are, and converted whole?"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import json
import pickle
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pellucid
import pytest
import servers
from pellucid import F
from pellucid.postgres import adopt, migrate

PEOPLE = {n: {"name": f"p{n}", "age": n % 50, "in": {"tags": ["a", n]}} for n in range(3000)}


@pytest.fixture
def connection(url: str, server: str) -> Iterator[Any]:
    """A plain connection to a schema `old`, which goes after the test."""
    psycopg = servers.driver("psycopg")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS old CASCADE; CREATE SCHEMA old; SET search_path = old")
        yield connection
        connection.execute("DROP SCHEMA old CASCADE")


@pytest.fixture(params=["pickle", "json", "jsonb", "text"])
def people(request: pytest.FixtureRequest, connection: Any) -> str:
    """A table of 3,000 rows; gives its codec."""
    kind = {"pickle": "bytea"}.get(request.param, request.param)
    connection.execute(f"CREATE TABLE people (id int PRIMARY KEY, data {kind} NOT NULL)")
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO people VALUES (%s, %s)",
            [(n, stored(request.param, row)) for n, row in PEOPLE.items()],
        )
    return "json" if request.param == "text" else str(request.param)


def stored(codec: str, value: Any) -> Any:
    return pickle.dumps(value) if codec == "pickle" else json.dumps(value)


def test_an_adopted_table_is_a_mapping_that_cannot_be_changed(url: str, people: str) -> None:
    with adopt("old.people", database=url, key="id", value="data", codec=people) as old:
        assert len(old) == 3000
        assert old[7] == PEOPLE[7]
        assert old[7]["in"].tags[1] == 7
        assert 7 in old
        assert old.get(3000) is None
        assert old.get("7", "other") == "other"
        assert old.get(2**70) is None
        assert 7.5 not in old
        with pytest.raises(KeyError):
            old[-1]
        with pytest.raises(pellucid.ReadOnly):
            old[7].age = 8
        assert list(old) == list(PEOPLE)
        assert list(old.values()) == list(PEOPLE.values())
        assert list(old.range(10, 13)) == [PEOPLE[n] for n in range(10, 13)]
        assert list(old.keys(start=2997, reverse=True)) == [2999, 2998, 2997]
        with pytest.raises(TypeError, match="cannot be compared"):
            old.range("a")
        assert len(list(old.where(F.age > 48, F.name.matches("9$")))) == 60
        assert [row.name for row in old.find(name="p2500")] == ["p2500"]
        assert len(list(old.filter(lambda row: row["in"].tags[1] < 5))) == 5
        assert old == PEOPLE
        assert "password" not in repr(old)


def test_an_adopted_table_is_read_over_an_open_database(url: str, people: str) -> None:
    with pellucid.open(url) as db:
        old = adopt("old.people", database=db, key="id", value="data", codec=people)
        assert old[1] == PEOPLE[1]
        old.close()
        db["open"] = True


KEYS: dict[str, list[Any]] = {
    "text": ["B", "a", "b", "\u00e9", "\U0001f600"],
    "bytea": [b"", b"\0", b"a"],
    "numeric": [decimal.Decimal("-1"), decimal.Decimal("1.5"), decimal.Decimal("20")],
    "uuid": [uuid.UUID(int=1), uuid.UUID(int=2**127)],
    "date": [datetime.date(1999, 1, 1), datetime.date(2026, 1, 31)],
    "timestamp": [datetime.datetime(1999, 1, 1, 2), datetime.datetime(2026, 1, 31, 3)],
    "timestamptz": [datetime.datetime(1999, 1, 1, 2, tzinfo=datetime.timezone.utc)],
}


@pytest.mark.parametrize("kind", list(KEYS))
def test_keys_of_each_type_are_in_pellucids_order(url: str, connection: Any, kind: str) -> None:
    connection.execute(f"CREATE TABLE kinds (id {kind} PRIMARY KEY, data jsonb)")
    for number, key in enumerate(reversed(KEYS[kind])):
        connection.execute("INSERT INTO kinds VALUES (%s, %s)", [key, str(number)])
    with adopt("old.kinds", database=url, key="id", value="data", codec="jsonb") as old:
        assert list(old) == KEYS[kind]
        assert [old[key] for key in KEYS[kind]] == list(reversed(range(len(KEYS[kind]))))
        assert list(old.keys(start=KEYS[kind][0], stop=KEYS[kind][-1])) == KEYS[kind][:-1]
        with pellucid.open(url) as db:
            migrate(old, db.table("t"))
            assert list(db.table("t")) == KEYS[kind]


def test_a_key_of_several_columns_is_a_tuple(url: str, connection: Any) -> None:
    connection.execute("CREATE TABLE pairs (a text, b int, data json, PRIMARY KEY (b, a))")
    connection.execute("""INSERT INTO pairs VALUES ('x', 2, '[1]'), ('x', 1, '{"n": 1}'), ('w', 5, 'null')""")
    with adopt("old.pairs", database=url, key=["a", "b"], value="data", codec="json") as old:
        assert list(old.items()) == [(("w", 5), None), (("x", 1), {"n": 1}), (("x", 2), [1])]
        assert old["x", 1].n == 1
        assert list(old.keys(start=("x", 2))) == [("x", 2)]
        assert ("x",) not in old


def test_pickles_are_under_the_policy(url: str, connection: Any) -> None:
    connection.execute("CREATE TABLE objects (id int PRIMARY KEY, data bytea)")
    half = fractions.Fraction(1, 2)
    evil = b"cos\nsystem\n(S'touch /tmp/pellucid-evil'\ntR."
    for number, data in enumerate([pickle.dumps({"f": half}), evil, b"\x80\x05garbage", b""]):
        connection.execute("INSERT INTO objects VALUES (%s, %s)", [number, data])
    with adopt("old.objects", database=url, key="id", value="data") as old:
        for number in (0, 1):
            with pytest.raises(pellucid.PickleDenied, match=f"key {number}"):
                old[number]
        for number in (2, 3):
            with pytest.raises((pellucid.UnreadableValue, pellucid.CorruptRecord), match=f"key {number}"):
                old[number]
        with pytest.raises(pellucid.PickleDenied):
            list(old.values())
    with adopt("old.objects", database=url, key="id", value="data", pickle=["fractions.Fraction"]) as old:
        assert old[0] == {"f": half}
        with pytest.raises(pellucid.PickleDenied):
            old[1]


def test_what_cannot_be_adopted_is_said(url: str, connection: Any) -> None:
    connection.execute('CREATE TABLE "a""b" (id int PRIMARY KEY, k int, f float8 UNIQUE NOT NULL, data text)')
    name = 'old.a"b'
    for given, match in [
        ({"table": "old.no"}, "no table 'old.no'"),
        ({"value": "x; DROP TABLE y"}, "no column 'x; DROP TABLE y'; it has id, k, f, data"),
        ({"key": "k"}, "no primary key or unique index over k"),
        ({"key": "f"}, "is float8"),
        ({"codec": "pickle"}, "codec='pickle' reads bytea"),
        ({"codec": "xml"}, "codec='xml' is unknown"),
    ]:
        asked: dict[str, Any] = {"table": name, "key": "id", "value": "data", "codec": "json"} | given
        with pytest.raises(ValueError, match=match):
            adopt(asked.pop("table"), database=url, **asked)


def test_migrate_converts_every_row_and_keeps_the_source(url: str, people: str, connection: Any) -> None:
    with (
        adopt("old.people", database=url, key="id", value="data", codec=people) as old,
        pellucid.open(url) as db,
    ):
        table = db.table("people")
        seen: list[tuple[int, int]] = []
        assert migrate(old, table, progress=lambda *step: seen.append(step)) == 3000
        assert seen[-1] == (3000, 3000)
        assert table == PEOPLE
        assert table[7].age == 7
        with pytest.raises(ValueError, match="pass resume=True"):
            migrate(old, table)
        table[5] = "other"
        table["own"] = 1
        del table[9]
        assert migrate(old, table, resume=True) == 3000
        assert table == PEOPLE
        assert len(old) == 3000
        migrate(old, table, resume=True, drop=True)
        assert table == PEOPLE
        assert connection.execute("SELECT to_regclass('old.people')").fetchone() == (None,)
        with pytest.raises(pellucid.DatabaseError, match="dropped"):
            old[1]


KILLED = """
import os, sys
import pellucid
from pellucid.postgres import adopt, migrate
old = adopt("old.people", database=sys.argv[1], key="id", value="data", codec="jsonb")
migrate(old, pellucid.open(sys.argv[1]).table("people"), batch=100,
    progress=lambda n, all: n > 1500 and os._exit(9))
"""


@pytest.mark.parametrize("people", ["jsonb"], indirect=True)
def test_a_killed_migration_goes_on(url: str, people: str) -> None:
    with pellucid.open(url) as db:
        assert subprocess.run([sys.executable, "-c", KILLED, url], check=False).returncode == 9
        table = db.table("people")
        assert 1500 <= len(table) < 3000
        versions = {key: table[key] for key in (1, 1000)}
        with adopt("old.people", database=url, key="id", value="data", codec=people) as old:
            migrate(old, table, resume=True)
        assert table == PEOPLE
        assert versions == {key: PEOPLE[key] for key in versions}


@pytest.mark.parametrize("people", ["pickle"], indirect=True)
def test_rows_that_change_meanwhile_are_taken_again(
    url: str, people: str, connection: Any, server: str
) -> None:
    psycopg = servers.driver("psycopg")
    changes = 0

    def write() -> None:
        nonlocal changes
        with (
            contextlib.suppress(psycopg.errors.UndefinedTable),
            psycopg.connect(server, autocommit=True) as other,
        ):
            for n in range(400):
                other.execute("DELETE FROM old.people WHERE id = %s", [n * 3])
                other.execute("INSERT INTO old.people VALUES (%s, %s)", [5000 + n, stored(people, {"n": n})])
                other.execute(
                    "UPDATE old.people SET data = %s WHERE id = %s", [stored(people, [n]), n * 3 + 1]
                )
                changes += 3

    with adopt("old.people", database=url, key="id", value="data") as old, pellucid.open(url) as db:
        table = db.table("people")
        writer = threading.Thread(target=write)
        writer.start()
        migrate(old, table, batch=100)
        writer.join()
        migrate(old, table, resume=True)
        assert changes == 1200
        expected = {n: row for n, row in PEOPLE.items() if n % 3 or n >= 1200}
        expected |= {n * 3 + 1: [n] for n in range(400)} | {5000 + n: {"n": n} for n in range(400)}
        assert dict(table) == dict(old) == expected
