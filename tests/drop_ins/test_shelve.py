"""Does pellucid.shelve do what shelve's documentation says, and what a database can do beyond it?"""

from __future__ import annotations

import collections
import dataclasses
import enum
import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pellucid
import pytest
from pellucid import F, dbm, shelve


@dataclasses.dataclass
class Person:
    """An object that a record would flatten."""

    name: str
    tags: list[str] = dataclasses.field(default_factory=list)


def test_values_come_back_as_plain_objects(path: Path) -> None:
    with shelve.open(path) as shelf:
        shelf["a"] = value = {"b": [1, {"c": (2, {"d": None})}]}
        read = shelf["a"]
        assert read == value
        assert (type(read), type(read["b"]), type(read["b"][1]["c"])) == (dict, list, tuple)
        read["b"].append(5)
        assert shelf["a"] == value
        assert list(shelf.values()) == [value]
        assert list(shelf.items()) == [("a", value)]
        assert shelf.pop("a") == value
        assert shelf.get("a", 7) == 7
        assert shelf.setdefault("a", []) == []


def test_fields_can_be_queried_and_indexed_later(path: Path) -> None:
    with shelve.open(path) as shelf:
        for number in range(10):
            shelf[str(number)] = {"age": number, "name": f"n{number}"}
        shelf.table.create_index("by_age", F.age)
        shelf["x"] = {"age": 100, "name": "x"}
        assert shelf.table.where(F.age >= 9).order_by(F.age).column("name") == ["n9", "x"]
        assert shelf.table.index("by_age").get(100).name == "x"
        with shelf.database.transaction():
            shelf["y"] = 1
            shelf["z"] = 2
    with pellucid.open(path) as db:
        assert db["3"].age == 3


def test_writeback_stores_what_was_changed(path: Path) -> None:
    with shelve.open(path, writeback=True) as shelf:
        shelf["a"] = [1]
        shelf["a"].append(2)
        assert shelf["a"] is shelf["a"]
        assert list(shelf.items()) == [("a", [1, 2])]
        with shelve.open(path) as other:
            assert other["a"] == [1]
            shelf.sync()
            assert other["a"] == [1, 2]
        shelf["a"].append(3)
        shelf["b"] = {"c": []}
        shelf["b"]["c"].append(1)
        del shelf["b"]
    with shelve.open(path, "r") as shelf:
        assert dict(shelf) == {"a": [1, 2, 3]}


def test_writeback_can_be_switched_on_and_off(path: Path) -> None:
    with shelve.open(path) as shelf:
        shelf["a"] = [1]
        shelf["a"].append(2)
        assert (shelf["a"], shelf.writeback) == ([1], False)
        shelf.writeback = True
        shelf["a"].append(3)
        assert shelf["a"] == [1, 3]
        shelf.sync()
        shelf.writeback = False
        shelf["a"].append(4)
        assert shelf["a"] == [1, 3]


def test_methods_of_a_subclass_are_called(path: Path) -> None:
    class Upper(shelve.DbfilenameShelf):
        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(key.upper())

        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key.upper(), value)

    with Upper(path) as shelf:
        shelf["a"] = 1
        shelf.update(b=2)
        assert (dict(shelf.table), shelf["b"], shelf.get("a")) == ({"A": 1, "B": 2}, 2, 1)


def test_a_serializer_stores_bytes(path: Path) -> None:
    import json

    def dumps(value: Any, protocol: int) -> str:
        assert protocol == 2
        return json.dumps(value)

    with shelve.open(path, protocol=2, serializer=dumps, deserializer=json.loads) as shelf:
        shelf["a"] = {"b": [1]}
        assert shelf["a"] == {"b": [1]}
        assert shelf.dict["a"] == b'{"b": [1]}'
        assert list(shelf.values()) == [{"b": [1]}]
    with pytest.raises(shelve.ShelveError, match="together"):
        shelve.open(path.with_name("new"), serializer=dumps)
    assert not path.with_name("new").exists()


def test_any_key_of_a_table_is_a_key() -> None:
    with shelve.open(":memory:") as shelf:
        keys = [1, 2.5, "a", b"a", ("a", 1), None]
        for key in keys:
            shelf[key] = key
        assert set(shelf) == set(keys)
        assert all(shelf[key] == key for key in keys)


def test_errors_are_those_of_dbm(path: Path) -> None:
    with pytest.raises(dbm.error) as missing:
        shelve.open(path, "r")
    assert isinstance(missing.value, FileNotFoundError)
    shelve.open(path).close()
    with shelve.open(path, "r") as shelf:
        for change in (lambda: shelf.__setitem__("a", 1), lambda: shelf.__delitem__("a"), shelf.clear):
            with pytest.raises(dbm.error, match="opened for reading only"):
                change()
        with pytest.raises(dbm.error, match="opened for reading only"):
            shelf.reorganize()
        with pytest.raises(KeyError):
            shelf["a"]
    shelf.close()
    for use in (lambda: shelf["a"], lambda: len(shelf), lambda: list(shelf), shelf.sync):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(ValueError, match="Flag must be one of"):
        shelve.open(path, "x")


def test_a_forgotten_shelf_writes_back(path: Path) -> None:
    shelf = shelve.open(path, writeback=True)
    shelf["a"] = [1]
    shelf["a"].append(2)
    del shelf
    gc.collect()
    with shelve.open(path) as shelf:
        assert shelf["a"] == [1, 2]


def test_pickles_can_be_denied(path: Path) -> None:
    with shelve.open(path) as shelf:
        shelf["a"] = {"person": Person("Ann"), "age": 3}
        shelf["b"] = 1
        assert shelf.database.stats(pickles=True)["pickles"] == 1
    with shelve.open(path, pickle="deny") as shelf:
        assert shelf["b"] == 1
        with pytest.raises(pellucid.PickleDenied, match="Person"):
            shelf["a"]
        assert shelf.table["a"].age == 3
        for refused in (
            Person("Bob"),
            {"a": Person("Bob")},
            collections.OrderedDict(a=1),
            collections.Counter("a"),
        ):
            with pytest.raises(pellucid.UnsupportedValue):
                shelf["c"] = refused
        assert "c" not in shelf
    with shelve.open(path, pickle=[f"{__name__}.*"]) as shelf:
        assert shelf["a"] == {"person": Person("Ann"), "age": 3}


def test_threads_share_a_shelf(path: Path) -> None:
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for number in range(200):
                shelf[f"{name} {number}"] = {"name": name, "of": Person(name)}
                assert shelf[f"{name} {number}"]["of"] == Person(name)
        except BaseException as failure:
            failures.append(failure)

    with shelve.open(path) as shelf:
        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(shelf) == 800


WRITER = """
import os, signal, sys
from pellucid import shelve

path, name, count, last = sys.argv[1:]
shelf = shelve.open(path)
for number in range(int(count)):
    shelf[f"{name} {number}"] = {"name": name, "number": number, "odd": range(number)}
    print(number, flush=True)
    if number == int(last):
        os.kill(os.getpid(), signal.SIGKILL)
shelf.close()
"""


def test_two_processes_write_and_one_of_them_is_killed(path: Path) -> None:
    count = 400
    writers = {
        name: subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(count), last],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, last in (("killed", "200"), ("other", "-1"))
    }
    acknowledged = len(writers["killed"].communicate()[0].splitlines())
    assert (writers["killed"].returncode, acknowledged) == (-signal.SIGKILL, 201)
    out, errors = writers["other"].communicate()
    assert (writers["other"].returncode, errors, len(out.splitlines())) == (0, "", count)
    with shelve.open(path, "r") as shelf:
        for name, wanted in (("killed", acknowledged), ("other", count)):
            for number in range(wanted):
                value = shelf[f"{name} {number}"]
                assert value == {"name": name, "number": number, "odd": range(number)}
        assert len(shelf) == acknowledged + count
        assert shelf.database.check() == []


class Text(str): ...


class Kind(str, enum.Enum):
    A = "a"


@pytest.mark.parametrize("key", [Text("a"), np.str_("a"), Kind.A], ids=lambda key: type(key).__name__)
@pytest.mark.parametrize("writeback", [False, True])
def test_a_subclass_of_str_is_its_text_as_a_key(path: Path, key: str, writeback: bool) -> None:
    with shelve.open(path, writeback=writeback) as shelf:
        shelf["a"] = 1
        assert key in shelf
        assert shelf[key] == shelf.get(key) == 1
        shelf[key] = 2
    with shelve.open(path, writeback=writeback) as shelf:
        assert [(type(name), value) for name, value in shelf.items()] == [(str, 2)]
        assert shelf.pop(key) == 2
        shelf[key] = 3
        del shelf[key]
        assert dict(shelf) == {}
