"""How fast is a dict on disk: single writes of small values under str keys, then random reads?

Each player runs alone from open to close, in turn with the others, round after round. A writer that needs
longer than the time budget is stopped and judged by what it did; the table says how much that was. Keys
come in random order, as names and ids do.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.bench.mappings import Names, Player, Session, players
from pellucid.bench.measures import Measure, Result, Unit
from pellucid.bench.run import Run
from pellucid.bench.runner import WrongAnswerError, compiled, function

Pair = tuple[str, str]

BLOCK = 100
"""Single puts between two looks at the clock."""
EXECUTEMANY_BLOCK = 10_000
READS_MAX = 200_000
SAMPLE = 200
"""Keys whose values are compared after the timing."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one player did in one round."""

    write_seconds: float
    written: int
    read_seconds: float
    read: int
    whole_seconds: float
    """Open, writes and close; without the reads."""


def run(run: Run) -> None:
    """Every count of writes."""
    for count in run.scale.writes:
        one_count(run, count)


def one_count(run: Run, count: int) -> None:
    """Everybody writes `count` values and reads some of them, in turn."""
    titles = (
        f"{count:,} single writes",
        f"random reads after {count:,} writes",
        f"open, {count:,} writes, close",
    )
    if not any(run.wants(title) for title in titles):
        return
    everybody = players(run.rivals)
    pairs = _pairs(count)
    results = [
        {player.name: Result(player.name, is_ours=player.is_ours) for player in everybody} for _ in titles
    ]
    done: dict[str, int] = {}
    rounds = run.pace.rounds if count <= 100_000 else run.scale.bulk_rounds
    for round_index in range(rounds):
        start = round_index % len(everybody)
        for player in [*everybody[start:], *everybody[:start]]:
            run.pace.on_progress(f"{count:,} writes, round {round_index + 1} of {rounds}: {player.name}")
            played = play(player, pairs, run.scale.budget_seconds, run.directory)
            done[player.name] = min(played.written, done.get(player.name, played.written))
            costs = (
                played.write_seconds / played.written,
                played.read_seconds / played.read,
                played.whole_seconds / played.written,
            )
            for result, cost in zip(results, costs, strict=True):
                result[player.name].costs.append(cost)
    for player in everybody:
        for result in results:
            result[player.name].facts = {
                "a put survives": player.survives,
                "writes done": f"{done[player.name]:,}"
                + ("" if done[player.name] == count else " (stopped)"),
            }
    seconds = run.scale.budget_seconds
    budget = f"who needs more than {seconds:g} s to write, or to read, is stopped and judged by what was done"
    notes = (
        [budget, "commits and index builds that a way of use needs after the last put are counted"],
        [budget, f"at most {READS_MAX:,} reads, of keys that were written, without a close in between"],
        [budget],
    )
    for title, result, note in zip(titles, results, notes, strict=True):
        if run.wants(title):
            run.measures.append(Measure(title, Unit.TIME, list(result.values()), notes=note))


def _pairs(count: int) -> list[Pair]:
    """Make `count` different keys in random order, each with a small value of its own."""
    chance = random.Random(count)
    pairs = [(f"{number * 2654435761 % 2**32:08x}-{number}", f"value {number}") for number in range(count)]
    chance.shuffle(pairs)
    return pairs


def play(player: Player, pairs: Sequence[Pair], budget_seconds: float, directory: Path) -> Played:
    """Open, write, read, close; then check and remove what was left on disk."""
    home = directory / "dict"
    home.mkdir()
    try:
        started = time.perf_counter()
        session = player.open(home / "words")
        opened = time.perf_counter()
        written = _write(player, session, pairs, budget_seconds)
        names = session.finish()
        finished = time.perf_counter()
        read_seconds, read = _read(player, names, pairs[:written], budget_seconds)
        _check(player, names, pairs[:written])
        closing = time.perf_counter()
        session.close()
        closed = time.perf_counter()
    finally:
        shutil.rmtree(home)
    whole = (finished - started) + (closed - closing)
    return Played(finished - opened, written, read_seconds, read, whole)


def _write(player: Player, session: Session, pairs: Sequence[Pair], budget_seconds: float) -> int:
    size = EXECUTEMANY_BLOCK if player.puts_blocks else BLOCK
    blocks = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    line = player.put if player.puts_blocks else f"for k, v in block: {_indented(player.put)}"
    written: int = _loop(line, session.names)(blocks, budget_seconds)
    return written


def _read(player: Player, names: Names, pairs: Sequence[Pair], budget_seconds: float) -> tuple[float, int]:
    chance = random.Random(len(pairs))
    keys = [key for key, _ in chance.choices(pairs, k=min(len(pairs), READS_MAX))]
    blocks = [keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK)]
    reader = _loop(f"for k in block: {player.get}", names)
    started = time.perf_counter()
    read: int = reader(blocks, budget_seconds)
    return time.perf_counter() - started, read


def _indented(line: str) -> str:
    """A `with` cannot follow a `for` on one line."""
    return f"\n   {line}" if line.startswith("with ") else line


def _loop(line: str, names: Names) -> Any:
    """The loop around everybody's line: block after block, until the budget is spent."""
    parameters = "".join(f", {name}=_names[{name!r}]" for name in names)
    source = (
        f"def work(blocks, budget, clock=_names['_clock']{parameters}):\n"
        " done, started = 0, clock()\n"
        " for block in blocks:\n"
        f"  {line}\n"
        "  done += len(block)\n"
        "  if clock() - started > budget:\n"
        "   break\n"
        " return done\n"
    )
    return compiled(source, {**names, "_clock": time.perf_counter})


def _check(player: Player, names: Names, pairs: Sequence[Pair]) -> None:
    """Compare some of the values, read by the same line."""
    get = function("k", player.get, names)
    for key, value in random.Random(1).choices(pairs, k=SAMPLE):
        answer = get(key)
        if answer != value:
            raise WrongAnswerError(f"{player.name} has {answer!r} under {key!r}, not {value!r}")
