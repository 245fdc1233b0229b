"""Does ./dev wheels build for the right Pythons, and refuse a wheel that needs too new a glibc?"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import bare_systems
import crate_licenses
import pytest
import wheels
from pellucid import _native

HERE = "{}.{}".format(*sys.version_info[:2])
OTHER = "3.13" if HERE == "3.14" else "3.14"


@pytest.fixture
def pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the PATH; no Python is there but that of the tests."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{tmp_path}/not-there")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return folder


def python(folder: Path, version: str, kind: str = "CPython", is_free: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"python{version}{'t' if is_free else ''}"
    path.write_text(f"""#!/bin/sh\necho '["{kind}", "{version}", {str(is_free).lower()}]'\n""")
    path.chmod(0o755)


def test_wheels_are_built_for_each_supported_python(
    pythons: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pythons / "python3.11").write_text("no program")
    python(pythons, "3.15", is_free=True)
    python(pythons, "3.10", kind="PyPy")
    python(pythons, "3.16")
    python(tmp_path / "pyenv/versions/any/bin", OTHER)
    others = {version: path for version, path in wheels.interpreters().items() if version != HERE}
    assert others == {OTHER: tmp_path / f"pyenv/versions/any/bin/python{OTHER}"}
    assert capsys.readouterr().err == (
        f"dev: passed over {pythons}/python3.15t: it is free-threaded, and pellucid needs the GIL\n"
    )
    assert [target.version for target in wheels.targets([], ())] == sorted({OTHER, HERE})


def test_a_bare_system_brings_its_own_pythons(pythons: Path) -> None:
    [*_, testing] = bare_systems.SYSTEMS
    found = {target.version: target for target in wheels.targets([], bare_systems.SYSTEMS)}
    assert {"3.11", "3.13", "3.14", "3.15"} <= set(found)
    assert found["3.14"].systems == (testing,)
    assert found[HERE].interpreter == Path(sys.executable)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("3.9", "dev: Python '3.9' is not supported; 3.10 to 3.15 are"),
        ("all", "dev: Python 'all' is not supported; 3.10 to 3.15 are"),
        ("3.1x", "dev: no CPython 3.1x with the GIL is on the PATH or among those of pyenv"),
    ],
)
def test_a_version_that_is_not_there_is_refused(
    pythons: Path, monkeypatch: pytest.MonkeyPatch, version: str, told: str
) -> None:
    monkeypatch.setattr(wheels, "SUPPORTED", ["3.10", "3.1x", "3.15"])
    with pytest.raises(SystemExit) as refused:
        wheels.targets([version], ())
    assert str(refused.value) == told


def test_other_systems_than_linux_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit, match=r"^dev: wheels are built on Linux, and this is darwin$"):
        wheels.main([])


def test_without_debootstrap_or_root_a_sentence_says_so(
    pythons: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wheels.systems(is_venv=True) == ()
    assert wheels.systems(is_venv=False) == ()
    for tool in ("debootstrap", "unshare"):
        (pythons / tool).write_text("")
        (pythons / tool).chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert wheels.systems(is_venv=False) == ()
    instead = "dev: wheels are tried in virtual environments, not in bare systems of Debian: "
    assert capsys.readouterr().err.splitlines() == [
        instead + "debootstrap and unshare not found: apt install debootstrap util-linux",
        instead + "only root can make bare systems of Debian",
    ]


def test_a_system_that_cannot_be_made_leaves_nothing(
    pythons: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_systems, "FOLDER", tmp_path / "systems")
    monkeypatch.setenv(bare_systems.MIRROR, "file:///mirror")
    (pythons / "unshare").write_text("#!/bin/sh\nshift; printf '%s\\n' \"$@\"; echo E: no route; exit 1\n")
    (pythons / "unshare").chmod(0o755)
    [system, *_] = bare_systems.SYSTEMS
    with pytest.raises(SystemExit) as refused:
        system.make()
    log = tmp_path / "systems/bookworm.log"
    assert str(refused.value) == (
        f"{tmp_path}/systems/bookworm.part\nfile:///mirror\nE: no route\n"
        f"dev: Debian 12 was not made; the whole log is {log}"
    )
    assert not system.root.exists()


def wheel(path: Path, module: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pellucid/_native.so", module)
    return path


def test_a_wheel_that_needs_too_new_a_glibc_is_refused(tmp_path: Path) -> None:
    old = wheel(tmp_path / "old.whl", b"\0GLIBC_2.2.5\0GLIBC_2.28\0GLIBC_PRIVATE\0GLIBC_2.4x\0")
    assert wheels.needed_glibc(old) == (2, 28)
    new = wheel(tmp_path / "new.whl", b"\0GLIBC_2.4\0memcpy\0GLIBC_2.34\0")
    with pytest.raises(SystemExit, match=r"new\.whl needs glibc 2\.34, and 2\.28 is the limit$"):
        wheels.needed_glibc(new)


def test_the_versions_are_those_of_a_real_module() -> None:
    needed = wheels.glibc_versions(Path(_native.__file__).read_bytes())
    here = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    assert (2, 2, 5) in needed or (2, 17) in needed, "the oldest symbols of x86 and of ARM"
    assert max(needed) <= here


def test_a_wheel_has_the_licenses_of_the_crates_in_its_module(tmp_path: Path) -> None:
    def crate(name: str, uses: list[tuple[str, str | None]], kind: str = "lib", text: str = "") -> None:
        manifest = tmp_path / name / "Cargo.toml"
        manifest.parent.mkdir()
        if text:
            (manifest.parent / "LICENCE.md").write_text(text + "\n")
        packages.append(
            {
                "id": name,
                "name": name,
                "version": "1",
                "license": "MIT",
                "manifest_path": manifest,
                "targets": [{"kind": [kind]}],
            }
        )
        deps = [{"pkg": other, "dep_kinds": [{"kind": use}]} for other, use in uses]
        nodes.append({"id": name, "deps": deps})

    packages: list[dict[str, object]] = []
    nodes: list[dict[str, object]] = []
    crate("root", [("b", None), ("macro", None), ("cc", "build"), ("proptest", "dev")])
    crate("macro", [("syn", None)], kind="proc-macro")
    crate("b", [("a", None)], text="one text")
    crate("a", [("b", None)], text="one text")
    for name in ("syn", "cc", "proptest"):
        crate(name, [])
    found = crate_licenses.compiled_in({"packages": packages, "resolve": {"root": "root", "nodes": nodes}})
    assert [one["name"] for one in found] == ["a", "b", "root"]
    text = crate_licenses.text_of(found[:2])
    assert "a 1: MIT\nb 1: MIT\n" in text
    assert text.endswith("For a 1, b 1:\n\none text\n")
    with pytest.raises(SystemExit, match="the crate root has no file with its license"):
        crate_licenses.text_of(found)
