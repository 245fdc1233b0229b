"""This module runs the collector, `collect.py`, and takes over what it measured.

The collector needs no library and runs under any Python, so it is a process of its own, also for this Python.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from pellucid_bench.dataset import Dataset, Measure, read
from pellucid_bench.measures import of_dataset
from pellucid_bench.run import Run, Unavailable

COLLECTOR = Path(__file__).with_name("collect.py")
STOPPED = 130
"""The exit code of the collector after Ctrl-C."""


def collect(
    run: Run,
    experiment: str,
    python: str,
    sizes: Sequence[int],
    *,
    rounds: int | None = None,
    quick: bool = False,
    whole: bool = False,
) -> Dataset | None:
    """Run one experiment of the collector under a Python, and add its measures to a run.

    `whole` says that the run has no other measures: its dataset is then one of that Python. Ctrl-C stops the
    collector, and is raised when what it measured until then is in the run. Return its dataset, or None if no
    measure of it was asked for.
    """
    path = run.directory / f"{experiment}.json"
    command = [python, str(COLLECTOR), experiment, "--json", str(path), "--sizes", *map(str, sizes)]
    command += ["--rounds", str(rounds or run.pace.rounds)]
    if quick:
        command.append("--quick")
    run.pace.on_progress(f"the collector under {python}")
    said, code = _run(command, python, run.pace.on_progress)
    is_stopped = code == STOPPED
    if is_stopped and not path.exists():
        raise KeyboardInterrupt
    if code and not is_stopped:
        raise Unavailable(f"the collector failed under {python}: {said or f'exit code {code}'}")
    [found] = read(path)
    path.unlink()
    if whole:
        run.interpreter = found.python
    wanted = [measure for measure in found.measures if run.wants(measure.title)]
    if wanted:
        _take(run, found, wanted)
    if is_stopped:
        raise KeyboardInterrupt
    return found if wanted else None


def _take(run: Run, found: Dataset, wanted: list[Measure]) -> None:
    """Put measures of the collector into a run."""
    run.rivals.versions.update(found.versions)
    run.rivals.missing.update(found.missing)
    run.notes += [note for note in found.notes if note not in run.notes]
    before, run.absent = run.absent, {}
    for measure in wanted:
        run.add(of_dataset(measure))
    run.absent = before


def _run(command: list[str], python: str, on_progress: Callable[[str], None]) -> tuple[str, int]:
    """Run the collector, and return the last line that it said and its exit code."""
    last = ""
    try:
        # In a session of its own, Ctrl-C of the terminal does not reach it: it gets exactly one from here.
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"cannot run {python}: {error.strerror}; name another Python") from error
    with process:
        assert process.stderr is not None
        try:
            while True:
                try:
                    for line in process.stderr:
                        last = line.strip() or last
                        on_progress(last)
                    return last, process.wait()
                except KeyboardInterrupt:
                    process.send_signal(signal.SIGINT)
        except BaseException:
            process.kill()
            raise


def describe(found: Dataset) -> str:
    """Return the Python of a dataset in one line.

    >>> from pellucid_bench.dataset import Interpreter
    >>> from types import SimpleNamespace
    >>> describe(SimpleNamespace(python=Interpreter("PyPy", "3.10", "GCC")))
    'PyPy 3.10 (GCC)'
    """
    return f"{found.python.implementation} {found.python.version} ({found.python.build})"
