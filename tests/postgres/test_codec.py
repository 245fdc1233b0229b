"""Does the native part read and change the rows of a server, if the server is a dict?"""

from __future__ import annotations

import contextlib
from typing import Any

import pellucid
import pytest
from pellucid import _native
from pellucid.postgres.schema import keys


class Server:
    """Rows by key, with their versions; shapes by number."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.shapes: list[bytes] = []


class Client(_native.ServerTable):
    """A table over such a server."""

    server: Server
    before_swap: Any = None

    codec: _native.ServerCodec
    gate: _native.ServerValidity

    @classmethod
    def of(cls, server: Server) -> Client:
        codec = _native.ServerCodec()
        made = _native.ServerTable.__new__(cls, codec, "t", 1)
        made.server, made.codec, made.gate = server, codec, _native.ServerValidity()
        return made

    def begin_change(self) -> bool:
        return False

    def validity(self) -> Any:
        return self.gate

    def transaction(self) -> Any:
        return contextlib.nullcontext()

    def register_shapes(self, shapes: list[bytes]) -> list[int]:
        for shape in shapes:
            if shape not in self.server.shapes:
                self.server.shapes.append(shape)
        self.learn()
        return [self.server.shapes.index(shape) for shape in shapes]

    def learn(self) -> None:
        first = self.codec.shape_count
        self.codec.learn(first, self.server.shapes[first:])

    def new_overflow_ids(self, count: int) -> list[int]:
        return list(range(count))

    def fetch(self, code: bytes) -> tuple[bytes, int] | None:
        self.learn()
        return self.server.rows.get(code)

    def swap(
        self, code: bytes, value: bytes, version: int, kept: list[int], large: list[Any], attempt: int
    ) -> Any:
        if self.before_swap is not None:
            act, self.before_swap = self.before_swap, None
            act()
        stored = self.fetch(code)
        if stored is None or stored[1] != version:
            return stored
        self.server.rows[code] = value, version + 1
        return version + 1

    def put(self, key: Any, value: Any) -> None:
        code, _ = self.encode_key(key)
        encoded = self.encode(key, value)
        if not isinstance(encoded, bytes):
            encoded = encoded.value(self.register_shapes(encoded.shapes), [])
        _, version = self.server.rows.get(code, (b"", 0))
        self.server.rows[code] = encoded, version + 1

    def read(self, key: Any) -> Any:
        code, _ = self.encode_key(key)
        stored = self.fetch(code)
        assert stored is not None
        return self.value((code, None, *stored), self.gate)


@pytest.fixture
def clients() -> tuple[Client, Client]:
    """Two clients of one server."""
    server = Server()
    return Client.of(server), Client.of(server)


def test_what_one_client_stores_the_other_reads(clients: tuple[Client, Client]) -> None:
    one, other = clients
    values = [{"a": 1, "b": {"c": [1, 2.5, None]}}, [1, {"x": 2}], "text", None, {"a": 2, "b": {"c": []}}]
    for number, value in enumerate(values):
        one.put(number, value)
        assert other.read(number) == value


def test_a_change_of_another_client_to_another_field_is_kept(clients: tuple[Client, Client]) -> None:
    one, other = clients
    one.put("k", {"a": 1, "b": 2, "list": [1]})
    mine, theirs = one.read("k"), other.read("k")
    mine.a = 5
    theirs["new"] = {"p": 1}
    theirs.list.append(7)
    assert theirs == {"a": 5, "b": 2, "list": [1, 7], "new": {"p": 1}} == one.read("k")
    assert mine == {"a": 5, "b": 2, "list": [1]}
    mine.b += 1
    assert mine == {"a": 5, "b": 3, "list": [1, 7], "new": {"p": 1}} == other.read("k")


def test_a_change_that_means_something_else_by_now_is_refused(clients: tuple[Client, Client]) -> None:
    one, other = clients
    one.put("k", {"a": {"x": 1}, "list": [1, 2, 3]})
    inner, numbers = one.read("k").a, one.read("k").list
    theirs = other.read("k")
    theirs.a = [1]
    del theirs.list[0]
    with pytest.raises(KeyError):
        inner.x = 2
    with pytest.raises((KeyError, IndexError, RuntimeError, pellucid.Error, LookupError)):
        numbers[2] = 9
    assert other.read("k") == {"a": [1], "list": [2, 3]}


def test_a_row_that_is_deleted_between_read_and_write_is_gone(clients: tuple[Client, Client]) -> None:
    one, _ = clients
    one.put("k", {"a": 1})
    row = one.read("k")
    one.before_swap = one.server.rows.clear
    with pytest.raises(KeyError, match="k"):
        row.a = 2


def test_another_thread_may_change_the_same_object_meanwhile(clients: tuple[Client, Client]) -> None:
    one, _ = clients
    one.put("k", {"a": 1, "b": 1})
    row = one.read("k")
    one.before_swap = lambda: setattr(row, "b", 2)
    row.a = 2
    assert row == {"a": 2, "b": 2} == one.read("k")


def test_a_closed_gate_makes_records_stale(clients: tuple[Client, Client]) -> None:
    one, other = clients
    one.put("k", {"a": 1})
    row = one.read("k")
    one.gate.invalidate()
    other.put("k", {"a": 2})
    one.gate = _native.ServerValidity()
    assert row.a == 2
    one.gate.close()
    with pytest.raises(pellucid.StaleRecord):
        row.a


def test_shapes_that_are_no_shapes_are_refused() -> None:
    codec = _native.ServerCodec()
    for damaged in (b"\x01", b"\x05\x00abc", b"\x01\x00\xff", b"\x01\x00a\x01\x00a"):
        with pytest.raises(pellucid.DatabaseCorrupt, match="shape 0"):
            codec.learn(0, [damaged])
    with pytest.raises(pellucid.DatabaseCorrupt, match="missing"):
        codec.learn(3, [b"\x01\x00a"])
    codec.learn(0, [b"\x01\x00a"])
    assert (codec.shape_count, codec.ids_of([b"\x01\x00a", b"\x01\x00b", b"x"])) == (1, [0, None, None])


def test_long_keys_come_back(clients: tuple[Client, Client]) -> None:
    one, _ = clients
    for key in ("x" * 1990, "x" * 3000, ("y" * 2500, 1.0), 10**6000, "\0" * 1500):
        code, spelling = one.encode_key(key)
        row = (*keys.stored_with(code, spelling), b"", 1)
        assert len(row[0]) <= keys.LONG_SIZE
        assert _native.server_keys([row]) == [key]
        assert _native.server_whole_code(row) == code
    for damaged in (b"", b"\xff\xff\xff\xff", b"\x05\x00\x00\x00abc"):
        with pytest.raises(pellucid.CorruptRecord):
            _native.server_keys([(b"k" * keys.LONG_SIZE, damaged, b"", 1)])
