"""Does the demo find in the library what is there, and do what it shows?"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pellucid
import pytest
from pellucid.demo import __main__ as shell
from pellucid.demo import library, lookups, show, tour
from rich.console import Console

SOURCE = b'''
"""A module."""
import functools

class Base(object):
    """A class."""
    @functools.wraps(len)
    def method(self, a: int, /, b="x", *rest, key=None, **more) -> str:
        """Do it."""
        def inner():
            return open("f")
        return inner() and str(self.b.c(1)).upper()

async def wait(): pass
'''


def test_a_definition_becomes_a_record_of_what_it_has() -> None:
    found = dict(library.definitions("a.b", SOURCE))
    assert list(found) == [
        ("a.b", "Base", 5),
        ("a.b", "Base.method", 8),
        ("a.b", "Base.method.inner", 10),
        ("a.b", "wait", 14),
    ]
    assert found["a.b", "wait", 14] == {
        "name": "wait",
        "module": "a.b",
        "kind": "coroutine",
        "lines": {"first": 14, "last": 14},
        "size": 1,
    }
    assert found["a.b", "Base.method", 8] == {
        "name": "method",
        "module": "a.b",
        "kind": "method",
        "lines": {"first": 8, "last": 12},
        "size": 5,
        "inside": ["Base"],
        "args": [
            {"name": "self", "kind": "positional-only"},
            {"name": "a", "kind": "positional-only", "annotation": "int"},
            {"name": "b", "default": "'x'"},
            {"name": "rest", "kind": "*"},
            {"name": "key", "kind": "keyword-only", "default": "None"},
            {"name": "more", "kind": "**"},
        ],
        "returns": "str",
        "decorators": ["functools.wraps(...)"],
        "doc": "Do it.",
        "calls": ["inner", "str(...).upper", "str", "self.b.c"],
    }
    base = found["a.b", "Base", 5]
    assert (base["bases"], base["doc"], base["kind"]) == (["object"], "A class.", "class")
    assert found["a.b", "Base.method.inner", 10]["calls"] == ["open"]
    assert base["calls"] == ["functools.wraps"]


def test_the_library_is_found_without_what_is_installed_beside_it() -> None:
    modules = {module for module, _ in library.source_files()}
    assert {"json", "json.decoder", "asyncio.tasks"} <= modules
    assert not any("site-packages" in module for module in modules)


def test_every_definition_of_a_module_is_found() -> None:
    path = next(path for module, path in library.source_files() if module == "json")
    found = dict(library.definitions("json", path.read_bytes()))
    assert {key[1] for key in found} >= {"dump", "dumps", "load", "loads"}
    for (_, qualified, line), record in found.items():
        text = path.read_text().splitlines()[line - 1]
        assert f"def {qualified.rpartition('.')[2]}" in text or "class" in text
        assert record["lines"]["first"] == line


def test_what_is_stored_is_read_and_changed(path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    stored = tour.store(path, 700, lambda *news: heard.append(news))
    assert stored.storing.count == 700 == sum(stored.kinds.values()) == heard[-1][2]
    read = tour.read(path)
    assert (read.rows, read.lines) == (700, stored.lines)
    assert read.example["name"] == read.example_key[1].rpartition(".")[2]
    sizes = [size for size, _ in read.longest]
    assert sizes == sorted(sizes, reverse=True)
    found = lookups.find(path)
    assert [len(lookup.found) > 0 for lookup in found.lookups][-1]
    assert 'read keys from index "by_name"' in found.explained or "scan" in found.explained
    assert 'in the unique index "one_place" (module, lines.first), which row' in found.refused
    changed = tour.change(path)
    assert changed.moving["values_encoded"] == 0
    assert changed.moving["slots_overwritten"] == 2 * changed.moved.count
    assert changed.appending["values_encoded"] == changed.appended.count
    assert changed.after == (changed.before[0] + 1, changed.before[1] + 1)
    with pellucid.open(path, mode="r") as db:
        table = db.table(tour.TABLE)
        records = list(table.values(prefix=(changed.module,)))
        assert len(records) == changed.moved.count
        assert all(record.calls[-1] == changed.last_call for record in records)
        assert sum("decorators" in record for record in table.values()) > 0


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "pellucid.demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_demo_runs_in_a_pipe_in_plain_text(tmp_path: Path) -> None:
    kept = tmp_path / "library.pel"
    text = run("--limit", "400", "--keep", str(kept))
    assert "\x1b" not in text
    assert "Stored 400 definitions" in text
    assert "calls end in 'pellucid.open'" in text
    assert 'by index("by_place").get_all((' in text
    assert "UniqueError: row 'a copy' of table \"definitions\"" in text
    with pellucid.open(kept, mode="r") as db:
        assert len(db.table(tour.TABLE)) == 400


def test_the_bar_moves_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # A dumb terminal has no bar.
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with show.progress(console, 10) as on_file:
        on_file("json", 1, 10)
    assert "reading and storing" in out.getvalue()


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "precious.json"
    kept.write_text(json.dumps([1]))
    with pytest.raises(SystemExit):
        shell.main(["--limit", "10", "--keep", str(kept)])
    assert "exists" in capsys.readouterr().err
    assert json.loads(kept.read_text()) == [1]


def test_the_work_that_was_counted_is_told_in_the_right_number() -> None:
    told = show._work({"values_encoded": 1, "slots_overwritten": 2000})
    assert "1 value encoded, 2,000 slots overwritten" in told
    told = show._work({"values_encoded": 0, "slots_overwritten": 1})
    assert "0 values encoded, 1 slot overwritten" in told
