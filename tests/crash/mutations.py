"""Which small changes of the product would the campaign see?

Each patch in `mutations/` breaks one rule, in a line or two, and its first line says which. A mutation is
applied to a copy of the tree, which is built as `tools/build_for_crash.sh` does it, and the campaign runs on
that build until its first finding. A mutation that the campaign does not find is a hole in the campaign.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(__file__).parent / "mutations"
COPY = ROOT / "target" / "mutated"
"""The copy of the tree, with build products of its own. They are kept, so that the next build is quick."""
RESULTS = ROOT / "target" / "mutations.json"
MINUTES = 10.0
SEED = 1
EACH = 6
"""Rounds for each step."""
STEPS_NOT_HIT, CARGO_TEST_FAILED = 3, 101
"""Exit codes of the campaign, where no process came to a step, which is no finding; and of `cargo test`."""

# What runs, in this order, and for how many minutes at most; the last part runs for what is left.
PARTS = [
    ("steps", 3.0),
    ("flips", 1.0),
    ("copies", 1.0),
    ("power", 2.0),
    ("histories", 0.5),
    ("kills", MINUTES),
]

FAST_TESTS = [
    "--lib",
    "--test processes",
    "--test opening",
    "--test engine_contract",
    "--test rows_alone",
    "--test beside_snapshots",
    "--test check_finds_damage",
    "--test backup_and_compact",
    "--test compressed",
    "--test same_as_a_btreemap",
    "--test indexes",
    "--test index_builds",
    "--test gathered",
    "--test patches",
    "--test watch",
    "--test side_files",
    "--test short_writes",
    "--test unsynced_file",
    "--test estimates",
]
"""What `--cargo` runs of the crate pellucid-store: all of its tests but two models, which do not run its
code, and `power_loss`. That one is a part of the campaign (`./dev crash power`), and `cargo test` runs it
only because it is written in Rust: what it alone finds, the campaign alone finds."""


@dataclass
class Result:
    """What became of a mutation."""

    name: str
    breaks: str
    found_by: str = ""
    """A part of the campaign; empty if none has found it."""
    seconds: float = 0.0
    """How long the campaign ran until then; builds do not count."""
    finding: str = ""
    cargo: str = "not run"
    """What `cargo test` alone says."""


class BuildFailedError(Exception):
    """A mutation that does not apply or compile is none."""


def names() -> list[str]:
    """All mutations."""
    return sorted(path.stem for path in FOLDER.glob("*.patch"))


def breaks(name: str) -> str:
    """What a mutation breaks, in a sentence."""
    return (FOLDER / f"{name}.patch").read_text().partition("\n")[0]


def applies(name: str) -> str:
    """What git has against the patch; nothing if it applies to the tree."""
    command = ["git", "apply", "--check", str(FOLDER / f"{name}.patch")]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stderr


def run(chosen: Sequence[str], *, minutes: float = MINUTES, runs_cargo: bool = False) -> Iterator[Result]:
    """Run the campaign, or only `cargo test`, on each mutation; results are kept from run to run."""
    known = read_results()
    for name in chosen:
        _copy_tree()
        _patch(name)
        try:
            result = known.get(name) or Result(name, breaks(name))
            result.breaks = breaks(name)
            if runs_cargo:
                result.cargo = _cargo_test()
            else:
                _build()
                _hunt(result, minutes)
        finally:
            _patch(name, "--reverse")
        known[name] = result
        RESULTS.write_text(json.dumps([asdict(one) for one in known.values()], indent=1))
        yield result


def read_results() -> dict[str, Result]:
    """What earlier runs have found, of the mutations that are still there."""
    if not RESULTS.exists():
        return {}
    results = [Result(**one) for one in json.loads(RESULTS.read_text())]
    return {one.name: one for one in results if one.name in names()}


def table(results: Sequence[Result]) -> str:
    """The results as a table in Markdown."""
    lines = [
        "| mutation | what breaks | found by | after | finding | `cargo test` alone |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in results:
        after = f"{one.seconds:.0f} s" if one.found_by else ""
        cells = [one.name, one.breaks, one.found_by or "**nothing**", after, one.finding, one.cargo]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def _copy_tree() -> None:
    """Make the copy what the tree is; files that are the same keep their times, so that little is built."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    for name in tracked:
        new = (ROOT / name).read_bytes()
        path = COPY / name
        if not path.exists() or path.read_bytes() != new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(new)
            path.chmod((ROOT / name).stat().st_mode)
    for path in (COPY / "crates").rglob("*"):
        if path.is_file() and str(path.relative_to(COPY)) not in tracked:
            path.unlink()
    environment = COPY / ".venv"
    if not environment.exists():
        environment.symlink_to(ROOT / ".venv")


def _patch(name: str, *options: str) -> None:
    where = f"--directory={COPY.relative_to(ROOT)}"
    command = ["git", "apply", where, *options, str(FOLDER / f"{name}.patch")]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise BuildFailedError(f"{name}: {ran.stderr}")


def _build() -> None:
    ran = subprocess.run(["tools/build_for_crash.sh"], cwd=COPY, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise BuildFailedError(ran.stderr[-4000:])


def _hunt(result: Result, minutes: float) -> None:
    """Run one part of the campaign after the other until one has a finding."""
    begin, result.found_by, result.finding = time.monotonic(), "", ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{COPY}/target/crash", f"{COPY}/tests"])}
    for part, share in PARTS:
        left = minutes - (time.monotonic() - begin) / 60
        if left <= 0:
            break
        own = min(share, left)
        if part == "power":
            # To build the test is no part of the campaign.
            building = time.monotonic()
            _run_power(["--no-run"], 1800.0)
            begin += time.monotonic() - building
            output = _run_power(["--", "--test-threads=1"], own * 60)
        else:
            command = [sys.executable, "-m", "crash", part, "--seed", str(SEED), "--minutes", str(own)]
            command += ["--each", str(EACH)] if part == "steps" else []
            output = _output_of(command, COPY, environment, own * 60 + 120)
        if output is not None:
            result.found_by, result.finding = part, _finding_in(output)
            break
    result.seconds = time.monotonic() - begin


def _run_power(arguments: Sequence[str], seconds: float) -> str | None:
    command = ["cargo", "test", "--quiet", "-p", "pellucid-store", "--test", "power_loss", *arguments]
    return _output_of(command, COPY, dict(os.environ), seconds, ends_well=True)


def _cargo_test() -> str:
    """The first test of the crate that fails, or that none does."""
    for chosen in FAST_TESTS:
        command = ["cargo", "test", "--quiet", "-p", "pellucid-store", *chosen.split()]
        if (output := _output_of([*command, "--no-run"], COPY, dict(os.environ), 3600.0)) is not None:
            raise BuildFailedError(output[-4000:])
        output = _output_of(command, COPY, dict(os.environ), 600.0)
        if output is not None:
            failed = [line.split()[1] for line in output.splitlines() if line.startswith("---- ")]
            return f"`{chosen.split()[-1]}`: `{failed[0] if failed else 'it does not end'}`"
    return "no"


def _output_of(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    seconds: float,
    *,
    ends_well: bool = False,
) -> str | None:
    """What a command says that fails, or does not end in time; `None` if it goes well."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None if ends_well else f"{output}\nit does not end"
    if process.returncode in (0, STEPS_NOT_HIT):
        return None
    if process.returncode in (1, CARGO_TEST_FAILED) or process.returncode < 0:
        return output
    raise BuildFailedError(output[-4000:])


def _finding_in(output: str) -> str:
    """The one line that says what is wrong."""
    lines = [line.strip() for line in output.partition("again:")[0].splitlines() if line.strip()]
    panics = [number for number, line in enumerate(lines) if "panicked at" in line]
    begins = [number for number, line in enumerate(lines) if "failed; its files are" in line]
    if panics:
        told = lines[panics[0] + 1 : panics[0] + 2]
    elif begins and not any(line.startswith("Traceback") for line in lines):
        told = lines[begins[0] + 1 : begins[0] + 2]
    else:
        told = lines[-1:]
    return (told or ["it failed"])[0][:160]


def main(arguments: Sequence[str]) -> int:
    """What `./dev crash mutations` does."""
    parser = argparse.ArgumentParser(prog="./dev crash mutations", description=__doc__)
    parser.add_argument("name", nargs="*", help="of a mutation (default: all)")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, metavar="N", help="for each (default: %(default)s)"
    )
    parser.add_argument("--cargo", action="store_true", help="run cargo test alone, not the campaign")
    parser.add_argument("--table", action="store_true", help="run nothing; show what earlier runs have found")
    options = parser.parse_args(arguments)
    chosen = options.name or names()
    if unknown := sorted(set(chosen) - set(names())):
        parser.error(f"no mutation has this name: {', '.join(unknown)}")
    if not options.table:
        for result in run(chosen, minutes=options.minutes, runs_cargo=options.cargo):
            found = result.cargo if options.cargo else f"{result.found_by or 'NOT FOUND'}: {result.finding}"
            print(f"{result.name}: {result.seconds:.0f} s: {found}", flush=True)
    results = [one for name, one in sorted(read_results().items()) if name in chosen]
    print(table(results))
    return 0 if all(one.found_by for one in results) else 1
