"""This module measures a dict on disk: single writes of small values under str keys, then random reads.

Each player runs alone from open to close, in turn with the others, in several rounds. Keys come in random
order, as names and ids do.

A single write with a sync takes ten thousand times as long as one in memory, so most of a run would be for
the slowest players. A writer or reader whose pace is too slow for its limit is stopped early. Its figure is
for the work that it did; the table says how much that was. A player that was stopped is left out of
the greatest counts, with the reason in its row: it would write as few values as before.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid_bench.about import About, Setting
from pellucid_bench.contenders.dicts import Names, Pair, Player, Session, players
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import WrongAnswerError, compiled, function, in_turn, kept

ABOUT = About(
    "dict",
    "What does a dict cost whose items are on the disk?",
    "Writes small values one by one under random keys, reads them at random, and does both from open to "
    "close; as a curve, too, from 100 keys to a million.",
    (
        Setting("writes", (10_000, 1_000_000), (300,), "counts of single writes"),
        Setting("curve", (100, 1_000, 100_000), (100,), "more counts, for the curve over the number of keys"),
        Setting(
            "budget",
            8.0,
            1.0,
            "seconds for a million keys: a contender that needs longer is stopped, and has no further round",
        ),
    ),
)
LIMIT_SHARE_MIN = 0.25
"""The share of the budget that a writer, or a reader, has for few keys."""
LEFT_OUT_ABOVE = 100_000
"""For more keys, to fill what a stopped writer lacks takes longer than all that is measured."""
EARLY = 8
"""A pace is judged after this part of a limit."""
BLOCK = 50
"""Single puts between two reads of the clock."""
BULK = 10_000
"""More writes than these are a bulk measure, with fewer rounds."""
EXECUTEMANY_BLOCK = 10_000
READS_MAX = 200_000
SAMPLE = 200
"""Keys whose values are compared after the timing."""

# Set before anything was measured, for each count of writes. A put may take six times the time of a dict.
WRITE_TARGETS = {10_000: [Target(1 / 6, "dict")]}
TOGETHER_TARGETS = {
    10_000: [Target(4, "dbm.gnu")],
    1_000_000: [
        Target(2, "dbm.gnu"),
        Target(1, "lmdb, a transaction for each, sync off"),
        Target(1, "rocksdict"),
        Target(1, "plyvel"),
    ],
}
FROM_OPEN_TO_CLOSE_TARGETS = {10_000: [Target(3, "dbm.gnu")]}


@dataclass(frozen=True, slots=True)
class Played:
    """The results of one player in one round."""

    write_seconds: float
    written: int
    read_seconds: float
    read: int
    there: int
    """Keys that could be read."""
    whole_seconds: float
    """Seconds for open, writes and close, without the reads."""


def run(run: Run) -> None:
    """Run every count of writes, the small ones first."""
    counts = {*run.settings.writes, *run.settings.curve}
    slow: dict[str, str] = {}
    for count in sorted(counts):
        one_count(run, count, slow, is_whole=count in run.settings.writes)


def one_count(run: Run, count: int, slow: dict[str, str], *, is_whole: bool = True) -> None:
    """Let all players write `count` values and read some of them, in turn.

    A point of the curve has the writes and the reads. The others have both together, too, and the whole from
    open to close. Players in `slow` are left out, with its reason, and those that are stopped come into it.
    """
    measures = measures_of(count, run.settings.budget)[: None if is_whole else 2]
    wanted = [measure for measure in measures if run.wants(measure.title)]
    if not wanted or not count:
        return
    everybody = run.gather(players)
    pairs = _pairs(count)
    results = [
        Result(
            player.name,
            player.is_ours,
            like=player.like,
            left_out=slow.get(player.name, "") if count > LEFT_OUT_ABOVE else "",
        )
        for player in everybody
    ]
    played: list[list[Played]] = [[] for _ in everybody]
    seconds = [0.0] * len(everybody)
    for measure in wanted:
        measure.results = [dataclasses.replace(result, costs=[], facts={}) for result in results]
        run.add(measure)
    rounds = run.pace.rounds if count <= BULK else run.pace.bulk_rounds
    limit = run.settings.budget * max(LIMIT_SHARE_MIN, count / 1_000_000)
    for round_index, (index, player) in in_turn(list(enumerate(everybody)), rounds):
        run.pace.on_progress(f"{count:,} writes, round {round_index + 1} of {rounds}: {player.name}")
        if results[index].error is None and not results[index].left_out:
            # Rounds take about as long as each other: would one more be within the budget?
            if round_index and seconds[index] * (1 + 1 / len(played[index])) > run.settings.budget:
                continue
            started = time.perf_counter()
            with kept(results[index]):
                played[index].append(play(player, pairs, limit, run.directory))
                _add(measures, index, player, played[index], count)
                if played[index][-1].written < count:
                    slow[player.name] = _why_left_out(played[index][-1], count)
            seconds[index] += time.perf_counter() - started
        for measure in wanted:
            measure.results[index].error = results[index].error


def _add(
    measures: Sequence[Measure], index: int, player: Player, played: Sequence[Played], count: int
) -> None:
    """Put what the last round of a player measured into the measures."""
    last = played[-1]
    write, read = last.write_seconds / last.written, last.read_seconds / last.read
    whole = last.whole_seconds / last.written
    done = min(one.written for one in played)
    stopped = "" if done == count else "stopped at "
    costs = [write, read, write + read, whole, whole + read]
    for place, (measure, cost) in enumerate(zip(measures, costs, strict=False)):
        if not measure.results:
            continue
        result = measure.results[index]
        result.costs.append(cost)
        if place == 1:
            result.facts = {"keys": f"{min(one.there for one in played):,}"}
        else:
            result.facts = {"a put survives": player.survives, "writes": f"{stopped}{done:,}"}


def _why_left_out(last: Played, count: int) -> str:
    return (
        f"left out: of {count:,} values it wrote {last.written:,} in {last.write_seconds:.2g} s, "
        "and was stopped"
    )


def measures_of(count: int, budget_seconds: float) -> list[Measure]:
    """Make the measures of one count of writes: writes, reads, both, and both with open and close."""
    limit = f"{budget_seconds * max(LIMIT_SHARE_MIN, count / 1_000_000):g} s"
    stopped = f"a contender that would need more than {limit} to write, or to read, is stopped early"
    budget = (
        f"{stopped} and judged by what was done; after {budget_seconds:g} s in all it has no further round"
    )
    beside = "each rival stands under the one of our ways that is like its own"
    both = "one write and one read, each by its own mean"
    reading = [
        f"at most {READS_MAX:,} reads, before closing; what a stopped writer lacks is put in bulk first",
        "a contender without bulk puts reads from as many keys as it has written",
    ]
    notes = [budget, beside]

    def made(
        group: str, title: str, notes: list[str], targets: dict[int, list[Target]] | None = None
    ) -> Measure:
        chosen = (targets or {}).get(count, [])
        return Measure(
            title, Unit.TIME, notes=list(notes), targets=chosen, group=group, size=count, size_unit="keys"
        )

    written, read = f"{count:,} single writes", f"random reads after {count:,} writes"
    opened = f"open, {count:,} writes"
    return [
        made("write", written, notes, WRITE_TARGETS),
        made("read", read, reading),
        made("write-and-read", f"{written}, then reads, both together", [*notes, both], TOGETHER_TARGETS),
        made("open-write-close", f"{opened}, close", notes),
        made(
            "open-write-read-close",
            f"{opened}, then reads, close",
            [*notes, both],
            FROM_OPEN_TO_CLOSE_TARGETS,
        ),
    ]


def _pairs(count: int) -> list[Pair]:
    """Make `count` different keys in random order, each with its own small value."""
    chance = random.Random(count)
    pairs = [(f"{number * 2654435761 % 2**32:08x}-{number}", f"value {number}") for number in range(count)]
    chance.shuffle(pairs)
    return pairs


def play(player: Player, pairs: Sequence[Pair], limit_seconds: float, directory: Path) -> Played:
    """Open, write, read, close; then check the values and remove the files."""
    home = directory / "dict"
    home.mkdir()
    try:
        started = time.perf_counter()
        session = player.open(home / "words")
        opened = time.perf_counter()
        writer, blocks = _writer(player, session, pairs)
        writing = time.perf_counter()
        written = writer(blocks, len(pairs), limit_seconds)
        session.complete()
        completed = time.perf_counter()
        there = pairs
        if written < len(pairs):
            if session.fill is None:
                there = pairs[:written]
            else:
                session.fill(pairs[written:])
        names = session.reading()
        read_seconds, read = _read(player, names, there, limit_seconds)
        _check(player, names, there)
        closing = time.perf_counter()
        session.close()
        closed = time.perf_counter()
    finally:
        shutil.rmtree(home)
    whole = (opened - started) + (completed - writing) + (closed - closing)
    return Played(completed - writing, written, read_seconds, read, len(there), whole)


def _writer(player: Player, session: Session, pairs: Sequence[Pair]) -> tuple[Any, list[Sequence[Pair]]]:
    """Return the compiled loop of all writes, and the blocks of pairs for it."""
    size = EXECUTEMANY_BLOCK if player.puts_blocks else BLOCK
    blocks = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    line = player.put if player.puts_blocks else f"for k, v in block: {_indented(player.put)}"
    return _loop(line, session.names), blocks


def _read(player: Player, names: Names, pairs: Sequence[Pair], limit_seconds: float) -> tuple[float, int]:
    chance = random.Random(len(pairs))
    keys = [key for key, _ in chance.choices(pairs, k=min(len(pairs), READS_MAX))]
    blocks = [keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK)]
    reader = _loop(f"for k in block: {player.get}", names)
    started = time.perf_counter()
    read: int = reader(blocks, len(keys), limit_seconds)
    return time.perf_counter() - started, read


def _indented(line: str) -> str:
    """Indent a line, because a `with` cannot follow a `for` on one line."""
    return f"\n   {line}" if line.startswith("with ") else line


def _loop(line: str, names: Names) -> Any:
    """Make the loop around the line of a player: all blocks, or until its pace is too slow for the limit."""
    parameters = "".join(f", {name}=_names[{name!r}]" for name in names)
    source = (
        f"def work(blocks, count, limit, clock=_names['_clock']{parameters}):\n"
        f" done, early, started = 0, limit / {EARLY}, clock()\n"
        " for block in blocks:\n"
        f"  {line}\n"
        "  done += len(block)\n"
        "  spent = clock() - started\n"
        "  if spent > early and (spent > limit or spent * count > limit * done):\n"
        "   break\n"
        " return done\n"
    )
    return compiled(source, {**names, "_clock": time.perf_counter})


def _check(player: Player, names: Names, pairs: Sequence[Pair]) -> None:
    """Compare some of the values, read by the line of the player."""
    get = function("k", player.get, names)
    for key, value in random.Random(1).choices(pairs, k=SAMPLE):
        answer = get(key)
        if answer != value:
            raise WrongAnswerError(f"{player.name} has {answer!r} under {key!r}, not {value!r}")
