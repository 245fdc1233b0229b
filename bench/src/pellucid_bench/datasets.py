"""This module has the commands for datasets: merge, compare, report and table."""

from __future__ import annotations

import argparse
import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from pellucid_bench import compare
from pellucid_bench.dataset import Dataset, DatasetError, merge, read, write
from pellucid_bench.dataset.files import replace

PROGRAM = "pellucid bench"


def read_all(paths: Sequence[Path]) -> list[Dataset]:
    """Read the runs of all files."""
    return [run for path in paths for run in read(path)]


def _merge(arguments: Sequence[str]) -> int:
    parser = _parser("merge", "Put the runs of several datasets into one file. Nothing is averaged.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    runs = merge(read_all(options.files))
    write(options.output, runs)
    machines = len({run.machine.id for run in runs})
    plural = "s" if machines != 1 else ""
    print(f"wrote {options.output}: {len(runs)} runs of {machines} machine{plural}")
    return 0


def _compare(arguments: Sequence[str]) -> int:
    parser = _parser(
        "compare",
        "Say what improved, regressed or did not change between two datasets. The exit code is 1 if one of "
        "our contenders regressed.",
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument(
        "--threshold",
        type=float,
        default=compare.THRESHOLD,
        metavar="SHARE",
        help=f"pass over differences smaller than this (default: {compare.THRESHOLD})",
    )
    parser.add_argument("--all", action="store_true", help="list what did not change, too")
    parser.add_argument(
        "--rerun",
        action="store_true",
        help="measure again what seems to have regressed, and believe it only if it did again; "
        "this needs the machine and the pellucid of the second dataset",
    )
    options = parser.parse_args(arguments)
    if not 0 < options.threshold < 10:
        parser.error("--threshold has to be a share above 0, such as 0.05")
    regressed = 0
    for before, after in compare.pairs(read(options.before), read(options.after)):
        found = list(compare.changes(before, after, options.threshold))
        if options.rerun:
            found = _again(before, after, found, options.threshold)
        _tell(before, after, found, options.all)
        regressed += sum(one.ours and one.verdict == "regressed" for one in found)
    return 1 if regressed else 0


def _tell(before: Dataset, after: Dataset, found: Sequence[compare.Change], everything: bool) -> None:
    print(f"{before.experiment}: {before.created} and {after.created}")
    hindered = compare.obstacle(before, after)
    if hindered:
        print(f"  {hindered}")
    if before.python != after.python:
        print(f"  Python {before.python.version}, then {after.python.version}")
    for name in sorted(set(before.versions) & set(after.versions)):
        if before.versions[name] != after.versions[name]:
            print(f"  {name} {before.versions[name]}, then {after.versions[name]}")
    for change in found:
        if everything or hindered or change.verdict in ("improved", "regressed"):
            print(f"  {change.text}")
    counts = Counter(change.verdict for change in found)
    verdicts: tuple[compare.Verdict, ...] = ("improved", "regressed", "unchanged", "unclear")
    print("  " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts))


def _again(
    before: Dataset, after: Dataset, found: list[compare.Change], threshold: float
) -> list[compare.Change]:
    """Measure again what seems to have regressed."""
    from pellucid_bench import command

    suspects = [one for one in found if one.verdict == "regressed"]
    if not suspects:
        return found
    titles = frozenset(one.measure.title for one in suspects)
    print(f"{after.experiment}: measuring again: {'; '.join(sorted(titles))}", flush=True)
    common = ("rounds", "isolate")
    settings = {name: value for name, value in after.settings.items() if name not in common}
    options = command.Options(
        names=[after.experiment],
        command=after.command,
        rounds=after.settings.get("rounds"),
        isolate=after.settings.get("isolate", False),
        settings=settings,
        titles=titles,
    )
    [made] = command.measured(options)
    here = made.dataset
    if here.machine.id != after.machine.id or here.versions["pellucid"] != after.versions.get("pellucid"):
        raise DatasetError(
            f"cannot repeat {after.experiment}: the dataset is of pellucid {after.versions.get('pellucid')} "
            f"on {after.machine.processor}, and here is pellucid {here.versions['pellucid']} on "
            f"{here.machine.processor}; leave out --rerun"
        )
    return compare.confirmed(found, list(compare.changes(before, here, threshold)))


def _report(arguments: Sequence[str]) -> int:
    parser = _parser("report", "Make one HTML page with plots of datasets, or images (.svg, .png).")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="leave out measures without WORD in the title"
    )
    options = parser.parse_args(arguments)
    runs = merge(read_all(options.files))
    for path in reports().write(runs, options.output, options.only):
        print(f"wrote {path}")
    return 0


def _table(arguments: Sequence[str]) -> int:
    parser = _parser("table", "Print the table of the README, in Markdown, from a dataset.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it to a file instead")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="leave out measures without WORD in the title"
    )
    options = parser.parse_args(arguments)
    text = "\n\n".join(reports().table(run, options.only).rstrip("\n") for run in read(options.file)) + "\n"
    if options.output:
        replace(options.output, text)
        print(f"wrote {options.output}")
    else:
        print(text, end="")
    return 0


def reports() -> ModuleType:
    """Import what makes reports."""
    try:
        return importlib.import_module("pellucid_bench.report")
    except ImportError as error:
        raise DatasetError(
            f"reports need more than is installed ({error}): pip install ./bench in a clone of pellucid"
        ) from error


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"{PROGRAM} {name}", description=description)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "merge": _merge,
    "compare": _compare,
    "report": _report,
    "table": _table,
}
ABOUT = {
    "merge": "put the runs of several datasets into one file",
    "compare": "what improved or regressed between two datasets",
    "report": "one HTML page with plots, or images",
    "table": "a table in Markdown",
}
"""What each command does, for the help."""
