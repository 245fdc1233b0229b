"""This module runs an experiment with a worker process for each library.

Libraries that are loaded into one process may slow each other down: they share the memory allocator, threads
and caches. And a library that crashes would end the whole run. A worker measures the contenders of one
library alone. It writes what it has before each measure, so that this is kept if it crashes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pellucid_bench import child
from pellucid_bench.about import About
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.rivals import reason
from pellucid_bench.run import Run
from pellucid_bench.runner import Pace

NOTE = "each library was measured in a worker process of its own, one after the other"


def refusal(about: About, settings: SimpleNamespace) -> str | None:
    """Return why an experiment cannot be isolated, or None if it can."""
    if getattr(settings, "python", None):
        return "--isolate changes nothing here: another Python measures, in a process of its own"
    if about.isolation == "always":
        return "--isolate changes nothing here: each contender has processes of its own in any case"
    if about.isolation == "never":
        return "--isolate is not possible here: the contenders share what they measure"
    return None


def run(name: str, run: Run, quick: bool, rounds: int | None) -> None:
    """Run all workers of an experiment, and put their results together."""
    run.notes.append(NOTE)
    waiting, done = ["pellucid"], set()
    while waiting:
        library = waiting.pop(0)
        done.add(library)
        run.pace.on_progress(f"worker for {library}")
        found = worker(name, run, library, quick, rounds)
        _take(run, library, found)
        for other in found["seen"]:
            if other not in done and other not in waiting and (not run.libraries or other in run.libraries):
                waiting.append(other)


def worker(
    name: str, run: Run, library: str, quick: bool, rounds: int | None, packages: Path | None = None
) -> dict[str, Any]:
    """Run one worker, and return what it left. If it died, that has the reason.

    It imports our packages from the folder `packages`, if there is one, and otherwise those of this process.
    """
    path = run.directory / f"worker-{len(os.listdir(run.directory))}.json"
    task = {
        "experiment": name,
        "library": library,
        "settings": vars(run.settings),
        "only": run.only,
        "titles": None if run.titles is None else sorted(run.titles),
        "contender": run.contender,
        "quick": quick,
        "rounds": rounds,
        "sample_seconds": run.pace.sample_seconds,
        "repeat_seconds": run.pace.repeat_seconds,
        "directory": str(run.directory),
        "answer": str(path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pellucid_bench.isolation"],
        # `python -m` looks into the current folder first.
        cwd=packages,
        env=child.environment() if packages is None else {**os.environ, "PYTHONPATH": str(packages)},
        input=json.dumps(task),
        text=True,
        capture_output=True,
        check=False,
    )
    found: dict[str, Any] = {"measures": [], "seen": [], "versions": {}, "missing": {}, "current": ""}
    if path.exists():
        found = json.loads(path.read_text())
        path.unlink()
    if done.returncode:
        found["crash"] = _end(done.returncode, done.stderr)
    return found


def _end(code: int, errors: str) -> str:
    if code < 0:
        return f"crashed by {signal.Signals(-code).name}"
    lines = errors.strip().splitlines()
    return f"its worker failed: {lines[-1]}" if lines else f"its worker failed with exit code {code}"


def _take(run: Run, library: str, found: dict[str, Any]) -> None:
    """Put the results of a worker into the measures of the run."""
    run.rivals.versions.update(found["versions"])
    run.rivals.missing.update(found["missing"])
    by_title = {measure.title: measure for measure in run.measures}
    for value in found["measures"]:
        measure = by_title.get(value["title"])
        if measure is None:
            measure = _measure(value)
            run.measures.append(measure)
        there = {result.name for result in measure.results}
        for result in value["results"]:
            if result["name"] not in there:
                measure.results.append(Result(**result))
    if crash := found.get("crash"):
        run.rivals.missing[library] = f"{crash}, in {found['current']!r}" if found["current"] else crash
        for measure in run.measures:
            _say_crash(measure, library, crash, found["current"])


def _say_crash(measure: Measure, library: str, crash: str, current: str) -> None:
    """Show a crash in the measures that have no figures of the library."""
    rows = [row for row in measure.results if (row.library or row.name) == library]
    for row in rows:
        if not row.costs and row.error is None:
            row.error = crash
    if not rows:
        where = "" if measure.title == current or not current else f" before, in {current!r}"
        measure.results.append(Result(library, is_ours=library == "pellucid", error=crash + where))


def _measure(value: dict[str, Any]) -> Measure:
    return Measure(
        value["title"],
        Unit(value["unit"]),
        [],
        [Target(**target) for target in value["targets"]],
        value["notes"],
        value["group"],
        value["size"],
        tuple(value["labels"]),
        value["size_unit"],
    )


def work() -> None:
    """Do the task that standard input has: measure the contenders of one library."""
    from pellucid_bench import experiments

    task = json.loads(sys.stdin.read())
    experiment = experiments.load(task["experiment"])
    directory = Path(task["directory"]) / "worker"
    directory.mkdir(exist_ok=True)
    settings = {
        key: tuple(value) if isinstance(value, list) else value for key, value in task["settings"].items()
    }
    pace = Pace.of(task["rounds"], quick=task["quick"])
    pace.sample_seconds, pace.repeat_seconds = task["sample_seconds"], task["repeat_seconds"]
    run = Run(
        directory,
        experiment.ABOUT.values(settings, quick=task["quick"]),
        pace,
        task["only"],
        None if task["titles"] is None else frozenset(task["titles"]),
        frozenset([task["library"]]),
        task["contender"],
    )
    path = Path(task["answer"])

    def save(title: str) -> None:
        path.write_text(json.dumps(_answer(run, title)))

    pace.on_progress = save
    try:
        experiment.run(run)
    except Exception as error:
        print(reason(error), file=sys.stderr)
        sys.exit(1)
    finally:
        save(run.measures[-1].title if run.measures else "")


def _answer(run: Run, current: str) -> dict[str, Any]:
    import dataclasses

    measures = []
    for measure in run.measures:
        value = {
            name: getattr(measure, name)
            for name in ("title", "notes", "group", "size", "labels", "size_unit")
        }
        value["unit"] = measure.unit.value
        value["targets"] = [dataclasses.asdict(target) for target in measure.targets]
        value["results"] = [dataclasses.asdict(result) for result in measure.results]
        measures.append(value)
    rivals = run.rivals
    return {
        "measures": measures,
        "seen": sorted(run.seen),
        "versions": rivals.versions,
        "missing": rivals.missing,
        "current": current,
    }


if __name__ == "__main__":
    work()
