"""This module makes the page: a summary, all text and tables as HTML, and the figures as data for its script.

The page is whole without the script: every result is in a table. A policy in its head allows the scripts of
this package by their hashes, and no request: what a dataset says cannot run, nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pellucid_bench.experiments import NAMES, load
from pellucid_bench.report import library, units
from pellucid_bench.report.figures import (
    CURVES_MAX,
    Experiment,
    Figure,
    Row,
    compared_with,
    experiments,
    machine_line,
    reason,
    size_text,
    usable,
)
from pellucid_bench.report.markup import Markup, data, element, inline, verbatim
from pellucid_bench.report.summary import Duel, Summary, Title, sentences, summarized

if TYPE_CHECKING:
    from pellucid_bench.dataset import Dataset, Target

ROLES = ("ours", "slower", "faster", "other", "reference", "failed")
VERDICTS = {
    True: ("met", "\u2713 met"),
    False: ("missed", "\u2717 missed"),
    None: ("open", "\u2013 not measured"),
}


def page(datasets: Sequence[Dataset]) -> str:
    """Return the page of all datasets."""
    found = experiments(datasets)
    plotting, own = library.plotting_script(), library.own("page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(plotting)} {_hash(own)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"pellucid bench: {', '.join(one.name for one in found)}"),
        element("style", verbatim(library.own("page.css"))),
    )
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        _header(found),
        _summary(found),
        element("main", [_experiment(number, one) for number, one in enumerate(found)], id="results"),
        element("footer", _licences()),
        element("script", data(_data(found)), type="application/json", id="data"),
        element("script", verbatim(plotting)),
        element("script", verbatim(own)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _header(found: Sequence[Experiment]) -> Markup:
    links = [
        element("li", element("a", one.name, href=f"#experiment-{number}"))
        for number, one in enumerate(found)
    ]
    return element(
        "header",
        element("h1", "pellucid bench"),
        element("nav", element("ul", links), aria_label="Experiments"),
        element("div", id="page-controls"),
        element(
            "noscript", element("p", "Without scripts there are no plots. The tables have every figure.")
        ),
    )


def _summary(found: Sequence[Experiment]) -> Markup:
    """Return who wins where and how sure that is, in a row for each run."""
    runs = [(number, one, run) for number, one in enumerate(found) for run in range(len(one.runs))]
    summaries = [summarized(one.runs[run]) for _, one, run in runs]
    count = sum(len(summary.duels) for summary in summaries)
    lost = sum(len(summary.lost) for summary in summaries)
    unsure = sum(summary.unsure for summary in summaries)
    if not count:
        return Markup("")
    titles = ("Experiment", "pellucid is better in", *COLUMNS, "How sure")
    return element(
        "section",
        element("h2", "Summary"),
        element(
            "p",
            f"pellucid is better in {count - lost:,} of {count:,} comparisons with other libraries. "
            f"In {unsure:,} of them the 95 % intervals overlap or are missing: the order may be chance. "
            "A ratio is the time or size of the other library divided by ours: below 1x, it is better.",
        ),
        element(
            "div",
            element(
                "table",
                element("caption", "Summary"),
                element("thead", element("tr", [element("th", title, scope="col") for title in titles])),
                element(
                    "tbody",
                    [
                        _summary_row(number, one, run, summary)
                        for (number, one, run), summary in zip(runs, summaries, strict=True)
                    ],
                ),
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label="Summary",
        ),
        class_="summary",
    )


COLUMNS = ("What matters, and the best other library", "Where others are furthest ahead")


def _summary_row(number: int, one: Experiment, run: int, summary: Summary) -> Markup:
    letter = one.name_of_run(run)
    count, lost, (met, wanted) = len(summary.duels), len(summary.lost), summary.targets
    sure = [
        f"{summary.unsure} may be chance" if count else "",
        f"{summary.unstable} unstable" if summary.unstable else "",
        f"{met} of {wanted} targets met" if wanted else "",
        "the shortest run: its figures mean nothing" if summary.run.quick else "",
        "" if summary.run.complete else "stopped before its end",
    ]
    name = [element("a", one.name, href=f"#experiment-{number}"), f", run {letter}" if letter else ""]
    question = _question(one.name)
    return element(
        "tr",
        element("th", name, element("p", question, class_="note") if question else "", scope="row"),
        element("td", f"{count - lost} of {count}" if count else "nothing was compared"),
        element("td", _examples(summary.plotted())),
        element("td", _examples(summary.worst()) if summary.lost else "nowhere" if count else ""),
        element("td", _list([line for line in sure if line])),
    )


def _question(name: str) -> str:
    """Return what an experiment asks, if this version has it."""
    return load(name).ABOUT.question if name in NAMES else ""


def _examples(duels: Sequence[Duel]) -> Markup:
    return _list(
        [
            inline(
                element("b", units.times(duel.ratio), class_="ahead" if duel.ratio < 1 else None),
                f" {duel.theirs.contender}: {duel.measure.title}",
            )
            for duel in duels
        ]
    )


def _list(lines: Sequence[str]) -> Markup:
    return element("ul", [element("li", line) for line in lines]) if lines else Markup("")


def _licences() -> Markup:
    return element(
        "details",
        element("summary", "Licences of the plotting library"),
        element("pre", library.own("licences.txt")),
    )


def _experiment(number: int, one: Experiment) -> Markup:
    figures = [_figure(one, index, figure) for index, figure in enumerate(one.figures)]
    return element(
        "section",
        element("h2", one.name),
        [_run(one, run, dataset) for run, dataset in enumerate(one.runs)],
        element("div", class_="controls"),
        element("div", figures or element("p", "This run has no measure."), class_="figures"),
        [_facts(one, run, dataset) for run, dataset in enumerate(one.runs)],
        id=f"experiment-{number}",
        class_="experiment side-by-side" if len(one.runs) > 1 else "experiment",
    )


def _run(one: Experiment, run: int, dataset: Dataset) -> Markup:
    """Return what a reader has to know of a run before its figures."""
    letter = one.name_of_run(run)
    warnings = []
    if dataset.quick:
        warnings.append("This was the shortest run (--quick): its figures mean nothing.")
    if not dataset.complete:
        warnings.append("This run was stopped before its end; what it had measured is here.")
    said = [
        inline([element("em", part) if isinstance(part, Title) else part for part in sentence], " ")
        for sentence in sentences(summarized(dataset))
    ]
    return element(
        "div",
        element("h3", f"Run {letter}: {machine_line(dataset)}") if letter else "",
        [element("p", warning, class_="warning") for warning in warnings],
        element("p", said),
        class_="run",
    )


def _facts(one: Experiment, run: int, dataset: Dataset) -> Markup:
    """Return what a reader may want to know of a run after its figures."""
    machine, python, letter = dataset.machine, dataset.python, one.name_of_run(run)
    notes = list(dataset.notes)
    if dataset.missing:
        missing = "; ".join(f"{name} ({why})" for name, why in dataset.missing.items())
        notes.append(f"Not measured: {missing}.")
    facts = {
        "Command": dataset.command,
        "Begun": dataset.created,
        "Processor": machine.processor,
        "Cores": str(machine.cores),
        "Memory": units.memory(machine.memory_bytes),
        "System": f"{machine.system} {machine.kernel}",
        "File system": machine.file_system,
        "Load at the start": "" if machine.load is None else f"{machine.load:.2f}",
        "Machine": machine.id,
        "Python": f"{python.implementation} {python.version} {python.build}",
        "Libraries": ", ".join(f"{name} {version}" for name, version in dataset.versions.items()),
    }
    shown = [inline(element("dt", name), element("dd", fact)) for name, fact in facts.items() if fact.strip()]
    return element(
        "details",
        element("summary", f"Machine, command, versions and notes{f' of run {letter}' if letter else ''}"),
        element("dl", shown),
        [element("p", note) for note in notes],
        class_="facts",
    )


def _figure(one: Experiment, index: int, figure: Figure) -> Markup:
    title = element(
        "h4",
        figure.title,
        [inline(" ", element("span", label, class_="label")) for label in figure.labels_beside],
    )
    plots = [
        element("div", class_="plot", data_run=str(run))
        for run in sorted({run for run, _ in figure.measures})
    ]
    return element(
        "figure",
        element("figcaption", title),
        element("div", class_="figure-controls"),
        element("div", class_="legend"),
        element("div", plots, class_="plots"),
        [element("p", note, class_="note") for note in figure.notes()],
        _failures(one, figure),
        _targets(one, figure),
        [_source(one, run) for run in sorted({run for run, _ in figure.measures})],
        _table(one, figure),
        data_figure=str(index),
    )


def _place(one: Experiment, figure: Figure, run: int, variant: int) -> str:
    """Return at which size and in which run a result was measured, as far as there is a choice."""
    letter = one.name_of_run(run)
    parts = [f"run {letter}" if letter else "", size_text(figure.sizes[variant]) if figure.sizes[1:] else ""]
    return ", ".join(part for part in parts if part)


def _failures(one: Experiment, figure: Figure) -> Markup:
    places: dict[tuple[str, str], list[str]] = {}
    for row in figure.rows():
        if row.median is None:
            place = _place(one, figure, row.run, row.variant)
            places.setdefault((row.name, reason(row.result)), []).append(place)
    if not places:
        return Markup("")
    failed = []
    for (name, why), where in places.items():
        shown = "" if len(where) == len(figure.measures) else f" ({'; '.join(filter(None, where))})"
        failed.append(element("li", element("b", name), f"{shown}: {why}"))
    return element("div", element("p", "Without a figure:"), element("ul", failed), class_="failures")


def _targets(one: Experiment, figure: Figure) -> Markup:
    shown = []
    for (run, variant), measure in sorted(figure.measures.items(), key=lambda item: item[0]):
        place = _place(one, figure, run, variant)
        shown += [_target(figure, target, place) for target in measure.targets]
    return element("ul", shown, class_="targets") if shown else Markup("")


def _target(figure: Figure, target: Target, place: str) -> Markup:
    name, verdict = VERDICTS[target.met]
    measured = ""
    if target.measured is not None:
        # A target against a rival is a ratio. One with a bound is a figure in the measure's unit.
        is_figure = "at most" in target.text or "at least" in target.text
        figure_text = (
            units.figure(target.measured, figure.unit) if is_figure else units.times(target.measured)
        )
        measured = f", measured {figure_text}"
    where = f" ({place})" if place else ""
    return element("li", element("b", verdict, class_=name), f": target {target.text}{measured}{where}")


def _source(one: Experiment, run: int) -> Markup:
    dataset = one.runs[run]
    letter = one.name_of_run(run)
    return element(
        "p",
        element("b", f"{letter}: ") if letter else "",
        element("code", dataset.command),
        f" on {machine_line(dataset)}",
        class_="source",
    )


def _table(one: Experiment, figure: Figure) -> Markup:
    has_runs, has_sizes = len(one.runs) > 1, len(figure.sizes) > 1
    titles = [
        *(["Run"] if has_runs else []),
        *(["Size"] if has_sizes else []),
        "Contender",
        "Median",
        "95 % interval",
        "Samples",
        f"Its {figure.cost} / ours",
        "Remarks",
    ]
    lines = []
    for row in figure.rows():
        cells = [
            *([one.name_of_run(row.run)] if has_runs else []),
            *([size_text(figure.sizes[row.variant])] if has_sizes else []),
        ]
        figures = [
            "none" if row.median is None else units.figure(row.median, figure.unit),
            _interval(figure, row),
            str(len(row.result.samples)),
            _ratio(figure, row),
            "; ".join(_remarks(row)),
        ]
        lines.append(
            element(
                "tr",
                [element("td", cell) for cell in cells],
                element("th", row.name, scope="row"),
                [element("td", cell) for cell in figures],
                class_=row.role,
            )
        )
    head = element("thead", element("tr", [element("th", title, scope="col") for title in titles]))
    caption = element("caption", figure.title)
    table = element("table", caption, head, element("tbody", lines))
    return element(
        "details",
        element("summary", "Table of all figures"),
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label=figure.title),
        class_="table",
    )


def _interval(figure: Figure, row: Row) -> str:
    if row.result.interval is None or row.median is None:
        return ""
    low, high = (units.figure(end, figure.unit) for end in row.result.interval)
    return f"{low} to {high}"


def _ratio(figure: Figure, row: Row) -> str:
    ours = compared_with(figure.measures[row.run, row.variant], row.result)
    median = usable(ours) if ours else None
    if row.median is None or median is None or min(row.median, median) < 0 or figure.unit == "share":
        return ""
    return units.times(figure.ratio(row.median, median))


def _remarks(row: Row) -> Iterator[str]:
    """Yield what else is known of a result."""
    result = row.result
    if row.role == "faster":
        yield "better than ours"
    if result.reference:
        yield "for orientation"
    if result.unstable:
        yield "unstable"
    if result.error is not None or row.median is None:
        yield reason(result)
    if result.like and not result.ours:
        yield f"compared with {result.like}"
    if result.note:
        yield result.note
    for name, fact in result.facts.items():
        yield f"{name}: {fact}"


def _data(found: Sequence[Experiment]) -> dict[str, object]:
    """Return what the script draws. Names are given once, and rows refer to them by number."""
    return {"roles": ROLES, "experiments": [_data_of_experiment(one) for one in found]}


def _data_of_experiment(one: Experiment) -> dict[str, object]:
    names = one.contenders()
    ours = {row.name for figure in one.figures for row in figure.rows() if row.result.ours}
    libraries = one.libraries()
    number = {name: index for index, name in enumerate(names)}
    return {
        "name": one.name,
        "curvesMax": CURVES_MAX,
        "contenders": names,
        "libraries": [libraries[name] for name in names],
        "ours": [name in ours for name in names],
        "runs": [one.name_of_run(run) for run in range(len(one.runs))],
        "figures": [_data_of_figure(figure, number) for figure in one.figures],
    }


def _data_of_figure(figure: Figure, number: dict[str, int]) -> dict[str, object]:
    rows = []
    for row in figure.rows():
        low, high = row.result.interval or (None, None)
        rows.append(
            {
                "run": row.run,
                "size": row.variant,
                "contender": number[row.name],
                "role": ROLES.index(row.role),
                "median": row.median,
                "low": low,
                "high": high,
                "text": reason(row.result) if row.median is None else units.figure(row.median, figure.unit),
                "interval": _interval(figure, row),
                "samples": len(row.result.samples),
                "unstable": row.result.unstable,
                "remarks": "; ".join(_remarks(row)),
            }
        )
    return {
        "title": figure.title,
        "unit": figure.unit,
        "better": figure.better,
        "cost": figure.cost,
        "axis": figure.axis,
        "sizeAxis": figure.size_axis,
        "sizes": figure.sizes,
        "sizeTexts": [size_text(size) for size in figure.sizes],
        "rows": rows,
    }
