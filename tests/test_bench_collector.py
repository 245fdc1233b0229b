"""Does the collector run under every Python, alone, and write the dataset that `pellucid bench` reads?"""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pellucid_bench import collect, figures, machine
from pellucid_bench.dataset import Dataset, Interpreter, read

COLLECTOR = Path(collect.__file__)
NAMES = ["python2.7", *(f"python3.{minor}" for minor in range(6, 16)), "pypy", "pypy3"]


def interpreters() -> dict[str, str]:
    """The Pythons of this machine, by name and version: those on the path and those of pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    paths = [sys.executable, *map(shutil.which, NAMES), *map(str, root.glob("versions/*/bin/python"))]
    ask = "import platform; print(platform.python_implementation() + ' ' + platform.python_version())"
    found: dict[str, str] = {}
    for path in filter(None, paths):
        # A shim of pyenv is on the path for versions that it does not offer here.
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found.setdefault(done.stdout.strip(), path)
    return found


INTERPRETERS = interpreters()
# This one, and one of each that differs from it in kind.
FIRST_OF_A_KIND = {name.partition(".")[0]: name for name in reversed(INTERPRETERS)}.values()


def collected(
    folder: Path, *arguments: str, python: str = sys.executable, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a copy of the file, as on another machine: beside nothing else, and without our path."""
    alone = folder / "alone"
    alone.mkdir(exist_ok=True)
    shutil.copy(COLLECTOR, alone)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, "collect.py", *arguments],
        cwd=alone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **more,
    )


def measured(folder: Path, experiment: str, python: str = sys.executable) -> Dataset:
    out = folder / "out.json"
    done = collected(folder, experiment, "--quick", "--sizes", "1", "20", "--json", str(out), python=python)
    assert done.returncode == 0, done.stderr
    [run] = read(out)
    return run


# Every Python


@pytest.mark.parametrize("experiment", ["pickle", "buffers"])
@pytest.mark.parametrize("name", INTERPRETERS)
def test_every_python_of_this_machine_writes_the_same_schema(
    name: str, experiment: str, tmp_path: Path
) -> None:
    run = measured(tmp_path, experiment, INTERPRETERS[name])
    assert f"{run.python.implementation} {run.python.version}" == name
    assert (run.experiment, run.quick, run.complete) == (experiment, True, True)
    assert run.settings == {"rounds": 2, "sizes": [1, 20]}
    assert {measure.size for measure in run.measures} == {1, 20}
    assert [one.error for measure in run.measures for one in measure.results if one.error] == []
    for measure in run.measures:
        assert measure.id.startswith(f"{experiment}/")
        assert {result.library for result in measure.results} <= set(run.versions)
    [text] = [path.read_text() for path in tmp_path.glob("*.json")]
    for secret in (platform.node(), getpass.getuser(), str(tmp_path)):
        assert f'{secret}"' not in text
        assert f"/{secret}" not in text


def test_the_pickles_have_every_protocol_with_the_memo_and_without(tmp_path: Path) -> None:
    run = measured(tmp_path, "pickle")
    groups = {"dump", "load", "size", "memo"}
    assert {measure.group for measure in run.measures} == groups
    dump = run.measure("pickle/dump/20")
    assert dump is not None
    pickles = {
        f"pickle {kind}, protocol {protocol}{fast}"
        for kind in ("C", "Python")
        for protocol in range(6)
        for fast in ("", ", fast")
    }
    assert {one.contender for one in dump.results} == pickles | {"marshal", "marshal, no references", "json"}
    share = run.measure("pickle/memo/20")
    assert share is not None
    assert {one.contender for one in share.results} == {name for name in pickles if "fast" not in name}
    assert (share.unit, share.size_unit) == ("share", "dicts in the list")
    slow, fast = (dump.result(f"pickle C, protocol 2{end}") for end in ("", ", fast"))
    result = share.result("pickle C, protocol 2")
    assert slow is not None
    assert fast is not None
    assert result is not None
    assert result.samples == [(a - b) / a for a, b in zip(slow.samples, fast.samples, strict=True)]


def test_the_sizes_are_those_of_the_bytes(tmp_path: Path) -> None:
    size = measured(tmp_path, "pickle").measure("pickle/size/20")
    assert size is not None
    found = {one.contender: one.samples for one in size.results}
    assert found["json"] == [len(json.dumps(collect.value_of(20)))]
    assert found["pickle C, protocol 2, fast"] > found["pickle C, protocol 2"]
    assert size.unit == "bytes"


def test_the_machine_has_the_id_that_pellucid_bench_gives_it(tmp_path: Path) -> None:
    found = collect.machine(str(tmp_path))
    known = dataclasses.asdict(machine.describe(tmp_path))
    assert {**found, "load": 0} == {**known, "load": 0}
    assert Interpreter(**collect.interpreter()) == machine.interpreter()


def test_the_intervals_are_those_of_pellucid_bench() -> None:
    chance = random.Random(1)
    for count in range(3, 12):
        samples = [chance.random() for _ in range(count)]
        assert tuple(collect.interval(samples)) == figures.interval(samples)
    assert collect.UNSTABLE_WIDTH == figures.UNSTABLE_WIDTH


# What goes wrong


def test_an_unknown_experiment_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    done = collected(tmp_path, "nothing")
    assert done.returncode == 2
    for word in ("nothing", "pickle", "buffers"):
        assert word in done.stderr


@pytest.mark.parametrize("given", ["0", "-1", "many"])
def test_a_size_is_a_whole_number_above_zero(given: str, tmp_path: Path) -> None:
    done = collected(tmp_path, "pickle", f"--sizes={given}")
    assert done.returncode == 2
    assert f"'{given}' is no whole number above 0" in done.stderr


def test_a_file_that_cannot_be_written_is_said_before_the_measures(tmp_path: Path) -> None:
    for path, reason in [
        ("no/such/out.json", "No such file or directory"),
        (str(tmp_path), "it is a folder"),
    ]:
        done = collected(tmp_path, "pickle", "--json", path)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].endswith(f"cannot write {path}: {reason}")
        assert done.stdout == ""
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_keeps_the_old_dataset_and_shows_the_new_figures(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    arguments = ["pickle", "--quick", "--sizes", "1", "--json", str(out)]
    small = 2000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

    done = collected(tmp_path, *arguments, preexec_fn=limit)
    assert done.returncode == 1
    assert f"cannot write {out}: File too large; make room there, or name another file" in done.stderr
    assert "dump one dict" in done.stdout
    assert out.read_text() == "old"
    assert not list(tmp_path.glob("*.part"))


# PyPy sometimes loses a signal that comes just then, and goes on: Ctrl-C has to be pressed again there.
@pytest.mark.parametrize(
    "name", [name for name in INTERPRETERS if name in FIRST_OF_A_KIND and "PyPy" not in name]
)
def test_ctrl_c_keeps_what_was_measured(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["pickle", "--quick", "--json", str(out), "--rounds", "3", "--sizes", "1", "100000"]
    with subprocess.Popen(
        [INTERPRETERS[name], str(COLLECTOR), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("bytes of one dict"):
                break
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped: what was measured until then is kept" in said
    assert "dump one dict" in shown
    [run] = read(out)
    assert not run.complete
    dump = run.measure("pickle/dump/1")
    assert dump is not None
    assert all(len(result.samples) == 3 for result in dump.results)


def failing() -> object:
    raise ValueError("it refuses\n  this")


def test_a_contender_that_fails_or_gives_another_value_is_a_row_that_says_so() -> None:
    pace = collect.Pace(rounds=2, quick=True)
    run = collect.Run("pickle", pace, quick=True)
    codecs = [
        collect.Codec("good", "a library", lambda value: b"-", lambda data: collect.row(0)),
        collect.Codec("refuses", "b", lambda value: failing(), lambda data: None),
        collect.Codec("differs", "c", lambda value: b"+", lambda data: {"name": "another"}),
    ]
    collect.run_pickle(run, [1], codecs)
    [dump, load, size] = run.dataset("")["measures"]
    for measure in (dump, load, size):
        found = {one["contender"]: (one["error"], len(one["samples"])) for one in measure["results"]}
        assert found == {
            "good": (None, 1 if measure is size else 2),
            "refuses": ("ValueError: it refuses this", 0),
            "differs": ("ValueError: it gives back another value than it was given", 0),
        }


def test_a_contender_that_fails_later_keeps_its_samples_and_the_others_go_on() -> None:
    calls = iter(range(100))
    breaks = collect.Contender("breaks", "a", lambda: None if next(calls) < 2 else failing())
    goes_on = collect.Contender("goes on", "b", lambda: None)
    collect.take_samples([breaks, goes_on], collect.Pace(rounds=4, quick=True))
    assert (len(breaks.samples), breaks.error) == (1, "ValueError: it refuses this")
    assert (len(goes_on.samples), goes_on.error) == (4, None)


def test_contenders_take_turns_and_slow_ones_only_in_the_first_rounds() -> None:
    now, calls = [0.0], []

    def of(name: str, seconds: float) -> Any:
        def work() -> None:
            now[0] += seconds
            calls.append(name)

        return collect.Contender(name, name, work)

    contenders = [of("a", 0.5), of("b", 3.0), of("c", 0.5)]
    collect.take_samples(contenders, collect.Pace(rounds=5, quick=True), clock=lambda: now[0])
    assert "".join(calls[3:]) == "abcbcacabacca"
    assert [one.samples for one in contenders] == [[0.5] * 5, [3.0] * 3, [0.5] * 5]


def test_a_sample_spans_a_hundred_steps_of_a_coarse_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(collect, "PROCESSOR_TIME", lambda: next(ticks) // 4 * 0.015)
    pace = collect.Pace()
    assert pace.sample_seconds == pytest.approx(1.5)
    assert "makes steps of 15 ms" in collect.Run("pickle", pace).notes[-1]


def test_medians_and_their_intervals() -> None:
    assert collect.median([3.0, 1.0, 2.0]) == 2.0
    assert collect.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    samples = [1.0, 1.1, 1.2, 1.3, 9.0]
    low, high = collect.interval(samples)
    assert 1.0 <= low < 1.2 < high <= 9.0
    assert collect.interval([5.0, 1.0, 2.0, 4.0, 3.0]) == [1.0, 5.0]
    assert collect.interval([10.0] * 20 + [99.0]) == [10.0, 10.0]
    assert collect.interval(samples) == [low, high]
    one = collect.Contender("x", "x", None)
    one.samples = samples
    assert one.result()["unstable"]
    one.samples = samples[:2]
    assert one.result()["interval"] is None
