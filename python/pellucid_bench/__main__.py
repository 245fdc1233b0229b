"""This module is the command line of the benchmarks."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pellucid_bench import child, machine, terminal
from pellucid_bench.experiments import dicts, postgres, queries, records, writes
from pellucid_bench.run import QUICK, Run, Scale
from pellucid_bench.runner import Pace

WORKLOADS = {"records": records.run, "dict": dicts.run, "writes": writes.run, "query": queries.run}
# Experiments that are programs, with options of their own: each runs its contenders in processes.
PROGRAMS = {
    "buffers": "buffers",
    "dropins": "dropins",
    "json-lines": "json_lines",
    "megabyte": "megabyte",
    "scale": "scale",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workloads of the command line, print the report, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in PROGRAMS:
        module = f"pellucid_bench.experiments.{PROGRAMS[arguments[0]]}"
        words = [sys.executable, "-m", module, *arguments[1:]]
        return subprocess.run(words, env=child.environment(), check=False).returncode
    if arguments and arguments[0] == "postgres":
        return postgres.main(arguments[1:])
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        from rich.console import Console
    except ImportError:
        parser.error("the report is made with rich: pip install rich")
    # A file or pipe has no width. The tables need more than the 80 columns that rich would assume.
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory(prefix="pellucid-bench-", dir=options.directory) as directory:
        run = Run(Path(directory), _scale(options), _pace(options), options.only, options.seed)
        described = machine.describe(run.directory)
        with console.status("") if console.is_terminal else contextlib.nullcontext() as status:
            if status:
                run.pace.on_progress = status.update
            for workload in options.workload or list(WORKLOADS):
                WORKLOADS[workload](run)
    if not run.measures:
        parser.error(f"no measure has {options.only!r} in its title")
    terminal.show(console, run, described)
    if options.quick:
        console.print(
            "[bold yellow]--quick runs everything as briefly as possible: these figures mean nothing.[/]"
        )
    if options.json:
        command = shlex.join(["python", "-m", "pellucid_bench", *arguments])
        terminal.write_json(options.json, terminal.to_json(run, described, command))
        console.print(f"wrote {options.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pellucid_bench",
        description="Compare the speed of pellucid with other libraries.",
        epilog="Programs with options of their own, such as `bench dropins --help`: "
        f"{', '.join([*PROGRAMS, 'postgres'])}.",
    )
    parser.add_argument("workload", nargs="*", choices=[*WORKLOADS, []], help="what to run (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="the shortest run that does everything; its figures mean nothing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="run only measures with WORD in their title"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="samples of each contender, also of slow ones"
    )
    parser.add_argument("--rows", type=int, metavar="N", help="records in the tables (default: 1,000,000)")
    parser.add_argument(
        "--writes",
        type=int,
        nargs="+",
        metavar="N",
        help="dict: counts of writes (default: 10,000 1,000,000)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="query: the seed of random tables and queries for access paths (default: 1)",
    )
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="dict: stop a contender after this time (default: 10)"
    )
    parser.add_argument(
        "--scan-gigabytes", type=float, metavar="N", help="records: file size for the measure of memory"
    )
    parser.add_argument(
        "--directory", type=Path, help="folder for databases (default: the system's temporary one)"
    )
    return parser


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else Scale()
    given = {
        "rows": options.rows,
        "bulk_rounds": options.rounds,
        "start_rounds": options.rounds,
        "writes": tuple(options.writes) if options.writes else None,
        "budget_seconds": options.budget,
        "scan_bytes": round(options.scan_gigabytes * 1e9) if options.scan_gigabytes else None,
    }
    return dataclasses.replace(scale, **{name: value for name, value in given.items() if value is not None})


def _pace(options: argparse.Namespace) -> Pace:
    pace = Pace(rounds=2, sample_seconds=0.0005, repeat_seconds=0.0) if options.quick else Pace()
    if options.rounds:
        pace.rounds = options.rounds
    return pace


if __name__ == "__main__":
    sys.exit(main())
