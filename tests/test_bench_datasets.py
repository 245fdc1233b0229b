"""Do datasets come back as they were written, and are damaged ones refused with the place?"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pellucid_bench.dataset import (
    SCHEMA,
    Dataset,
    DatasetError,
    Interpreter,
    Machine,
    Measure,
    Result,
    Target,
    files,
    from_json,
    merge,
    parse,
    read,
    to_json,
    write,
)

ROOT = Path(__file__).parent.parent


def sample_run(created: str = "2026-11-24T12:00:00+00:00") -> Dataset:
    results = [
        Result("pellucid", "pellucid", ours=True, samples=[1.0, 2.0, 3.0], median=2.0, interval=(1.0, 3.0)),
        Result("plyvel", "plyvel", error="not installed", facts={"file": "1.2 MB"}, like="pellucid"),
    ]
    return Dataset(
        created=created,
        command="pellucid bench dict",
        experiment="dict",
        settings={"writes": [100, 10_000]},
        machine=Machine("a processor", 2, None, "Linux", "6.1", "ext4", 0.1, "0123456789ab"),
        python=Interpreter("CPython", "3.11.7", "GCC 12"),
        versions={"pellucid": "0.1"},
        missing={"plyvel": "not installed"},
        notes=["one core"],
        measures=[
            Measure(
                "dict/write/10000",
                "Write 10,000 rows",
                "write",
                10_000,
                "rows/s",
                "higher",
                labels=["cold"],
                notes=["a note"],
                results=results,
                targets=[Target("3x plyvel", 3.0), Target("at least 1 row/s", 1.0, 2.0, met=True)],
            )
        ],
    )


def test_a_dataset_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write(path, [sample_run()])
    assert read(path) == [sample_run()]
    assert json.loads(path.read_text())["schema"] == SCHEMA
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]


def test_a_merged_file_has_all_runs_once_and_in_order(tmp_path: Path) -> None:
    runs = [sample_run("2026-11-25T00:00:00+00:00"), sample_run(), sample_run()]
    merged = merge(runs)
    assert [run.created[:10] for run in merged] == ["2026-11-24", "2026-11-25"]
    write(tmp_path / "all.json", merged)
    assert read(tmp_path / "all.json") == merged


def test_fields_of_later_versions_are_passed_over() -> None:
    value = to_json(sample_run())
    value["weather"] = value["measures"][0]["mood"] = value["measures"][0]["results"][0]["hat"] = "sunny"
    assert from_json(value) == [sample_run()]


def test_what_may_be_left_out_may_be_left_out() -> None:
    value = to_json(sample_run())
    for name in ("settings", "notes", "versions", "missing"):
        del value[name]
    for name in ("labels", "notes", "targets", "better", "size"):
        del value["measures"][0][name]
    for name in ("ours", "reference", "interval", "unstable", "error", "like", "note", "facts"):
        del value["measures"][0]["results"][0][name]
    [run] = from_json(value)
    assert run.measures[0].better == "higher"
    assert run.measures[0].results[0] == Result("pellucid", "pellucid", samples=[1.0, 2.0, 3.0], median=2.0)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("created", 7, "created is 7, where a string belongs"),
        ("machine", [], "machine is [], where an object belongs"),
        ("machine.cores", True, "machine.cores is true, where a whole number belongs"),
        ("machine.cores", -1, "machine.cores is -1, where a whole number of 0 or more belongs"),
        ("machine.memory_bytes", "much", 'machine.memory_bytes is "much", where a whole number belongs'),
        ("versions", {"x": 1}, 'versions is {"x": 1}, where an object of strings belongs'),
        ("notes", [1], "notes is [1], where a list of strings belongs"),
        ("measures", [1], "measures is [1], where a list of objects belongs"),
        ("measures.0.unit", "miles", "measures[0].unit is \"miles\", where 'seconds' or"),
        ("measures.0.better", "red", "measures[0].better is \"red\", where 'lower' or 'higher' belongs"),
        ("measures.0.results.0.samples", [1, "2"], 'samples is [1, "2"], where a list of numbers belongs'),
        ("measures.0.results.0.samples", [1, True], "samples is [1, true], where a list of numbers belongs"),
        ("measures.0.results.0.interval", [3, 1], "interval is [3, 1], where a pair of ascending numbers"),
        ("measures.0.results.0.median", None, "measures[0].results[0].median is null, where the median"),
        ("measures.0.results.1.error", None, "measures[0].results[1].error is null, where the reason"),
        ("measures.0.results.1.contender", "pellucid", "no contender is there twice"),
        ("measures.0.targets.0.met", "yes", 'measures[0].targets[0].met is "yes", where true or false'),
    ],
)
def test_a_damaged_dataset_is_refused_with_the_place(place: str, value: object, message: str) -> None:
    whole = to_json(sample_run())
    *parents, last = place.split(".")
    inner: Any = whole
    for name in parents:
        inner = inner[int(name)] if name.isdigit() else inner[name]
    inner[last] = value
    with pytest.raises(DatasetError, match=f"^run.json is damaged: .*{re.escape(message)}"):
        from_json(whole, "run.json")


def every_place(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a JSON value, with each of its keys or indexes."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [pair for key in keys for pair in every_place(value[key])]


@pytest.mark.parametrize(
    "planted", [None, True, -1, 1e300, 10**400, "text", [], {}, [[]], {"a": 1}], ids=repr
)
def test_no_value_anywhere_ends_in_a_traceback(planted: object) -> None:
    pristine = to_json(sample_run())
    for number in range(len(every_place(pristine))):
        whole = copy.deepcopy(pristine)
        container, key = every_place(whole)[number]
        container[key] = planted
        with contextlib.suppress(DatasetError):
            assert isinstance(from_json(whole)[0], Dataset)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged, or no dataset: Expecting value in line 1, column 1"),
        ('{"schema": "pellucid-bench/1", "created"', "damaged, or no dataset: Expecting ':'"),
        ("[]", 'no dataset: it has no "schema"'),
        ('{"schema": 1}', 'no dataset: it has no "schema"'),
        ('{"schema": "pellucid-bench/2"}', "has the schema 'pellucid-bench/2', and this version reads"),
        ('{"schema": NaN}', "damaged: it has NaN"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_dataset_is_refused(text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(message)):
        parse(text)


def test_files_that_cannot_be_read_or_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*nothing\.json: No such file or directory"):
        read(tmp_path / "nothing.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match=r"binary is no dataset: it is not text in UTF-8"):
        read(tmp_path / "binary")
    monkeypatch.setattr(files, "SIZE_MAX", 2)
    with pytest.raises(DatasetError, match="so it is no dataset"):
        read(tmp_path / "binary")
    with pytest.raises(DatasetError, match=r"cannot write .*run\.json: No such file or directory"):
        write(tmp_path / "absent" / "run.json", [sample_run()])


def test_a_full_disk_leaves_the_old_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    write(path, [sample_run()])

    def refuse(*_paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(DatasetError, match="No space left on device; make room there, or name another file"):
        write(path, [])
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]
    assert read(path) == [sample_run()]


def test_every_field_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/datasets.md").read_text()
    value = to_json(sample_run())
    names = {key for container, key in every_place(value) if isinstance(container, dict)}
    names -= {"writes", "file", "plyvel", "pellucid"}
    assert not [name for name in sorted(names) if f"`{name}`" not in page]
