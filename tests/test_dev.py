"""Does `./dev` list its commands on a bare machine, say what to install, and leave nothing half made?"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import build_backend
import pytest

ROOT = Path(__file__).parent.parent
FILES = ["dev", "justfile", "requirements-build.txt", "tools/bootstrap.sh", "tools/build_backend.py"]
PYTHONS = "{}.{} to {}.{}".format(*build_backend.PYTHON_FIRST, *build_backend.PYTHON_LAST)
NO_RUST = (
    "Rust {}.{} or newer is needed, and there is no cargo on the PATH: ".format(*build_backend.RUST_FIRST)
    + build_backend.RUSTUP
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What of a clone `./dev` reads before it makes .venv."""
    folder = tmp_path / "clone"
    (folder / "tools").mkdir(parents=True)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with what every system has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "uname", "cat", "cmp", "cp", "rm", "mkdir", "sleep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def dev(clone: Path, path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": str(path), **variables}
    command = [str(clone / "dev"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def made(clone: Path) -> list[str]:
    """What a clone has that was not there before."""
    return [
        name
        for path in sorted(clone.rglob("*"))
        if path.is_file() and (name := str(path.relative_to(clone))) not in FILES
    ]


def with_all_tools(bare: Path) -> None:
    program(bare / "cargo", "echo cargo 1.99.0")
    program(bare / "cc", "cat")
    program(bare / "python3", f"exec '{sys.executable}' \"$@\"")


@pytest.mark.parametrize("asked", [[], ["--help"], ["help"]])
def test_all_commands_are_listed_on_a_bare_machine(clone: Path, bare: Path, asked: list[str]) -> None:
    program(bare / "apt", "")
    done = dev(clone, bare, *asked)
    assert (done.returncode, done.stderr) == (0, "")
    recipes = re.findall(r"^([a-z]+)(?: \*\w+)?:(?!=)", (ROOT / "justfile").read_text(), re.MULTILINE)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-3]] == recipes
    assert "  test      Run the Rust tests, then the Python tests" in lines
    assert all(len(line) <= 80 for line in lines[:-3])
    assert lines[-3:] == [
        f"Missing: Python {PYTHONS} is needed, and 'python3' is none that runs: "
        "set PYTHON to one, or apt install python3-venv",
        f"Missing: {NO_RUST}",
        "Missing: a C compiler is needed, and cc is not on the PATH: apt install gcc libc6-dev",
    ]
    assert made(clone) == []


def test_a_list_names_nothing_where_nothing_is_missing(clone: Path, bare: Path) -> None:
    with_all_tools(bare)
    done = dev(clone, bare)
    assert (done.returncode, done.stderr, "Missing" in done.stdout) == (0, "", False)
    assert made(clone) == []


def test_a_command_refuses_what_is_missing_and_makes_nothing(clone: Path, bare: Path) -> None:
    with_all_tools(bare)
    (bare / "cargo").unlink()
    done = dev(clone, bare, "test")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"dev: {NO_RUST}\n")
    (bare / "python3").unlink()
    (bare / "cc").unlink()
    done = dev(clone, bare, "test")
    assert (done.returncode, done.stderr.count("\n"), done.stderr.count("dev: ")) == (1, 3, 3)
    assert made(clone) == []


def test_python_without_venv_is_refused_before_a_half_of_one_is_made(clone: Path, bare: Path) -> None:
    with_all_tools(bare)
    # As Debian's python3 without python3-venv: the module venv is there, and ensurepip is not.
    hidden = "import sys; sys.modules['ensurepip'] = None; import runpy; sys.argv[:] = sys.argv[1:]"
    script = f"""case $1 in
        *.py) exec '{sys.executable}' -c "{hidden}; runpy.run_path(sys.argv[0], run_name='__main__')" "$@" ;;
        *) exec '{sys.executable}' "$@" ;;
        esac"""
    program(bare / "python3", script)
    program(bare / "dnf", "")
    done = dev(clone, bare, "test")
    assert (done.returncode, made(clone)) == (1, [])
    assert re.fullmatch(
        r"dev: Python's own venv is needed, and .* has no ensurepip: dnf install python3\n", done.stderr
    )


def test_a_command_that_is_not_there_makes_nothing(clone: Path, bare: Path) -> None:
    with_all_tools(bare)
    for name in ("tset", "t.st", "python"):
        done = dev(clone, bare, name)
        assert (done.returncode, done.stderr) == (1, f"dev: no command '{name}'; ./dev lists them\n")
    assert made(clone) == []


def test_without_a_network_the_last_sentence_says_so(clone: Path, bare: Path) -> None:
    with_all_tools(bare)
    done = dev(clone, bare, "test", PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "dev: requirements-build.txt was not installed, and pip says why above; "
        "the first time, a network is needed"
    )
    assert not list(clone.glob(".venv/installed-*"))


def test_ctrl_c_leaves_no_half_of_an_environment(clone: Path, bare: Path) -> None:
    with_all_tools(bare)
    slow = f"""case "$*" in
        "-m venv"*) mkdir -p .venv/bin; sleep 60 ;;
        *) exec '{sys.executable}' "$@" ;;
        esac"""
    program(bare / "python3", slow)
    command = [str(clone / "dev"), "test"]
    environment = {"PATH": str(bare), "HOME": str(bare)}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        while not (clone / ".venv/bin").exists():
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    assert child.returncode == 130
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("error: failed to download from a registry", "cargo needs a network for it"),
        ("error[E0308]: mismatched types", "cargo says why above"),
    ],
)
def test_a_build_that_fails_says_why(clone: Path, bare: Path, said: str, why: str) -> None:
    program(bare / "maturin", f"printf '   Building [=> ] 3/9: libc\\r\\033[K'; echo '{said}'; exit 1")
    done = build(clone, bare)
    assert (done.returncode, done.stderr) == (1, f"{said}\ndev: the extension was not built; {why}\n")


def test_a_build_says_how_far_it_is_and_which_profile_it_had(clone: Path, bare: Path) -> None:
    program(
        bare / "maturin",
        """test "$1 $2 $3" = "develop --profile quick" && test -s "$PYO3_CONFIG_FILE" || exit 1
        printf '   Building [=> ] 3/9: libc\\r'; exec sleep 3.5""",
    )
    done = build(clone, bare)
    far, *_, told = done.stderr.splitlines()
    assert done.returncode == 0
    assert re.fullmatch(r"dev: building the extension, 3 of 9 parts done, now libc, \d+ s", far)
    assert told == "dev: built with the profile quick; PELLUCID_PROFILE=release builds a faster one"
    (clone / "target/release").mkdir()
    program(bare / "maturin", 'test "$1 $2 $3" = "develop --profile release"')
    done = build(clone, bare, PELLUCID_PROFILE="release")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_profile_is_refused(clone: Path, bare: Path) -> None:
    done = build(clone, bare, PELLUCID_PROFILE="fast")
    told = "pellucid: PELLUCID_PROFILE is 'fast', and must be quick or release\n"
    assert (done.returncode, done.stderr) == (1, told)


def build(clone: Path, bare: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "tools/build.py", clone / "tools")
    (clone / ".venv").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, str(clone / "tools/build.py")],
        check=False,
        cwd=clone,
        env={"PATH": str(bare), **variables},
        capture_output=True,
        text=True,
    )
