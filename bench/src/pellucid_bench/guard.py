"""This module compares the speed of two revisions: it measures the operations of `operations.py` in turn.

`builds.py` builds them. Both sides have the same measures, those of this checkout: a process takes
`pellucid_bench` from here, and `pellucid` from a build.

In a round, both revisions measure each operation, one right after the other, each in a new process. The one
that is second comes first in the next round. So what slows down the machine slows down both, and the ratio of
the two is less uncertain than each of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pellucid_bench import isolation, machine
from pellucid_bench.builds import (
    PROFILES,
    GuardError,
    Side,
    alone,
    built,
    checkout,
    is_wheel,
    side_of,
    tree_of,
)
from pellucid_bench.dataset import DatasetError
from pellucid_bench.measures import Result, Unit
from pellucid_bench.operations import ROWS, Row
from pellucid_bench.run import Run
from pellucid_bench.runner import Pace

if TYPE_CHECKING:
    from rich.console import Console

PROGRAM = "pellucid bench guard"
ROOT = Path(__file__).parents[3]
ROUNDS = 15
SAMPLES = 5
"""Samples that a process takes of its operation. Its figure is the best, which other work disturbed least."""
SAMPLE_SECONDS, REPEAT_SECONDS = 0.02, 0.05
"""The lengths of samples. They are shorter than in an experiment: many short rounds hit both sides alike."""
MEAN_MAX = 1.03
"""The greatest geometric mean of all ratios of the new time to the old one."""
ROW_MAX = 1.10
"""The greatest ratio of an operation. One that is above is measured again, and fails if it is above twice."""
SECONDS_MAX = 15 * 60.0
FIRST_SHARE = 0.7
"""The share of this time after which no round begins: the rest is for what is measured again."""
SETTINGS: dict[str, dict[str, Any]] = {
    "records": {"rows": 100_000, "dump_rows": 20_000},
    "query": {"rows": 100_000},
    "dict": {"writes": (10_000, 1_000_000), "curve": (), "budget": 4.0},
    "writes": {"commits": 100_000, "together_seconds": 0.5},
    "dropins": {"shelve_counts": (10_000,), "dbm_counts": ()},
    "megabyte": {"count": 40, "size": 1_000_000},
}
QUICK: dict[str, dict[str, Any]] = {
    "records": {"rows": 1_000, "dump_rows": 500},
    "query": {"rows": 1_000},
    "dict": {"writes": (300, 500), "curve": (), "budget": 1.0},
    "writes": {"commits": 50, "together_seconds": 0.02},
    "dropins": {"shelve_counts": (1_000,), "dbm_counts": ()},
    "megabyte": {"count": 10, "size": 1_000_000},
}


@dataclass(slots=True)
class Compared:
    """What was measured of one operation: the seconds of both revisions, in each round."""

    row: Row
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    again: int | None = None
    """The round from which on it was measured again, because it seemed to be slower."""
    error: str = ""
    """Why it has no more figures."""
    is_broken: bool = False
    """Whether the new revision is the one that has none."""

    @property
    def ratios(self) -> list[float]:
        """Return the new time divided by the old one, of each round."""
        return [new / old for old, new in zip(self.old, self.new, strict=True)]

    @property
    def runs(self) -> list[float]:
        """Return the median ratio of the first run, and that of the second one, if there is one."""
        parts = [self.ratios[: self.again], [] if self.again is None else self.ratios[self.again :]]
        return [statistics.median(part) for part in parts if part]

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return the quartiles of the ratios."""
        if len(self.ratios) < 2:
            return self.ratios[0], self.ratios[0]
        first, _, last = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return first, last

    @property
    def is_slower(self) -> bool:
        """Say whether the new revision was slower both times."""
        return len(self.runs) == 2 and min(self.runs) > ROW_MAX

    @property
    def note(self) -> str:
        """Return what there is to say beside the figures."""
        again = f"measured again: {self.runs[0]:.3f}, then {self.runs[1]:.3f}" if self.runs[1:] else ""
        return "; ".join(filter(None, [again, self.error]))


def mean(rows: Sequence[Compared]) -> float:
    """Return the geometric mean of the ratios of all operations that have one."""
    return math.exp(statistics.fmean(math.log(statistics.median(one.ratios)) for one in rows if one.ratios))


Measure = Callable[[Side, Row], Result]


def compare(
    sides: tuple[Side, Side], rows: Sequence[Compared], rounds: int, seconds: float, measure: Measure
) -> None:
    """Measure all operations with both revisions in turn: `rounds` times, or until the time is over."""
    started = time.monotonic()
    for number in range(rounds):
        for place, one in enumerate(rows):
            if one.error:
                continue
            turns = sides if (number + place) % 2 == 0 else sides[::-1]
            found = {side: measure(side, one.row) for side in turns}
            old, new = (found[side] for side in sides)
            if old.costs and new.costs:
                one.old.append(old.best)
                one.new.append(new.best)
            else:
                side, result = (sides[1], new) if not new.costs else (sides[0], old)
                one.error, one.is_broken = f"no figure of {side.name}: {result.error}", result is new
        spent = time.monotonic() - started
        if spent * (number + 2) / (number + 1) > seconds:
            break


def repeat(
    sides: tuple[Side, Side], rows: Sequence[Compared], rounds: int, seconds: float, measure: Measure
) -> None:
    """Measure again what seems to be slower."""
    suspects = [one for one in rows if one.ratios and one.runs[0] > ROW_MAX and not one.error]
    for one in suspects:
        one.again = len(one.ratios)
    compare(sides, suspects, rounds, seconds, measure)


def measured(side: Side, row: Row, directory: Path, quick: bool) -> Result:
    """Measure an operation with one revision, in a new process."""
    settings = (QUICK if quick else SETTINGS)[row.experiment]
    title = row.title.format(**settings)
    pace = Pace.of(quick=quick)
    pace.sample_seconds = min(pace.sample_seconds, SAMPLE_SECONDS)
    pace.repeat_seconds = min(pace.repeat_seconds, REPEAT_SECONDS)
    run = Run(directory, SimpleNamespace(**settings), pace)
    run.titles, run.contender = frozenset([title]), row.ours
    samples = 1 if quick else SAMPLES
    answer = isolation.worker(row.experiment, run, "pellucid", quick, samples, side.packages)
    results = [result for measure in answer["measures"] for result in measure["results"]]
    found = [Result(**result) for result in results if result["name"] == row.ours]
    result = found[0] if found else Result(row.ours)
    if not result.costs:
        result.error = result.error or answer.get("crash") or f"{title!r} was not measured"
    return result


# The command


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says. Return 0, 1 if the new revision is slower, or 2 if it cannot be told."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json {options.json}: there is no folder {options.json.parent}")
    rows = [Compared(row) for row in ROWS if options.only.lower() in row.operation.lower()]
    if not rows:
        parser.error(f"no operation has {options.only!r} in its name")
    try:
        return _guard(options, rows)
    except (GuardError, DatasetError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


def _guard(options: argparse.Namespace, rows: list[Compared]) -> int:
    from rich.console import Console

    from pellucid_bench import command

    console = Console(width=None if sys.stdout.isatty() else 140)
    folder = checkout(ROOT)
    with alone(folder), command.folder(options.directory) as directory:
        trees = [tree_of(ROOT, folder, revision) for revision in (options.old, options.new)]
        revisions = (options.old, options.new or "the working tree")
        names = (_name(revisions[0], options.profiles[0]), _name(revisions[1], options.profiles[1]))
        builds = [
            built(ROOT, folder, tree, revision, partial(console.print, markup=False, soft_wrap=True), profile)
            for tree, revision, profile in zip(trees, revisions, options.profiles, strict=True)
        ]
        old, new = (
            side_of(name, build, directory / side)
            for name, build, side in zip(names, builds, ("old", "new"), strict=True)
        )
        for warning in machine.warnings(machine.describe(directory), machine.clock_tick()):
            console.print(f"note: {warning}", markup=False)
        started = time.monotonic()
        work = directory / "work"
        work.mkdir()
        with contextlib.ExitStack() as stack:
            status = stack.enter_context(console.status("")) if console.is_terminal else None

            def measure(side: Side, row: Row) -> Result:
                if status:
                    status.update(f"{row.operation}: {side.name}")
                return measured(side, row, work, options.quick)

            try:
                rounds = 1 if options.quick else options.rounds
                compare((old, new), rows, rounds, SECONDS_MAX * FIRST_SHARE, measure)
                if not options.quick:
                    left = SECONDS_MAX - (time.monotonic() - started)
                    repeat((old, new), rows, rounds, left, measure)
            except KeyboardInterrupt:
                _show(console, rows, names, time.monotonic() - started)
                raise
    _show(console, rows, names, time.monotonic() - started)
    failures = verdict(rows)
    if options.json:
        options.json.write_text(json.dumps(_record(rows, names, trees, failures), indent=1) + "\n")
        console.print(f"wrote {options.json}", markup=False, soft_wrap=True)
    if options.quick:
        console.print("--quick measures as briefly as possible: these figures mean nothing.", style="yellow")
        return int(any(one.is_broken for one in rows))
    for failure in failures:
        console.print(failure, style="bold red", markup=False)
    if not failures:
        console.print(f"{names[1]} is not slower than {names[0]}.", markup=False)
    return 1 if failures else 0


def _name(revision: str, profile: str) -> str:
    """Return what the tables call a side."""
    name = Path(revision).name if is_wheel(revision) else revision
    return name if profile == PROFILES[0] else f"{name} ({profile})"


def verdict(rows: Sequence[Compared]) -> list[str]:
    """Return why the new revision fails. Without a reason, it does not."""
    found = [f"{one.row.operation}: {one.error}" for one in rows if one.is_broken]
    found += [
        f"{one.row.operation}: {one.runs[0]:.3f}, and {one.runs[1]:.3f} when it was measured again; "
        f"the greatest is {ROW_MAX:.3f}"
        for one in rows
        if one.is_slower
    ]
    if any(one.ratios for one in rows) and mean(rows) > MEAN_MAX:
        found.append(f"the geometric mean is {mean(rows):.3f}; the greatest is {MEAN_MAX}")
    return found


def _show(console: Console, rows: Sequence[Compared], names: tuple[str, str], seconds: float) -> None:
    """Print a table of all operations."""
    from rich.markup import escape

    from pellucid_bench import terminal

    table = terminal.new_table("", "", *names, "new / old", "half of the rounds")
    for one in rows:
        cells = ["-"] * 4
        if one.ratios:
            middle = statistics.median(one.ratios)
            cells = [Unit.TIME.show(statistics.median(costs)) for costs in (one.old, one.new)]
            cells += [f"{middle:.3f}", "{:.3f} .. {:.3f}".format(*one.quartiles)]
        style = "bold red" if one.is_slower or one.is_broken else ""
        table.add_row(escape(one.row.operation), *cells, style=style)
    if any(one.ratios for one in rows):
        table.add_section()
        table.add_row("geometric mean", "", "", f"{mean(rows):.3f}", "")
    console.print(table)
    for one in rows:
        if one.note:
            console.print(f"{one.row.operation}: {one.note}", markup=False)
    rounds = max(len(one.ratios[: one.again]) for one in rows)
    plural = "" if rounds == 1 else "s"
    console.print(f"{rounds} round{plural} of {len(rows)} operations in {seconds:.0f} s", markup=False)


def _record(
    rows: Sequence[Compared], names: tuple[str, str], trees: Sequence[str], failures: Sequence[str]
) -> dict[str, Any]:
    """Return everything that was measured, as JSON."""
    return {
        "old": {"revision": names[0], "tree": trees[0]},
        "new": {"revision": names[1], "tree": trees[1]},
        "mean": mean(rows) if any(one.ratios for one in rows) else None,
        "failures": list(failures),
        "operations": [
            {
                "operation": one.row.operation,
                "ratio": statistics.median(one.ratios) if one.ratios else None,
                "quartiles": one.quartiles if one.ratios else None,
                "runs": one.runs,
                "old": one.old,
                "new": one.new,
                "error": one.error or None,
            }
            for one in rows
        ],
    }


def _parser() -> argparse.ArgumentParser:
    from pellucid_bench import command

    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Build two revisions, and compare the speed of the operations of `operations.py`. The "
        f"exit code is 1 if the geometric mean of new / old is above {MEAN_MAX}, or if an operation is above "
        f"{ROW_MAX:.2f} twice. It is 2 if the two cannot be compared.",
    )
    parser.add_argument(
        "old", metavar="OLD", help="a revision of git, such as main or HEAD~3, or the path of a wheel"
    )
    parser.add_argument(
        "new", metavar="NEW", nargs="?", help="default: the files of this checkout as they are"
    )
    parser.add_argument(
        "--profiles",
        nargs=2,
        choices=PROFILES,
        default=[PROFILES[0]] * 2,
        metavar=("OLD", "NEW"),
        help="the profiles to build with: release or quick (default: release, and release)",
    )
    parser.add_argument(
        "--rounds", type=command.rounds, default=ROUNDS, metavar="N", help=f"default: {ROUNDS}"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="only operations with WORD in their name")
    parser.add_argument("--quick", action="store_true", help="one short round, whose figures mean nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--directory", type=Path, help="folder for databases (default: the system's temporary one)"
    )
    return parser
