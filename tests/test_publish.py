"""Does `./dev publish` put what was measured into the documentation, and change nothing else?"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pellucid_bench import experiments
from pellucid_bench.dataset import Dataset, Interpreter, Machine, Measure, Result, Target, write

ROOT = Path(__file__).resolve().parents[1]


def the_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish", ROOT / "tools/publish.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["publish"] = module
    spec.loader.exec_module(module)
    return module


publish = the_tool()
OTHER = Machine("Other processor", 1, 1 << 30, "Linux", "6.1", "ext4", 0.1, "two")


def result(name: str, median: float, **more: Any) -> Result:
    samples = [median * 0.9, median, median * 1.2]
    return Result(name, name, samples=samples, median=median, interval=(samples[0], samples[2]), **more)


def a_run(**more: Any) -> Dataset:
    ours, theirs = result("pellucid", 4e5, ours=True), result("json.loads of each line", 8e5)
    measures = [
        Measure(
            f"json-lines/{verb}/2000",
            f"{verb} of 2,000 rows",
            verb,
            2000,
            "rows/s",
            "higher",
            results=[ours, theirs],
            targets=[Target("at least 500.0 k/s", 5e5, 4e5, False)],
        )
        for verb in ("import", "export")
    ]
    fields: dict[str, Any] = {
        "created": "2026-11-28T00:00:00+00:00",
        "command": "pellucid bench json-lines",
        "experiment": "json-lines",
        "settings": {"rows": 2000},
        "machine": Machine("Some processor", 2, 24 << 30, "Linux", "6.1", "ext4", 0.5, "one"),
        "python": Interpreter("CPython", "3.11.7", "GCC"),
        "measures": measures,
    }
    return Dataset(**{**fields, **more})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the pages, and a folder for datasets."""
    made = tmp_path / "root"
    (made / "results").mkdir(parents=True)
    shutil.copytree(ROOT / "docs/benchmarks", made / "docs/benchmarks")
    shutil.copy(ROOT / "docs/benchmarks.md", made / "docs")
    shutil.copy(ROOT / "README.md", made)
    return made


def outside(text: str, name: str) -> tuple[str, str]:
    return text.split(f"<!-- {name}: begin -->")[0], text.split(f"<!-- {name}: end -->")[1]


def test_every_experiment_has_a_plot_and_a_part_of_each_page(root: Path) -> None:
    assert set(publish.PLOTS) == set(experiments.NAMES)
    for name in experiments.NAMES:
        publish.put(root / f"docs/benchmarks/{name}.md", "summary", "x")
        publish.put(root / f"docs/benchmarks/{name}.md", "results", "x")
        publish.put(root / "docs/benchmarks.md", name, "x")
    publish.put(root / "README.md", "benchmarks", "x")


def test_the_parts_of_a_dataset_are_written_and_nothing_else(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root / "results/json-lines.json", [a_run()])
    pages = {path: path.read_text("utf-8") for path in (root / "docs").rglob("*.md")}
    publish.publish(root / "results", root)
    assert (root / "docs/benchmarks/json-lines.svg").read_bytes().startswith(b"<?xml")
    page = root / "docs/benchmarks/json-lines.md"
    text = page.read_text("utf-8")
    start, _, rest = text.partition("## ")
    assert "![Plot of the experiment json-lines](json-lines.svg)" in start
    assert "pellucid is better in 0 of 2 comparisons with other libraries; a ratio" in start
    assert "others, *import of 2,000 rows* (json.loads of each line 0.50x) and *export of" in start
    assert "Others are furthest ahead in *export of 2,000 rows* (json.loads of each line 0.50x)" in start
    told = "no comparison overlap or are missing, no results are unstable, 0 of 2 targets were met, and the"
    assert told in start
    assert "| import of 2,000 rows | 400 k/s |" in rest
    assert "- *import of 2,000 rows*: at least 500.0 k/s, measured 400 k/s" in text
    assert "[The dataset](../../results/json-lines.json)" in text
    assert "The run of 2026-11-28 had `--rows` 2,000 (usually 1,000,000).\n" in text
    assert "Others are better in:\n\n- *export of 2,000 rows*: json.loads of each line 0.50x\n" in text
    before = pages.pop(page)
    publish.put(page, "summary", "x")
    publish.put(page, "results", "x")
    empty = page.read_text("utf-8")
    page.write_text(before, "utf-8")
    publish.put(page, "summary", "x")
    publish.put(page, "results", "x")
    assert empty == page.read_text("utf-8")
    page.write_text(text, "utf-8")
    overview = root / "docs/benchmarks.md"
    assert "(benchmarks/json-lines.svg)" in overview.read_text("utf-8")
    before = pages.pop(overview)
    assert outside(overview.read_text("utf-8"), "json-lines") == outside(before, "json-lines")
    assert all(path.read_text("utf-8") == text for path, text in pages.items())
    assert "no dataset of records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"quick": True}, "figures mean nothing"),
        (
            {"experiment": "dict", "machine": Machine("B", 1, 1, "Linux", "6", "ext4", 0.1, "two")},
            "different",
        ),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    more: dict[str, Any], text: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root / "results/one.json", [a_run(experiment="records")])
    write(root / "results/two.json", [a_run(**more)])
    assert publish.main([str(root / "results"), "--root", str(root)]) == 1
    assert text in capsys.readouterr().err


def test_an_experiment_of_no_common_table_may_be_of_another_machine(root: Path) -> None:
    write(root / "results/one.json", [a_run(experiment="records")])
    write(root / "results/two.json", [a_run(machine=OTHER)])
    assert set(publish.newest(root / "results")) == {"records", "json-lines"}


def test_a_run_of_another_python_is_passed_over(root: Path) -> None:
    others = a_run(created="2026-12-01T00:00:00+00:00")
    for measure in others.measures:
        measure.results = [one for one in measure.results if not one.ours]
    write(root / "results/json-lines.json", [a_run()])
    write(root / "results/other.json", [others])
    [(path, _)] = publish.newest(root / "results").values()
    assert path.name == "json-lines.json"


def test_a_run_that_was_stopped_gives_what_it_has(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(experiment="megabyte", complete=False)
    run.measures[0].id = "megabyte/write/2000"
    write(root / "results/one.json", [run])
    publish.publish(root / "results", root)
    assert "left out: megabyte: no measure has an id like megabyte/file/*" in capsys.readouterr().err
    assert "stopped before its end" in (root / "docs/benchmarks/megabyte.md").read_text("utf-8")
    run.complete = True
    write(root / "results/one.json", [run])
    with pytest.raises(publish.PublishError, match="no measure has an id like"):
        publish.publish(root / "results", root)


def test_long_lists_of_losses_are_cut(root: Path) -> None:
    run = a_run()
    run.measures[0].results += [result(f"library {number}", 9e5) for number in range(9)]
    for number in range(publish.LISTED_LOSSES):
        made = Measure(f"json-lines/x/{number}", f"measure {number}", "x", number, "seconds", "lower")
        made.results = [result("pellucid", 1.0, ours=True), result("other", 0.9)]
        run.measures.append(made)
    lines = publish._losses_by_measure(run).splitlines()
    assert len(lines) == publish.LISTED_LOSSES + 1
    assert lines[0].endswith(", library 3 0.44x, and 6 more")
    assert lines[-1] == "- and 2 more, in bold below"


def test_a_page_without_its_part_is_refused(root: Path) -> None:
    (root / "README.md").write_text("no part")
    with pytest.raises(publish.PublishError, match="benchmarks: begin"):
        publish.put(root / "README.md", "benchmarks", "x")


def test_a_table_of_operations_says_how_many_rows_there_were() -> None:
    rows = [
        publish.Row(
            "import", "json-lines/import/*", "import of {rows:,} rows", {"json.loads of each line": "json"}
        )
    ]
    text = publish.operations({"json-lines": (Path("x"), a_run())}, rows)
    assert "| import | 2.50 \u00b5s | **json 0.50x** |" in text
    assert text.endswith("CPython 3.11.7, 2026-11-28. The tables had: `json-lines` 2,000 rows.")


def test_the_readme_has_the_eight_operations_that_decide_and_their_page_has_all(root: Path) -> None:
    runs = publish.newest(ROOT / "bench/results")
    chosen = [row for row in publish.ROWS if row.in_readme]
    assert (len(chosen), len(publish.ROWS)) == (8, 16)
    for page, part, rows in (
        ("README.md", "benchmarks", chosen),
        ("docs/benchmarks.md", "operations", publish.ROWS),
    ):
        shown = (root / page).read_text("utf-8")
        publish.put(root / page, part, publish.operations(runs, rows))
        assert (root / page).read_text("utf-8") == shown
    # Where we are slower is shown as well.
    assert (root / "README.md").read_text("utf-8").count("x**") >= 4
