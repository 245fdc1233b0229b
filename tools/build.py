"""Builds the extension into .venv, and says every three seconds how far it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import build_backend

ROOT = Path(__file__).parent.parent
LOG = ROOT / ".venv/build.log"
PROGRESS = re.compile(r"(\d+)/(\d+): ([^\r\n\x1b]*)")
PROGRESS_LINE = re.compile(r"(\x1b\[[0-9;]*[A-Za-z]|[^\n]*\r)")
INTERVAL = 3.0
"""Seconds between two words about a build."""
NO_NETWORK = re.compile("failed to (download|fetch|query)")


def main() -> int:
    """Build, and return the exit code."""
    profile = build_backend.profile()
    build_backend.pin_python(str(ROOT))
    is_new = not (ROOT / "target" / profile).exists()
    status = watched("the extension", ["maturin", "develop", "--profile", profile], LOG)
    if status == 0 and is_new and (told := build_backend.told_profile(profile)):
        print(f"dev: {told.partition(': ')[2]}", file=sys.stderr)
    return status


def watched(what: str, command: Sequence[str], log: Path, folder: Path = ROOT) -> int:
    """Run a build in a folder, say meanwhile how far it is, and why it failed. Return the exit code."""
    width = {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "100"}
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **width}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = _waited(what, process, log, begin)
        except KeyboardInterrupt:
            process.wait()
            return 128 + signal.SIGINT
    if status:
        said = PROGRESS_LINE.sub("", _read(log))
        why = "cargo needs a network for it" if NO_NETWORK.search(said) else "cargo says why above"
        print(f"{said}dev: {what} was not built; {why}", file=sys.stderr)
        return 1
    return 0


def _waited(what: str, process: subprocess.Popen[bytes], log: Path, begin: float) -> int:
    """Wait for the end of a build, and say how far it is meanwhile."""
    is_terminal, has_said = sys.stderr.isatty(), False
    while True:
        try:
            status = process.wait(INTERVAL)
        except subprocess.TimeoutExpired:
            line = f"dev: building {what}, {_how_far(log)}{time.monotonic() - begin:.0f} s"
            # In a terminal, each line takes the place of the last one.
            sys.stderr.write(f"\r\x1b[K{line[:79]}" if is_terminal else f"{line}\n")
            sys.stderr.flush()
            has_said = True
        else:
            if is_terminal and has_said:
                print(file=sys.stderr)
            return status


def _read(log: Path) -> str:
    # Not as a text file: its ends of lines would hide those of cargo's progress.
    return log.read_bytes().decode(errors="replace")


def _how_far(log: Path) -> str:
    """What cargo said last of its progress."""
    found = PROGRESS.findall(_read(log))
    if not found:
        return ""
    done, count, names = found[-1]
    return f"{done} of {count} parts done, now {names.strip()}, "


if __name__ == "__main__":
    sys.exit(main())
