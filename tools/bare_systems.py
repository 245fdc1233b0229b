"""Makes bare systems of Debian to try wheels in: their own Pythons, no Rust and no compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "target/systems"
MIRROR = "DEBIAN_MIRROR"
"""The variable for a mirror to use instead of debootstrap's own."""
MOUNTED = """
mount --bind /proc "$1/proc"; mount --bind /dev "$1/dev"; mount -t tmpfs none "$1/mnt"
cp -R "$2/." "$1/mnt"; shift 2; exec "$@"
"""
"""Runs a command in a mount namespace that has the mounts of a system, and a copy of a folder."""


@dataclass(frozen=True)
class System:
    """A release of Debian."""

    name: str
    suite: str
    pythons: tuple[str, ...]
    packages: str

    @property
    def root(self) -> Path:
        """The folder that it is in."""
        return FOLDER / self.suite

    def make(self) -> None:
        """Make it, unless it was made before."""
        if self.root.exists():
            return
        FOLDER.mkdir(parents=True, exist_ok=True)
        part, log = self.root.with_suffix(".part"), self.root.with_suffix(".log")
        told = f"dev: making a bare system of {self.name}, once, which takes some minutes"
        print(f"{told}; its log is {log}", file=sys.stderr)
        shutil.rmtree(part, ignore_errors=True)
        # debootstrap mounts folders inside; in a namespace of its own, none stays after Ctrl-C.
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={self.packages}"]
        command += [self.suite, str(part), *filter(None, [os.environ.get(MIRROR)])]
        with log.open("wb") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-3:])
            raise SystemExit(f"{last}\ndev: {self.name} was not made; the whole log is {log}")
        part.rename(self.root)

    def within(self, work: Path, command: Sequence[str]) -> list[str]:
        """Return the words that run a command inside of the system, in a copy of the folder `work`."""
        entered = ["chroot", str(self.root), "env", "-i", "HOME=/mnt", "PATH=/usr/bin:/bin", "LANG=C.UTF-8"]
        entered += ["sh", "-euc", 'cd /mnt; exec "$@"', "sh", *command]
        return ["unshare", "--mount", "sh", "-euc", MOUNTED, "sh", str(self.root), str(work), *entered]


SYSTEMS = (
    # debootstrap knows no virtual packages: distutils is one that venv needs.
    System("Debian 12", "bookworm", ("3.11",), "python3.11-venv,python3-distutils"),
    System("Debian 13", "trixie", ("3.13",), "python3.13-venv"),
    System("Debian testing", "testing", ("3.14", "3.15"), "python3.14-venv,python3.15-venv"),
)


def obstacle() -> str | None:
    """Return why no system can be made here; nothing if they can."""
    lacking = [tool for tool in ("debootstrap", "unshare") if not shutil.which(tool)]
    if lacking:
        return f"{' and '.join(lacking)} not found: apt install debootstrap util-linux"
    return None if os.geteuid() == 0 else "only root can make bare systems of Debian"
