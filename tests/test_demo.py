"""Does the demo say in ten lines what it really does, and leave nothing half made?"""

from __future__ import annotations

import ast
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pellucid
import pytest
from pellucid.demo import __main__ as shell
from pellucid.demo import library, tour

SOURCE = '''
"""A module.

if this were code, it would be a statement.
"""
import functools

class Base(object):
    """A class."""
    @functools.wraps(len)
    async def method(self, a: int, b="x", c=
                     None) -> str:
        self.b = a if a else b
        self.call(with_=1)
        return str(self.b).upper()
'''


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "STATEMENTS_MAX", 2000)


@pytest.fixture
def kept(few: None, tmp_path: Path) -> Path:
    """A file that a first run has made, with a part of the library."""
    path = tmp_path / "demo.pel"
    shell.make(path)
    return path


# In a clone's own folder, the command is that of the clone.
PROGRAM = "./dev demo" if Path.cwd() == shell.CLONE else f"{tour.near(sys.executable)} -m pellucid.demo"


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pellucid.demo", *map(str, arguments)]
    plain = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**plain, **variables})


def in_terminal(columns: int, *arguments: str | Path, **variables: str) -> str:
    """What the demo prints in a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **variables}
    command = [sys.executable, "-m", "pellucid.demo", *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, env=environment):
        os.close(theirs)
        printed = b""
        try:
            while part := os.read(ours, 1000):
                printed += part
        except OSError:
            pass  # the other end is closed
    os.close(ours)
    return printed.decode()


def test_each_statement_becomes_a_record() -> None:
    found = list(library.statements("a.b", SOURCE))
    assert [(each["line"], each["kind"], each["depth"]) for each in found] == [
        (6, "import", 0),
        (8, "class", 0),
        (11, "def", 1),
        (13, "=", 2),
        (15, "return", 2),
    ]
    assert found[3] == {
        "module": "a.b",
        "line": 13,
        "kind": "=",
        "depth": 2,
        "text": "self.b = a if a else b",
        "names": ["self", "b", "a", "if", "a", "else", "b"],
    }
    assert found[2]["names"][:2] == ["async", "method"]


def test_the_library_is_found_without_tests_and_what_is_installed_beside_it() -> None:
    modules = {module for module, _ in library.source_files()}
    assert {"json", "json.decoder", "asyncio.tasks"} <= modules
    assert not any("site-packages" in module or module.startswith("test.") for module in modules)


def test_every_definition_of_a_module_is_found() -> None:
    source = next(path for module, path in library.source_files() if module == "json").read_text()
    kinds = (ast.FunctionDef, ast.ClassDef)
    parsed = {node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}
    found = {
        record["line"] for record in library.statements("json", source) if record["kind"] in {"def", "class"}
    }
    assert found == parsed


def test_the_demo_has_ten_lines_of_80_columns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pellucid.demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 10, done.stdout
    assert [line for line in lines[:-2] if len(line) > 80] == []
    with pellucid.open(tmp_path / "demo.pel", mode="r") as db:
        rows = len(db.table(tour.TABLE))
    assert 50_000 < rows <= 100_000
    assert lines[0].startswith(f"demo.pel: {rows:,} lines of Python's own library, a record each; read in ")
    assert [re.sub(r" {2,}.*", "", line) for line in lines[1:6]] == [
        'db["me"].age += 1',
        "pellucid.open('demo.pel')[\"me\"]",
        'puts[n] = {"n": n, "square": n * n}',
        "sum(row.line for row in code.values())",
        'code.index("by_name").get_all("deepcopy")',
    ]
    assert "37: a dict on disk" in lines[1]
    assert lines[2].endswith("a second process sees it: Ada")
    assert re.search(r"kill -9 after [\d,]+ puts: none lost$", lines[3])
    assert re.search(r"[\d.]+ ms; json [\d.]+ m?s, pickle [\d.]+ m?s$", lines[4])
    assert [line.split()[0] for line in lines[7:]] == ["File:", "Next:", "Read:"]
    assert lines[8].endswith("demo --more")
    assert (done.stderr, "\x1b" in done.stdout) == ("", False)


def test_the_library_is_read_once(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inode = kept.stat().st_ino
    for _ in range(2):
        assert shell.main([str(kept)]) == 0
        assert "2,000 lines of Python's own library, a record each; read before." in " ".join(
            capsys.readouterr().out.split()
        )
    assert (kept.stat().st_ino, [each.name for each in kept.parent.iterdir()]) == (inode, [kept.name])


def test_more_shows_all_lines_that_run_and_goes_on(kept: Path) -> None:
    printed = run(kept, "--more").stdout
    for part in [*tour.PARTS, *tour.MORE]:
        assert f"\n{part.__doc__}\n" in printed
    assert '>>> db["me"].langs.append("Rust")\n' in printed
    assert "    print(n, flush=True)    # acknowledged\n# kill -9 " in printed
    assert 'read keys from index "by_name"' in printed
    assert "(37, 99)" in printed
    assert "[('put', 'you')]" in printed
    assert "UniqueError: row 'eve' of table \"people\" would have" in printed
    assert len(re.findall(r"\n(\d+): all rows are there again\n", printed)) == 1
    assert f" -ic 'import pellucid; db = pellucid.open(\"{kept}\")'\n" in printed


def test_what_the_demo_says_to_type_runs(kept: Path) -> None:
    short = run(kept).stdout.splitlines()[-2]
    assert short == f"Next: {PROGRAM} --more {kept}"
    command = re.search(r"^Next: (.*)$", run(kept, "--more").stdout, re.MULTILINE)
    assert command
    done = subprocess.run(
        command[1], shell=True, input='print(db["me"].name)\n', capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("Ada\n")


def test_the_writer_is_really_killed_and_a_lost_put_would_be_seen(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pellucid.open(kept) as db:
        _, said = tour.kill_a_writer(tour.Tour(db, kept))
        puts = int(said.split()[3].replace(",", ""))
        assert 0 < puts <= len(db.table("puts"))
        db.drop_table("puts")
        skips = tour.WRITER.replace("puts[n] =", "if n != 5: puts[n] =")
        monkeypatch.setattr(tour, "WRITER", skips)
        with pytest.raises(AssertionError, match=r"1 of .* acknowledged puts are missing"):
            tour.kill_a_writer(tour.Tour(db, kept))
        monkeypatch.setattr(tour, "WRITER", "print(1)")
        with pytest.raises(RuntimeError, match="ended by itself, with 0"):
            tour.kill_a_writer(tour.Tour(db, kept))


def test_polars_is_not_needed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pellucid.open(kept) as db:
        monkeypatch.setattr(tour.importlib.util, "find_spec", lambda _: None)
        code, said = tour.a_frame(tour.Tour(db, kept))
        assert (code, "polars" in said, said.endswith("install polars")) == ("code.to_polars()", True, True)


def test_a_narrow_terminal_has_two_lines_for_each(kept: Path) -> None:
    printed = in_terminal(40, kept, NO_COLOR="1")
    assert "\x1b" not in printed
    assert 'db["me"].age += 1\r\n    37: a dict on disk, changed in place\r\n' in printed
    # What runs or can be pasted is not broken.
    prose = [line for line in printed.splitlines() if line.startswith("    ")]
    assert max(map(len, prose)) <= 40


def test_a_first_run_says_in_a_terminal_what_it_does(path: Path) -> None:
    reading, first, *_ = in_terminal(80, path).split("\r")
    assert reading == "reading Python's own library ..."
    assert len(first) > len(reading)


def test_a_terminal_has_colours_unless_it_has_none(kept: Path) -> None:
    coloured = '\x1b[36mdb["me"].age += 1\x1b[0m  '
    assert coloured in in_terminal(80, kept, NO_COLOR="")
    assert "\x1b" not in in_terminal(80, kept, NO_COLOR="1")
    assert "\x1b" not in in_terminal(80, kept, NO_COLOR="", TERM="dumb")


def test_ctrl_c_leaves_nothing_half_made(path: Path) -> None:
    command = [sys.executable, "-m", "pellucid.demo", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        # The folder is there when the reading begins.
        while not list(path.parent.iterdir()):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    assert (child.returncode, out, err) == (130, "", f"{PROGRAM}: stopped, and nothing is half made\n")
    assert list(path.parent.iterdir()) == []


def test_a_file_of_another_program_is_left_as_it_is(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pellucid.open(path) as db:
        db.table(tour.TABLE)["a"] = {"mine": 1}
        db["me"] = "precious"
    assert shell.main([str(path)]) == 1
    assert capsys.readouterr().err.endswith("is not a file of the demo; name another one, or move it away\n")
    with pellucid.open(path, mode="r") as db:
        assert db["me"] == "precious"
    text = tmp_path / "notes.txt"
    text.write_text("no database\n")
    assert shell.main([str(text)]) == 1
    assert "is not a pellucid database" in capsys.readouterr().err
    assert text.read_text() == "no database\n"
    assert shell.main([str(tmp_path / "nowhere" / "demo.pel")]) == 1
    assert capsys.readouterr().err.endswith(f"there is no folder {str(tmp_path / 'nowhere')!r}\n")


def test_a_reader_may_have_enough(kept: Path) -> None:
    command = f"'{sys.executable}' -m pellucid.demo '{kept}' | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
