"""Does `./dev bench guard` compare two revisions fairly, and say what goes wrong?"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import pellucid
import pytest
from pellucid_bench import command, guard
from pellucid_bench.builds import GuardError, Side, alone, built, checkout, side_of, tree_of
from pellucid_bench.dataset import read
from pellucid_bench.guard import Compared
from pellucid_bench.measures import Result
from pellucid_bench.operations import ROWS, Row

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(pellucid.__file__).parent.parent
OLD, NEW = Side("old", Path("old")), Side("new", Path("new"))
# A project that pip builds without a compiler: its one module says which revision it is of.
PROJECT = """\
[project]
name = "pellucid"
version = "1"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """\
import os, pathlib, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "pellucid-1-py3-none-any.whl"
    about = "pellucid-1.dist-info/"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        profile = f"PROFILE = {os.environ['PELLUCID_PROFILE']!r}\\n"
        wheel.writestr("pellucid/__init__.py", pathlib.Path("which.py").read_text() + profile)
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: pellucid\\nVersion: 1\\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(about + "RECORD", "")
    return name
"""


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    root.mkdir()
    git(root, "init", "--quiet")
    for name, text in {"pyproject.toml": PROJECT, "backend.py": BACKEND, ".gitignore": "/target/\n"}.items():
        (root / name).write_text(text)
    (root / "Cargo.toml").touch()
    (root / "which.py").write_text("WHICH = 'first'\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "first")
    return root


def rows(count: int = 2) -> list[Compared]:
    return [Compared(Row(f"operation {number}", "records/x", "x", {})) for number in range(count)]


def of(**seconds: float) -> guard.Measure:
    """A measure in which each side always has the same cost."""
    return lambda side, row: Result(row.ours, costs=[seconds[side.name]])


# What is measured


def test_each_operation_of_the_readme_has_the_title_of_its_measure() -> None:
    runs = [run for path in sorted((ROOT / "bench/results").glob("*.json")) for run in read(path)]
    for row in ROWS:
        titles = {
            (measure.title, row.title.format(**run.settings))
            for run in runs
            if run.experiment == row.experiment
            for measure in run.measures
            if fnmatchcase(measure.id, row.measure)
        }
        assert titles, row.operation
        assert all(measured == expected for measured, expected in titles), titles
        assert row.title.format(**guard.SETTINGS[row.experiment])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.operation)
def test_each_operation_is_measured_in_a_process_of_its_own(row: Row, tmp_path: Path) -> None:
    side = side_of("here", HERE, tmp_path / "side")
    (tmp_path / "work").mkdir()
    result = guard.measured(side, row, tmp_path / "work", quick=True)
    assert result.error is None
    assert len(result.costs) >= 1
    assert min(result.costs) > 0


def test_the_command_shows_both_revisions_and_writes_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guard, "checkout", lambda _: tmp_path)
    monkeypatch.setattr(guard, "tree_of", lambda root, folder, name: f"tree of {name}")
    monkeypatch.setattr(guard, "built", lambda *_: HERE)
    out = tmp_path / "out.json"
    words = ["guard", "main", "--profiles", "release", "quick", "--quick", "--only", "dumps"]
    words += ["--json", str(out), "--directory", str(tmp_path)]
    assert command.main(words) == 0
    shown = capsys.readouterr().out
    assert "dumps` of a list of small dicts" in shown
    assert "read one field" not in shown
    assert "the working tree (quick)" in " ".join(shown.split())
    assert "1 round of 2 operations" in shown
    found = json.loads(out.read_text())
    assert found["old"] == {"revision": "main", "tree": "tree of main"}
    for one in found["operations"]:
        assert one["ratio"] == one["new"][0] / one["old"][0] == one["runs"][0]
    with pytest.raises(SystemExit):
        command.main(["guard", "main", "--only", "nothing"])
    assert "no operation has 'nothing' in its name" in capsys.readouterr().err


# What follows from the figures


def test_both_revisions_come_first_as_often() -> None:
    seen: list[tuple[str, str]] = []

    def measure(side: Side, row: Row) -> Result:
        seen.append((row.operation, side.name))
        return Result("pellucid", costs=[1.0])

    guard.compare((OLD, NEW), rows(), 2, 1e9, measure)
    first, second = "operation 0", "operation 1"
    assert seen[:4] == [(first, "old"), (first, "new"), (second, "new"), (second, "old")]
    assert seen[4:] == [(first, "new"), (first, "old"), (second, "old"), (second, "new")]


def test_the_ratio_is_that_of_one_round_whatever_the_machine_does_between_rounds() -> None:
    [one] = found = rows(1)
    speeds = iter([1, 1, 5, 5, 2, 2])
    guard.compare((OLD, NEW), found, 3, 1e9, lambda side, row: Result("pellucid", costs=[next(speeds)]))
    assert one.ratios == [1.0, 1.0, 1.0]
    assert one.quartiles == (1.0, 1.0)
    assert guard.verdict(found) == []


def test_no_round_begins_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(guard.time, "monotonic", lambda: clock[0])

    def measure(side: Side, row: Row) -> Result:
        clock[0] += 10
        return Result("pellucid", costs=[1.0])

    [one] = found = rows(1)
    guard.compare((OLD, NEW), found, 100, 65, measure)
    assert len(one.ratios) == 3, "each round takes 20 s"


@pytest.mark.parametrize(("ratio", "fails"), [(0.5, False), (1.02, False), (1.04, True)])
def test_a_revision_fails_if_it_is_slower_on_the_whole(ratio: float, fails: bool) -> None:
    found = rows()
    guard.compare((OLD, NEW), found, 3, 1e9, of(old=1.0, new=ratio))
    guard.repeat((OLD, NEW), found, 3, 1e9, of(old=1.0, new=ratio))
    assert bool(guard.verdict(found)) == fails
    assert [one.again for one in found] == [None, None], "only what is above the limit is measured again"


@pytest.mark.parametrize(("second", "fails"), [(1.0, False), (1.2, True)])
def test_one_operation_fails_if_it_is_slower_twice(second: float, fails: bool) -> None:
    found = rows(10)
    guard.compare((OLD, NEW), found[1:], 3, 1e9, of(old=1.0, new=0.95))
    guard.compare((OLD, NEW), found[:1], 3, 1e9, of(old=1.0, new=1.2))
    guard.repeat((OLD, NEW), found, 3, 1e9, of(old=1.0, new=second))
    assert found[0].runs == [1.2, second]
    assert len(found[0].ratios) == 6
    assert found[1].runs == [0.95]
    failures = guard.verdict(found)
    assert bool(failures) == fails
    assert all("operation 0: 1.200, and 1.200 when it was measured again" in text for text in failures)


@pytest.mark.parametrize("lacking", ["old", "new"])
def test_an_operation_without_a_figure_says_why_and_fails_if_it_was_lost(lacking: str) -> None:
    def measure(side: Side, row: Row) -> Result:
        is_lost = side.name == lacking and row.operation == "operation 0"
        return Result("pellucid", error="it broke") if is_lost else Result("pellucid", costs=[1.0])

    found = rows()
    guard.compare((OLD, NEW), found, 2, 1e9, measure)
    assert found[0].note == f"no figure of {lacking}: it broke"
    assert found[1].ratios == [1.0, 1.0]
    assert guard.mean(found) == 1.0
    assert bool(guard.verdict(found)) == (lacking == "new")


# Builds


def test_a_build_is_of_the_files_of_its_revision_and_is_kept(repository: Path, tmp_path: Path) -> None:
    folder = checkout(repository)
    (repository / "which.py").write_text("WHICH = 'second'\n")
    said: list[str] = []
    first = built(repository, folder, tree_of(repository, folder, "HEAD"), "HEAD", said.append)
    second = built(repository, folder, tree_of(repository, folder, None), "the working tree", said.append)
    assert [text.partition(",")[0] for text in said] == ["building HEAD", "building the working tree"]
    for build, which in ((first, "first"), (second, "second")):
        side = side_of(which, build, tmp_path / which)
        assert printed(side, "pellucid.WHICH, pellucid.PROFILE") == f"{which} release"
    assert built(repository, folder, tree_of(repository, folder, "HEAD"), "HEAD", said.append) == first
    assert len(said) == 2, "the third build was there"


def test_a_build_has_the_profile_that_was_chosen(repository: Path, tmp_path: Path) -> None:
    folder = checkout(repository)
    tree = tree_of(repository, folder, "HEAD")
    with pytest.raises(GuardError, match=r"HEAD has no profile quick in its Cargo\.toml"):
        built(repository, folder, tree, "HEAD", lambda _: None, "quick")
    (repository / "Cargo.toml").write_text("[profile.quick]\n")
    tree = tree_of(repository, folder, None)
    for profile in ("quick", "release"):
        build = built(repository, folder, tree, "this", lambda _: None, profile)
        assert printed(side_of("this", build, tmp_path / profile), "pellucid.PROFILE") == profile


def test_a_wheel_stands_for_a_revision(repository: Path, tmp_path: Path) -> None:
    folder = checkout(repository)
    wheel = tmp_path / "pellucid-1-py3-none-any.whl"
    with pytest.raises(GuardError, match=r"cannot read the wheel .*: No such file"):
        tree_of(repository, folder, str(wheel))
    wheel.write_text("nothing")
    tree = tree_of(repository, folder, str(wheel))
    with pytest.raises(GuardError, match="is no wheel, or is damaged"):
        built(repository, folder, tree, str(wheel), lambda _: None)
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("pellucid/__init__.py", "WHICH = 'a wheel'\n")
    for _ in range(2):
        build = built(repository, folder, tree_of(repository, folder, str(wheel)), str(wheel), lambda _: None)
    assert printed(side_of("wheel", build, tmp_path / "side"), "pellucid.WHICH") == "a wheel"


def printed(side: Side, names: str) -> str:
    """What a program prints that imports the build of a side."""
    words = [sys.executable, "-c", f"import pellucid; print({names})"]
    done = subprocess.run(words, cwd=side.packages, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_working_tree_has_new_files_too_and_the_index_stays(repository: Path) -> None:
    folder = checkout(repository)
    (repository / "new.py").write_text("")
    tree = tree_of(repository, folder, None)
    assert "new.py" in git(repository, "ls-tree", "--name-only", tree)
    assert git(repository, "status", "--short") == "?? new.py"


def test_a_build_that_fails_shows_the_end_of_its_log(repository: Path) -> None:
    folder = checkout(repository)
    (repository / "backend.py").write_text("raise SystemExit('the compiler said no')\n")
    tree = tree_of(repository, folder, None)
    for _ in range(2):
        with pytest.raises(GuardError, match=r"(?s)build of that failed; the end of .*the compiler said no"):
            built(repository, folder, tree, "that", lambda _: None)


def test_a_build_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "build/pellucid").mkdir(parents=True)
    (tmp_path / "build/pellucid/__init__.py").write_text("import there_is_none\n")
    with pytest.raises(GuardError, match=r"cannot import the build of x in .*there_is_none.*delete it"):
        side_of("x", tmp_path / "build", tmp_path / "side")


def test_what_is_missing_is_named(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkout(repository)
    with pytest.raises(GuardError, match="git knows no revision 'nothing'"):
        tree_of(repository, folder, "nothing")
    (repository / "inner").mkdir()
    with pytest.raises(GuardError, match=r"inner is no git checkout, but a folder in .*clone"):
        checkout(repository / "inner")
    with pytest.raises(GuardError, match="is no git checkout, so it has no revisions"):
        checkout(tmp_path)
    tree = tree_of(repository, folder, "HEAD")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(GuardError, match="`cargo` does not run; install Rust"):
        built(repository, folder, tree, "HEAD", lambda _: None)
    with pytest.raises(GuardError, match="no `git` on the PATH"):
        checkout(repository)


def test_a_second_guard_waits_for_the_first_one(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(GuardError, match="another guard runs"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass
