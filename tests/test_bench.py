"""Do the benchmarks measure what they say, and hide nothing? No test looks at how long anything took."""

from __future__ import annotations

import doctest
import io
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest
from pellucid import F
from pellucid_bench import child, measures, runner, terminal, writer_processes
from pellucid_bench.contenders import writers
from pellucid_bench.contenders.dicts import Player, Session, players
from pellucid_bench.contenders.pellucid import OURS, Ours, Pellucid
from pellucid_bench.contenders.queries import Queried, queried
from pellucid_bench.contenders.stores import InFile, Store, stores
from pellucid_bench.contenders.writers import Writer
from pellucid_bench.experiments import columns, dicts, pending_commits, queries, scale
from pellucid_bench.measures import Measure, Result, Target, Unit, Verdict
from pellucid_bench.rivals import Rivals
from pellucid_bench.run import Run
from pellucid_bench.runner import (
    Contender,
    Pace,
    WrongAnswerError,
    function,
    in_turn,
    loop,
    measure,
    statement,
    timed,
)
from pellucid_bench.sample_records import FIELD_NAMES, MIXED, SHAPES, STARTS, UNIFORM, VARIED, Population
from rich.console import Console
from test_bench_datasets import sample_run

ROWS = 300


def constant(name: str, cost: float, *, answer: Any = None, is_ours: bool = False) -> Contender:
    return Contender(name, lambda: cost, (lambda: answer) if answer is not None else None, is_ours=is_ours)


def compared(ours: float, theirs: float, unit: Unit = Unit.TIME, targets: Sequence[Target] = ()) -> Measure:
    contenders = [constant("pellucid", ours, is_ours=True), constant("rival", theirs)]
    made = Measure("a measure", unit, [one.result() for one in contenders], list(targets))
    return measure(made, contenders, Pace(rounds=3))


# What a measure says


def test_costs_are_shown_as_people_read_them() -> None:
    assert doctest.testmod(measures).attempted > 0
    assert [Unit.TIME.show(cost) for cost in (2.5e-6, 0.0123, 4.0)] == ["2.50 us", "12.3 ms", "4.00 s"]
    assert [Unit.RATE.show(1 / rate) for rate in (500, 62_000, 2e9)] == ["500.0 /s", "62.0 k/s", "2.00 G/s"]
    assert [Unit.BYTES.show(size) for size in (199, 199.25, 64e6)] == ["199 B", "199.2 B", "64.0 MB"]


def test_a_ratio_above_one_means_that_we_are_faster() -> None:
    result = compared(ours=2.0, theirs=6.0)
    assert result.ratio(result.results[1]) == 3.0
    assert result.losses() == []


def test_a_rival_that_is_ahead_is_a_loss() -> None:
    result = compared(ours=2.0, theirs=1.0)
    assert [loss.name for loss in result.losses()] == ["rival"]


def test_medians_decide() -> None:
    assert Result("x", costs=[1.0, 50.0, 2.0]).median == 2.0


@pytest.mark.parametrize(
    ("ours", "wanted", "verdict"),
    [
        (1.0, 3.0, Verdict("3.00x rival", "3.00x", is_met=True)),
        (1.5, 3.0, Verdict("3.00x rival", "2.00x", is_met=False)),
    ],
)
def test_a_target_against_a_rival(ours: float, wanted: float, verdict: Verdict) -> None:
    assert compared(ours=ours, theirs=3.0).verdict(Target(wanted, "rival")) == verdict


def test_a_target_against_a_rival_that_is_missing_is_neither_met_nor_missed() -> None:
    assert compared(ours=1.0, theirs=1.0).verdict(Target(2.0, "nobody")).is_met is None


def test_a_rate_is_to_be_reached_and_a_size_to_stay_below() -> None:
    rate = compared(ours=1 / 20e6, theirs=1.0, unit=Unit.RATE)
    assert rate.verdict(Target(16e6)) == Verdict("at least 16.00 M/s", "20.00 M/s", is_met=True)
    assert rate.verdict(Target(35e6)).is_met is False
    size = compared(ours=171, theirs=1.0, unit=Unit.BYTES)
    assert size.verdict(Target(171)) == Verdict("at most 171 B", "171 B", is_met=True)
    assert size.verdict(Target(170)).is_met is False


# How contenders are run


def test_everybody_runs_once_a_round_and_nobody_is_always_first() -> None:
    everybody = [constant(name, 1.0) for name in "abc"]
    order = [(number, contender.name) for number, contender in in_turn(everybody, 3)]
    assert "".join(name for _, name in order) == "abcbcacab"
    assert [number for number, _ in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_contender_with_another_answer_is_not_timed() -> None:
    contenders = [constant("right", 1.0, answer=21), constant("wrong", 0.1, answer=22)]
    made = Measure("ages", Unit.TIME, [one.result() for one in contenders])
    right, wrong = measure(made, contenders, Pace(rounds=1), expected=21).results
    assert (right.costs, right.error) == ([1.0], None)
    assert (wrong.costs, wrong.error) == ([], "answers 22, not 21")


def test_a_contender_that_fails_leaves_the_measure_and_the_others_go_on() -> None:
    costs = iter([5.0])
    contenders = [constant("steady", 1.0), Contender("fails later", lambda: next(costs))]
    made = Measure("ages", Unit.TIME, [one.result() for one in contenders])
    steady, failing = measure(made, contenders, Pace(rounds=3)).results
    assert (steady.costs, failing.costs) == ([1.0] * 3, [5.0])
    assert failing.error == "StopIteration"


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_a_contender_that_is_slow_and_takes_long_gives_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def lasting(seconds: float, cost: float) -> Callable[[], float]:
        def sample() -> float:
            clock.now += seconds
            return cost

        return sample

    monkeypatch.setattr(runner, "time", clock)
    kinds = {"fast": (1.0, 1.0), "as long": (9.0, 9.0), "slow": (11.0, 11.0), "slow and short": (1.0, 11.0)}
    contenders = [Contender(name, lasting(*kind)) for name, kind in kinds.items()]
    made = Measure("", Unit.TIME, [one.result() for one in contenders])
    measure(made, contenders, Pace(rounds=5, slow_seconds=20.0))
    assert [len(result.costs) for result in made.results] == [5, 5, 2, 5]
    assert made.notes == ["fewer samples of what is 10 times as slow as the fastest: slow"]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    def stop() -> float:
        raise KeyboardInterrupt

    run = Run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run.measure("ages", Unit.TIME, [constant("pellucid", 1.0, is_ours=True), Contender("slow", stop)])
    ours, slow = run.measures[0].to_dataset("x").results
    assert (ours.samples, ours.error) == ([1.0], None)
    assert (slow.samples, slow.error) == ([], "stopped before it was measured")


def test_a_statement_answers_what_it_times() -> None:
    pace = Pace(rounds=2, sample_seconds=0.0001)
    one = statement("one", "d['age']", {"d": {"age": 21}}, pace)
    many = statement("many", "d['age']", {}, pace, over=("d", [{"age": 1}, {"age": 2}]))
    assert one.answer is not None
    assert many.answer is not None
    assert (one.answer(), many.answer()) == (21, [1, 2])
    assert one.sample() > 0
    assert many.sample() > 0


def test_a_sample_of_what_only_reads_is_the_mean_of_its_repetitions() -> None:
    calls: list[None] = []

    def work() -> None:
        calls.append(None)
        time.sleep(0.001)

    started = time.perf_counter()
    cost = timed("x", work, 10, repeat_seconds=0.02).sample()
    assert 0.02 <= cost * 10 * len(calls) <= time.perf_counter() - started
    calls.clear()
    timed("x", work, 10).sample()
    assert len(calls) == 1


def test_what_comes_before_and_after_a_sample_runs_around_it() -> None:
    seen: list[str] = []
    add = seen.append
    contender = timed("x", lambda: add("work"), 1, before=lambda: add("before"), after=lambda: add("after"))
    contender.sample()
    assert seen == ["before", "work", "after"]


def test_the_loop_adds_up() -> None:
    assert loop("row", "rows", "row['n']", {"rows": [{"n": 1}, {"n": 41}]})() == 42


# What is measured


def test_the_uniform_record_is_the_experiments() -> None:
    records = UNIFORM.records(3)
    assert list(records[0]) == ["name", "age", "mylist", "mydict", "amt", "end"]
    assert records[0]["mydict"] is not records[1]["mydict"]
    assert [record["age"] for record in records] == [21, 58, 35]


def test_the_mixed_population_has_64_kinds_of_record_a_tenth_of_their_fields_missing() -> None:
    records = MIXED.records(6_400)
    assert records == MIXED.records(6_400)
    assert len({frozenset(shape) for shape in SHAPES}) == 64
    assert set().union(*map(set, SHAPES)) <= {"age", *FIELD_NAMES}
    there = sum(len(record) for record in records)
    possible = sum(len(SHAPES[number % 64]) for number in range(6_400))
    assert 0.88 < there / possible < 0.92
    ages = {type(record["age"]) for record in records if "age" in record}
    assert ages == {int, float}


def test_the_varied_population_has_something_to_ask() -> None:
    records = VARIED.records(2_400)
    assert list(records[0]) == list(UNIFORM.record(0))
    assert len({record["end"] for record in records}) == 100
    assert len({record["amt"] for record in records}) == len(records)
    assert sum(record["age"] >= 75 for record in records) == len(records) / 10
    nested = [record["mydict"]["c"]["nested"] for record in records]
    assert sum(text.startswith("this") for text in nested) == len(records) / len(STARTS)


@pytest.fixture(params=[UNIFORM, MIXED], ids=lambda population: population.name)
def population(request: pytest.FixtureRequest) -> Population:
    found: Population = request.param
    return found


def each_store(population: Population, directory: Path, check: Callable[[Store], None]) -> list[str]:
    found = stores(Rivals(), population, directory)
    for store in found:
        try:
            check(store)
        finally:
            store.remove()
    return [store.name for store in found]


def test_every_store_finds_the_same_sum_and_the_same_field(population: Population, tmp_path: Path) -> None:
    records = population.records(ROWS)
    ages = [record.get("age", 0) for record in records]

    def check(store: Store) -> None:
        store.fill(records)
        for work in (store.loop_sum(), store.own_sum()):
            assert work is None or work() == sum(ages), store.name
        line = store.field_line()
        assert line is not None
        names = {**line[1], "key": 150}
        answer = statement(store.name, line[0], names, Pace()).answer
        assert answer is not None
        assert answer() == ages[150], store.name
        assert not isinstance(store, InFile) or (store.size() or 0) > 0

    names = each_store(population, tmp_path, check)
    assert names[0] == "pellucid"
    assert "sqlite3, JSON" in names
    assert list(tmp_path.iterdir()) == []


def test_every_store_keeps_what_is_set(population: Population, tmp_path: Path) -> None:
    def check(store: Store) -> None:
        if store.name.startswith("duckdb"):
            return
        store.fill(population.records(ROWS))
        store.set_all(list(range(ROWS)))
        work = store.loop_sum()
        assert work is not None
        assert work() == sum(range(ROWS)), store.name

    each_store(population, tmp_path, check)


def test_our_two_ways_to_set_a_field_agree(population: Population, tmp_path: Path) -> None:
    store = Pellucid(population, tmp_path)
    store.fill(population.records(ROWS))
    store.set_all_by_key([7] * ROWS)
    assert store.loop_sum()() == 7 * ROWS
    store.remove()


# Dicts


@pytest.mark.parametrize("player", players(Rivals()), ids=lambda player: player.name)
def test_everybody_who_plays_a_dict_gives_back_what_was_put(player: Player, tmp_path: Path) -> None:
    pairs = [(f"key {number}", f"value {number}") for number in range(250)]
    played = dicts.play(player, pairs, 60.0, tmp_path)
    assert (played.written, played.read) == (250, 250)
    assert list(tmp_path.iterdir()) == []


def test_a_player_that_forgets_is_caught(tmp_path: Path) -> None:
    kept: dict[str, str] = {}
    session = Session({"d": kept}, lambda: None, lambda: {"d": kept}, kept.clear)
    forgetful = Player("forgetful", lambda _path: session, "d[k] = v[:-1]", "d[k]", "nothing")
    with pytest.raises(WrongAnswerError, match="forgetful has"):
        dicts.play(forgetful, [("a", "1")], 60.0, tmp_path)


@pytest.mark.parametrize(("name", "there"), [("dict", 1_000), ("shelve on", dicts.BLOCK)])
def test_who_needs_longer_than_the_budget_is_stopped_and_judged_by_what_was_done(
    name: str, there: int, tmp_path: Path
) -> None:
    player = next(player for player in players(Rivals()) if player.name.startswith(name))
    pairs = [(f"key {number}", f"value {number}") for number in range(1_000)]
    played = dicts.play(player, pairs, 0.0, tmp_path)
    assert (played.written, played.read, played.there) == (dicts.BLOCK, dicts.BLOCK, there)


def test_who_was_stopped_is_left_out_of_the_greatest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()

    def put(pairs: dict[str, str], key: str, value: str) -> None:
        clock.now += 0.001
        pairs[key] = value

    def opened(_path: Path) -> Session:
        pairs: dict[str, str] = {}
        names = {"d": pairs, "put": put}
        return Session(names, lambda: None, lambda: names, lambda: None, pairs.update)

    slow = Player("pellucid, slow", opened, "put(d, k, v)", "d[k]", "nothing", is_ours=True)
    quick = Player("a dict", opened, "d[k] = v", "d[k]", "nothing")
    monkeypatch.setattr(dicts, "players", lambda _rivals: [slow, quick])
    monkeypatch.setattr(dicts, "time", clock)
    monkeypatch.setattr(dicts, "LEFT_OUT_ABOVE", 1_500)
    run = Run(
        tmp_path, dicts.ABOUT.values({"writes": (1_000,), "curve": (100, 1_500, 2_000)}), Pace(rounds=2)
    )
    run.settings.budget = 2.0  # half a second for so few keys: enough for 500 slow writes
    dicts.run(run)
    writes = {measure.size: measure for measure in run.measures if measure.group == "write"}
    done = [writes[count].results[0].facts["writes"] for count in (100, 1_000, 1_500)]
    assert done == ["100", "stopped at 100", "stopped at 100"]
    left = writes[2_000].results[0]
    assert left.left_out == "left out: of 1,500 values it wrote 100 in 0.1 s, and was stopped"
    assert (left.costs, left.error) == ([], None)
    assert len(writes[2_000].results[1].costs) == 2
    row = writes[2_000].to_dataset("dict").result("pellucid, slow")
    assert row is not None
    assert row.error == left.left_out


def test_a_round_that_would_be_over_the_budget_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()

    def play(*_: object) -> dicts.Played:
        clock.now += 3.0
        return dicts.Played(1.0, 20, 1.0, 20, 20, 1.0)

    player = Player("a dict", lambda _path: Session({}, list, dict, list), "", "", "nothing")
    monkeypatch.setattr(dicts, "players", lambda _rivals: [player])
    monkeypatch.setattr(dicts, "time", clock)
    monkeypatch.setattr(dicts, "play", play)
    run = Run(tmp_path, dicts.ABOUT.values({"budget": 8.0}), Pace(rounds=7))
    dicts.one_count(run, 20, {})
    assert [len(measure.results[0].costs) for measure in run.measures] == [2] * 5


def test_rivals_are_compared_with_what_is_like_them() -> None:
    everybody = {player.name: player for player in players(Rivals())}
    likes = {
        "dict": "pellucid, in memory",
        "sqlite3, memory, executemany": "pellucid, in memory",
        "sqlite3, file, INSERT and commit": "pellucid, full",
        "sqlite3, file, WAL, INSERT and commit": "pellucid",
        "sqlite3, file, INSERT, one transaction": "pellucid, one transaction",
        "sqlite3, file, executemany": "pellucid, update()",
    }
    assert {name: everybody[name].like for name in likes} == likes
    assert {player.like for player in everybody.values()} <= set(everybody)
    assert all(player.like == player.name for player in everybody.values() if player.is_ours)


def test_the_targets_of_a_dict_are_those_of_its_count() -> None:
    found = {
        count: [
            measure.verdict(target).wanted
            for measure in dicts.measures_of(count, 10)
            for target in measure.targets
        ]
        for count in (300, 10_000, 1_000_000)
    }
    lmdb = "1.00x lmdb, a transaction for each, sync off"
    assert found == {
        300: [],
        10_000: ["0.17x dict", "4.00x dbm.gnu", "3.00x dbm.gnu"],
        1_000_000: ["2.00x dbm.gnu", lmdb, "1.00x rocksdict", "1.00x plyvel"],
    }


def test_both_together_are_the_sum_of_their_parts(tmp_path: Path) -> None:
    run = Run(tmp_path, dicts.ABOUT.values(quick=True), Pace(rounds=1))
    dicts.one_count(run, 20, {})
    costs = {
        measure.title: {result.name: result.costs[0] for result in measure.results if result.costs}
        for measure in run.measures
    }
    writes, reads, together, whole, all_of_it = costs.values()
    for name, cost in together.items():
        assert cost == writes[name] + reads[name]
        assert all_of_it[name] == whole[name] + reads[name]


# Writes


WRITERS = pytest.mark.parametrize("writer", writers.writers(Rivals()), ids=lambda writer: writer.name)


@WRITERS
def test_every_writer_does_what_its_lines_say(writer: Writer, tmp_path: Path) -> None:
    opened = writer.open(tmp_path / "people")
    names = opened.names()
    opened.fill(writers.row(number, 1) for number in range(250))

    def run_line(line: str, **more: Any) -> Any:
        return writers.repeated("if True:", line, {**names, **more})()

    run_line(writer.put, k=120, v=writers.row(120, 10))
    assert run_line(writer.scan, k=120) == 109
    assert run_line(writer.scan, k=121) == 100
    run_line(writer.change, k=120)
    run_line(writer.transaction, pairs=[(number, writers.row(number, 5)) for number in range(10)])
    assert [function("k", writer.age, names)(key) for key in (9, 10, 120)] == [5, 1, 11]
    assert run_line(writer.loop) == 250 + 40 + 10
    assert not writer.sum or function("", writer.sum, names)() == 300
    opened.close()


@WRITERS
def test_what_a_killed_writer_put_is_there(writer: Writer, tmp_path: Path) -> None:
    child.killed("crash", writer.name, str(tmp_path / "people"), "120")
    found = child.run("recover", writer.name, str(tmp_path / "people"), "120")
    assert found["total"] == sum(writers.row(number)["age"] for number in range(120))
    assert found["recovered"] == (120 if writer.is_ours else None)


def test_a_process_that_fails_beside_others_ends_them_all(tmp_path: Path) -> None:
    waiting = ["exchange", "pellucid", str(tmp_path / "people"), "0", "5"]
    with pytest.raises(RuntimeError, match="unknown verb 'dance'"):
        child.together(waiting, ["dance"])


def test_a_process_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    opened = OURS.open(tmp_path / "people")
    opened.fill(writers.row(number, 0) for number in range(2 * writer_processes.KEYS))
    opened.close()
    arguments = ["exchange", "pellucid", str(tmp_path / "people"), "0", "5"]
    command, pipe = child.command(*arguments), subprocess.PIPE
    with subprocess.Popen(
        command, env=child.environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        # It puts its time, and would wait for another one's for ever.
        process.stdin.write("go\n")
        process.stdin.close()
        assert (process.wait(60), process.stderr.read()) == (1, "")


def test_a_sample_with_a_checkpoint_in_it_is_taken_anew() -> None:
    assert doctest.testmod(pending_commits).attempted > 0
    costs = iter([None, None, 7.0])

    def sample() -> float:
        cost = next(costs)
        if cost is None:
            raise pending_commits.CheckpointCameError
        return cost

    assert pending_commits.again("a scan", sample) == 7.0


def test_a_log_that_never_stays_pending_is_an_error() -> None:
    def sample() -> float:
        raise pending_commits.CheckpointCameError

    with pytest.raises(RuntimeError, match="5 times in a row a checkpoint came in between"):
        pending_commits.again("a scan", sample)


# Queries


@pytest.fixture
def everybody(tmp_path: Path) -> Iterator[list[Queried]]:
    found = queried(Rivals(), tmp_path)
    for one in found:
        one.fill(VARIED.records(ROWS))
    yield found
    for one in found:
        one.remove()
    assert list(tmp_path.iterdir()) == []


def test_everybody_answers_a_query_alike(everybody: list[Queried]) -> None:
    records = VARIED.records(ROWS)
    above = sum(record["age"] > 50 for record in records)
    begins = sum(record["mydict"]["c"]["nested"][:4] == "this" for record in records)
    ends = sorted({record["end"] for record in records})
    greatest = sorted((record["amt"] for record in records), reverse=True)
    passing = sum(record["amt"] for record in records if record["age"] >= 75)
    for one in everybody:
        assert (one.count_above(), one.count_prefix()) == (above, begins), one.name
        groups = one.groups()
        assert [end for end, _, _ in groups] == ends, one.name
        assert sum(total for _, total, _ in groups) == sum(greatest), one.name
        assert groups[7][2] == sum(record["age"] for record in records[7::100]) / (ROWS / 100), one.name
        assert (one.top(), one.add_matches()) == (greatest[:10], passing), one.name
        one.grow_older()
        assert one.ages() == [record["age"] + 1 for record in records], one.name
    names = [one.name for one in everybody]
    assert names[0] == "pellucid"
    assert {"list of live dicts", "sqlite3, columns", "sqlite3, JSON"} <= set(names)


def test_the_changed_transaction_leaves_nothing(everybody: list[Queried]) -> None:
    ours = everybody[0]
    assert isinstance(ours, Ours)
    before = list(ours.table.values())
    with ours.in_changed_transaction():
        assert ours.table.where(F.name == "Fred").count() == 1
        assert ours.count_above() > 0
    assert list(ours.table.values()) == before


def test_everybody_hands_over_the_same_columns(everybody: list[Queried]) -> None:
    records = VARIED.records(ROWS)
    table = pyarrow.Table.from_pylist(
        [
            {name: record[name] for name in ("age", "amt", "end")}
            | {"nested": record["mydict"]["c"]["nested"]}
            for record in records
        ]
    )
    for one in everybody:
        assert columns.ages(one, numpy)().tolist() == table["age"].to_pylist(), one.name
        assert columns.four(one, pyarrow)().to_pylist() == table.to_pylist(), one.name


def test_a_query_that_answers_otherwise_has_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ours, "count_prefix", lambda _self: 7)
    run = Run(tmp_path, queries.ABOUT.values(quick=True), Pace(rounds=1), queries.COUNT_PREFIX)
    queries.run(run)
    [one] = run.measures
    assert {result.error for result in one.results if result.is_ours} == {"answers 7, not 375"}
    assert all(result.costs for result in one.results if not (result.is_ours or result.error))
    assert list(tmp_path.iterdir()) == []


def test_a_change_that_is_not_kept_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count()
    grow = Ours.grow_older
    monkeypatch.setattr(Ours, "grow_older", lambda self: None if next(times) else grow(self))
    run = Run(tmp_path, queries.ABOUT.values(quick=True), Pace(rounds=1, bulk_rounds=1), queries.GROW)
    with pytest.raises(WrongAnswerError, match="pellucid did not keep what was set"):
        queries.run(run)


def test_polars_says_how_many_threads_it_has(tmp_path: Path) -> None:
    # In an interpreter of its own: here it may have been imported, with as many as there are processors.
    line = (
        "import sys; from pellucid_bench.contenders import polars; from pellucid_bench.rivals import Rivals"
    )
    ask = f"{line}; print(polars.polars_of(Rivals())[1])"
    run = partial(subprocess.run, capture_output=True, text=True, check=True, cwd=tmp_path)
    environment = child.environment()
    assert run([sys.executable, "-c", ask], env=environment).stdout == "polars, in memory\n"
    environment["POLARS_MAX_THREADS"] = "3"
    started = f"import polars; polars.thread_pool_size(); {ask}"
    found = run([sys.executable, "-c", started], env=environment).stdout
    assert found == "polars, in memory, 3 threads\n"


# Reports


def text_of(run: Run, width: int = 140) -> str:
    out = io.StringIO()
    made = sample_run()
    made.missing = run.rivals.missing
    terminal.show(Console(file=out, width=width), run, made)
    return out.getvalue()


def test_a_row_that_we_lose_is_shown_and_marked(tmp_path: Path) -> None:
    run = Run(tmp_path, measures=[compared(ours=2.0, theirs=1.0, targets=[Target(1.0, "rival")])])
    text = text_of(run)
    assert "0.50x" in text
    assert "we lose" in text
    assert "missed" in text
    assert "they were faster in 1" in text


def test_rivals_stand_under_the_row_that_they_are_compared_with(tmp_path: Path) -> None:
    results = [
        Result("pellucid", is_ours=True, costs=[8.0]),
        Result("pellucid, in bulk", is_ours=True, costs=[2.0]),
        Result("single", like="pellucid", costs=[4.0]),
        Result("bulk", like="pellucid, in bulk", costs=[4.0]),
    ]
    together = Measure("writes", Unit.TIME, results)
    assert [together.ratio(result) for result in results] == [None, None, 0.5, 2.0]
    text = text_of(Run(tmp_path, measures=[together]))
    order = [text.index(f"\n {name} ") for name in ("pellucid", "single", "pellucid, in bulk", "bulk")]
    assert order == sorted(order)


def test_a_rival_that_is_not_installed_has_a_row_and_a_reason(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.gather(lambda rivals: filter(None, [rivals.find("no_such_rival")])) == []
    run.add(compared(ours=1.0, theirs=2.0))
    text = text_of(run)
    assert re.search(r"no_such_rival +- +not installed", text)
    assert "not measured: no_such_rival (not installed: No module named 'no_such_rival')" in text


def test_a_narrow_terminal_has_a_list_instead_of_tables(tmp_path: Path) -> None:
    run = Run(tmp_path, measures=[compared(ours=2.0, theirs=1.0, targets=[Target(1.0, "rival")])])
    text = text_of(run, width=40)
    assert max(map(len, text.splitlines())) <= 40
    for part in ("a measure", "pellucid", "rival", "0.50x", "we lose", "missed"):
        assert part in text


def test_the_keys_of_many_rows_are_distinct_and_come_in_the_order_asked_for() -> None:
    random, sequential = scale.Rows(5_000, "random"), scale.Rows(5_000, "sequential")
    assert len({random.key(number) for number in range(5_000)}) == 5_000
    keys = [sequential.key(number) for number in range(5_000)]
    assert keys == sorted(keys)
    assert [random.key(number) for number in range(100)] != sorted(
        random.key(number) for number in range(100)
    )
    assert sorted(random.shuffled(3)) == list(range(5_000))
    more_than_a_batch = range(scale.COMMIT * 2 + 1)
    assert [len(batch) for batch in scale.batches(iter(more_than_a_batch))] == [100_000, 100_000, 1]
    assert random.row(7) == random.row(7)
    assert random.row(7) != random.row(7, version=1)
