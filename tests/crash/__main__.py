"""What can be asked of the campaigns from a shell?"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from crash import flips, histories, kills

ROOT = Path(__file__).parent.parent.parent
ROUNDS, HISTORIES, IMAGES, FLIPS = 2000, 300, 300, 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns that the command line names, show what they did, and return the exit code."""
    options = _parser().parse_args(arguments)
    # A file or pipe has no width; the tables need more than the 80 columns that would be assumed.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    chosen = options.campaign or ["kills", "histories", "flips", "power"]
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    try:
        if "kills" in chosen:
            run_kills(console, options, seed)
        if "histories" in chosen:
            run_histories(console, options, seed)
        if "flips" in chosen:
            run_flips(console, options, seed)
    except kills.FailedRoundError as failed:
        console.print(f"[bold red]{failed}[/]", markup=True, soft_wrap=True)
        console.print(f"again: ./dev crash kills --rounds 1 --seed {failed.seed}")
        return 1
    except histories.FailedHistoryError as failed:
        console.print(f"[bold red]{failed}[/]", soft_wrap=True)
        console.print(f"again: ./dev crash histories --histories 1 --seed {failed.seed}")
        return 1
    except flips.FailedFlipError as failed:
        console.print(f"[bold red]{failed}[/]", soft_wrap=True)
        console.print(f"again: ./dev crash flips --flips 1 --damage {options.damage} --seed {failed.seed}")
        return 1
    return run_power(options, seed) if "power" in chosen else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev crash", description="Does a database keep what it promises, whatever happens?"
    )
    parser.add_argument(
        "campaign",
        nargs="*",
        choices=["kills", "histories", "flips", "power", []],
        help="kills: processes die at random moments; histories: what concurrent clients see is in an order; "
        "flips: a bit of the files is another one; power: the files are what a power cut may leave of them "
        "(default: all)",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"of kills (default: {ROUNDS})"
    )
    parser.add_argument(
        "--histories", type=int, default=HISTORIES, metavar="N", help=f"to be checked (default: {HISTORIES})"
    )
    parser.add_argument("--flips", type=int, default=FLIPS, metavar="N", help=f"of bits (default: {FLIPS})")
    parser.add_argument(
        "--damage", choices=flips.KINDS, default="bit", help="what each flip is instead (default: bit)"
    )
    parser.add_argument(
        "--images", type=int, default=IMAGES, metavar="N", help=f"of each file (default: {IMAGES})"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of the first round (default: another each time)"
    )
    parser.add_argument(
        "--directory", type=Path, help="where databases are made (default: the system's temporary one)"
    )
    return parser


def _progress(console: Console) -> Progress:
    # Without a thread of its own: the campaigns fork.
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal)


def run_kills(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Run the campaign of kills; a failing round ends it."""
    base = Path(tempfile.mkdtemp(prefix="pellucid-crash-", dir=options.directory))
    tally = kills.Tally()
    with _progress(console) as progress:
        task = progress.add_task(f"kills, from seed {seed}", total=options.rounds)
        for number in range(options.rounds):
            tally.add(kills.run_round(seed + number, base / str(seed + number)))
            progress.update(task, advance=1, refresh=True)
    base.rmdir()
    count = tally.kills.total() if hasattr(tally.kills, "total") else sum(tally.kills.values())
    console.print(
        f"kills, from seed {seed}: {tally.rounds:,} rounds, {tally.operations:,} acknowledged operations, "
        f"{count:,} kills, {tally.seconds / max(1, tally.rounds):.2f} s a round: "
        "[green]all as acknowledged[/]"
    )
    _show(console, "killed in the middle of", tally.kills)
    _show(console, "found in the log when all writers were gone", tally.found)
    _show(console, "operations that a kill came in between", tally.unacknowledged)


def run_histories(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Record histories and check them; one that has no order ends it."""
    started, operations = time.monotonic(), 0
    with _progress(console) as progress:
        task = progress.add_task(f"histories, from seed {seed}", total=options.histories)
        with tempfile.TemporaryDirectory(prefix="pellucid-histories-", dir=options.directory) as directory:
            for number in range(options.histories):
                operations += histories.run(seed + number, Path(directory) / str(number))
                progress.update(task, advance=1, refresh=True)
    console.print(
        f"histories, from seed {seed}: {options.histories:,} of {operations:,} operations in "
        f"{time.monotonic() - started:.0f} s: [green]each strictly serializable[/]"
    )


def run_flips(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Run the campaign of damaged files; a process that dies, or damage that nobody notices, ends it."""
    base = Path(tempfile.mkdtemp(prefix="pellucid-flips-", dir=options.directory))
    tally, started = flips.Tally(), time.monotonic()
    made = flips.images(base)
    with _progress(console) as progress:
        task = progress.add_task(f"flips, from seed {seed}", total=options.flips)
        for number in range(options.flips):
            tally.add(flips.run(seed + number, made, base / str(seed + number), options.damage))
            progress.update(task, advance=1, refresh=True)
    base.rmdir()
    console.print(
        f"flips, from seed {seed}: {tally.flips:,} of a {options.damage} in "
        f"{time.monotonic() - started:.0f} s: [green]no process died, none passed for sound[/]"
    )
    _show(console, "what became of those who used the files", tally.outcomes)


def run_power(options: argparse.Namespace, seed: int) -> int:
    """Rehearse power cuts; this is a Rust test, which sees every system call of the store."""
    command = "cargo test -p pellucid-store --test power_loss -- --nocapture --test-threads=1"
    environment = {"PELLUCID_IMAGES": str(options.images), "PELLUCID_SEED": str(seed)}
    if options.directory is not None:
        environment["TMPDIR"] = str(options.directory.absolute())
    return subprocess.run(
        command.split(), check=False, cwd=ROOT, env={**os.environ, **environment}
    ).returncode


def _show(console: Console, title: str, counts: Mapping[str, int]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("times", justify="right")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{count:,}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
