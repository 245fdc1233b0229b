"""Does the experiment of pickles measure every codec, and the standard library under another Python?"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from pellucid_bench import collect, collected, command
from pellucid_bench.dataset import Dataset, read
from pellucid_bench.run import Run
from pellucid_bench.runner import Pace
from test_bench_collector import FIRST_OF_A_KIND, INTERPRETERS

SIZES = ("--sizes", "1", "20")


def measured(folder: Path, *arguments: str, code: int = 0) -> Dataset:
    out = folder / "out.json"
    assert command.main(["pickle", "--quick", *SIZES, *arguments, "--json", str(out)]) == code
    [run] = read(out)
    return run


def test_every_codec_dumps_loads_and_has_a_size(tmp_path: Path) -> None:
    run = measured(tmp_path)
    assert [measure.id for measure in run.measures] == [
        f"pickle/{group}/{size}" for size in (1, 20) for group in ("dump", "load", "size", "memo")
    ]
    names = {"pellucid", "orjson", "ujson", "msgspec", "cbor2"} | {
        codec.name for codec in collect.standard_codecs()
    }
    for measure in run.measures:
        if measure.group != "memo":
            assert names <= {one.contender for one in measure.results} | {
                one.library for one in measure.results
            }
            assert [one.contender for one in measure.results if one.ours] == ["pellucid"]
        errors = {one.library for one in measure.results if one.error}
        assert errors <= set(run.missing)


def test_the_share_of_the_memo_is_that_of_each_round(tmp_path: Path) -> None:
    run = measured(tmp_path, "--only", "dump")
    dump, share = run.measure("pickle/dump/20"), run.measure("pickle/memo/20")
    assert dump is not None
    assert share is not None
    assert {one.contender for one in share.results} == {
        one.contender for one in dump.results if one.facts.get("memo") == "yes"
    }
    for one in share.results:
        slow, fast = dump.result(one.contender), dump.result(f"{one.contender}, fast")
        assert slow is not None
        assert fast is not None
        pairs = zip(slow.samples, fast.samples, strict=True)
        assert one.samples == [(long - short) / long for long, short in pairs]


def test_a_library_that_is_not_installed_has_rows_that_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cbor2", None)
    run = measured(tmp_path)
    assert "cbor2" in run.missing
    for group, is_there in (("dump", True), ("load", True), ("size", True), ("memo", False)):
        measure = run.measure(f"pickle/{group}/1")
        assert measure is not None
        rows = [one for one in measure.results if one.contender == "cbor2"]
        assert bool(rows) is is_there
        assert all(one.error and not one.samples for one in rows)


# Another Python


@pytest.mark.parametrize("name", FIRST_OF_A_KIND)
def test_the_standard_library_runs_under_another_python(name: str, tmp_path: Path) -> None:
    run = measured(tmp_path, "--python", INTERPRETERS[name])
    assert f"{run.python.implementation} {run.python.version}" == name
    assert {measure.group for measure in run.measures} == {"dump", "load", "size", "memo"}
    assert {one.library for measure in run.measures for one in measure.results} == {
        "pickle",
        "marshal",
        "json",
    }


def test_another_python_is_measured_once_with_isolation(tmp_path: Path) -> None:
    run = measured(tmp_path, "--python", INTERPRETERS[next(iter(FIRST_OF_A_KIND))], "--isolate")
    assert "--isolate changes nothing here: another Python measures, in a process of its own" in run.notes
    assert f"{run.python.implementation} {run.python.version}" == next(iter(FIRST_OF_A_KIND))


def test_its_measures_have_the_same_names_as_those_of_this_python(tmp_path: Path) -> None:
    here, there = measured(tmp_path), measured(tmp_path, "--python", sys.executable)
    assert [one.id for one in there.measures] == [one.id for one in here.measures]
    for one, other in zip(there.measures, here.measures, strict=True):
        assert (one.title, one.unit) == (other.title, other.unit)
        assert {result.contender for result in one.results} <= {result.contender for result in other.results}


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/nowhere/python", "cannot run /nowhere/python: No such file or directory; name another Python"),
        ("/bin/false", "the collector failed under /bin/false: exit code 1"),
    ],
)
def test_a_python_that_cannot_run_is_named(
    python: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = measured(tmp_path, "--python", python, code=1)
    assert not run.complete
    shown = " ".join(capsys.readouterr().out.split())
    assert reason in shown


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, sample = [], collect.sample

    def stops(*arguments: Any) -> Any:
        taken.append(arguments)
        if len(taken) == 100:
            raise KeyboardInterrupt
        return sample(*arguments)

    monkeypatch.setattr(collect, "sample", stops)
    run = measured(tmp_path, code=130)
    assert not run.complete
    dump = run.measure("pickle/dump/1")
    assert dump is not None
    assert any(result.samples for result in dump.results)


def test_ctrl_c_keeps_what_was_measured_under_another_python(tmp_path: Path) -> None:
    def stops(said: str) -> None:
        if said.startswith("bytes of one dict"):
            raise KeyboardInterrupt

    run = Run(tmp_path, pace=Pace(rounds=2, on_progress=stops))
    with pytest.raises(KeyboardInterrupt):
        collected.collect(run, "pickle", sys.executable, (1, 100_000), quick=True, whole=True)
    assert {"dump one dict", "load one dict"} <= {measure.title for measure in run.measures}
    assert len(run.measures) < 8
    assert run.interpreter is not None
    assert run.interpreter.version == platform.python_version()
