"""This module runs the collector, `collect.py`, and takes over what it measured.

The collector needs no library and runs under any Python, so it is a process of its own, also for this Python.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pellucid_bench.dataset import Dataset, read
from pellucid_bench.measures import of_dataset
from pellucid_bench.run import Run, Unavailable

COLLECTOR = Path(__file__).with_name("collect.py")


def collect(
    run: Run, experiment: str, python: str, sizes: Sequence[int], *, quick: bool = False
) -> Dataset | None:
    """Run one experiment of the collector under a Python, and add its measures to a run.

    Return its dataset, or None if no measure of it was asked for.
    """
    path = run.directory / f"{experiment}.json"
    command = [python, str(COLLECTOR), experiment, "--json", str(path), "--sizes", *map(str, sizes)]
    command += ["--rounds", str(run.pace.rounds)]
    if quick:
        command.append("--quick")
    run.pace.on_progress(f"the collector under {python}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(f"cannot run {python}: {error.strerror}; name another Python") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unavailable(f"the collector failed under {python}: {lines[-1]}")
    [found] = read(path)
    path.unlink()
    wanted = [measure for measure in found.measures if run.wants(measure.title)]
    if not wanted:
        return None
    run.rivals.versions.update(found.versions)
    run.rivals.missing.update(found.missing)
    run.notes += [note for note in found.notes if note not in run.notes]
    before, run.absent = run.absent, {}
    for measure in wanted:
        run.add(of_dataset(measure))
    run.absent = before
    return found


def describe(found: Dataset) -> str:
    """Return the Python of a dataset in one line.

    >>> from pellucid_bench.dataset import Interpreter
    >>> from types import SimpleNamespace
    >>> describe(SimpleNamespace(python=Interpreter("PyPy", "3.10", "GCC")))
    'PyPy 3.10 (GCC)'
    """
    return f"{found.python.implementation} {found.python.version} ({found.python.build})"
