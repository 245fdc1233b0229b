"""Does pellucid.dbm do what dbm's documentation says, and what a database can do beyond it?"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pellucid
import pytest
from pellucid import dbm


def test_error_is_an_os_error_and_one_of_ours() -> None:
    assert issubclass(dbm.error, OSError)
    assert issubclass(dbm.error, pellucid.DatabaseError)


def test_text_is_stored_as_utf_8_and_read_as_bytes(path: Path) -> None:
    with dbm.open(path, "c") as db:
        db["K\xf6ln"] = "Dom"
        db[bytearray(b"b")] = memoryview(b"bytes")
        assert db["K\xf6ln"] == db["K\xf6ln".encode()] == b"Dom"
        assert db.keys() == [b"K\xc3\xb6ln", b"b"]
        assert dict(db) == dict(db.items()) == {b"K\xc3\xb6ln": b"Dom", b"b": b"bytes"}
        assert list(db.values()) == [b"Dom", b"bytes"]
        assert db.get("nothing") is None
        assert "K\xf6ln" in db
        assert db.pop("b") == b"bytes"
        assert db.setdefault("new", "x") == b"x"
        assert len(db) == 2
    with pellucid.open(path) as db:
        assert dict(db) == {"K\xf6ln".encode(): b"Dom", b"new": b"x"}


def test_other_types_are_refused(path: Path) -> None:
    with dbm.open(path, "n") as db:
        for key, value in (("a", None), ("a", 1), (None, "a"), (1, "a"), ("a", ["a"])):
            with pytest.raises(TypeError, match="of dbm is bytes or str, not"):
                db[key] = value  # type: ignore[index, assignment]
        assert len(db) == 0


def test_keys_can_be_walked_as_with_gdbm(path: Path) -> None:
    with dbm.open(path, "c") as db:
        assert db.firstkey() is None
        for key in (b"", b"a", b"a\0", b"b"):
            db[key] = key
        walked, key = [], db.firstkey()
        while key is not None:
            walked.append(key)
            key = db.nextkey(key)
        assert walked == db.keys() == [b"", b"a", b"a\0", b"b"]
        assert db.nextkey("aa") == b"b"


def test_flags_are_those_of_dbm(path: Path) -> None:
    for flag in ("r", "w"):
        with pytest.raises(dbm.error) as missing:
            dbm.open(path, flag)
        assert isinstance(missing.value, FileNotFoundError)
        assert missing.value.filename == path
    with dbm.open(path, "c") as db:
        db["a"] = "b"
    with dbm.open(path) as db:
        for change in (lambda: db.__setitem__("a", "c"), lambda: db.__delitem__("a"), db.clear):
            with pytest.raises(dbm.error, match="opened for reading only"):
                change()
        assert db["a"] == b"b"
    with dbm.open(path, "n") as db:
        assert db.keys() == []
    for flag in ("x", "rf", "", None, 1):
        with pytest.raises(ValueError, match=r"Flag must be one of 'r', 'w', 'c', or 'n', not "):
            dbm.open(path, flag)  # type: ignore[arg-type]


def test_a_new_file_gets_its_permissions(path: Path) -> None:
    before = os.umask(0o022)
    try:
        with dbm.open(path, "c", 0o660) as db:
            db["a"] = "b"
            permissions = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
        assert set(permissions.values()) == {0o640}, permissions
    finally:
        os.umask(before)
    with dbm.open(path, "w", 0o600) as db:
        assert db["a"] == b"b"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_files_of_others_are_left_as_they_are(path: Path) -> None:
    path.write_bytes(b"something else" * 1000)
    for flag in ("r", "w", "c", "n"):
        with pytest.raises(dbm.error, match="not a pellucid database"):
            dbm.open(path, flag)
    assert path.read_bytes() == b"something else" * 1000
    with pytest.raises(dbm.error):
        dbm.open(path.parent)


def test_a_database_with_other_keys_is_refused(path: Path) -> None:
    with pellucid.open(path) as db:
        db[1] = b"one"
        db[b"a"] = b"b"
    with pytest.raises(dbm.error, match="a key that is not bytes"):
        dbm.open(path)
    with pellucid.open(path) as db:
        del db[1]
        db[b"a"] = {"a": 1}
    with dbm.open(path) as other, pytest.raises(dbm.error, match="is no bytes"):
        other["a"]


def test_whichdb_knows_ours_and_the_others(path: Path) -> None:
    assert dbm.whichdb(path) is None
    with dbm.open(path, "c"):
        pass
    for name in (path, str(path), os.fsencode(path)):
        assert dbm.whichdb(name) == "pellucid.dbm"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    assert dbm.whichdb(path) == "dbm.sqlite3"
    path.write_bytes(b"text")
    assert dbm.whichdb(path) == ""
    import dbm.dumb as dumb

    dumb.open(str(path.parent / "dumb"), "c").close()
    assert dbm.whichdb(path.parent / "dumb") == "dbm.dumb"


def test_a_closed_database_says_so(path: Path) -> None:
    db = dbm.open(path, "c")
    db["a"] = "b"
    walk = iter(db)
    db.close()
    db.close()
    uses: list[Any] = [
        lambda: db["a"],
        lambda: db.get("a"),
        lambda: db.__setitem__("a", "c"),
        lambda: db.__delitem__("a"),
        lambda: "a" in db,
        lambda: len(db),
        lambda: next(walk),
        db.keys,
        db.items,
        db.values,
        db.clear,
        db.sync,
        db.reorganize,
        db.firstkey,
        lambda: db.nextkey("a"),
        lambda: db.setdefault("a", "b"),
    ]
    for use in uses:
        with pytest.raises(dbm.error, match="already been closed"):
            use()
    assert "closed" in repr(db)


def test_a_full_disk_says_so_in_the_error(path: Path) -> None:
    program = """
import resource, signal, sys
from pellucid import dbm
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
db = dbm.open(sys.argv[1], "c")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    for number in range(10_000):
        db[str(number)] = b"x" * 1000
except dbm.error as error:
    print(error.errno, error)
assert 0 < len(db) < 10_000
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
db.close()
with dbm.open(sys.argv[1], "r") as again:
    assert all(len(value) == 1000 for value in again.values())
"""
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.match(r"(27|28) \[Errno \1\] no room on the disk", ran.stdout)


def test_reorganize_gives_space_back_and_wants_to_be_alone(path: Path) -> None:
    with dbm.open(path, "n", timeout=0.1) as db:
        for number in range(100):
            db[str(number)] = bytes(100_000)
        db.sync()
        for number in range(99):
            del db[str(number)]
        with dbm.open(path, "w"), pytest.raises(dbm.error):
            db.reorganize()
        db.reorganize()
        assert db.keys() == [b"99"]
    assert path.stat().st_size < 1_000_000


def test_threads_share_a_database(path: Path) -> None:
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for number in range(200):
                db[f"{name} {number}"] = str(number)
                assert db[f"{name} {number}"] == str(number).encode()
        except BaseException as failure:
            failures.append(failure)

    with dbm.open(path, "c") as db:
        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(db) == 800


def test_importing_pellucid_imports_no_drop_in() -> None:
    import subprocess

    wanted = ("dbm", "shelve", "pickle", "pellucid.dbm", "pellucid.shelve")
    code = f"import sys, pellucid; print([name for name in {wanted} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


class Text(str): ...


class Raw(bytes): ...


@pytest.mark.parametrize("key", [Text("a"), np.str_("a"), np.bytes_(b"a"), Raw(b"a")], ids=type)
def test_a_subclass_of_str_or_bytes_is_its_bytes_as_a_key_of_dbm(path: Path, key: Any) -> None:
    with dbm.open(path, "c") as db:
        db[b"a"] = b"1"
        assert key in db
        assert db[key] == db.get(key) == b"1"
        db[key] = b"2"
        assert db.keys() == [b"a"]
        del db[key]
        assert len(db) == 0
