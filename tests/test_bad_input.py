"""What does bad input get? A clear error of its own class, nothing lost, and the rest stays readable.

One test for each line of the promise: wrong paths and files, damage, values and keys that cannot be stored,
disks and locks, handles used where they do not belong.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import math
import os
import random
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pellucid
import polars
import pytest
from numpy.lib.recfunctions import repack_fields
from processes import Child, Raised
from values import plain

ROWS = {
    number: {"n": number, "text": f"row {number} " * 5, "l": [number, {"x": number}]} for number in range(200)
}


@pytest.fixture
def filled(path: Path) -> Path:
    """A database at rest, with rows, two tables and a value that lies apart."""
    with pellucid.open(path) as db:
        db.update(ROWS)
        db.table("more")["large"] = {"data": b"\xab" * 100_000}
    return path


def is_whole(path: Path) -> bool:
    with pellucid.open(path, "r") as db:
        return dict(db) == ROWS and db.table("more")["large"].data == b"\xab" * 100_000 and db.check() == []


def in_process(code: str, *arguments: object, **environment: str) -> str:
    """What a fresh process prints that runs `code`."""
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_columns_that_are_none_say_what_to_do(db: pellucid.Database) -> None:
    with pytest.raises(TypeError, match=r"a LazyFrame is yet to be computed: extend\(frame.collect\(\)\)"):
        db.extend(polars.LazyFrame({"a": [1]}))
    frame = pandas.DataFrame({"a": [1, "x"]})
    with pytest.raises(
        pellucid.UnsupportedValue, match=r"extend\(frame.to_dict\(\"records\"\)\) stores the rows"
    ):
        db.extend(frame)
    assert db.extend(frame.to_dict("records")) == 2
    assert db[1].a == "x"


def test_more_columns_than_there_may_be_say_the_limit(db: pellucid.Database) -> None:
    db[0] = {f"f{number}": number for number in range(1024)}
    assert db.to_arrow() is not None
    db[1] = {"one_more": 1}
    with pytest.raises(pellucid.UnsupportedValue, match=r"record 1 .* has fields beyond the 1,024 columns"):
        db.to_arrow()
    db[2] = {3: 4}
    with pytest.raises(pellucid.UnsupportedValue, match=r"record 2 .* has keys that are no names"):
        db.where(pellucid.KEY > 1).to_arrow()


def test_who_waits_for_himself_is_told_so() -> None:
    with pellucid.open(":memory:", timeout=0.05) as db:
        db.extend({"n": number} for number in range(2000))
        db.create_index("by_n", pellucid.F.n)

        def write(_done: int, _total: int) -> None:
            db["more"] = 1

        with pytest.raises(
            pellucid.errors.Busy, match=r"that is this process: .*such as progress=, writes when"
        ):
            db.rebuild_index("by_n", progress=write)
        assert len(db) == 2000


def test_an_update_that_nests_too_deep_is_too_large(db: pellucid.Database) -> None:
    db[0] = {"a": 1}
    for _ in range(63):
        db.where().update(a=pellucid.F)
    with pytest.raises(pellucid.RecordTooLarge, match="nest more than 64 deep; nothing was changed"):
        db.where().update(a=pellucid.F)


# Paths and files


def test_a_wrong_path_is_a_file_not_found(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pel"
    for mode in ("r", "w"):
        with pytest.raises(FileNotFoundError, match="no such file; open it with mode 'c'") as not_found:
            pellucid.open(missing, mode)
        assert not_found.value.filename == str(missing)
    for mode in ("r", "w", "c", "n"):
        with pytest.raises(FileNotFoundError, match="no such folder; create it first"):
            pellucid.open(tmp_path / "no folder" / "x.pel", mode)
    assert list(tmp_path.iterdir()) == []
    for wrong in (5, None, ["x"], 1.5):
        with pytest.raises(TypeError):
            pellucid.open(wrong)  # type: ignore[arg-type]
    for unusable in ("", "a\x00b"):
        with pytest.raises((ValueError, OSError)):
            pellucid.open(unusable)


def test_wrong_arguments_of_open_are_named(path: Path) -> None:
    for arguments, message in (
        ({"mode": "x"}, 'mode="x"'),
        ({"durability": "some"}, 'durability="some"'),
        ({"timeout": -1}, "timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"pickle": "maybe"}, 'pickle="maybe"'),
        ({"pickle": True}, r'pickle=True.*"allow"'),
        ({"untrusted": True}, 'untrusted=True.*mode="r"'),
    ):
        with pytest.raises(ValueError, match=message):
            pellucid.open(path, **arguments)  # type: ignore[arg-type]
    assert not path.exists()


def test_an_argument_of_a_wrong_type_is_named(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "none.pel"
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: pellucid.open(path, timeout="a"), "timeout has to be a number of seconds, not str"),  # type: ignore[arg-type]
        (lambda: pellucid.open(path, 3), "mode has to be a str, not int"),  # type: ignore[arg-type]
        (lambda: db.table(3), "name has to be the name of a table, a str, not int"),  # type: ignore[call-overload]
        (lambda: db.rename_table("a", 3), "new_name has to be .*, not int"),  # type: ignore[arg-type]
        (lambda: db.update([1, 2]), r"update\(\) element 0 has to be a pair of key and value, not int"),
        (lambda: db.update(3), r"argument of update\(\) has to be a mapping or .*, not int"),
    ]
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()
    assert not path.exists()


def test_a_name_that_utf8_cannot_write_is_refused(db: pellucid.Database) -> None:
    calls: list[Callable[[str], object]] = [
        db.table,
        lambda name: db.rename_table("a", name),
        lambda name: db.create_index(name, pellucid.F.a),
        db.index,
    ]
    for call in calls:
        with pytest.raises(
            ValueError, match=r"name: 'a\\udc80' has a lone surrogate, which no name can have"
        ):
            call("a\udc80")
    assert db.indexes() == []
    assert db.tables() == []


def test_what_can_be_no_path_is_refused_as_the_builtin_open_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: pellucid.Database
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    for use in (pellucid.open, db.backup):
        for empty in ("", b""):
            with pytest.raises(FileNotFoundError, match="the path is empty"):
                use(empty)
        with pytest.raises(ValueError, match="null byte"):
            use("a\0b")
    assert set(tmp_path.iterdir()) == before


def test_where_no_file_can_be_created_that_is_said() -> None:
    with pytest.raises(FileNotFoundError, match="no file can be created there; choose another folder"):
        pellucid.open("/proc/x.pel")


def test_a_file_cut_within_its_first_page_may_be_ours(filled: Path) -> None:
    filled.write_bytes(filled.read_bytes()[:100])
    with pytest.raises(pellucid.NotADatabase, match="may be one that was cut off"):
        pellucid.open(filled)


def test_one_is_shown_as_one(db: pellucid.Database) -> None:
    db["a"] = 1
    assert repr(db).endswith(", 1 table>")
    assert repr(db.table("default")).split("\n")[0].endswith(", 1 row>")
    assert repr(db.table("b")).endswith(", 0 rows>")
    assert re.fullmatch(r"\d+\.\d+\.\d+", pellucid.__version__)


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    for mode in ("r", "w", "c", "n"):
        with pytest.raises(IsADirectoryError, match="directory"):
            pellucid.open(tmp_path, mode)
    assert list(tmp_path.iterdir()) == []


def foreign_files() -> dict[str, bytes]:
    dice = random.Random(3)
    return {
        "text": b"Dear diary,\n" * 1000,
        "one byte": b"x",
        "zeros": bytes(100_000),
        "noise": dice.randbytes(50_000),
        "sqlite": b"SQLite format 3\x00" + bytes(8176),
        # The first bytes of another program's LMDB file: page 0, flags "meta", LMDB's magic number.
        "lmdb": bytes(10) + b"\x08\x00" + bytes(4) + b"\xde\xc0\xef\xbe" + bytes(8172),
        "a dump": pellucid.dumps(ROWS),
    }


@pytest.mark.parametrize("kind", foreign_files())
def test_a_foreign_file_is_refused_and_left_as_it_is(path: Path, kind: str) -> None:
    data = foreign_files()[kind]
    path.write_bytes(data)
    for mode in ("r", "w", "c", "n"):
        for untrusted in (False, True) if mode == "r" else (False,):
            with pytest.raises((pellucid.NotADatabase, pellucid.DatabaseCorrupt)) as refused:
                pellucid.open(path, mode, untrusted=untrusted)
            assert isinstance(refused.value, OSError)
            assert str(path) in str(refused.value)
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_file_is_filled_but_not_read(path: Path) -> None:
    path.touch()
    for mode in ("r", "w"):
        with pytest.raises(pellucid.NotADatabase, match="empty"):
            pellucid.open(path, mode)
    with pellucid.open(path, "c") as db:
        db["a"] = 1
    with pellucid.open(path, "r") as db:
        assert db["a"] == 1


def test_a_truncated_file_is_refused_and_left_as_it_is(filled: Path) -> None:
    whole = filled.read_bytes()
    dice = random.Random(4)
    for size in (
        100,
        4000,
        4096,
        8192,
        12_288,
        len(whole) // 2,
        len(whole) - 4096,
        dice.randrange(len(whole)),
    ):
        filled.write_bytes(whole[:size])
        for mode in ("r", "w", "c"):
            with pytest.raises((pellucid.DatabaseCorrupt, pellucid.NotADatabase)):
                pellucid.open(filled, mode)
        assert filled.read_bytes() == whole[:size]
        assert list(filled.parent.iterdir()) == [filled]
    filled.write_bytes(whole)
    assert is_whole(filled)


def test_a_bit_flipped_in_a_record_spoils_that_record_alone(filled: Path) -> None:
    whole = bytearray(filled.read_bytes())
    place = whole.index(b"row 77 row 77")
    whole[place] ^= 0xFF
    filled.write_bytes(whole)
    with pellucid.open(filled) as db:
        for read in (
            lambda: db[77].text,
            db[77].to_dict,
            lambda: db == ROWS,
            lambda: db.table("default").column("text"),
        ):
            with pytest.raises(pellucid.CorruptRecord, match="77"):
                read()
        assert (db[77].n, db[77].l[1].x) == (77, 77)
        assert [row.n for row in db.values()] == list(range(200))
        assert db.table("default").sum("n") == sum(range(200))
        findings = db.check()
        assert any("77" in finding for finding in findings), findings
        db[77] = ROWS[77]
        assert db.check() == []
    assert is_whole(filled)


def test_any_flipped_bit_is_found_or_harmless_in_an_untrusted_file(filled: Path) -> None:
    whole = filled.read_bytes()
    dice = random.Random(5)
    for _ in range(150):
        damaged = bytearray(whole)
        # Mostly in the pages of structure, which are few beside the large value.
        place = dice.randrange(len(whole)) if dice.random() < 0.3 else dice.randrange(40_960)
        damaged[place] ^= 1 << dice.randrange(8)
        filled.write_bytes(damaged)
        try:
            db = pellucid.open(filled, "r", untrusted=True)
        except (pellucid.DatabaseCorrupt, pellucid.NotADatabase, pellucid.NewerFormat):
            continue
        with db:
            for key, row in ROWS.items():
                with contextlib.suppress(pellucid.CorruptRecord, pellucid.DatabaseCorrupt):
                    assert plain(db.get(key)) in (row, None) or db.check(), f"byte {place}"
            try:
                if dict(db) != ROWS or db.table("more")["large"].data != b"\xab" * 100_000:
                    assert db.check(), f"byte {place}"
            except (KeyError, pellucid.CorruptRecord, pellucid.DatabaseCorrupt, pellucid.StaleRecord):
                assert db.check(), f"byte {place}"


STAMP_OFFSET, STAMP_SIZE = 4032, 24
MASK = (1 << 64) - 1


def xxh3_of_24(data: bytes) -> int:
    """XXH3-64 of 24 bytes, as its specification says it for 17 to 128 bytes."""
    secret = bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f")

    def word(source: bytes, offset: int) -> int:
        return int.from_bytes(source[offset : offset + 8], "little")

    total = len(data) * 0x9E3779B185EBCA87
    for offset, part in ((0, 0), (16, len(data) - 16)):
        product = (word(data, part) ^ word(secret, offset)) * (
            word(data, part + 8) ^ word(secret, offset + 8)
        )
        total += (product & MASK) ^ (product >> 64)
    total &= MASK
    total = ((total ^ total >> 37) * 0x165667919E3779F9) & MASK
    return total ^ total >> 32


def test_a_newer_format_is_named_and_left_as_it_is(filled: Path) -> None:
    whole = bytearray(filled.read_bytes())
    stamp = whole[STAMP_OFFSET : STAMP_OFFSET + STAMP_SIZE]
    assert whole[STAMP_OFFSET + STAMP_SIZE :][:8] == xxh3_of_24(bytes(stamp)).to_bytes(8, "little")
    newer = bytearray(stamp)
    newer[16:20] = b"\x09\x00\x07\x00"  # written by format 9, readable from format 7 on
    check = xxh3_of_24(bytes(newer)).to_bytes(8, "little")
    filled.write_bytes(
        bytes(whole[:STAMP_OFFSET]) + newer + check + bytes(whole[STAMP_OFFSET + STAMP_SIZE + 8 :])
    )
    before = filled.read_bytes()
    for mode in ("r", "w", "c", "n"):
        with pytest.raises(pellucid.NewerFormat, match=r"format 7.*upgrade"):
            pellucid.open(filled, mode)
    assert filled.read_bytes() == before
    filled.write_bytes(whole)
    assert is_whole(filled)


# Values and keys


def test_an_unsupported_value_deep_in_a_structure_is_named_by_its_path(db: pellucid.Database) -> None:
    db["k"] = before = {"fine": [1, {"x": (1, 2)}]}
    for value, place in (
        ({"a": [0, {"b": object()}]}, r"\['a'\]\[1\]\['b'\]"),
        ([(1, {2: {3: object()}})], r"\[0\]\[1\]\[2\]\[3\]"),
        ({"deep": {"s": [threading.Lock()]}}, r"\['deep'\]\['s'\]\[0\]"),
        ({object(): 1}, r"\[<object"),
        ([1, {frozenset({object()}): 1}], r"\[1\]"),
        (dt.datetime(2024, 1, 1, tzinfo=type("Z", (dt.tzinfo,), {"utcoffset": lambda *_: None})()), "value"),
    ):
        with pytest.raises(pellucid.UnsupportedValue, match=place) as refused:
            db["k"] = value
        assert isinstance(refused.value, TypeError)
        with pytest.raises(pellucid.UnsupportedValue, match=place):
            pellucid.dumps(value)
        with pytest.raises(pellucid.UnsupportedValue):
            db["k"].fine.append(value)
        with pytest.raises(pellucid.UnsupportedValue):
            db.table("default").extend([1, value])
    assert db == {"k": before}


def test_a_value_that_contains_itself_is_refused_where_it_does(db: pellucid.Database) -> None:
    looped: list[Any] = [1]
    looped.append({"again": looped})
    around: dict[str, Any] = {"x": 1}
    around["a"] = {"b": [around]}
    db["k"] = 1
    for value, place in (
        (looped, r"\[1\]\['again'\] contains itself"),
        (around, r"\['a'\]\['b'\]\[0\] contains itself"),
    ):
        with pytest.raises(pellucid.UnsupportedValue, match=place):
            db["k"] = value
        with pytest.raises(pellucid.UnsupportedValue, match=place):
            pellucid.dumps(value)
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(pellucid.RecordTooLarge, match="64"):
        db["k"] = deep
    assert db == {"k": 1}


def test_keys_of_unlike_types_that_would_be_stored_as_one_are_refused(db: pellucid.Database) -> None:
    class Color(enum.Enum):
        RED = 1
        BLUE = "b"

    db["k"] = before = {"1": "str", 1: "int", b"1": "bytes", (1,): "tuple", None: "none"}
    assert db["k"] == before
    for value in (
        {Color.RED: 1, 1: 2},
        {1.0: 1, Color.RED: 2},
        {"b": 1, Color.BLUE: 2},
        {Color.RED, 1},
        {n: n for n in [*range(20), Color.RED]},
    ):
        with pytest.raises(pellucid.UnsupportedValue, match="same key or member"):
            db["k"] = value
        with pytest.raises(pellucid.UnsupportedValue, match="same key or member"):
            pellucid.dumps({"in": [value]})
    assert db["k"] == before
    db["k"] = {Color.RED: 1, Color.BLUE: 2}
    assert db["k"] == {1: 1, "b": 2}


def test_a_value_of_300_megabytes_is_stored_and_read(path: Path) -> None:
    size = 300 << 20
    value = bytes(size)
    with pellucid.open(path) as db:
        db["a"] = {"data": value, "n": 1}
        record = db["a"]
        record.n += 1
        assert (record.n, len(record.data)) == (2, size)
        assert record.data == value
        del record["data"]
        db["b"] = 1
        assert db == {"a": {"n": 2}, "b": 1}


def test_a_key_of_100_kilobytes_is_a_key(db: pellucid.Database) -> None:
    for key in ("k" * 100_000, b"k" * 100_000, ("k" * 50_000, "k" * 50_000), 10**100_000):
        db[key] = {"x": 1}
        db[key].x += 1
        assert db[key].x == 2
        assert key in db
    assert len(list(db)) == len(db) == 4
    db["dict"] = {"k" * 100_000: {"k" * 100_000: 1}}
    assert db["dict"]["k" * 100_000]["k" * 100_000] == 1


def test_a_nan_key_is_refused_with_its_place(db: pellucid.Database) -> None:
    db["k"] = 1
    with pytest.raises(pellucid.UnsupportedKey, match="NaN") as refused:
        db[math.nan] = 1
    assert isinstance(refused.value, TypeError)
    with pytest.raises(pellucid.UnsupportedKey, match="position 1, 0 is NaN"):
        db["a", (math.nan,)] = 1
    with pytest.raises(pellucid.UnsupportedKey, match="list"):
        db["a", [1]] = 1
    with pytest.raises(pellucid.UnsupportedKey):
        db.update({"fine": 1, math.nan: 2})
    assert db == {"k": 1}


def test_a_key_of_numpy_is_refused_with_what_to_use_instead(db: pellucid.Database) -> None:
    message = r"at position 1 is of type numpy.complex128; keys are .* of these; use key\.tolist\(\)"
    with pytest.raises(pellucid.UnsupportedKey, match=message):
        db["run", np.complex128(1j)] = 1
    with pytest.raises(pellucid.UnsupportedKey, match=r"of type list; .*; use tuple\(key\)"):
        db[["run", 1]] = 1  # type: ignore[index]


def test_an_array_of_objects_is_refused_for_its_dtype(db: pellucid.Database) -> None:
    array = np.array([1, "a", None], dtype=object)
    what = r"at \['x'\] is of type numpy.ndarray and dtype object"
    with pytest.raises(pellucid.UnsupportedValue, match=what) as refused:
        db["k"] = {"x": array}
    assert "register" not in str(refused.value), "it would change how all arrays are stored"
    db["k"] = {"x": array.tolist()}
    assert db["k"].x == [1, "a", None]


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i1"), ("b", "i8")], align=True),
        np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}),
        np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [2, 0]}),
    ],
    ids=["padding", "overlap", "order"],
)
def test_a_dtype_that_the_format_cannot_describe_is_refused_for_that(
    db: pellucid.Database, dtype: Any
) -> None:
    for value in (np.zeros(2, dtype), np.zeros(2, dtype)[0]):
        with pytest.raises(pellucid.UnsupportedValue) as refused:
            db["k"] = {"x": value}
        assert "Python objects" not in str(refused.value)
        assert "which the format cannot describe" in str(refused.value)
    db["k"] = {"x": repack_fields(np.zeros(2, dtype), recurse=True)}
    assert db["k"].x["b"].tolist() == [0, 0]


# Disks


FULL_DISK = """
import errno, resource, sys
import pellucid

path, size = sys.argv[1], int(sys.argv[2])
with pellucid.open(path) as db:
    before = {key: row.to_dict() for key, row in db.items()}
    # As a full disk: the file cannot grow beyond this.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    errors = set()
    for write in (
        lambda: db.update({("new", n): {"text": "x" * 2000} for n in range(2000)}),
        lambda: db.__setitem__("large", b"x" * 3_000_000),
        lambda: db.table("t").extend({"text": "x" * 2000} for _ in range(2000)),
    ):
        for _ in range(3):
            try:
                write()
            except pellucid.Error as error:
                errors.add((type(error).__name__, isinstance(error, OSError), errno.errorcode[error.errno]))
                assert path in str(error), error
            assert {key: db[key] for key in before} == before
            assert dict(db) == before
    print(sorted(errors))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(db.check())
with pellucid.open(path) as db:
    assert dict(db) == before
    db["after"] = {"room": "again"}
    del db["after"]
"""


def test_a_full_disk_loses_nothing_but_the_write(filled: Path) -> None:
    out = in_process(FULL_DISK, filled, filled.stat().st_size + 100_000)
    assert out == "[('DiskFull', True, 'EFBIG')]\n[]\n"
    assert is_whole(filled)


def test_a_database_that_does_not_fit_the_disk_leaves_no_rubbish(path: Path) -> None:
    code = """
import resource, sys
import pellucid
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
try:
    pellucid.open(sys.argv[1])
except pellucid.DiskFull as error:
    print("refused")
"""
    assert in_process(code, path) == "refused\n"
    with pellucid.open(path) as db:
        db["a"] = 1


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

static int is_refused(const char *path, int flags) {
    const char *folder = getenv("READ_ONLY_FOLDER");
    return folder && (flags & (O_WRONLY | O_RDWR | O_CREAT)) && !strncmp(path, folder, strlen(folder));
}

#define OPEN(name)                                                                   \
    int name(const char *path, int flags, ...) {                                     \
        va_list rest;                                                                \
        va_start(rest, flags);                                                       \
        int mode = va_arg(rest, int);                                                \
        va_end(rest);                                                                \
        if (is_refused(path, flags)) {                                               \
            errno = EROFS;                                                           \
            return -1;                                                               \
        }                                                                            \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define FSTATFS(name, type)                                                          \
    int name(int file, struct type *out) {                                           \
        int failed = ((int (*)(int, struct type *))dlsym(RTLD_NEXT, #name))(file, out); \
        if (getenv("ON_NFS")) out->f_type = 0x6969;                                  \
        return failed;                                                               \
    }
FSTATFS(fstatfs, statfs)
FSTATFS(fstatfs64, statfs64)
"""


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that stands between a process and the system: the file systems that few machines have."""
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c", "-ldl"], check=True
    )
    return str(folder / "shim.so")


READ_ONLY = """
import sys, warnings
import pellucid

warnings.simplefilter("ignore")
path = sys.argv[1]
for mode in "wcn":
    try:
        with pellucid.open(path, mode) as db:
            db["a"] = 1
    except pellucid.ReadOnly as error:
        print(mode, "read-only" in str(error) and path in str(error))
with pellucid.open(path, "r") as db:
    print(len(db), db[5].l[1].x, db.check())
try:
    pellucid.open(path + "-new")
except (pellucid.Error, OSError) as error:
    print(type(error).__name__)
"""


def test_a_read_only_file_system_is_read_and_not_written(filled: Path, shim: str) -> None:
    before = filled.read_bytes()
    out = in_process(READ_ONLY, filled, LD_PRELOAD=shim, READ_ONLY_FOLDER=str(filled.parent))
    assert out.splitlines() == ["w True", "c True", "n True", "200 5 []", "ReadOnly"]
    assert filled.read_bytes() == before
    assert list(filled.parent.iterdir()) == [filled]


def test_a_folder_that_takes_no_files_has_nothing_to_do_with_a_network(filled: Path, shim: str) -> None:
    code = """
import sys, warnings
import pellucid

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pellucid.open(sys.argv[1], "r").close()
    print([(w.category.__name__, str(w.message)) for w in caught])
"""
    out = in_process(code, filled, LD_PRELOAD=shim, READ_ONLY_FOLDER=str(filled.parent))
    assert out == "[]\n"


def test_a_network_file_system_is_warned_of(path: Path, shim: str) -> None:
    code = """
import sys, warnings
import pellucid

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with pellucid.open(sys.argv[1]) as db:
        db["a"] = 1
        print(db["a"], [(str(w.message), w.category.__name__, w.category.__base__) for w in caught])
"""
    out = in_process(code, path, LD_PRELOAD=shim, ON_NFS="yes")
    assert out.startswith("1 [(")
    assert "network file system (NFS)" in out
    assert "'NetworkFilesystemWarning', <class 'UserWarning'>" in out
    assert out.count("NetworkFilesystemWarning") == 1
    assert in_process(code, path, LD_PRELOAD=shim) == "1 []\n"


# Locks and handles


def test_a_lock_held_by_another_process_is_named_by_its_pid(filled: Path) -> None:
    with Child(filled) as other, pellucid.open(filled, timeout=0.05) as db:
        other("transaction = db.transaction(); transaction.__enter__(); db[0] = 'theirs'")
        for write in (lambda: db.__setitem__("a", 1), lambda: setattr(db[1], "n", -1), db.clear):
            with pytest.raises(pellucid.Busy, match=rf"PID {other.pid}\b.*timeout=0\.05 s; try again"):
                write()
        assert dict(db) == ROWS
        with pytest.raises(pellucid.Busy, match=rf"PID {other.pid}\b"):
            db.compact()
        other("transaction.__exit__(ValueError, ValueError(), None)")
    assert is_whole(filled)


def test_a_file_that_must_be_alone_is_refused_without_waiting_and_says_what_to_close(filled: Path) -> None:
    with Child(filled) as other:
        for timeout in (0.05, 5.0):
            with pytest.raises(pellucid.Busy, match=rf"PID {other.pid}\b.*; close it there first") as busy:
                pellucid.open(filled, "r", untrusted=True, timeout=timeout)
            assert "timeout" not in str(busy.value)
    with (
        pellucid.open(filled),
        pytest.raises(pellucid.Busy, match=r"is open in this process.*; close it first"),
    ):
        pellucid.open(filled, "r", untrusted=True)
    with pellucid.open(filled, timeout=0.05) as db, db.snapshot():
        with pytest.raises(
            pellucid.Busy, match="another handle of the same file; end, close or drop"
        ) as busy:
            db.compact()
        assert "timeout" not in str(busy.value)
        with Child(filled) as other, db.transaction():
            other.send("db.close(); db = pellucid.open(%r, timeout=0); db['a'] = 1" % str(filled))  # noqa: UP031
            with pytest.raises(Raised, match=r"Busy.*waited timeout=0\.0 s; try again"):
                other.answer()
    assert is_whole(filled)


def uses(db: pellucid.Database, record: Any, table: pellucid.Table) -> list[Callable[[], object]]:
    """What one may do with a database, apart from its records."""
    return [
        lambda: db[1],
        lambda: db.get(1),
        lambda: 1 in db,
        lambda: len(db),
        lambda: list(db),
        lambda: dict(db),
        lambda: db.__setitem__("a", 1),
        lambda: db.pop(1),
        lambda: db.update(a=1),
        db.clear,
        db.tables,
        lambda: db.table("x"),
        db.transaction,
        db.snapshot,
        db.sync,
        db.stats,
        db.check,
        db.compact,
        lambda: db.backup("backup.pel"),
        lambda: db.drop_table("more"),
        db.__enter__,
        lambda: table[1],
        lambda: table.append(1),
        lambda: list(table.values()),
        lambda: table.sum("n"),
        table.first,
        lambda: table.edit(1).__enter__(),
    ]


def test_a_handle_used_after_close_says_so(filled: Path) -> None:
    db = pellucid.open(filled)
    record, table = db[1], db.table("default")
    db.close()
    db.close()
    assert db.closed
    for use in uses(db, record, table):
        with pytest.raises(pellucid.Closed, match="closed") as closed:
            use()
        assert isinstance(closed.value, ValueError)
    with pytest.raises(pellucid.StaleRecord):
        record.n
    assert "closed" in repr(db)
    assert "closed" in repr(table)
    assert is_whole(filled)


def test_a_handle_used_after_a_fork_works_or_says_so(filled: Path) -> None:
    code = """
import os, sys, warnings
import pellucid

warnings.simplefilter("ignore")
db = pellucid.open(sys.argv[1], timeout=0.05)
record, snapshot = db[1], db.snapshot()
transaction = db.transaction()
transaction.__enter__()
db["mine"] = 1
pid = os.fork()
if pid == 0:
    print(len(pellucid.open(sys.argv[1], "r")), record.n)
    for use in (lambda: db.__setitem__("theirs", 1), lambda: transaction.__exit__(None, None, None)):
        try:
            use()
            print("no error")
        except pellucid.Error as error:
            print(type(error).__name__)
    sys.stdout.flush()
    os._exit(0)
_, status = os.waitpid(pid, 0)
transaction.__exit__(None, None, None)
del db["mine"]
print(status, len(db), snapshot[1].n)
"""
    out = in_process(code, filled).splitlines()
    assert out[0] == "200 1"
    assert set(out[1:3]) <= {"TransactionError", "Busy"}
    assert out[3:] == ["0 200 1"]
    assert is_whole(filled)


def test_a_transaction_used_in_another_thread_says_so(filled: Path) -> None:
    with pellucid.open(filled, timeout=0.05) as db:
        errors: list[Exception] = []
        transaction = db.transaction()
        transaction.__enter__()
        db["mine"] = 1

        def use() -> None:
            for work in (lambda: transaction.__exit__(None, None, None), lambda: db.__setitem__("theirs", 1)):
                try:
                    work()
                except pellucid.Error as error:
                    errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert [type(error) for error in errors] == [pellucid.TransactionError, pellucid.Busy]
        transaction.__exit__(None, None, None)
        assert db.pop("mine") == 1
    assert is_whole(filled)


def test_a_row_used_after_its_snapshot_was_closed_says_so(filled: Path) -> None:
    with pellucid.open(filled) as db:
        with db.snapshot() as snap:
            rows = [snap[1], next(iter(snap.values())), snap.table("default")[2]]
            lists = [row.l for row in rows]
            assert [row.n for row in rows] == [1, 0, 2]
        for row in rows:
            for use in (
                lambda row=row: row.n,
                lambda row=row: row["n"],
                row.to_dict,
                row.copy,
                lambda row=row: bytes(row),
            ):
                with pytest.raises(pellucid.StaleRecord, match="closed") as stale:
                    use()
                assert isinstance(stale.value, ReferenceError)
        for numbers in lists:
            with pytest.raises(pellucid.StaleRecord):
                numbers[0]
        assert db[1].n == 1
    assert is_whole(filled)


def test_no_warning_is_given_where_nothing_is_wrong(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("n", "c", "w", "r"):
            pellucid.open(path, mode).close()


# Backups


ROW_COUNT = 60

WRITER = """
def write(db, who, stop, row_count):
    import random
    dice = random.Random(who)
    rows, log, large = db.table("rows"), db.table("log"), db.table("large")
    count = 0
    while not os.path.exists(stop):
        count += 1
        with db.transaction():
            for _ in range(5):
                n = dice.randrange(row_count)
                visits = rows[n].visits + 1
                rows[n] = {"visits": visits, "text": f"{visits} " * (visits % 50)}
            log.append({"who": who, "count": count})
            large[who] = {"count": count, "data": bytes([count % 251]) * 20_000}
    return count
"""


def written(counts: dict[int, int]) -> dict[int, dict[str, object]]:
    """The rows when each writer has ended so many transactions: whose came first changes nothing."""
    visits = [0] * ROW_COUNT
    for who, count in counts.items():
        dice = random.Random(who)
        for _ in range(5 * count):
            visits[dice.randrange(ROW_COUNT)] += 1
    return {n: {"visits": visits[n], "text": f"{visits[n]} " * (visits[n] % 50)} for n in range(ROW_COUNT)}


def counts_of(db: pellucid.Database | pellucid.Snapshot) -> dict[int, int]:
    return {who: row.count for who, row in db.table("large").items()}


def test_a_backup_while_two_processes_write_is_one_moment_of_both(path: Path, tmp_path: Path) -> None:
    stop, copy = tmp_path / "stop", tmp_path / "copy.pel"
    with pellucid.open(path) as db, Child(path) as first, Child(path) as second:
        db.table("rows").update(written({}))
        for who, child in enumerate((first, second)):
            child(WRITER)
            child.send(f"write(db, {who}, {str(stop)!r}, {ROW_COUNT})")
        try:
            seen = []
            while len(seen) < 12:
                with db.snapshot() as before:
                    earlier = counts_of(before)
                db.backup(copy)
                with db.snapshot() as after:
                    later = counts_of(after)
                with pellucid.open(copy, "r") as backup:
                    counts = counts_of(backup)
                    for who, count in counts.items():
                        assert earlier.get(who, 0) <= count <= later[who]
                    assert backup.table("rows") == written(counts)
                    entries = [(row.who, row["count"]) for row in backup.table("log").values()]
                    assert sorted(entries) == [(w, n + 1) for w in sorted(counts) for n in range(counts[w])]
                    for who, count in counts.items():
                        assert backup.table("large")[who].data == bytes([count % 251]) * 20_000
                    assert backup.check() == []
                copy.unlink()
                # Only what was taken while both had written since the last one tells something.
                if len(counts) == 2 and (not seen or all(counts[who] > seen[-1][who] for who in counts)):
                    seen.append(counts)
        finally:
            stop.touch()
        ends = {0: first.answer(), 1: second.answer()}
        assert db.table("rows") == written(ends)
        assert db.check() == []


def test_a_backup_that_cannot_be_written_says_so_and_leaves_nothing(filled: Path, tmp_path: Path) -> None:
    with pellucid.open(filled) as db:
        missing = tmp_path / "no folder" / "copy.pel"
        with pytest.raises(FileNotFoundError, match="no such folder; create it first") as refused:
            db.backup(missing)
        assert str(refused.value).count(str(missing)) == 1
        assert ".part" not in str(refused.value)
        with pytest.raises(FileExistsError, match="exists already") as exists:
            db.backup(filled)
        assert str(exists.value).count(str(filled)) == 1
        with pytest.raises(FileExistsError, match="exists already"):
            db.backup(tmp_path)
    assert list(tmp_path.iterdir()) == [filled]
    assert is_whole(filled)


def test_a_backup_replaces_an_earlier_one_and_nothing_else(filled: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.pel", tmp_path / "notes.txt"
    other.write_text("keep me" * 1000)
    with pellucid.open(filled) as db:
        db.backup(copy, overwrite=True)
        db["new"] = {"n": 1}
        db.backup(copy, overwrite=True)
        with pellucid.open(copy, "r") as saved:
            assert saved["new"] == {"n": 1}
            with pytest.raises(pellucid.Busy, match="cannot be replaced: it is open"):
                db.backup(copy, overwrite=True)
        with pytest.raises(pellucid.Busy, match="cannot be replaced"):
            db.backup(filled, overwrite=True)
        with pytest.raises(pellucid.NotADatabase, match=r"notes\.txt"):
            db.backup(other, overwrite=True)
        with pytest.raises(OSError, match=tmp_path.name):
            db.backup(tmp_path, overwrite=True)
        with pytest.raises(TypeError, match="overwrite has to be True or False"):
            db.backup(copy, overwrite="yes")

        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        db["newer"] = {"n": 2}
        with pytest.raises(KeyboardInterrupt):
            db.backup(copy, overwrite=True, progress=stop)
    with pellucid.open(copy, "r") as saved:
        assert "newer" not in saved
        assert saved.check() == []
    assert other.read_text() == "keep me" * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([filled.name, copy.name, other.name])


# Where there is no room to work


def test_a_subinterpreter_is_refused_whether_it_comes_first_or_not(tmp_path: Path) -> None:
    code = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
if sys.argv[1] == "second":
    import pellucid
inside = '''
try:
    import pellucid
    said = "imported"
except ImportError as error:
    said = str(error)
with open(%r, "w") as out:
    out.write(said)
''' % sys.argv[2]
for options in ((), ("legacy",)):
    try:
        interpreter = interpreters.create(*options)
    except (TypeError, ValueError):
        continue  # this Python has one kind alone
    interpreters.run_string(interpreter, inside)
    with open(sys.argv[2]) as out:
        print("interpreter" in out.read())
    interpreters.destroy(interpreter)
import pellucid
print(pellucid.loads(pellucid.dumps([1])))
"""
    for order in ("first", "second"):
        *refused, works = in_process(code, order, tmp_path / "said").splitlines()
        assert refused
        assert set(refused) == {"True"}
        assert works == "[1]"


NO_MEMORY = """
import resource, sys
import pellucid

big = pellucid.dumps([{"n": n, "text": f"text {n}"} for n in range(300_000)])
large = b"x" * (100 << 20)
data = pellucid.dumps([large])
numbers = list(range(8_000_000))
db = pellucid.open(sys.argv[1])
db["large"] = {"data": large}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), resource.RLIM_INFINITY))
for work in (
    lambda: pellucid.loads(big),
    lambda: pellucid.view(big).to_list(),
    lambda: pellucid.loads(data),
    lambda: pellucid.view(data)[0],
    lambda: pellucid.dumps([large]),
    lambda: pellucid.dumps([*numbers, None]),
    lambda: db["large"].data,
    lambda: db["large"].to_dict(),
    lambda: bytes(db["large"]),
    lambda: db["large"].copy(),
    lambda: db.__setitem__("more", [large]),
    lambda: db.__setitem__("more", {"data": large}),
    lambda: db.update(more=numbers),
):
    try:
        work()
        print("no error")
    except MemoryError:
        print("MemoryError")
db["after"] = {"a": 1}
print(db["after"], len(db), db.check())
"""


def test_values_that_do_not_fit_memory_are_a_memory_error(path: Path) -> None:
    *errors, after = in_process(NO_MEMORY, path).splitlines()
    assert errors == ["MemoryError"] * 13
    assert after == "{'a': 1} 2 []"


# Damage that no reader notices


def damaged(path: Path, old: bytes, new: bytes) -> None:
    """Change bytes of a database at rest."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_a_change_never_gives_damage_a_check_that_fits(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update({n: {"name": f"frederick {n}", "n": n, "l": [n]} for n in range(3)})
    damaged(path, b"frederick 1", b"fredeRick 1")
    with pellucid.open(path) as db:
        # It is a string as good as any other.
        assert db[1].name == "fredeRick 1"
        told = r"record 1 of .* is damaged: the record is not what was written: .* at byte \d+.*check"

        def in_transaction(change: Callable[[], object]) -> None:
            with db.transaction():
                change()

        changes: list[Callable[[], object]] = [
            lambda: setattr(db[1], "n", 7),
            lambda: setattr(db[1], "n", "longer than it was"),
            lambda: setattr(db[1], "more", [1, 2]),
            lambda: db[1].l.append(1),
            lambda: delattr(db[1], "name"),
            lambda: db.where(pellucid.F.n == 1).update(n=8),
            lambda: db.where(pellucid.F.n == 1).update(more=[1]),
        ]
        for change in changes:
            for made in (change, lambda change=change: in_transaction(change)):
                with pytest.raises(pellucid.CorruptRecord, match=told):
                    made()
        assert len(db.check()) == 1
        # The others are as they were, and whoever writes all of it anew says what it is to be.
        db[0].n = db[2].n = 9
        db[1] = {"name": "frederick 1"}
        assert db.check() == []
        assert dict(db)[1] == {"name": "frederick 1"}


def test_text_that_is_none_is_told_with_its_place_in_the_record(path: Path) -> None:
    with pellucid.open(path) as db:
        db[1] = {"first": "ascii " * 10, "name": "fr\xe9d\xe9rick"}
    damaged(path, "fr\xe9d\xe9rick".encode(), "fr\xe9d\xe9r".encode() + b"\xffck")
    with pellucid.open(path) as db:
        told = r"record 1 of .* is damaged: text is not valid UTF-8 at byte (\d+); the other records"
        with pytest.raises(pellucid.CorruptRecord, match=told) as error:
            db[1].name
        found = re.search(told, str(error.value))
        assert found is not None
        # Not the place in the name, which is 8.
        assert int(found[1]) > len("ascii " * 10 + "fr\xe9d\xe9r".encode().decode("latin-1"))
