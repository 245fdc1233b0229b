"""Does the report show every result, load nothing, and run nothing of what a dataset says?"""

from __future__ import annotations

import base64
import doctest
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pellucid_bench import datasets
from pellucid_bench.dataset import Dataset, DatasetError, Interpreter, Machine, Measure, Result, Target, files
from pellucid_bench.report import figures, library, markdown, markup, plots, table, units, write
from pellucid_bench.report.page import page
from pellucid_bench.report.summary import sentences, summarized

PAGE_SIZE_MAX = 3_000_000
HOSTILE = (
    '</script><script>document.title="run"</script><!-- <img src=x onerror="run()"> \'" &amp; ${run()} '
    "|`*_[a](javascript:run()) $\\frac{1}{2} \u2028 \U0001f600 \ud800"
)


def result(name: str, median: float, **more: Any) -> Result:
    samples = [median * 0.9, median, median * 1.2]
    return Result(name, name, samples=samples, median=median, interval=(samples[0], samples[2]), **more)


def measure(name: str, *results: Result, size: float | None = None, **more: Any) -> Measure:
    fields = {"unit": "seconds", "group": name, **more}
    return Measure(
        f"an/{name}/{size}", f"{name}, {size or 'all'} keys", size=size, results=[*results], **fields
    )


def run_of(experiment: str, *measures: Measure, processor: str = "Some processor", **more: Any) -> Dataset:
    return Dataset(
        created="2026-11-24T12:00:00+00:00",
        command=f"pellucid bench {experiment} --seed 7",
        experiment=experiment,
        machine=Machine(processor, 2, 24 << 30, "Linux", "6.1", "ext4", 0.5, processor),
        python=Interpreter("CPython", "3.11.7", "GCC"),
        measures=[*measures],
        **more,
    )


def a_run(experiment: str = "dict", **more: Any) -> Dataset:
    """Return a run with a curve of three sizes, one lone measure, a failure and a library that is faster."""
    curve = [
        measure(
            "single writes",
            result("pellucid", 1e-6 * size, ours=True),
            result("lmdb", 2e-6 * size),
            result("a loop", 1e-8, reference=True),
            Result("plyvel", "plyvel", error="not installed"),
            size=size,
        )
        for size in (100, 1000, 10000)
    ]
    lone = measure(
        "bulk load",
        result("pellucid", 1e6, ours=True),
        result("duckdb", 4e6, unstable=True, facts={"file": "3 MB"}),
        result("sqlite3", 1),
        unit="rows/s",
        better="higher",
        labels=["cold"],
        targets=[Target("2.00x duckdb", 2.0, 0.25, False)],
    )
    return run_of(experiment, *curve, lone, missing={"plyvel": "no wheel"}, **more)


class Elements(HTMLParser):
    """The elements of a page: their names, attributes and texts, as a browser's parser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in markup.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["script"][0])
        return found

    def policy(self) -> str:
        return next(of["content"] or "" for tag, of in self.found if of.get("http-equiv"))


def test_examples_of_the_report_are_true() -> None:
    assert all(doctest.testmod(module).attempted > 0 for module in (units, markup, markdown, plots))
    assert not any(doctest.testmod(module).failed for module in (units, markup, markdown, plots))


def test_the_page_loads_nothing() -> None:
    elements = Elements(page([a_run()]))
    loading = {"src", "srcset", "action", "data", "poster", "background", "ping"}
    assert not [(tag, of) for tag, of in elements.found if loading & of.keys()]
    assert all((of["href"] or "").startswith("#") for _, of in elements.found if "href" in of)
    assert not {"link", "iframe", "img", "object", "embed", "base"} & {tag for tag, _ in elements.found}
    assert elements.policy().startswith("default-src 'none'")
    for style in elements.texts["style"]:
        assert "url(" not in style
        assert "@import" not in style


def test_the_policy_allows_the_scripts_of_the_page_and_no_others() -> None:
    elements = Elements(page([a_run()]))
    scripts = elements.texts["script"]
    assert len(scripts) == 3
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts[1:]]
    allowed = re.search(r"script-src ([^;]*);", elements.policy())
    assert allowed is not None
    assert allowed[1].split() == [f"'sha256-{one}'" for one in hashes]


def test_every_result_has_a_row_in_a_table() -> None:
    run = a_run()
    text = page([run])
    assert text[text.index("<main") :].count('<th scope="row">') == sum(
        len(one.results) for one in run.measures
    )
    assert Elements(text).found.count(("table", {})) == 3  # with that of the summary
    rows = [row for figure in Elements(text).data()["experiments"][0]["figures"] for row in figure["rows"]]
    assert len(rows) == sum(len(one.results) for one in run.measures)


def test_each_figure_has_its_command_and_its_machine() -> None:
    text = page([a_run("dict"), a_run("writes", processor="Another processor")])
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL)[:2]:
        assert "pellucid bench dict --seed 7" in figure
        assert "Some processor, 2 cores, 24 GiB, Linux 6.1, ext4, CPython 3.11.7, 2026-11-24" in figure
    assert "<code>pellucid bench writes --seed 7</code> on Another processor" in text


def test_machines_stand_side_by_side() -> None:
    slow = a_run(processor="Slow processor")
    for one in slow.measures:
        for each in one.results:
            each.median = each.median and each.median * 10
    text = page([a_run(), slow])
    [experiment] = Elements(text).data()["experiments"]
    assert experiment["runs"] == ["A", "B"]
    assert [len(figure["rows"]) for figure in experiment["figures"]] == [24, 6]
    medians = [row["median"] for row in experiment["figures"][1]["rows"] if row["role"] == 0]
    assert medians == [1e6, 1e7]
    assert text.count('class="plot"') == 4
    assert "Run B: Slow processor" in text


def test_failures_and_missing_libraries_are_seen() -> None:
    text = page([a_run(quick=True, complete=False, notes=["the clock is coarse"])])
    assert "Not measured: plyvel (no wheel)." in text
    assert "<li><b>plyvel</b>: not installed</li>" in text.replace(" (100; 1,000; 10,000)", "")
    assert "its figures mean nothing" in text
    assert "stopped before its end" in text
    assert "the clock is coarse" in text


def test_the_page_opens_with_who_wins_where_and_how_sure_that_is() -> None:
    text = page([a_run(notes=["the clock is coarse"]), a_run("writes", quick=True)])
    summary, _, rest = text.partition("<main")
    assert summary.count("<h2>") == 1
    assert "pellucid is better in 8 of 10 comparisons with other libraries. In 0 of them" in summary
    [first, second] = re.findall('<tr><th scope="row">.*?</tr>', summary)
    assert '<a href="#experiment-0">dict</a>' in first
    assert "What does a dict cost whose items are on the disk?" in first
    assert "<td>4 of 5</td>" in first
    assert '<b class="ahead">0.25x</b> duckdb: bulk load, all keys' in first
    assert "<li>0 may be chance</li><li>1 unstable</li><li>0 of 1 targets met</li>" in first
    assert "its figures mean nothing" in second
    # What only some readers want to know comes after the figures.
    assert rest.index("plyvel (no wheel)") > rest.rindex("</figure>", 0, rest.index('id="experiment-1"'))
    assert rest.index("the clock is coarse") < rest.index('id="experiment-1"')


def test_the_sentences_of_a_run_name_what_matters() -> None:
    said = ["".join(sentence) for sentence in sentences(summarized(a_run("something")))]
    assert said == [
        "pellucid is better in 4 of 5 comparisons with other libraries; a ratio is the time or size of the "
        "other library divided by ours.",
        "The plot shows, each with the best of the others, single writes, 10000 keys (lmdb 2.00x) and bulk "
        "load, all keys (duckdb 0.25x).",
        "Others are furthest ahead in bulk load, all keys (duckdb 0.25x).",
        "The intervals of no comparison overlap or are missing, 1 result is unstable, 0 of 1 target was met, "
        "and the machine was Some processor, 2 cores, on 2026-11-24.",
    ]
    close = measure("put", result("pellucid", 1.0, ours=True), result("lmdb", 1.1), result("dbm", 9.0))
    won, _, nowhere, sure = ["".join(sentence) for sentence in sentences(summarized(run_of("dict", close)))]
    assert "in 2 of 2 comparisons" in won
    assert nowhere == "No other library is better in any of them."
    assert sure.startswith(
        "The intervals of 1 comparison overlap or are missing, so that its order may be chance, no"
    )
    alone = run_of("dict", measure("put", result("pellucid", 1.0, ours=True)))
    assert next(iter(sentences(summarized(alone)))) == ["No other library was compared."]


def test_targets_and_losses_are_seen() -> None:
    text = page([a_run()])
    assert '<b class="missed">\u2717 missed</b>: target 2.00x duckdb, measured 0.25x' in text
    assert "pellucid is better in 4 of 5 comparisons with other libraries; a ratio" in text
    assert "better than ours; unstable; file: 3 MB" in text


def test_a_rival_is_compared_with_the_contender_that_it_is_like() -> None:
    ours = [result("synced", 100.0, ours=True), result("unsynced", 1.0, ours=True)]
    one = measure("put", *ours, result("lmdb", 50.0, like="unsynced"), result("dbm", 50.0))
    roles = {row.name: row.role for row in figures.experiments([run_of("dict", one)])[0].figures[0].rows()}
    assert roles == {"unsynced": "ours", "lmdb": "slower", "dbm": "faster", "synced": "ours"}


def test_sizes_of_one_group_are_one_figure() -> None:
    [experiment] = figures.experiments([a_run()])
    assert [figure.sizes for figure in experiment.figures] == [[100, 1000, 10000], [None]]
    assert experiment.figures[0].title == "single writes"


def test_of_many_curves_ours_and_the_best_of_each_library_have_a_colour() -> None:
    def ways(size: float, fast: float, slow: float) -> Measure:
        many = [result(f"sql, way {number}", 3.0 + number) for number in range(figures.CURVES_MAX)]
        sql = [result("sql, fast", fast), result("sql, slow", slow), *many]
        rivals = [*sql, result("a loop", 1e-9)]
        for one in sql:
            one.library = "sql"
        ours = [result("pellucid", 3.0, ours=True), result("pellucid, synced", 9.0, ours=True)]
        return measure("put", *ours, *rivals, size=size)

    # At the largest size, the slow way is the fast one.
    [experiment] = figures.experiments([run_of("dict", ways(10, 1, 2), ways(100, 1, 2), ways(1000, 2, 1))])
    rows = list(experiment.figures[0].rows())
    assert figures.shown_in_color(rows) == ["pellucid", "pellucid, synced", "a loop", "sql, slow"]


def test_each_of_a_few_curves_can_be_told_apart(tmp_path: Path) -> None:
    names = [f"pickle, protocol {number}" for number in range(figures.CURVES_MAX)]

    def shares(size: float) -> Measure:
        results = [result(name, number / 100 - 0.03) for number, name in enumerate(names)]
        for one in results:
            one.library = "pickle"
        return measure("share of the memo", *results, size=size, unit="share", size_unit="dicts in the list")

    [experiment] = figures.experiments([run_of("pickle", *map(shares, (1, 10, 100)))])
    [figure] = experiment.figures
    assert sorted(figures.shown_in_color(list(figure.rows()))) == sorted(names)
    looks = plots._styles(experiment, names)
    assert len({(look["color"], str(look["linestyle"]), look["marker"]) for look in looks.values()}) == len(
        names
    )
    [path] = write(experiment.runs, tmp_path / "pickle.svg")
    # Matplotlib draws texts as paths, and writes each text as a comment.
    comments = re.findall("<!-- (.*?) -->", path.read_text("utf-8"))
    assert {*names, "dicts in the list", "share, less is better"} <= set(comments)
    [data] = Elements(page(experiment.runs)).data()["experiments"]
    assert data["figures"][0]["sizeAxis"] == "dicts in the list"
    assert data["curvesMax"] == figures.CURVES_MAX


def test_what_leads_to_a_name_does_not_look_like_a_curve() -> None:
    from matplotlib.figure import Figure

    short = [measure("put", result("pellucid", 1.0, ours=True), result("a", 2.0), size=1)]
    long = [measure("put", result("pellucid", 1.0, ours=True), size=size) for size in (10, 100)]
    for run in (a_run(), run_of("dict", *short, *long)):
        [experiment] = figures.experiments([run])
        axes = Figure().subplots()
        plots._panel(experiment, experiment.figures[0], 0, axes)
        beside = [line for line in axes.lines if line.get_transform() is axes.transAxes]
        leading = [line for line in beside if line.get_color() == plots.LEADER["color"]]
        assert leading
        assert all(line.get_linewidth() < 1 for line in leading)
        # A piece of the curve stands before its name, outside of the plot.
        assert all(min(line.get_xdata()) > 1 for line in beside if line not in leading)
        # The curve that ends early has no line through what the others have there.
        names = {row.name for row in experiment.figures[0].rows() if row.median is not None}
        ended = len(names) if experiment.figures[0].measures[0, 2].result("lmdb") else len(names) - 1
        assert len(leading) == ended


def test_colours_of_curves_are_not_those_of_bars(tmp_path: Path) -> None:
    assert not set(plots.LINES) & set(plots.COLORS.values())
    [path] = write([a_run()], tmp_path / "both.svg")
    key = re.findall("<!-- (.*?) -->", path.read_text("utf-8"))
    assert {"another library, better than pellucid", "95 % interval", "a curve of pellucid"} <= set(key)
    [path] = write([a_run()], tmp_path / "bars.svg", only="bulk")
    assert "a curve of pellucid" not in path.read_text("utf-8")


def test_the_script_finds_what_the_page_has_and_makes_no_markup() -> None:
    text = page([a_run()])
    script = library.own("page.js")
    own = text.partition("<script")[0]
    for name in set(re.findall(r'querySelector(?:All)?\("[^"]*?\.([\w-]+)', script)) - {"filter"}:
        assert re.search(rf'class="[^"]*\b{name}\b', own), name
    for name in re.findall(r'getElementById\("([\w-]+)"', script):
        assert f'id="{name}"' in text
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
    ):
        assert word not in script
    assert set(re.findall(r"var\((--[\w-]+)\)", script)) <= set(
        re.findall(r"(--[\w-]+):", library.own("page.css"))
    )


def test_nothing_of_a_hostile_dataset_is_markup() -> None:
    hostile = a_run(HOSTILE, processor=HOSTILE, versions={HOSTILE: HOSTILE}, notes=[HOSTILE])
    hostile.command = hostile.created = HOSTILE
    hostile.missing = {HOSTILE: HOSTILE}
    for one in hostile.measures:
        one.title = one.group = HOSTILE
        one.labels = one.notes = [HOSTILE]
        one.targets = [Target(HOSTILE)]
        for index, each in enumerate(one.results):
            each.contender = each.note = f"{HOSTILE}{index}"
            each.facts = {HOSTILE: HOSTILE}
            each.error = each.error and HOSTILE
    text = page([hostile])
    tags = {tag for tag, _ in Elements(text).found}
    assert tags == {tag for tag, _ in Elements(page([a_run(versions={"a": "1"}, notes=["b"])])).found}
    elements = Elements(text)
    assert len(elements.texts["script"]) == 3
    assert not [of for _, of in elements.found if any(name.startswith("on") for name in of)]
    assert elements.data()["experiments"][0]["name"] == HOSTILE
    text.encode("utf-8")


def test_hostile_texts_are_drawn_and_printed(tmp_path: Path) -> None:
    one = measure(HOSTILE, result(HOSTILE, 1.0, ours=True), Result("b", "b", error=HOSTILE), labels=[HOSTILE])
    run = run_of(HOSTILE, one, processor=HOSTILE)
    assert write([run], tmp_path / "a.svg") == [tmp_path / "a.svg"]
    ElementTree.parse(tmp_path / "a.svg")
    rows = [line for line in table(run).splitlines() if line.startswith("| ")]
    table(run).encode("utf-8")
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)


def test_a_report_of_many_experiments_is_small(tmp_path: Path) -> None:
    names = [f"library {number}, in one transaction" for number in range(20)]

    def large(number: int) -> Measure:
        ours = result("pellucid, in one transaction", 1e-6, ours=True)
        return measure(f"measure {number}", ours, *(result(name, 1.2345e-6) for name in names))

    runs = [run_of(f"experiment {number}", *map(large, range(15))) for number in range(10)]
    [path] = write(runs, tmp_path / "all.html")
    assert path.stat().st_size < PAGE_SIZE_MAX


def test_ratios_divide_by_the_baseline() -> None:
    rising = figures.Figure("", "rows/s", "higher", [], [None])
    falling = figures.Figure("", "bytes", "lower", [], [None])
    assert (rising.ratio(2.0, 1.0), falling.ratio(2.0, 1.0), falling.ratio(1.0, 0.0)) == (
        0.5,
        2.0,
        float("inf"),
    )


def test_zeros_negatives_and_empty_runs_are_shown(tmp_path: Path) -> None:
    one = measure("a", result("pellucid", 0.0, ours=True), result("lmdb", 0.0), Result("b", "b", error="no"))
    two = measure("b", Result("pellucid", "pellucid", ours=True, error="refused"))
    below = measure("c", result("pellucid", 1.0, ours=True), Result("d", "d", samples=[-1.0], median=-1.0))
    run = run_of("a", one, two, below)
    # What is below zero is a figure like the others, and no ratio is made of it.
    assert "<td>-1.00 s</td>" in page([run])
    assert "| c, all keys | 1.00 s | d -1.00 s |" in table(run)
    assert "This run has no measure." in page([run_of("a")])
    write([run], tmp_path / "a.png")
    assert "| b, all keys | refused |  |" in table(run)


def test_images_are_one_for_each_experiment_and_always_the_same(tmp_path: Path) -> None:
    runs = [a_run("dict"), a_run("writes/../x")]
    first = write(runs, tmp_path / "plots.svg")
    assert [path.name for path in first] == ["plots-dict.svg", "plots-writes-x.svg"]
    texts = [path.read_bytes() for path in first]
    assert [path.read_bytes() for path in write(runs, tmp_path / "plots.svg")] == texts
    assert all(ElementTree.fromstring(text).tag.endswith("svg") for text in texts)
    [image] = write(runs[:1], tmp_path / "dict.png")
    assert image.read_bytes().startswith(b"\x89PNG")


def test_some_measures_alone_are_reported(tmp_path: Path) -> None:
    [path] = write([a_run("dict"), run_of("writes")], tmp_path / "some.svg", only="bulk")
    assert path.name == "some.svg"
    [path] = write([a_run()], tmp_path / "some.html", only="bulk")
    assert "bulk load" in path.read_text("utf-8")
    assert "single writes" not in path.read_text("utf-8").partition("<script")[0]
    with pytest.raises(DatasetError, match="no measure has 'nothing' in its title"):
        write([a_run()], tmp_path / "some.html", only="nothing")


def test_the_command_makes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write(tmp_path / "dict.json", [a_run(), a_run(processor="Another")])
    output = tmp_path / "report.svg"
    assert (
        datasets.COMMANDS["report"]([str(tmp_path / "dict.json"), "--output", str(output), "--only", "bulk"])
        == 0
    )
    assert capsys.readouterr().out == f"wrote {output}\n"
    assert ElementTree.parse(output).getroot().tag.endswith("svg")


def test_the_table_has_our_figure_and_the_ratios_of_the_others() -> None:
    text = table(a_run(quick=True, complete=False))
    assert "| single writes, 100 keys | 100 \u00b5s | lmdb 2.00x |" in text
    assert "| bulk load, all keys, cold | 1.00 M/s | **duckdb 0.25x**, sqlite3 1,000,000x |" in text
    assert "dict: `pellucid bench dict --seed 7`, Some processor, 2 cores, 24 GiB, Linux 6.1" in text
    assert "its figures mean nothing" in text
    assert "Not measured: plyvel (no wheel)." in text
    assert "single writes" not in table(a_run(), only="bulk")
    crashed = measure("put", result("pellucid", 1.0, ours=True), Result("a", "a", error="signal 11"))
    assert "| put, all keys | 1.00 s | a: signal 11 |" in table(run_of("dict", crashed))


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"named \.html, \.svg or \.png"):
        write([a_run()], tmp_path / "report.pdf")
    with pytest.raises(DatasetError, match="nothing to draw"):
        write([run_of("dict")], tmp_path / "report.svg")


@pytest.mark.parametrize(("module", "suffix"), [("vl_convert", "html"), ("matplotlib", "svg")])
def test_a_missing_library_is_named_with_its_extra(
    module: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.plotting_script.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DatasetError, match=r"pip install \./bench"):
        write([a_run()], tmp_path / f"report.{suffix}")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot write"):
        write([a_run()], tmp_path / "nowhere" / "report.svg")
