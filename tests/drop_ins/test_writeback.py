"""Does a shelf with writeback keep each change: beside one that cannot be stored, at exit, after a fork?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import dbm, shelve

OPENED = """
import os, sys, threading, warnings
from pellucid import shelve

# Libraries have threads, which a child of a test does not use.
warnings.simplefilter("ignore", DeprecationWarning)

class Thing:
    def __init__(self, name):
        self.name = name

path = sys.argv[1]
shelf = shelve.open(path, writeback=True)
shelf["a"] = [1]
shelf.sync()
"""


class Bytes(dict):  # type: ignore[type-arg]
    """A mapping of pickles, for a shelf over any mapping."""


def opened(kind: str, path: Path, mapping: Bytes) -> shelve.Shelf:
    return shelve.open(path, writeback=True) if kind == "file" else shelve.Shelf(mapping, writeback=True)


def run(script: str, path: Path) -> str:
    """Run a script that never closes its shelf, and return its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", OPENED + script, str(path)], capture_output=True, text=True, check=True
    )
    return done.stderr


def stored(path: Path) -> dict[str, Any]:
    with shelve.open(path, "r") as shelf:
        return dict(shelf)


@pytest.mark.parametrize("kind", ["file", "mapping"])
@pytest.mark.parametrize("call", ["sync", "close"])
def test_one_value_that_cannot_be_written_keeps_out_no_other(kind: str, call: str, path: Path) -> None:
    mapping = Bytes()
    shelf = opened(kind, path, mapping)
    for name in "abcd":
        shelf[name] = [1]
    shelf.sync()
    for name in "abcd":
        shelf[name].append(2)
    for name in "bc":
        shelf[name].append(lambda: None)
    with pytest.raises((TypeError, AttributeError), match="lambda") as error:
        getattr(shelf, call)()
    if sys.version_info >= (3, 11):
        assert "This value (and 1 others) could not be written, and 2 others were" in error.value.__notes__[0]
    other = shelve.open(path) if kind == "file" else shelve.Shelf(mapping)
    assert dict(other) == {"a": [1, 2], "b": [1], "c": [1], "d": [1, 2]}
    # The shelf is open and has kept both, so they can be put right.
    assert (shelf.writeback, sorted(shelf.cache)) == (True, ["b", "c"])
    shelf["b"].pop()
    del shelf["c"]
    shelf.close()
    assert dict(other) == {"a": [1, 2], "b": [1, 2], "d": [1, 2]}
    with pytest.raises(ValueError, match="closed shelf"):
        len(shelf)
    other.close()


def test_a_value_may_use_the_shelf_while_it_is_written(path: Path) -> None:
    class Reading:
        def __reduce__(self) -> Any:
            return (list, (shelf["a"] + shelf.setdefault("new", [3]),))

    shelf = shelve.open(path, writeback=True)
    shelf["a"] = [1]
    shelf["b"] = None
    shelf["b"] = shelf.cache["b"] = [Reading()]
    shelf.close()
    assert stored(path) == {"a": [1], "b": [[1, 3]], "new": [3]}


def test_a_shelf_that_may_only_read_is_closed(path: Path) -> None:
    with shelve.open(path) as shelf:
        shelf["a"] = [1]
    shelf = shelve.open(path, "r", writeback=True)
    assert shelf["a"] == [1]
    with pytest.raises(dbm.error, match="opened for reading only"):
        shelf.close()
    with pytest.raises(ValueError, match="closed shelf"):
        len(shelf)


def test_a_full_disk_keeps_all_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = shelve.open(path, writeback=True)
    shelf["a"] = shelf["b"] = [1]
    full = pellucid.DatabaseError(28, "No space left on device", str(path))

    def refuse(*_: object) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(shelf, "_write", refuse)
        with pytest.raises(dbm.error, match="No space left") as error:
            shelf.close()
    assert error.value.__cause__ is full
    assert sorted(shelf.cache) == ["a", "b"]
    shelf.close()
    assert stored(path) == {"a": [1], "b": [1]}


def test_a_shelf_that_is_never_closed_is_written_at_the_end(path: Path) -> None:
    # The class of the script is gone when modules are torn down, and with it all that pickle needs.
    said = run(
        'shelf["a"].append(2); shelf["t"] = {"it": Thing("x")}; shelf["z"] = []; shelf["z"].append(3)', path
    )
    assert said == ""
    with pellucid.open(path) as db:
        assert (db["a"].to_list(), db["z"].to_list(), sorted(db)) == ([1, 2], [3], ["a", "t", "z"])


def test_what_cannot_be_written_at_the_end_is_reported_and_keeps_out_no_other_shelf(path: Path) -> None:
    said = run(
        'shelf["a"].append(2); shelf["bad"] = []; shelf["bad"].append(lambda: None)\n'
        'other = shelve.open(path + "-2", writeback=True); other["a"] = []; other["a"].append(1)\n'
        'third = shelve.open(path + "-3"); third.writeback = True; third["a"] = []; third["a"].append(1)\n',
        path,
    )
    assert said.count("the value for key 'bad'") == 1
    assert stored(path) == {"a": [1, 2], "bad": []}
    assert stored(path.with_name(path.name + "-2")) == stored(path.with_name(path.name + "-3")) == {"a": [1]}


def test_functions_that_run_at_exit_and_threads_can_still_use_a_shelf(path: Path) -> None:
    script = """
import atexit, time
atexit.register(lambda: shelf["a"].append("at exit"))
def work():
    time.sleep(0.2)
    shelf["a"].append("thread")
    sys.exit(3)
threading.Thread(target=work).start()
"""
    assert run(script, path) == ""
    assert stored(path) == {"a": [1, "thread", "at exit"]}


def test_no_list_keeps_a_forgotten_shelf(path: Path) -> None:
    import gc
    import weakref

    shelf = shelve.open(path, writeback=True)
    forgotten = weakref.ref(shelf)
    del shelf
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize("end", ["", "shelf.close()", "shelf.sync(); os._exit(0)", "del shelf; os._exit(0)"])
def test_a_forked_process_does_not_write_what_its_parent_had_kept(end: str, path: Path) -> None:
    script = f"""
shelf["a"].append(2)
shelf["b"] = [1]
shelf["gone"] = [1]
shelf["b"].append(2)
go, went = os.pipe()
if os.fork() == 0:
    os.read(go, 1)
    assert shelf["b"] == [1, 2], "the child sees what was kept"
    shelf["b"].append("child")
    shelf["c"] = []
    shelf["c"].append("child")
    del shelf["gone"]
    assert "gone" not in shelf.cache and shelf.get("gone") is None
    {end}
else:
    shelf["a"].append(3)
    shelf.close()
    os.write(went, b"x")
    assert os.wait()[1] == 0
"""
    assert run(script, path) == ""
    # The child has read [1, 2] of "a" nowhere, and does not write it over the newer value of its parent.
    assert stored(path) == {"a": [1, 2, 3], "b": [1, 2, "child"], "c": ["child"]}
