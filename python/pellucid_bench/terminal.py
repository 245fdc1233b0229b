"""This module prints the report of a run, and writes it as JSON.

Under each of our rows are the contenders that are compared with it, with their ratios. A contender that beats
us is marked, and never left out. Then follow the targets with the measured values, and the libraries that are
not installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid_bench.measures import Measure, Result, Unit
from pellucid_bench.run import Run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MARKS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: "[yellow]not measured[/]"}


def show(console: Console, run: Run, machine: dict[str, str]) -> None:
    """Print the whole report."""
    console.print(_facts("machine", machine))
    console.print(_facts("rivals", run.rivals.versions))
    for measure in run.measures:
        console.print(_measure_table(measure))
        for note in measure.notes:
            console.print(f"  [dim]{note}[/]")
    if any(measure.targets for measure in run.measures):
        console.print(_target_table(run.measures))
    losses = sum(len(measure.losses()) for measure in run.measures)
    compared = sum(
        1 for measure in run.measures for result in measure.results if measure.ratio(result) is not None
    )
    if compared:
        console.print(
            f"Comparisons with other libraries: {compared}; [bold red]they were faster in {losses}[/]."
        )
    for name, reason in run.rivals.missing.items():
        console.print(f"[yellow]not installed:[/] {name} ({reason})")


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _facts(title: str, facts: dict[str, str]) -> Table:
    table = _table("", title, "")
    table.columns[1].justify = "left"
    for name, fact in facts.items():
        table.add_row(name, fact)
    return table


def _measure_table(measure: Measure) -> Table:
    facts = list(dict.fromkeys(name for result in measure.results for name in result.facts))
    has_notes = any(result.note for result in measure.results)
    ratio_title = "its size / ours" if measure.unit is Unit.BYTES else "its time / ours"
    table = _table(measure.title, "", "median", "best", ratio_title, "", *facts, *["note"] * has_notes)
    for group in _groups(measure):
        for result in group:
            ratio = measure.ratio(result)
            style = "bold cyan" if result.is_ours else "dim" if result.is_reference else ""
            table.add_row(
                result.name,
                measure.unit.show(result.median),
                measure.unit.show(result.best),
                "" if ratio is None else _times(ratio),
                "[bold red]we lose[/]" if ratio is not None and ratio < 1 else "",
                *(result.facts.get(name, "") for name in facts),
                *[result.note] * has_notes,
                style=style,
            )
        table.add_section()
    return table


def _times(ratio: float) -> str:
    """Format a ratio so that 0.0004 does not become 0.00."""
    if ratio < 0.1:
        return f"{ratio:.1g}x"
    return f"{ratio:,.{0 if ratio >= 100 else 2}f}x"


def _groups(measure: Measure) -> list[list[Result]]:
    """Yield each of our results with the contenders that are compared with it, fastest first."""
    rivals: dict[str, list[Result]] = {}
    for result in sorted(measure.results, key=lambda result: result.median):
        ours = measure.beside(result)
        if not result.is_ours:
            rivals.setdefault(ours.name if ours else "", []).append(result)
    groups: list[list[Result]] = [[]]
    for result in measure.results:
        if result.is_ours:
            groups[-1].append(result)
            if result.name in rivals:
                groups[-1] += rivals.pop(result.name)
                groups.append([])
    groups[-1] += [result for left in rivals.values() for result in left]
    return [group for group in groups if group]


def _target_table(measures: list[Measure]) -> Table:
    table = _table("targets", "measure", "ours", "target", "measured", "")
    for measure in measures:
        for target in measure.targets:
            verdict = measure.verdict(target)
            ours = target.ours or (measure.ours.name if measure.ours else "")
            table.add_row(measure.title, ours, verdict.wanted, verdict.measured, MARKS[verdict.is_met])
    return table


def to_json(run: Run, machine: dict[str, str], command: str) -> dict[str, Any]:
    """Return everything that a program may need: costs of all rounds in seconds or bytes, ratios, targets."""
    return {
        "command": command,
        "machine": machine,
        "rivals": run.rivals.versions,
        "not_installed": run.rivals.missing,
        "measures": [_measure_json(measure) for measure in run.measures],
    }


def _measure_json(measure: Measure) -> dict[str, Any]:
    return {
        "title": measure.title,
        "unit": "bytes" if measure.unit is Unit.BYTES else "seconds per operation",
        "notes": measure.notes,
        "results": [
            {
                "name": result.name,
                "is_ours": result.is_ours,
                "is_reference": result.is_reference,
                "median": result.median,
                "best": result.best,
                "costs": result.costs,
                "ratio": measure.ratio(result),
                "like": result.like,
                "note": result.note,
                "facts": result.facts,
            }
            for group in _groups(measure)
            for result in group
        ],
        "targets": [
            {"wanted": verdict.wanted, "measured": verdict.measured, "is_met": verdict.is_met}
            for verdict in map(measure.verdict, measure.targets)
        ],
    }


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Save the report that `to_json` returns."""
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
