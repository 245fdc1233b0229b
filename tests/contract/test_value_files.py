"""The bytes of a value as a buffer and as a file, in every kind of database."""

from __future__ import annotations

import contextlib
import gc
import io
import random
from typing import Any

import pellucid
import pytest

MEGABYTE = 1_000_000


def content(number: int, size: int = MEGABYTE) -> bytes:
    """Bytes of this size that differ from those of every other number, and cannot be compressed."""
    return random.Random(number).randbytes(size)


RECORD: dict[str, Any] = {
    "large": content(1, 300_000),
    "apart": content(2, 40_000),
    "small": b"small",
    "none": b"",
    "text": "t\u00fcr" * 20_000,
    "word": "t\u00fcr",
    "changing": bytearray(content(3, 50_000)),
    "list": [b"first", {"deep": content(4, 200_000)}],
    1: b"by an int",
}


def test_a_buffer_shows_the_bytes_of_a_value_or_field(db: pellucid.Database) -> None:
    db["film"] = content(0)
    db["record"] = RECORD
    db[5] = "a row of text"
    for _ in range(2):
        assert db.buffer("film") == content(0)
        assert db.buffer(5) == b"a row of text"
        for name in ("large", "apart", "small", "none", "changing"):
            assert db.buffer("record", name) == RECORD[name]
        assert db.buffer("record", "text") == RECORD["text"].encode()
        assert db.buffer("record", "word") == "t\u00fcr".encode()
        assert db.buffer("record", ("list", 0)) == db.buffer("record", ("list", -2)) == b"first"
        assert db.buffer("record", ("list", 1, "deep")) == RECORD["list"][1]["deep"]
        assert db.buffer("record", (1,)) == b"by an int"
        view = db.buffer("film")
        assert (view.readonly, view.format, view.shape) == (True, "B", (MEGABYTE,))
        db.sync()


def test_what_has_no_buffer_is_told(db: pellucid.Database) -> None:
    db["record"] = RECORD | {"number": 5, "broken": "\ud800" * 3}
    for missing in ("nothing", ("list", 2), ("list", -3), ("list", "deep"), ("large", 0), ("list", 1 << 70)):
        with pytest.raises(KeyError):
            db.buffer("record", missing)
    for other in ("number", "list", "broken"):
        with pytest.raises(TypeError, match="has no buffer"):
            db.buffer("record", other)
    for key in ("no key", 7, object()):
        with pytest.raises(KeyError):
            db.buffer(key)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no buffer"):
        db.buffer("record")
    with pytest.raises(KeyError):
        db.table("no table").buffer("key")


def test_a_buffer_in_a_transaction_is_what_it_has_written(db: pellucid.Database) -> None:
    db["film"] = content(0)
    with db.transaction():
        db["film"] = content(1)
        db["record"] = {"image": content(2)}
        film, image = db.buffer("film"), db.buffer("record", "image")
        db["film"] = b"third"
        assert (film, image) == (content(1), content(2))
        assert db.buffer("film") == b"third"
    assert (film, image) == (content(1), content(2))


def test_a_reader_reads_any_range(db: pellucid.Database) -> None:
    data = content(0)
    db["film"] = data
    db["record"] = {"image": data}
    for file in (db.open("film"), db.open("record", "rb", "image"), db.open("record", path=("image",))):
        plain = io.BytesIO(data)
        assert [file.readable(), file.seekable(), file.writable()] == [True, True, False]
        for step in ((5, 0), (10, 1), (-20, 2), (999_990, 0), (MEGABYTE + 5, 0), (0, 0)):
            assert file.seek(*step) == plain.seek(*step)
            for size in (7, 0, 100):
                assert (file.read(size), file.tell()) == (plain.read(size), plain.tell())
        own, other = bytearray(70), bytearray(70)
        for _ in range(3):
            assert (file.readinto(own), own) == (plain.readinto(other), other)
        assert file.read1(9) == plain.read1(9)
        assert file.read() == plain.read()
        assert file.read() == b""
        with pytest.raises(ValueError, match="before the first byte"):
            file.seek(-1)
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 3)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        file.close()
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.read()
    db["lines"] = b"one\ntwo\nthree"
    with db.open("lines") as file:
        assert list(file) == [b"one\n", b"two\n", b"three"]
    with io.TextIOWrapper(db.open("lines")) as text:
        assert text.read() == "one\ntwo\nthree"


def test_a_reader_shows_what_was_there_when_it_was_opened(db: pellucid.Database) -> None:
    db["film"] = content(0)
    with db.open("film") as file:
        assert file.read(10) == content(0)[:10]
        del db["film"]
        db.sync()
        assert file.read() == content(0)[10:]
    with pytest.raises(KeyError):
        db.open("film")


@pytest.mark.parametrize("size", [0, 5, 5_000, 40_000, 700_000, 9_000_000])
def test_a_writer_stores_the_value_when_it_is_closed(db: pellucid.Database, size: int) -> None:
    data = content(size, size)
    with db.open("film", "wb") as file:
        assert [file.readable(), file.seekable(), file.writable()] == [False, False, True]
        for start in range(0, size, 65_536):
            part = data[start : start + 65_536]
            assert file.write(part) == len(part)
            assert file.tell() == start + len(part)
        assert "film" not in db
    assert file.closed
    assert db["film"] == db.buffer("film") == data
    assert db.check() == []
    with pytest.raises(ValueError, match="closed"):
        file.write(b"more")
    file.close()


def test_a_writer_stores_nothing_that_is_not_whole(db: pellucid.Database) -> None:
    db["film"] = b"before"
    for size in (100, 9_000_000):
        with contextlib.suppress(ZeroDivisionError), db.open("film", "wb") as file:
            file.write(bytes(size))
            raise ZeroDivisionError
        file = db.open("film", "wb")
        file.write(bytes(size))
        file.discard()
        file = db.open("film", "wb")
        file.write(bytes(size))
        del file
        gc.collect()
        assert db["film"] == b"before"
    with db.transaction():
        with db.open("film", "wb") as file:
            file.write(b"in a transaction")
        assert db["film"] == b"in a transaction"
    assert db["film"] == b"in a transaction"
