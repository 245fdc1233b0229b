"""Do the campaigns of `./dev crash` hold, in short, and would they notice if something were wrong?"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crash import histories, kills, lives, mutations
from crash.checker import Event, order_of
from crash.steps import SETTINGS

ROOT = Path(__file__).parent.parent
ROUNDS, HISTORIES = 15, 12


@pytest.mark.timeout(1800)
def test_a_process_dies_at_each_step_of_the_write_path_and_nothing_is_lost() -> None:
    # What ./dev test has built already; from nothing it takes some minutes.
    subprocess.run([ROOT / "tools/build_for_crash.sh"], cwd=ROOT, check=True)
    room = os.pathsep.join([str(ROOT / "target/crash"), str(ROOT / "tests")])
    command = [sys.executable, "-m", "crash", "steps"]
    environment = os.environ | {"PYTHONPATH": room}
    ran = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(SETTINGS)} of {len(SETTINGS)} steps hit" in " ".join(ran.stdout.split())


def test_the_campaign_knows_how_to_come_to_each_step() -> None:
    source = (ROOT / "crates/store/src/sys/steps.rs").read_text()
    named = re.findall(r'^    (\w+) = "(.+)",$', source, re.MULTILINE)
    assert [name for _, name in named] == list(SETTINGS)
    used = "".join(path.read_text() for path in (ROOT / "crates/store/src").rglob("*.rs"))
    for step, _ in named:
        assert f"reached(Step::{step})" in used, step


@pytest.mark.parametrize("name", mutations.names())
def test_each_mutation_says_what_it_breaks_and_applies_to_the_tree(name: str) -> None:
    # Whoever moves the code that it changes, moves the mutation.
    assert mutations.breaks(name).endswith(".")
    assert mutations.applies(name) == ""


def test_a_mutation_is_applied_to_a_copy_and_its_finding_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutations, "COPY", ROOT / "target" / "mutated-in-test")
    monkeypatch.setattr(mutations, "RESULTS", tmp_path / "results.json")
    seen = []

    def build() -> None:
        path = "crates/store/src/wal/takeover.rs"
        assert (mutations.COPY / path).read_text() != (ROOT / path).read_text()

    def output(command: list[str], *_: Any, **__: Any) -> str | None:
        seen.append(command[3])
        told = "the round of seed 3 failed; its files are in /tmp/3\nE: it is lost\nagain: ./dev crash"
        return told if len(seen) == 2 else None

    monkeypatch.setattr(mutations, "_build", build)
    monkeypatch.setattr(mutations, "_output_of", output)
    (result,) = mutations.run(["second-segment-ignored"])
    assert (result.found_by, result.finding) == ("flips", "E: it is lost")
    assert seen == ["steps", "flips"]
    assert "| second-segment-ignored | Recovery ends " in mutations.table([result])
    assert list(mutations.read_results()) == ["second-segment-ignored"]
    path = "crates/store/src/wal/takeover.rs"
    assert (mutations.COPY / path).read_text() == (ROOT / path).read_text()
    shutil.rmtree(mutations.COPY)


def test_nothing_acknowledged_is_lost_and_nothing_else_appears(tmp_path: Path) -> None:
    tally = kills.Tally()
    for seed in range(ROUNDS):
        # What fails says with which seed, and keeps its files.
        tally.add(kills.run_round(seed, tmp_path / str(seed)))
    assert (tally.rounds, list(tmp_path.iterdir())) == (ROUNDS, [])
    assert sum(tally.kills.values()) > ROUNDS
    assert tally.writes > 0


def losing(change: str) -> Any:
    """A writer that acknowledges some changes of this kind that it did not make."""
    kept, dice = lives.apply_to_database, random.Random(1)

    def apply(db: Any, changes: list[Any]) -> None:
        kept(db, [one for one in changes if one[0] != change or dice.random() > 0.3])

    return apply


@pytest.mark.parametrize("change", ["put", "set", "append", "update"])
def test_a_round_that_loses_a_write_fails_and_says_how_to_run_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(lives, "apply_to_database", losing(change))
    monkeypatch.setattr(kills, "TIMED_SHARE", 0.0)
    failed = first_failure(tmp_path)
    assert failed.folder == tmp_path / str(failed.seed)
    assert (failed.folder / "story.txt").exists()
    assert f"seed {failed.seed}" in str(failed)


def first_failure(folder: Path) -> kills.FailedRoundError:
    for seed in range(100):
        try:
            kills.run_round(seed, folder / str(seed))
        except kills.FailedRoundError as failed:
            return failed
    pytest.fail("100 rounds have noticed nothing")


def test_the_same_seed_does_the_same() -> None:
    def operations() -> list[str]:
        writer = kills.Writer("anna", kills.Model(), random.Random(7), is_alone=True)
        return [repr(operation) for operation, _ in zip(writer, range(300), strict=False)]

    assert operations() == operations()


def test_the_command_tells_its_options_and_runs_what_it_is_asked_for() -> None:
    command = [sys.executable, "-m", "crash"]
    folder = Path(__file__).parent
    asked = subprocess.run([*command, "--help"], cwd=folder, check=True, capture_output=True, text=True)
    assert "--rounds" in asked.stdout
    chosen = ["kills", "histories", "--rounds", "2", "--histories", "2", "--seed", "1"]
    ran = subprocess.run([*command, *chosen], cwd=folder, check=True, capture_output=True, text=True)
    assert "2 rounds" in " ".join(ran.stdout.split())
    assert "strictly serializable" in ran.stdout


# Histories


def test_what_concurrent_clients_see_has_an_order(tmp_path: Path) -> None:
    assert sum(histories.run(n, tmp_path / str(n)) for n in range(HISTORIES)) > HISTORIES * 10


def test_a_result_of_a_real_history_that_is_changed_has_none(tmp_path: Path) -> None:
    events = histories.recorded(11, tmp_path)
    assert order_of(events, (None,) * histories.KEYS) is not None
    reads = [event for event in events if event.kind == "get" and event.returned is not None]
    for read in reads[:5]:
        told = Event(read.client, read.called, read.returned, "get", read.arguments, "nobody's")
        assert order_of([told if event is read else event for event in events], (None,) * 3) is None


def told(*events: tuple[int, int, int | None, str, tuple[Any, ...], Any]) -> bool:
    """Whether a history over two keys has an order."""
    return order_of([Event(*event) for event in events], (None, None)) is not None


def test_overlapping_operations_may_have_either_order() -> None:
    put = (1, 0, 10, "put", (0, "x"), None)
    for seen in (None, "x"):
        assert told(put, (2, 5, 15, "get", (0,), seen))
    assert not told(put, (2, 5, 15, "get", (0,), "y"))


def test_a_stale_read_is_found() -> None:
    assert not told((1, 0, 10, "put", (0, "x"), None), (2, 11, 15, "get", (0,), None))
    # Also where two readers disagree about which way it went.
    put = (1, 0, 100, "put", (0, "x"), None)
    assert not told(put, (2, 10, 20, "get", (0,), "x"), (3, 30, 40, "get", (0,), None))


def test_a_lost_update_is_found() -> None:
    one, other = (1, 0, 10, "bump", (0,), None), (2, 5, 15, "bump", (0,), None)
    assert not told(one, other, (3, 20, 25, "get", (0,), 1))
    assert told(one, (*other[:-1], 1), (3, 20, 25, "get", (0,), 2))
    # Both think that they were the ones who found it as they expected.
    sets = [(client, 0, 10, "compare and set", (0, None, client), None) for client in (1, 2)]
    assert not told(*sets)
    assert told(sets[0], (*sets[1][:-1], 1))


def test_write_skew_is_found() -> None:
    # Each sees that the other's key is free, and takes its own: one of them must have seen the other.
    skew = [
        (1, 0, 10, "put unless", (0, 1, "x"), [None, None]),
        (2, 0, 10, "put unless", (1, 0, "y"), [None, None]),
    ]
    assert not told(*skew)
    assert told(skew[0], (*skew[1][:-1], [None, "x"]))


def test_half_a_transaction_is_found() -> None:
    before = (1, 0, 5, "put", (0, "x"), None)
    move = (1, 10, 20, "move", (0, 1, "z"), ["x", None])
    for seen, has_order in (
        ([[0, "x"]], True),
        ([[0, "z"], [1, "x"]], True),
        ([[0, "z"]], False),
        ([[0, "x"], [1, "x"]], False),
    ):
        assert told(before, move, (2, 12, 18, "range", (0, 2), seen)) is has_order
    assert not told(before, (1, 10, 20, "undone", (0, "z"), "x"), (2, 12, 18, "get", (0,), "z"))


def test_what_a_death_came_in_between_happened_or_not() -> None:
    put = (1, 0, None, "put", (0, "x"), None)
    assert told(put, (2, 50, 60, "get", (0,), None))
    assert told(put, (2, 50, 60, "get", (0,), "x"))
    assert told(put, (2, 50, 60, "get", (0,), None), (2, 70, 80, "get", (0,), "x"))
    assert not told(put, (2, 50, 60, "get", (0,), "x"), (2, 70, 80, "get", (0,), None))
    assert not told(put, (2, 50, 60, "count", (), 2))
