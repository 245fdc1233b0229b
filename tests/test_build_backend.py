"""Does a build refuse in a sentence what it cannot do, before maturin looks, and else do as maturin does?"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import build_backend
import maturin
import pytest

ROOT = Path(__file__).parent.parent
NO_CARGO = "Rust 1.89 or newer is needed, and there is no cargo on the PATH: "
RUSTUP = "curl -sSf https://sh.rustup.rs | sh, and open a new shell"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the PATH, with a C compiler and a cargo that are good enough."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder / "cargo", 'echo "cargo 1.89.0 (c24e10642 2025-06-23)"')
    program(folder / "cc", "while read -r line; do echo $line; done")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_nothing_is_missing_where_all_is_there(tools: Path) -> None:
    assert build_backend.missing() == []


def test_what_is_needed_is_what_the_documents_say() -> None:
    first, last = build_backend.PYTHON_FIRST[1], build_backend.PYTHON_LAST[1]
    rust = "{}.{}".format(*build_backend.RUST_FIRST)
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">=3.{first},<3.{last + 1}"' in pyproject
    assert f'rust-version = "{rust}"' in (ROOT / "Cargo.toml").read_text()
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text("utf-8")
        assert f"Python 3.{first} to 3.{last}" in text
        assert f"Rust {rust} or newer" in text


def test_a_missing_cargo(tools: Path, tmp_path: Path) -> None:
    (tools / "cargo").unlink()
    assert build_backend.missing() == [NO_CARGO + RUSTUP]
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/env").touch()
    assert build_backend.missing() == [NO_CARGO + '. "$HOME/.cargo/env"']


@pytest.mark.parametrize("version", ["1.63.0", "1.88.9", "0.99.0"])
def test_a_cargo_that_is_too_old(tools: Path, version: str) -> None:
    program(tools / "cargo", f'echo "cargo {version} (x)"')
    told = f"Rust 1.89 or newer is needed, and {tools}/cargo is {version}: "
    assert build_backend.missing() == [told + RUSTUP]
    program(tools / "rustup", "")
    assert build_backend.missing() == [told + "rustup update"]


def test_a_rustup_without_a_rust(tools: Path) -> None:
    program(tools / "cargo", "exit 1")
    [told] = build_backend.missing()
    assert told == (f"Rust 1.89 or newer is needed, and {tools}/cargo does not run: rustup default stable")


@pytest.mark.parametrize(
    ("tool", "command"),
    [("apt", "apt install gcc libc6-dev"), ("dnf", "dnf install gcc"), ("", "install gcc libc6-dev")],
)
def test_a_missing_c_compiler(tools: Path, monkeypatch: pytest.MonkeyPatch, tool: str, command: str) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (tools / "cc").unlink()
    program(tools / (tool or "other"), "")
    assert build_backend.missing() == [f"a C compiler is needed, and cc is not on the PATH: {command}"]
    program(tools / "cc", "echo 'fatal error: stdlib.h: No such file or directory' >&2; exit 1")
    assert build_backend.missing() == [f"a C compiler is needed, and cc does not find stdlib.h: {command}"]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert build_backend.missing()[0].endswith(": xcode-select --install")


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 9, 18), (3, 16, 0)])
def test_a_python_that_is_not_supported(
    tools: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(platform, "python_version", lambda: ".".join(map(str, version)))
    [told] = build_backend.missing()
    shown = ".".join(map(str, version))
    assert told.startswith(f"CPython 3.10 to 3.15 is needed, and {sys.executable} is CPython {shown}: use")


def test_a_python_that_is_no_cpython_or_has_no_gil(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: int(name == "Py_GIL_DISABLED"))
    [told] = build_backend.missing()
    assert told.startswith(f"a Python with the GIL is needed, and {sys.executable} is a free-threaded build:")
    monkeypatch.setattr(platform, "python_implementation", lambda: "PyPy")
    [told] = build_backend.missing()
    assert f"{sys.executable} is PyPy 3." in told


def test_another_system(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    assert build_backend.missing() == [
        "64-bit Linux or macOS is needed, and this is a 32-bit Python on freebsd14"
    ]


def test_a_hook_is_maturins_or_refuses(tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYO3_CONFIG_FILE", "")
    monkeypatch.setenv("MATURIN_PEP517_ARGS", "")
    monkeypatch.delenv("PELLUCID_PROFILE", raising=False)
    assert build_backend.build_wheel is maturin.build_wheel
    assert build_backend.get_requires_for_build_sdist is maturin.get_requires_for_build_sdist
    assert not hasattr(build_backend, "prepare_nothing")
    assert os.environ["MATURIN_PEP517_ARGS"] == "--profile quick"
    pinned = Path(os.environ["PYO3_CONFIG_FILE"])
    assert pinned.is_relative_to(tmp_path)
    assert "version={}.{}\n".format(*sys.version_info) in pinned.read_text()
    # A file with another time would have all compiled anew.
    os.utime(pinned, (1, 1))
    build_backend.pin_python(str(tmp_path))
    assert pinned.stat().st_mtime == 1
    (tools / "cargo").unlink()
    (tools / "cc").unlink()
    with pytest.raises(SystemExit) as told:
        build_backend.get_requires_for_build_wheel()
    lines = str(told.value).splitlines()
    assert [line.partition(" is needed")[0] for line in lines] == [
        "pellucid: Rust 1.89 or newer",
        "pellucid: a C compiler",
    ]


def test_pip_prints_our_sentence_last_of_what_the_build_says(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cc").symlink_to(str(shutil.which("cc")))
    environment = {**os.environ, "PATH": str(folder), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run(
        [*command, str(tmp_path / "wheels"), str(ROOT)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    said = re.search(r"\[1 lines of output\]\s*(.*)\n\s*\[end of output\]", done.stderr)
    assert said, done.stderr
    assert (done.returncode, said[1]) == (1, f"pellucid: {NO_CARGO}{RUSTUP}")
    assert not list(tmp_path.glob("wheels/*"))


def test_a_source_distribution_has_the_backend() -> None:
    assert '{ path = "tools/build_backend.py", format = "sdist" }' in (ROOT / "pyproject.toml").read_text()
