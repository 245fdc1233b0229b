"""Write the plots and tables of the documentation from the datasets in `bench/results`: `./dev publish`.

    docs/benchmarks/NAME.svg    one plot for each experiment, of the measures that `headlines` chooses
    docs/benchmarks/NAME.md     the plot and a summary, in the part `summary`; all results, in `results`
    docs/benchmarks.md          the plot and the summary, in a part for each experiment, and all operations of
                                `pellucid_bench.operations`
    README.md                   those operations that decide for a user

A part begins with `<!-- NAME: begin -->` and ends with `<!-- NAME: end -->`. What is outside of it stays.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pellucid_bench import experiments
from pellucid_bench.about import Setting
from pellucid_bench.dataset import Dataset, DatasetError, Measure, Target, read
from pellucid_bench.headlines import PLOTS, matching
from pellucid_bench.operations import ROWS, Row
from pellucid_bench.report import table, units, write
from pellucid_bench.report.figures import machine_line, usable
from pellucid_bench.report.markdown import escaped, plain
from pellucid_bench.report.summary import Title, ratio_of, sentences, summarized

ROOT = Path(__file__).resolve().parents[1]
LISTED_LOSSES = 15
"""Most measures in which others are better that the page of the experiment lists."""
LISTED_NAMES = 4
"""Most contenders that a line of this list names."""


class PublishError(Exception):
    """The documentation cannot be written from these datasets, for a reason that the message tells."""


def newest(folder: Path, *, with_quick: bool = False) -> dict[str, tuple[Path, Dataset]]:
    """Return the newest run of each experiment that a folder has, with its file.

    Runs that ended come first, then those with the usual settings: others are of a special size or a part.

    Runs of the collector under other Pythons have none of our results, and are passed over. The experiments
    of the tables of operations have to be of one machine.
    """
    found: dict[str, tuple[Path, Dataset]] = {}
    for path in sorted(folder.glob("*.json")):
        for run in read(path):
            if run.quick and not with_quick:
                raise PublishError(f"{path} is of a quick run, whose figures mean nothing")
            if not any(result.ours for measure in run.measures for result in measure.results):
                continue
            before = found.get(run.experiment)
            if before is None or _rank(run) > _rank(before[1]):
                found[run.experiment] = path, run
    if not found:
        raise PublishError(f"{folder} has no dataset")
    # A page of one experiment names its machine. The tables of operations are of several experiments.
    together = {row.experiment for row in ROWS}
    machines = {run.machine.id: machine_line(run) for name, (_, run) in found.items() if name in together}
    if len(machines) > 1:
        raise PublishError(f"the newest runs are of different machines: {'; '.join(machines.values())}")
    return {name: found[name] for name in experiments.NAMES if name in found}


def _rank(run: Dataset) -> tuple[bool, int, str]:
    usual = sum(_is_usual(setting, run) for setting in experiments.load(run.experiment).ABOUT.settings)
    return run.complete, usual, run.created


def _is_usual(setting: Setting, run: Dataset) -> bool:
    usual = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    return bool(run.settings.get(setting.name) == usual)


def put(path: Path, name: str, content: str) -> None:
    """Replace a part of a page."""
    text = path.read_text("utf-8")
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise PublishError(f"{path} has not one part from {begin.strip()} to {end.strip()}")
    start, rest = text.split(begin)
    path.write_text(f"{start}{begin}{content.strip()}\n{end}{rest.split(end)[1]}", "utf-8")


def chosen(run: Dataset) -> Dataset:
    """Return a run with the measures of its plot alone."""
    some: list[Measure] = []
    for pattern in PLOTS[run.experiment]:
        found = matching(run, pattern)
        if not found:
            _lacking(run, f"no measure has an id like {pattern}")
        some += found
    return dataclasses.replace(run, measures=some)


def _lacking(run: Dataset, what: str) -> None:
    """Refuse a run that lacks something, unless it is one from which not everything is expected."""
    if run.complete and not run.quick:
        raise PublishError(f"{run.experiment}: {what}")
    print(f"left out: {run.experiment}: {what}", file=sys.stderr)


def summary(run: Dataset, image: str) -> str:
    """Return what a run comes to: some sentences, and the plot."""
    lines = [
        "".join(f"*{plain(part)}*" if isinstance(part, Title) else escaped(part) for part in sentence)
        for sentence in sentences(summarized(run))
    ]
    return "\n\n".join(["\n".join(lines), f"![Plot of the experiment {run.experiment}]({image})"])


def page_of(run: Dataset, source: str) -> str:
    """Return the part `results` of an experiment's page."""
    missed = [
        f"- *{measure.title}*: {target.text}, measured {_measured(target, measure)}"
        for measure in run.measures
        for target in measure.targets
        if target.met is False
    ]
    parts = [
        _settings(run),
        *([f"Others are better in:\n\n{worse}"] if (worse := _losses_by_measure(run)) else []),
        *(["Targets that were missed:", "\n".join(missed)] if missed else []),
        table(run).strip(),
        f"[The dataset](../../{source}) has all samples and versions.",
    ]
    return "\n\n".join(parts)


def _settings(run: Dataset) -> str:
    """Return the settings of a run, and where they are not those of the command without options."""
    about = experiments.load(run.experiment).ABOUT
    words = []
    for setting in about.settings:
        value = run.settings.get(setting.name)
        # A path is of one machine, and says nothing to a reader on another one.
        if value in (None, False, [], ()) or "/" in str(value):
            continue
        usual = list(setting.default) if isinstance(setting.default, tuple) else setting.default
        other = "" if _is_usual(setting, run) else f" (usually {_shown(usual)})"
        words.append(f"`{setting.option}` {_shown(value)}{other}")
    ended = "" if run.complete else " It was stopped before its end."
    return f"The run of {run.created[:10]} had {', '.join(words) or 'no settings'}.{ended}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _losses_by_measure(run: Dataset) -> str:
    """Return a list of the measures in which others are better, the greatest differences first."""
    found: dict[str, list[str]] = {}
    for duel in summarized(run).lost:
        found.setdefault(duel.measure.title, []).append(f"{duel.theirs.contender} {units.times(duel.ratio)}")
    lines = [
        f"- *{title}*: {', '.join(names[:LISTED_NAMES])}"
        + (f", and {len(names) - LISTED_NAMES} more" if names[LISTED_NAMES:] else "")
        for title, names in found.items()
    ]
    more = len(lines) - LISTED_LOSSES
    if more > 0:
        lines[LISTED_LOSSES:] = [f"- and {more} more, in bold below"]
    return "\n".join(lines)


def _measured(target: Target, measure: Measure) -> str:
    if target.measured is None:
        return "nothing"
    is_figure = target.text.partition(": ")[2].startswith("at ") or target.text.startswith("at ")
    return units.figure(target.measured, measure.unit) if is_figure else units.times(target.measured)


def operations(runs: dict[str, tuple[Path, Dataset]], rows: list[Row]) -> str:
    """Return the table of some operations."""
    lines = ["| Operation | pellucid | Others |", "| --- | --- | --- |"]
    lines += [line for row in rows if (line := _line(row, runs))]
    machine = machine_line(next(iter(runs.values()))[1])
    names = dict.fromkeys(row.experiment for row in rows)
    sizes = {name: count for name in names if isinstance(count := runs[name][1].settings.get("rows"), int)}
    counts = ", ".join(f"`{name}` {count:,} rows" for name, count in sizes.items())
    return "\n".join([*lines, "", f"The machine: {machine}. The tables had: {counts}."])


def _line(row: Row, runs: dict[str, tuple[Path, Dataset]]) -> str | None:
    run = runs[row.experiment][1]
    measure = next((one for one in run.measures if fnmatchcase(one.id, row.measure)), None)
    ours = measure.result(row.ours) if measure else None
    base = usable(ours) if ours else None
    if measure is None or base is None:
        _lacking(run, f"there is no figure of {row.ours} in {row.measure}")
        return None
    found = []
    for contender, label in row.others.items():
        theirs = measure.result(contender)
        if theirs is None:
            raise PublishError(f"{measure.id} has no contender {contender!r}")
        ratio = ratio_of(measure, usable(theirs), base)
        found.append((ratio is None, ratio or 0.0, label))
    others = ", ".join(
        f"{label}: not measured"
        if is_missing
        else f"**{label} {times}**"
        if ratio < 1
        else f"{label} {times}"
        for is_missing, ratio, label in sorted(found)
        for times in [units.times(ratio)]
    )
    figure = units.figure(base, "seconds") if measure.unit == "seconds" else units.figure(1 / base, "seconds")
    return f"| {row.operation} | {figure} | {others} |"


def publish(folder: Path, root: Path, *, with_quick: bool = False) -> None:
    """Write all plots and parts."""
    runs = newest(folder, with_quick=with_quick)
    for name, (path, run) in runs.items():
        image = f"benchmarks/{name}.svg"
        write([chosen(run)], root / "docs" / image)
        page = root / f"docs/benchmarks/{name}.md"
        put(page, "summary", f"{summary(run, f'{name}.svg')}\n\n[All results](#results)")
        put(page, "results", page_of(run, _relative(path, root)))
        put(root / "docs/benchmarks.md", name, summary(run, image))
    without = [name for name in experiments.NAMES if name not in runs]
    if without:
        print(f"no dataset of {', '.join(without)}: their parts stay as they are", file=sys.stderr)
    if any(row.experiment in without for row in ROWS):
        print("the tables of operations stay as they are: they are of several experiments", file=sys.stderr)
    else:
        put(root / "docs/benchmarks.md", "operations", operations(runs, ROWS))
        put(root / "README.md", "benchmarks", operations(runs, [row for row in ROWS if row.in_readme]))


def _relative(path: Path, root: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="publish", description="Write the documentation's plots and tables from datasets."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=ROOT / "bench/results", help="default: bench/results"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder with README.md and docs")
    parser.add_argument("--quick", action="store_true", help="take quick runs, too, to try this out")
    options = parser.parse_args(arguments)
    try:
        publish(options.folder, options.root.resolve(), with_quick=options.quick)
    except (DatasetError, PublishError) as error:
        print(f"publish: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
