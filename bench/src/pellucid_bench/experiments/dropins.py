"""This experiment measures pellucid.shelve and pellucid.dbm against shelve and dbm over each backend.

Each sample is a new process, and the contenders take turns. No Python has all backends: Debian has GDBM in a
package of its own, and dbm.sqlite3 came with 3.13. So each contender runs on the first Python that can import
what it needs: this one, those given as `--pythons`, and those on the path. The report names it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pellucid_bench import child
from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import in_turn, kept

ABOUT = About(
    "dropins",
    "What does a shelf or a dbm gain from another import?",
    "Opens, writes, closes, opens and reads with shelve and dbm over each backend, and kills one of two "
    "processes that write through one shelf.",
    (
        Setting("shelve_counts", (10_000,), (1_000,), "counts of values of a shelf"),
        Setting("dbm_counts", (10_000, 1_000_000), (1_000,), "counts of values of a dbm"),
        Setting("killed", 400, 40, "values that each of two processes writes before one is killed"),
        Setting("budget", 20.0, 0.1, "seconds after which a writer is stopped"),
        Setting("pythons", (), (), "other Pythons to look for backends in"),
    ),
    isolation="always",
)
CHILD = str(Path(child.__file__).with_name("dropins_child.py"))
# The module that a contender needs.
CONTENDERS = {
    "pellucid": "pellucid.shelve",
    "dbm.gnu": "dbm.gnu",
    "dbm.sqlite3": "dbm.sqlite3",
    "dbm.ndbm": "dbm.ndbm",
    "dbm.dumb": "dbm.dumb",
}
# What the release notes promise: their time divided by ours is at least this.
WANTED = {"shelve": {"dbm.gnu": 3.0, "dbm.sqlite3": 10.0}, "dbm": {"dbm.gnu": 2.0, "dbm.sqlite3": 20.0}}
PARTS = ("write", "read", "both")
KILLED = "share of a shelf's acknowledged values that is lost if one of two writers is killed"


def run(run: Run) -> None:
    """Measure all contenders for which a Python is found."""
    candidates = list(dict.fromkeys(pythons(run.settings.pythons)))
    found: dict[str, str] = {}
    run.absent = {}
    for name, module in CONTENDERS.items():
        if not run.takes(name):
            continue
        python = python_for(module, candidates)
        if python is None:
            run.absent[name] = run.rivals.missing[name] = f"not installed: no Python here has {module}"
            continue
        found[name] = python
        if name != "pellucid":
            # The backends are parts of their Python, and have no other version.
            run.rivals.versions[name] = version_of(python)
    for kind, counts in (("shelve", run.settings.shelve_counts), ("dbm", run.settings.dbm_counts)):
        for count in counts:
            compare(run, found, kind, count)
    if run.wants(KILLED):
        run.add(kill_all(run, found))


def compare(run: Run, found: dict[str, str], kind: str, count: int) -> None:
    """Measure all contenders in turn with one count of values."""
    targets = [Target(wanted, rival) for rival, wanted in WANTED[kind].items()]
    measures = [
        Measure(
            f"{kind}: {count:,} values, {part}",
            Unit.TIME,
            [Result(name, is_ours=name == "pellucid") for name in found],
            targets if part == "both" else [],
            ["of one value, with open and close, in a new process each time"],
            f"{kind}-{part}",
            count,
            size_unit="values",
        )
        for part in PARTS
    ]
    wanted = [run.add(measure) for measure in measures if run.wants(measure.title)]
    if not wanted:
        return
    for _, (index, name) in in_turn(list(enumerate(found)), run.pace.rounds_of(5 if count <= 10_000 else 1)):
        run.pace.on_progress(f"{kind}, {count:,} values: {name}")
        results = [measure.results[index] for measure in measures]
        if results[0].error is None and _goes_on(results[0], count):
            with kept(results[0]):
                taken = sample(run, found[name], name, kind, count)
                for result, part in zip(results, PARTS, strict=True):
                    cost = taken["write"] + taken["read"] if part == "both" else taken[part]
                    result.costs.append(cost)
                    stopped = "" if taken["done"] == count else "stopped at "
                    result.facts["values"] = f"{stopped}{taken['done']:,.0f}"
            for result in results[1:]:
                result.error = results[0].error


def _goes_on(result: Result, count: int) -> bool:
    """Say whether a contender takes another sample: one of a contender that was stopped is enough."""
    return result.facts.get("values", f"{count:,}") == f"{count:,}"


def sample(run: Run, python: str, contender: str, kind: str, count: int) -> dict[str, float]:
    """Return the seconds of one write and of one read, in a new process with a new database."""
    home = run.directory / "sample"
    home.mkdir()
    try:
        command = [python, CHILD, "measure", contender, str(home / "database"), kind]
        taken: dict[str, float] = child.answer([*command, str(count), str(run.settings.budget)])
    finally:
        shutil.rmtree(home)
    return taken


def kill_all(run: Run, found: dict[str, str]) -> Measure:
    """Measure of each contender what is lost of a shelf if one of two writers is killed."""
    notes = [f"of {run.settings.killed} values of each of two processes; an error counts as the loss of all"]
    measure = Measure(KILLED, Unit.SHARE, targets=[Target(0.0)], notes=notes, group="killed")
    for name, python in found.items():
        run.pace.on_progress(f"two writers of one shelf: {name}")
        home = run.directory / "killed"
        home.mkdir()
        lost, said = kill_one(python, name, home, run.settings.killed)
        shutil.rmtree(home)
        measure.results.append(Result(name, name == "pellucid", facts={"after": said}, costs=[lost]))
    return measure


def kill_one(python: str, contender: str, folder: Path, count: int) -> tuple[float, str]:
    """Have two processes write through one shelf, kill one of them, and say which share is lost."""
    path = str(folder / "shared")
    if contender == "pellucid" or contender == "dbm.sqlite3":
        # Both begin with the same file.
        first = [python, CHILD, "put", contender, path, "first", "1", "-1"]
        subprocess.run(first, env=child.environment(), check=True, stdout=subprocess.DEVNULL)
    writers = [
        subprocess.Popen(
            [python, CHILD, "put", contender, path, name, str(count), last],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=child.environment(),
        )
        for name, last in (("killed", str(count // 2)), ("other", "-1"))
    ]
    killed, other = writers
    acknowledged, killed_errors = killed.communicate()
    out, errors = other.communicate()
    wanted = {"killed": len(acknowledged.splitlines()), "other": len(out.splitlines())}
    failures = []
    for writer, said, code in ((killed, killed_errors, -signal.SIGKILL), (other, errors, 0)):
        if writer.returncode != code:
            failures.append("a writer failed: " + said.strip().splitlines()[-1][:70])
    found = subprocess.run(
        [python, CHILD, "count", contender, path, json.dumps(wanted)],
        capture_output=True,
        text=True,
        check=False,
        env=child.environment(),
    )
    if found.returncode:
        failures.append("cannot be read: " + found.stderr.strip().splitlines()[-1][:70])
    if failures:
        return 1.0, "; ".join(failures)
    lost, acknowledged_count = int(found.stdout), sum(wanted.values())
    if lost:
        return lost / acknowledged_count, f"{lost} of {acknowledged_count} acknowledged values are lost"
    return 0.0, f"all {acknowledged_count} acknowledged values are there"


def pythons(given: Sequence[str]) -> Iterator[str]:
    """Yield the Pythons to try, best first."""
    yield sys.executable
    yield from given
    for name in ("python3.15", "python3.14", "python3.13", "python3.12", "python3.11", "python3"):
        for folder in os.environ["PATH"].split(os.pathsep):
            if (found := shutil.which(name, path=folder)) is not None:
                yield found


def python_for(module: str, candidates: list[str]) -> str | None:
    """Return the first Python that has a module; None if there is none."""
    for candidate in candidates:
        if _code_of([candidate, "-c", f"import {module}"]) == 0:
            return candidate
    return None


def version_of(python: str) -> str:
    """Return the version of a Python."""
    done = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _code_of(command: Sequence[str]) -> int:
    return subprocess.run(command, env=child.environment(), capture_output=True, check=False).returncode
