"""This module builds revisions of this checkout for the guard, and keeps the builds.

A build is what `pip install .` makes of the files of a revision: the module, with a profile of `Cargo.toml`,
and the Python files. It stays in `target/guard`, under the hash of those files. No other build product
changes. A wheel stands for the revision that it was built from.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

PROFILES = ("release", "quick")
LOG_LINES = 25
"""Lines of the log of a build that failed."""


class GuardError(Exception):
    """Two revisions cannot be compared here, for a reason that the message tells."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two revisions."""

    name: str
    packages: Path
    """The folder with its `pellucid`, and our `pellucid_bench`."""


def git(root: Path, *arguments: str, index: Path | None = None) -> str:
    """Run git in a checkout, and return what it prints. `index` replaces the index of the checkout."""
    given = {"GIT_INDEX_FILE": str(index)} if index else {}
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GuardError(f"`git {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()


def checkout(root: Path) -> Path:
    """Return the folder for builds of a checkout."""
    if not shutil.which("git"):
        raise GuardError("there is no `git` on the PATH; install it")
    try:
        top = Path(git(root, "rev-parse", "--show-toplevel"))
    except GuardError as error:
        raise GuardError(f"{root} is no git checkout, so it has no revisions ({error})") from None
    if top.resolve() != root.resolve():
        raise GuardError(
            f"{root} is no git checkout, but a folder in {top}; run ./dev in a clone of pellucid"
        )
    folder = root / "target/guard"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_wheel(revision: str | None) -> TypeGuard[str]:
    """Say whether a revision is the path of a wheel."""
    return revision is not None and revision.endswith(".whl")


def tree_of(root: Path, folder: Path, revision: str | None) -> str:
    """Return the hash of the files of a revision. Without one, they are those of the checkout as they are."""
    if is_wheel(revision):
        try:
            return hashlib.sha256(Path(revision).read_bytes()).hexdigest()
        except OSError as error:
            raise GuardError(f"cannot read the wheel {revision}: {error.strerror}") from None
    if revision is None:
        index = folder / "index"
        git(root, "add", "--all", index=index)
        return git(root, "write-tree", index=index)
    try:
        return git(root, "rev-parse", "--verify", f"{revision}^{{tree}}")
    except GuardError:
        raise GuardError(f"git knows no revision {revision!r}; `git log --oneline` lists some") from None


def built(
    root: Path, folder: Path, tree: str, name: str, say: Callable[[str], None], profile: str = PROFILES[0]
) -> Path:
    """Return the folder with the packages of a revision. Build it if it was not built before."""
    if is_wheel(name):
        return unpacked(folder / tree[:12], Path(name))
    try:
        version = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise GuardError("`cargo` does not run; install Rust 1.89 or newer") from error
    # Another Python cannot load the module, and another compiler makes another one.
    key = f"{tree[:12]}-{sysconfig.get_config_var('SOABI')}-rust-{version.split()[1]}-{profile}"
    made, source, part, log = folder / key, folder / "source", folder / "part", folder / f"{key}.log"
    if made.exists():
        return made
    say(f"building {name}, which takes some minutes; its log is {log}")
    for left in (source, part):
        shutil.rmtree(left, ignore_errors=True)
    # Every file is new, and in the same place each time: cargo builds all of our crates, and no other.
    index = folder / "index-of-source"
    git(root, "read-tree", tree, index=index)
    git(root, "checkout-index", "--all", f"--prefix={source}/", index=index)
    manifest = source / "Cargo.toml"
    if profile != PROFILES[0] and f"[profile.{profile}]" not in manifest.read_text("utf-8"):
        raise GuardError(f"{name} has no profile {profile} in its Cargo.toml; choose a newer revision")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log.open("wb") as output:
        done = subprocess.run(
            [*pip, "--no-build-isolation", "--target", str(part), str(source)],
            env={
                **os.environ,
                "PATH": path,
                "CARGO_TARGET_DIR": str(folder / "cargo"),
                "PELLUCID_PROFILE": profile,
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        lines = log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        raise GuardError("\n".join([f"the build of {name} failed; the end of {log}:", *lines]))
    shutil.rmtree(source)
    part.rename(made)
    return made


def unpacked(made: Path, wheel: Path) -> Path:
    """Return the folder with the packages of a wheel."""
    if not made.exists():
        part = made.with_name("part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(part)
        except zipfile.BadZipFile:
            raise GuardError(f"{wheel} is no wheel, or is damaged") from None
        part.rename(made)
    return made


def side_of(name: str, packages: Path, home: Path) -> Side:
    """Put `pellucid` of a build and our `pellucid_bench` into one folder, and check the import."""
    home.mkdir()
    (home / "pellucid").symlink_to(packages / "pellucid")
    (home / "pellucid_bench").symlink_to(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", "import pellucid; print(pellucid.__file__)"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if Path(done.stdout.strip()).parent != home / "pellucid":
        why = (done.stderr.strip().splitlines() or [f"it is {done.stdout.strip()}"])[-1]
        raise GuardError(f"cannot import the build of {name} in {packages} ({why}); delete it, and try again")
    return Side(name, home)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuse a second guard in this checkout: each would build over the other, and slow it down."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GuardError(f"another guard runs in {folder.parents[1]}; wait until it has ended") from None
        yield
