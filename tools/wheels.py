"""Builds the source distribution and, from it, a wheel for each Python that is found: into dist/, once tried.

A wheel is tried in the bare systems of Debian that have its Python, and where there is none, in a fresh
virtual environment. Only Linux is built for: maturin and zig link against an old glibc (manylinux).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bare_systems
import build_backend
from build import ROOT, watched
from crate_licenses import licenses

GLIBC_MAX = (2, 28)
"""The newest glibc that a wheel may need: that of Debian 10, and of RHEL 8 and its kin."""
WORK, DIST = ROOT / "target/wheels", ROOT / "dist"
LOOK = """
import json, platform, sys, sysconfig
is_free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(json.dumps([platform.python_implementation(), "%d.%d" % sys.version_info[:2], is_free]))
"""
SUPPORTED = [f"3.{minor}" for minor in range(build_backend.PYTHON_FIRST[1], build_backend.PYTHON_LAST[1] + 1)]


@dataclass(frozen=True)
class Target:
    """A Python to build a wheel for."""

    version: str
    interpreter: Path | None
    """None where only bare systems have it."""
    systems: tuple[bare_systems.System, ...]


def main(arguments: Sequence[str]) -> int:
    """Build what the command line names, and return the exit code."""
    parser = argparse.ArgumentParser(prog="./dev wheels", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="such as 3.13 (default: all found)")
    parser.add_argument("--venv", action="store_true", help="try wheels in virtual environments alone")
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        raise SystemExit(f"dev: wheels are built on Linux, and this is {sys.platform}")
    found = targets(options.versions, systems(options.venv))
    # pip's profile is for a clone; a wheel is built once and used often.
    os.environ["PELLUCID_PROFILE"] = os.environ.get("PELLUCID_PROFILE") or build_backend.PROFILES[-1]
    profile = build_backend.profile()
    # What ./dev has of its own: the interpreter to build for, and the lab's source.
    for name in ("PYO3_PYTHON", "PYTHONPATH"):
        os.environ.pop(name, None)
    os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))
    for system in dict.fromkeys(system for target in found for system in target.systems):
        system.make()
    DIST.mkdir(exist_ok=True)
    sdist, source = source_distribution()
    for target in found:
        begin = time.monotonic()
        wheel = built(source, target, profile)
        seconds = time.monotonic() - begin
        glibc = ".".join(map(str, needed_glibc(wheel)))
        size = wheel.stat().st_size / 1e6
        told = [f"{wheel.name}: {size:.1f} MB, glibc {glibc}, profile {profile}, built in {seconds:.0f} s"]
        told += tries(wheel, target)
        shutil.move(wheel, DIST / wheel.name)
        print(*told, sep="\n", flush=True)
    shutil.move(sdist, DIST / sdist.name)
    print(f"{sdist.name}: what the wheels were built from; all of them are in {DIST}")
    return 0


def systems(is_venv: bool) -> tuple[bare_systems.System, ...]:
    """Return the bare systems, if they are wanted and can be made here."""
    obstacle = None if is_venv else bare_systems.obstacle()
    if obstacle:
        told = "wheels are tried in virtual environments, not in bare systems of Debian"
        print(f"dev: {told}: {obstacle}", file=sys.stderr)
    return () if is_venv or obstacle else bare_systems.SYSTEMS


# Which Pythons there are


def targets(versions: Sequence[str], bare: Sequence[bare_systems.System]) -> list[Target]:
    """Return what to build for: all Pythons that are found, or the versions that are named."""
    here = interpreters()
    in_systems = {version for system in bare for version in system.pythons}
    wanted = list(versions) or [one for one in SUPPORTED if one in here or one in in_systems]
    for version in wanted:
        if version not in SUPPORTED:
            raise SystemExit(
                f"dev: Python {version!r} is not supported; {SUPPORTED[0]} to {SUPPORTED[-1]} are"
            )
        if version not in here and version not in in_systems:
            raise SystemExit(f"dev: no CPython {version} with the GIL is on the PATH or among those of pyenv")
    return [
        Target(one, here.get(one), tuple(system for system in bare if one in system.pythons))
        for one in wanted
    ]


def interpreters() -> dict[str, Path]:
    """Return the Pythons of this machine that are supported, by their versions."""
    found: dict[str, Path] = {}
    for path in candidates():
        look = build_backend.output_of([str(path), "-c", LOOK])
        if not look:
            continue
        kind, version, is_free = json.loads(look)
        if kind != "CPython" or version not in SUPPORTED:
            continue
        if is_free:
            print(
                f"dev: passed over {path}: it is free-threaded, and pellucid needs the GIL", file=sys.stderr
            )
        else:
            found.setdefault(version, path)
    return found


def candidates() -> Iterator[Path]:
    """Give the programs that have the name of a Python, that of .venv first."""
    yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    for folder in dict.fromkeys([*folders, *sorted(pyenv.glob("versions/*/bin"))]):
        if folder.is_dir():
            yield from sorted(
                path for path in folder.iterdir() if re.fullmatch(r"python3\.1\d+t?", path.name)
            )


# Building


def build(what: str, command: Sequence[str], log: Path, folder: Path) -> None:
    """Run a build in a folder, or exit as it does."""
    if status := watched(what, command, log, folder):
        raise SystemExit(status)


def run(what: str, command: Sequence[str], folder: Path = ROOT) -> None:
    """Run a program that says by itself why it fails."""
    if subprocess.run(command, cwd=folder, check=False).returncode:
        raise SystemExit(f"dev: {what}; the reason is above")


def source_distribution() -> tuple[Path, Path]:
    """Return a new source distribution, and the folder with what is in it."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    command = ["maturin", "sdist", "--out", str(WORK)]
    build("the source distribution", command, WORK / "sdist.log", ROOT)
    [sdist] = WORK.glob("*.tar.gz")
    # The times in it are always the same, and cargo would find nothing changed.
    run("the source distribution was not unpacked", ["tar", "-xzmf", sdist.name], WORK)
    source = WORK / sdist.name.removesuffix(".tar.gz")
    # What pip does first of all: it asks our build backend, as the source distribution has it.
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    pip += ["--disable-pip-version-check", "--force-reinstall"]
    run("pip cannot build the source distribution", [*pip, str(sdist)])
    (source / "LICENSE-CRATES").write_text(licenses(source), "utf-8")
    return sdist, source


def built(source: Path, target: Target, profile: str) -> Path:
    """Return a new wheel."""
    folder = WORK / target.version
    compatibility = "manylinux_{}_{}".format(*GLIBC_MAX)
    command = ["maturin", "build", "--zig", "--compatibility", compatibility, "--profile", profile, "--strip"]
    command += ["--compression-level", "9", "--out", str(folder)]
    command += ["--interpreter", str(target.interpreter or f"python{target.version}")]
    build(f"the wheel for Python {target.version}", command, WORK / f"{target.version}.log", source)
    [wheel] = folder.iterdir()
    return wheel


def needed_glibc(wheel: Path) -> tuple[int, ...]:
    """Return the glibc that the module of a wheel needs; refuse one that is newer than `GLIBC_MAX`."""
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".so")]
        needed = max(glibc_versions(file.read(name)))
    if needed > GLIBC_MAX:
        newest = "{}.{}".format(*GLIBC_MAX)
        raise SystemExit(f"dev: {wheel} needs glibc {needed[0]}.{needed[1]}, and {newest} is the limit")
    return needed


def glibc_versions(module: bytes) -> set[tuple[int, ...]]:
    """Return the versions of glibc's symbols that a module needs: the table of strings has their names."""
    return {tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_([\d.]+)(?=\0)", module)}


# Trying


def tries(wheel: Path, target: Target) -> Iterator[str]:
    """Install and use a wheel wherever it can be tried, and say how each time went."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for file in ("README.md", "tools/try_wheel.py"):
            shutil.copy(ROOT / file, work)
        # Beforehand, since a bare system may have no network.
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        pip += ["--only-binary", ":all:", "--python-version", target.version, "--dest", str(work / "wheels")]
        run("what the extra `cli` needs was not fetched", [*pip, f"{wheel}[cli]"])
        for system in target.systems:
            command = [f"python{target.version}", "try_wheel.py"]
            yield tried(system.name, system.within(work, command), work)
        if not target.systems:
            yield tried("a virtual environment", [str(target.interpreter), "try_wheel.py"], work)


def tried(where: str, command: Sequence[str], work: Path) -> str:
    """Run a try, and return what it says."""
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}dev: the wheel failed in {where}; the reason is above")
    return f"  tried in {where}: {done.stdout.strip()}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
