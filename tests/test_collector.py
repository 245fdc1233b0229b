"""Is Python's garbage collector on again after all that pauses it, and are handles collected as others?"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid.transfer.collector import paused


@pytest.fixture(autouse=True)
def _collects() -> Iterator[None]:
    assert gc.isenabled()
    yield
    assert gc.isenabled()


class Watcher:
    """Counts the collections that begin, and remembers whether the collector was on when asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        self.count += phase == "start"

    def __enter__(self) -> Watcher:
        gc.callbacks.append(self)
        return self

    def __exit__(self, *_error: object) -> None:
        gc.callbacks.remove(self)


def test_to_dicts_makes_all_its_dicts_without_a_collection(db: pellucid.Database) -> None:
    table = db.table("nested")
    table.extend({"a": {"b": [{"c": n}]}} for n in range(5_000))
    gc.collect()
    with Watcher() as watcher:
        rows = table.to_dicts()
        assert watcher.count == 0
    assert len(rows) == 5_000


def test_an_error_in_the_middle_leaves_the_collector_on(db: pellucid.Database) -> None:
    class Odd:
        pass

    def decode(_value: Any) -> Any:
        raise RuntimeError("no")

    pellucid.register(Odd, lambda _value: 1, decode)
    db.table("odd")["a"] = {"odd": Odd()}
    with pytest.raises(RuntimeError):
        db.table("odd").where().to_dicts()
    with pytest.raises(RuntimeError), paused():
        raise RuntimeError


def test_a_program_that_has_switched_the_collector_off_keeps_it_off(db: pellucid.Database) -> None:
    db["a"] = {"n": [1]}
    gc.disable()
    try:
        db.table("default").to_dicts()
        pellucid.loads(pellucid.dumps([[n] for n in range(5_000)]))
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_within_pauses_and_beside_each_other_end(db: pellucid.Database) -> None:
    table = db.table("nested")
    table.extend({"n": [n]} for n in range(300))

    def work() -> None:
        for _ in range(20):
            with paused():
                table.to_dicts()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


def test_an_import_pauses_the_collector_for_its_own_duration(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f'{{"n": [{{"m": {n}}}]}}\n' for n in range(3_000)))
    seen: list[bool] = []
    with pellucid.open(":memory:") as db:
        pellucid.import_from(source, db, table="rows", progress=lambda *_done: seen.append(gc.isenabled()))
        assert len(db.table("rows")) == 3_000
    assert seen
    assert not any(seen)


def test_a_child_that_is_forked_in_a_pause_collects() -> None:
    program = """
    import gc, os, sys, threading, pellucid
    from pellucid.transfer.collector import paused
    class Forking: pass
    def fork(value):
        child = os.fork()
        if child == 0:
            # Another thread would go on here, if it were there.
            os._exit(0 if gc.isenabled() else 1)
        statuses.append(os.waitpid(child, 0)[1])
        return value
    statuses = []
    pellucid.register(Forking, lambda value: 1, fork)
    db = pellucid.open(":memory:")
    db["a"] = {"f": Forking()}
    db.table("default").where().to_dicts()
    with paused():
        fork(1)
    sys.exit(statuses != [0, 0] or not gc.isenabled())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert done.returncode == 0


def test_databases_tables_and_records_have_weak_references(path: Path) -> None:
    database = pellucid.open(path)
    table = database.table("rows")
    table["a"] = {"list": [1]}
    record = table["a"]
    gone: list[str] = []
    handles = {"database": database, "table": table, "record": record, "list": record.list}
    references = {
        name: weakref.ref(handle, lambda _reference, name=name: gone.append(name))  # type: ignore[misc]
        for name, handle in handles.items()
    }
    assert all(references[name]() is handle for name, handle in handles.items())
    database.close()
    del database, table, record, handles
    gc.collect()
    assert sorted(gone) == ["database", "list", "record", "table"]
    assert not any(reference() for reference in references.values())


def test_a_record_over_a_tracked_buffer_has_weak_references() -> None:
    record = pellucid.view(memoryview(pellucid.dumps({"a": 1})))
    gone = weakref.ref(record)
    assert gone() is record
    del record
    assert gone() is None


def unclosed(path: Path, then: str = "") -> str:
    program = f"""
    import gc, pellucid
    db = pellucid.open({str(path)!r})
    db["a"] = 1
    {then}
    """
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    return done.stderr


def test_a_database_that_is_collected_unclosed_warns_of_the_line_that_opened_it(path: Path) -> None:
    said = unclosed(path, "del db; gc.collect()")
    assert "ResourceWarning" in said
    assert "was not closed; it was opened at <string>:3" in said
    assert said.count("ResourceWarning") == 1


def test_a_warning_of_an_unclosed_database_leaves_what_is_raised_meanwhile(path: Path) -> None:
    pellucid.open(path).close()
    with pytest.warns(ResourceWarning, match="was not closed"), pytest.raises(KeyError):
        pellucid.open(path).table("t")[1]
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KeyError):
            pellucid.open(path).table("t")[1]


def test_a_table_keeps_its_database_open_without_a_warning(path: Path) -> None:
    assert unclosed(path, "table = db.table('t'); del db; gc.collect(); print(len(table))") == ""


@pytest.mark.parametrize("then", ["db.close(); del db", "db.close(); db.close()", ""])
def test_a_closed_database_and_the_end_of_a_program_warn_of_nothing(path: Path, then: str) -> None:
    assert unclosed(path, then or "pass") == ""


def test_a_database_in_memory_and_one_that_the_package_opens_warn_of_nothing(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        pellucid.open(":memory:")["a"] = 1
        with pellucid.open(path) as db:
            db["a"] = 1
        source = path.with_suffix(".jsonl")
        source.write_text('{"n": 1}\n')
        pellucid.import_from(source, path, table="rows")
        gc.collect()
