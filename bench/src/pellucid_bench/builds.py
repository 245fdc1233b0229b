"""This module builds revisions of this checkout for the guard, and keeps the builds.

A build is what `pip install .` makes of the files of a revision: the module, with the release profile, and
the Python files. It stays in `target/guard`, under the hash of those files. No other build product changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

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


def tree_of(root: Path, folder: Path, revision: str | None) -> str:
    """Return the hash of the files of a revision. Without one, they are those of the checkout as they are."""
    if revision is None:
        index = folder / "index"
        git(root, "add", "--all", index=index)
        return git(root, "write-tree", index=index)
    try:
        return git(root, "rev-parse", "--verify", f"{revision}^{{tree}}")
    except GuardError:
        raise GuardError(f"git knows no revision {revision!r}; `git log --oneline` lists some") from None


def built(root: Path, folder: Path, tree: str, name: str, say: Callable[[str], None]) -> Path:
    """Return the folder with the packages of a revision. Build it if it was not built before."""
    try:
        version = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise GuardError("`cargo` does not run; install Rust 1.89 or newer") from error
    # Another Python cannot load the module, and another compiler makes another one.
    key = f"{tree[:12]}-{sysconfig.get_config_var('SOABI')}-rust-{version.split()[1]}"
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
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "CARGO_TARGET_DIR": str(folder / "cargo"), "PELLUCID_PROFILE": "release"}
    with log.open("wb") as output:
        done = subprocess.run(
            [*pip, "--no-build-isolation", "--target", str(part), str(source)],
            env={**os.environ, **own},
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
