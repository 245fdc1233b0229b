"""Do records survive in a bytea column, and are they read in the driver's own memory?"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import decimal
import gc
import math
import os
import pickle
import random
import uuid
from collections.abc import Iterator
from typing import Any

import numpy
import pellucid
import pytest
import servers
from hypothesis import given, settings
from hypothesis import strategies as st
from values import plain, same, values

# What JSON has no word for, and what has broken codecs before.
ODD = {
    "nul": "a\0b",
    "a\0key": 1,
    "lone surrogate": "\ud800",
    "beyond the BMP": "\U0001f600",
    "backslash": "\\x00\\000'",
    "nan": math.nan,
    "infinity": -math.inf,
    "minus zero": -0.0,
    "decimal": decimal.Decimal("1.10"),
    "tuple": (1, (2, "three")),
    "bytes": bytes(range(256)),
    "bytearray": bytearray(b"\0\1"),
    "large int": -(2**200),
    "set": {1, "x", None},
    "moment": dt.datetime(2024, 10, 27, 2, 30, tzinfo=dt.timezone.utc, fold=1),
    "date": dt.date(2024, 5, 17),
    "span": dt.timedelta(days=-1, microseconds=1),
    "uuid": uuid.UUID(int=7),
    "complex": 1 - 2j,
    "array": numpy.arange(6, dtype="<i2").reshape(2, 3),
    "keyed": {1: "one", None: 2, (1, "x"): 3, 2.5: 4},
    "nested": [{"a": [{"b": [None, True, ""]}]}],
}


class Client:
    """A connection with a table of blobs, through one driver and one format of what is sent and received."""

    def __init__(self, dsn: str, protocol: str) -> None:
        name, _, self.format = protocol.partition(" ")
        self.driver = servers.driver(name)
        self.connection = self.driver.connect(dsn)
        self.connection.autocommit = True
        # psycopg 2 always sends and receives text: hexadecimal digits.
        self.parameter = "%t" if self.format == "text" else "%s"
        if self.format == "in place":
            read_in_place(self.connection)
        self.execute("CREATE TEMPORARY TABLE blobs (id serial PRIMARY KEY, value bytea)")

    def execute(self, statement: str, *parameters: Any) -> Any:
        cursor = self.connection.cursor()
        if self.format in ("binary", "in place"):
            cursor.execute(statement, parameters, binary=True)
        else:
            cursor.execute(statement, parameters)
        return cursor

    def store(self, buffer: Any) -> int:
        binary = self.driver.Binary(buffer)
        inserted = self.execute(f"INSERT INTO blobs (value) VALUES ({self.parameter}) RETURNING id", binary)
        return int(inserted.fetchone()[0])

    def fetch(self, number: int) -> Any:
        """What the driver gives for the column, with the cursor closed."""
        with self.execute("SELECT value FROM blobs WHERE id = %s", number) as cursor:
            return cursor.fetchone()[0]

    def sent(self, buffer: Any) -> Any:
        """What comes back from the server for these bytes."""
        return self.fetch(self.store(buffer))


def read_in_place(connection: Any) -> None:
    """Have psycopg 3 hand out the memory of the result, rather than a copy of each value."""
    from psycopg import adapt, pq

    class InPlace(adapt.Loader):
        format = pq.Format.BINARY

        def load(self, data: Any) -> Any:
            return data

    connection.adapters.register_loader("bytea", InPlace)


PROTOCOLS = ["psycopg2", "psycopg text", "psycopg binary", "psycopg in place"]


@pytest.fixture(scope="session", params=PROTOCOLS)
def client(server: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(server, request.param)
    yield made
    made.connection.close()


# What goes in comes out


@given(value=values)
@settings(max_examples=60)
def test_every_value_comes_back_to_the_last_bit(client: Client, value: Any) -> None:
    data = pellucid.dumps(value)
    buffer = client.sent(data)
    assert bytes(buffer) == data
    pellucid.validate(buffer)
    assert same(pellucid.loads(buffer), value)
    assert same(plain(pellucid.view(buffer)), value)


@pytest.mark.parametrize("name", ODD)
def test_what_jsonb_refuses_or_changes_comes_back(client: Client, name: str) -> None:
    for value in (ODD[name], [ODD[name]], {name: ODD[name], "n": 1}):
        assert same(plain(pellucid.view(client.sent(pellucid.dumps(value)))), value)


def test_a_record_of_megabytes_comes_back(client: Client) -> None:
    value = {"n": 1, "text": "\0\ud800" * 500_000, "list": list(range(300_000))}
    record = pellucid.view(client.sent(pellucid.dumps(value)))
    assert (record.n, record.list[299_999], record.text == value["text"]) == (1, 299_999, True)


def test_the_driver_takes_a_record_as_it_is(client: Client) -> None:
    # Records have the buffer protocol, so a row of a table needs no dumps().
    with pellucid.open(":memory:") as db:
        db["ann"] = {"name": "Ann", "nested": {"tags": ["a", "b"]}}
        assert pellucid.view(client.sent(db["ann"])) == {"name": "Ann", "nested": {"tags": ["a", "b"]}}
        assert pellucid.view(client.sent(db["ann"].nested.tags)) == ["a", "b"]
    view = pellucid.view(pellucid.dumps(ODD))
    assert bytes(client.sent(view)) == bytes(view)


def test_null_is_no_record(client: Client) -> None:
    buffer = client.fetch(client.execute("INSERT INTO blobs DEFAULT VALUES RETURNING id").fetchone()[0])
    for read in (pellucid.view, pellucid.loads, pellucid.validate):
        with pytest.raises(TypeError):
            read(buffer)


def test_copy_takes_records_in_and_gives_them_out(server: str) -> None:
    client = Client(server, "psycopg binary")
    records = [{"n": n, "odd": ODD} for n in range(100)]
    with client.connection.cursor() as cursor:
        with cursor.copy("COPY blobs (id, value) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "bytea"])
            for record in records:
                copy.write_row((record["n"], pellucid.dumps(record)))
        with cursor.copy("COPY (SELECT value FROM blobs ORDER BY id) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types(["bytea"])
            found = [pellucid.view(buffer) for (buffer,) in copy.rows()]
    client.connection.close()
    assert all(same(plain(view), record) for view, record in zip(found, records, strict=True))


# In the driver's memory


def address(buffer: Any) -> int:
    return int(numpy.frombuffer(buffer, dtype="u1").ctypes.data)


def place_of_n() -> int:
    """Where the bytes of `record(n)` have n."""
    one, two = record(1), record(2)
    return next(place for place in range(16, len(one)) if one[place] != two[place])


def record(n: int) -> bytes:
    return pellucid.dumps({"n": n, "inner": {"text": "longer than a slot"}})


def test_a_view_reads_the_memory_of_the_driver(client: Client) -> None:
    buffer = client.sent(record(1))
    view = pellucid.view(buffer)
    assert view.n == 1
    # Were it a copy, it would not see this.
    ctypes.memset(address(buffer) + place_of_n(), 7, 1)
    assert view.n == 7
    assert pellucid.view(buffer).n == 7


def test_a_view_decodes_what_is_asked_for_and_no_more(client: Client) -> None:
    view = pellucid.view(client.sent(pellucid.dumps({"n": 1, "rest": [ODD] * 50})))
    before = pellucid.counters()
    assert (view.n, view.rest[49]["nul"]) == (1, "a\0b")
    after = pellucid.counters()
    assert after["fields_decoded"] - before["fields_decoded"] <= 4
    assert after["values_encoded"] == before["values_encoded"]


def test_views_keep_the_memory_after_cursor_and_connection_are_gone(client: Client, server: str) -> None:
    protocol = f"{client.driver.__name__} {client.format}".strip()
    short_lived = Client(server, protocol)
    data = pellucid.dumps({"text": "x" * 1000, "inner": {"list": [1, 2, 3]}, "odd": ODD})
    for _ in range(50):
        short_lived.store(data)
    views = [pellucid.view(short_lived.fetch(number)) for number in range(1, 51)]
    inner = [view.inner.list for view in views[::2]]
    del views[::2]
    short_lived.connection.close()
    del short_lived
    gc.collect()
    # Memory that was freed is soon used again.
    garbage = [b"\xff" * len(data) for _ in range(500)]
    assert all(view.text == "x" * 1000 and same(view.odd.to_dict(), ODD) for view in views)
    assert all(part == [1, 2, 3] for part in inner)
    assert len(garbage) == 500


def test_rows_of_one_result_are_read_one_by_one_and_together(client: Client) -> None:
    numbers = [client.store(record(n)) for n in range(200)]
    cursor = client.execute("SELECT value FROM blobs WHERE id >= %s ORDER BY id", numbers[0])
    assert [pellucid.view(buffer).n for (buffer,) in cursor.fetchall()] == list(range(200))
    cursor = client.execute("SELECT value FROM blobs WHERE id >= %s ORDER BY id", numbers[0])
    kept = [pellucid.view(buffer) for (buffer,) in cursor]
    cursor.close()
    assert [view.n for view in kept] == list(range(200))


# Hostile bytes


class Bomb:
    """Says when it is unpickled."""

    fuse: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.fuse,)


def survive(buffer: Any) -> None:
    """Read all there is, in every way: a value, or an error that says what is wrong."""
    for read in (pellucid.view, pellucid.loads, pellucid.validate, lambda data: plain(pellucid.view(data))):
        with contextlib.suppress(pellucid.Error):
            repr(read(buffer))


def test_what_is_no_record_says_so(client: Client) -> None:
    for data in (b"", b"\0", b"{}", b'{"n": 1}', pickle.dumps({"n": 1}), record(1)[:-1], record(1)[1:]):
        buffer = client.sent(data)
        survive(buffer)
        for read in (pellucid.loads, pellucid.validate):
            with pytest.raises(pellucid.CorruptRecord):
                read(buffer)


def test_a_pickle_in_the_column_runs_no_code(client: Client, tmp_path: Any) -> None:
    bomb = Bomb()
    bomb.fuse = str(tmp_path / "exploded")
    for data in (pickle.dumps(bomb), pellucid.dumps({"n": 1, "bomb": bomb}, pickle="allow")):
        buffer = client.sent(data)
        survive(buffer)
        assert not (tmp_path / "exploded").exists()
    # The rest of a record with a pickle in it is readable.
    view = pellucid.view(buffer)
    assert view.n == 1
    with pytest.raises(pellucid.PickleDenied):
        view["bomb"]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_damage_is_an_error_or_a_value_and_never_a_crash(client: Client, seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(pellucid.dumps(ODD))
    for _ in range(dice.randint(1, 8)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    cut = dice.choice([len(data), dice.randrange(len(data))])
    buffer = client.sent(bytes(data[:cut]))
    survive(buffer)
