"""What can be asked of the campaigns from a shell?"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import random
import secrets
import shutil
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

from crash import copies, flips, histories, images, kills, mutations
from crash.steps import STEP_NAMES

ROOT = Path(__file__).parent.parent.parent
ROUNDS, HISTORIES, IMAGES, FLIPS = 2000, 300, 300, 20_000
EACH, TRIES = 2, 24
"""Rounds that aim at the same step: at least, and at most until a process has ended there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns that the command line names, show what they did, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["mutations"]:
        return mutations.main(words[1:])
    options = _parser().parse_args(words)
    # A file or pipe has no width; the tables need more than the 80 columns that would be assumed.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    chosen = options.campaign or ["steps", "kills", "histories", "flips", "copies", "power"]
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    try:
        if "steps" in chosen:
            run_steps(console, options)
        if "kills" in chosen:
            run_kills(console, options, seed)
        if "histories" in chosen:
            run_histories(console, options, seed)
        if "flips" in chosen:
            run_flips(console, options, seed)
        if "copies" in chosen:
            run_copies(console, options, seed)
    except kills.FailedRoundError as failed:
        console.print(f"[bold red]{failed}[/]", markup=True, soft_wrap=True)
        again = f"kills --rounds 1 --seed {failed.seed}"
        if failed.step != kills.step_of(failed.seed):
            again = f'steps --only "{failed.step}"'
        console.print(f"again: ./dev crash {again}")
        return 1
    except StepsNotHitError as missed:
        console.print(f"[bold red]{missed}[/]", soft_wrap=True)
        return mutations.STEPS_NOT_HIT
    except histories.FailedHistoryError as failed:
        console.print(f"[bold red]{failed}[/]", soft_wrap=True)
        console.print(f"again: ./dev crash histories --histories 1 --seed {failed.seed}")
        return 1
    except flips.FailedFlipError as failed:
        console.print(f"[bold red]{failed}[/]", soft_wrap=True)
        again = f"flips --flips 1 --damage {options.damage} --seed {failed.seed}"
        if failed.is_copy:
            again = f"copies --copy {failed.seed}"
        console.print(f"again: ./dev crash {again}")
        return 1
    return run_power(options, seed) if "power" in chosen else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev crash", description="Does a database keep what it promises, whatever happens?"
    )
    parser.add_argument(
        "campaign",
        nargs="*",
        choices=["steps", "kills", "histories", "flips", "copies", "power", []],
        help="steps: a process dies at each named step of the write path; kills: processes die there and at "
        "random moments; histories: what concurrent clients see is in an order; "
        "flips: a bit of the files is another one; copies: they are cut, or of different moments; "
        "power: the files are what a power cut may leave of them "
        "(default: all)",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"of kills (default: {ROUNDS})"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="end each campaign after this time (default: when all is done)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2 * (os.cpu_count() or 1),
        metavar="N",
        help="how many at a time: most of them wait for most of their time (default: %(default)s)",
    )
    parser.add_argument("--only", metavar="WORD", help="of the steps: those that have this in their name")
    parser.add_argument(
        "--each",
        type=int,
        default=EACH,
        metavar="N",
        help="rounds for each step, at least (default: %(default)s)",
    )
    parser.add_argument(
        "--histories", type=int, default=HISTORIES, metavar="N", help=f"to be checked (default: {HISTORIES})"
    )
    parser.add_argument("--flips", type=int, default=FLIPS, metavar="N", help=f"of bits (default: {FLIPS})")
    parser.add_argument(
        "--damage", choices=flips.KINDS, default="bit", help="what each flip is instead (default: bit)"
    )
    parser.add_argument("--copy", type=int, metavar="N", help="only this one of the copies")
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


def _end_of(options: argparse.Namespace) -> float:
    """The moment after which a campaign that begins now does nothing more."""
    return time.monotonic() + 60 * options.minutes if options.minutes else float("inf")


def _progress(console: Console) -> Progress:
    # Without a thread of its own: the campaigns fork.
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal)


class StepsNotHitError(Exception):
    """Steps of the write path at which no process came to its end."""

    def __init__(self, steps: Sequence[str]) -> None:
        super().__init__("no process ended at: " + "; ".join(steps))


def run_steps(console: Console, options: argparse.Namespace) -> None:
    """Have processes die at each step, with seeds that are always the same."""
    if not STEP_NAMES:
        raise SystemExit("this build names no steps; run it as ./dev crash steps")
    started, tally, end = time.monotonic(), kills.Tally(), _end_of(options)
    steps = [step for step in STEP_NAMES if (options.only or "") in step]
    folder = tempfile.mkdtemp(prefix="pellucid-steps-", dir=options.directory)
    one = functools.partial(_rounds_at, each=options.each, base=Path(folder), end=end)
    # Forked before the pool has threads, so that the rounds can fork.
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool, _progress(console) as progress:
        task = progress.add_task("steps", total=len(steps))
        for found in pool.imap_unordered(one, steps):
            tally.add(found)
            progress.update(task, advance=1, refresh=True)
    shutil.rmtree(folder)
    console.print(_headline("steps", tally, time.monotonic() - started))
    _show(console, "ended at their step", tally.ends)
    missed = [step for step in steps if not tally.ends[step]]
    if missed and time.monotonic() < end:
        raise StepsNotHitError(missed)


def _rounds_at(step: str, each: int, base: Path, end: float) -> kills.Tally:
    """Rounds that aim at a step, at least `each` and until a process has ended there."""
    tally = kills.Tally()
    for seed in range(max(each, TRIES)):
        if (seed >= each and tally.ends[step]) or time.monotonic() > end:
            break
        tally.add(kills.run_round(seed, base / f"{STEP_NAMES.index(step)} {seed}", step))
    return tally


def _round_of(seed: int, base: Path, end: float) -> kills.Tally:
    if time.monotonic() > end:
        return kills.Tally()
    return kills.run_round(seed, base / str(seed), kills.step_of(seed))


def run_kills(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Run the campaign of kills; a failing round ends it."""
    base = Path(tempfile.mkdtemp(prefix="pellucid-crash-", dir=options.directory))
    tally, started, end = kills.Tally(), time.monotonic(), _end_of(options)
    seeds = range(seed, seed + options.rounds)
    # A pool that is ended in the middle of its work leaves processes behind: rounds after the end do nothing.
    one = functools.partial(_round_of, base=base, end=end)
    # Forked before the pool has threads, so that the rounds can fork.
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool, _progress(console) as progress:
        task = progress.add_task(f"kills, from seed {seed}", total=options.rounds)
        for found in pool.imap_unordered(one, seeds):
            tally.add(found)
            progress.update(task, advance=1, refresh=True)
    shutil.rmtree(base)
    console.print(_headline(f"kills, from seed {seed}", tally, time.monotonic() - started))
    _show(console, "killed after", tally.lives)
    _show(console, "killed in the middle of", tally.kills)
    _show(console, "ended at their step", tally.ends)
    _show(console, "found in the log when all writers were gone", tally.found)
    _show(console, "operations that a kill came in between", tally.unacknowledged)
    missed = [step for step in STEP_NAMES if not tally.ends[step]]
    if missed and tally.rounds >= TRIES * 2 * len(STEP_NAMES):
        raise StepsNotHitError(missed)


def _headline(what: str, tally: kills.Tally, seconds: float) -> str:
    hit = sum(tally.ends[step] > 0 for step in STEP_NAMES)
    parts = [
        f"{tally.writes:,} writes acknowledged",
        f"{sum(tally.kills.values()):,} kills",
        f"{hit} of {len(STEP_NAMES)} steps hit",
        f"{tally.rounds:,} rounds in {seconds:.0f} s",
        f"{tally.snapshots:,} snapshots read beside",
    ]
    return f"{what}: {', '.join(parts)}: [green]all as acknowledged[/]"


def run_histories(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Record histories and check them; one that has no order ends it."""
    started, end, operations, done = time.monotonic(), _end_of(options), 0, 0
    with _progress(console) as progress:
        task = progress.add_task(f"histories, from seed {seed}", total=options.histories)
        with tempfile.TemporaryDirectory(prefix="pellucid-histories-", dir=options.directory) as directory:
            while done < options.histories and time.monotonic() < end:
                operations += histories.run(seed + done, Path(directory) / str(done))
                done += 1
                progress.update(task, advance=1, refresh=True)
    console.print(
        f"histories, from seed {seed}: {done:,} of {operations:,} operations in "
        f"{time.monotonic() - started:.0f} s: [green]each strictly serializable[/]"
    )


def run_flips(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Run the campaign of damaged files; a process that dies, or damage that nobody notices, ends it."""
    base = Path(tempfile.mkdtemp(prefix="pellucid-flips-", dir=options.directory))
    one = functools.partial(flips.run, made=images.images(base), kind=options.damage)
    seeds = range(seed, seed + options.flips)
    _use_copies(console, options, f"flips of a {options.damage}, from seed {seed}", seeds, one, base)


def run_copies(console: Console, options: argparse.Namespace, seed: int) -> None:
    """Run the campaign of files that are too short, or of different moments, in an order by the seed."""
    base = Path(tempfile.mkdtemp(prefix="pellucid-copies-", dir=options.directory))
    cases = copies.cases(base)
    chosen = list(range(len(cases)))
    random.Random(seed).shuffle(chosen)
    if options.copy is not None:
        chosen = [options.copy]
    one = functools.partial(copies.run, cases=cases)
    _use_copies(console, options, f"copies, in the order of seed {seed}", chosen, one, base)


def _use_copies(
    console: Console,
    options: argparse.Namespace,
    what: str,
    seeds: Sequence[int],
    one: flips.One,
    base: Path,
) -> None:
    started, end = time.monotonic(), _end_of(options)
    tally = flips.run_all(seeds, one, base, options.jobs, end)
    base.rmdir()
    seconds = time.monotonic() - started
    console.print(
        f"{what}: {tally.flips:,} in {seconds:.0f} s, {60 * tally.flips / seconds:,.0f} a minute: "
        "[green]no process died, nothing passed for sound, nothing whole is gone[/]"
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
