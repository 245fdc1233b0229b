"""This module prints what an experiment measured as tables.

Under each of our rows are the contenders that are compared with it, with their ratios. A contender that beats
us is marked, and never left out, and one that has no figures says why. Then follow the targets with the
measured values, the libraries that are not installed, and what else a reader must know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from pellucid_bench.dataset import Dataset
from pellucid_bench.measures import Measure, Result, Unit
from pellucid_bench.run import Run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NARROW = 80
"""With fewer columns there is no room for tables."""
MARKS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: "[yellow]not measured[/]"}


def show(console: Console, run: Run, made: Dataset) -> None:
    """Print what one experiment measured."""
    console.print(_facts(made.experiment, _machine(made)))
    console.print(_facts("versions", made.versions))
    is_narrow = console.width < NARROW
    for measure in run.measures:
        if is_narrow:
            _narrow(console, measure)
        else:
            console.print(_measure_table(measure))
        for note in measure.notes:
            console.print(f"  [dim]{escape(note)}[/]")
    if any(measure.targets for measure in run.measures):
        _show_targets(console, run.measures, is_narrow)
    losses = sum(len(measure.losses()) for measure in run.measures)
    compared = sum(
        1 for measure in run.measures for result in measure.results if measure.ratio(result) is not None
    )
    if compared:
        console.print(
            f"Comparisons with other libraries: {compared}; [bold red]they were faster in {losses}[/]."
        )
    for name, reason in made.missing.items():
        console.print(f"[yellow]not measured:[/] {escape(name)} ({escape(reason)})")
    for note in made.notes:
        console.print(f"[yellow]note:[/] {escape(note)}")
    if made.quick:
        console.print(
            "[bold yellow]--quick runs everything as briefly as possible: these figures mean nothing.[/]"
        )


def _machine(made: Dataset) -> dict[str, str]:
    machine = made.machine
    memory = f"{machine.memory_bytes / 2**30:.1f} GiB" if machine.memory_bytes else "?"
    return {
        "processor": machine.processor,
        "cores": str(machine.cores),
        "memory": memory,
        "kernel": f"{machine.system} {machine.kernel}",
        "python": f"{made.python.implementation} {made.python.version} ({made.python.build})",
        "file system": machine.file_system,
        "load at start": "?" if machine.load is None else f"{machine.load:.1f}",
    }


def _narrow(console: Console, measure: Measure) -> None:
    """Print a measure for a terminal that has no room for a table: two lines for each contender."""
    console.print(f"\n[bold]{escape(measure.title)}[/]")
    for group in _groups(measure):
        for result in group:
            console.print(f"[cyan]{escape(result.name)}[/]" if result.is_ours else escape(result.name))
            console.print(f"  {' '.join(filter(None, _cells(measure, result)))}")


def _cells(measure: Measure, result: Result) -> tuple[str, str, str, str]:
    """Return the median, the best, the ratio, and a mark; or the reason why there are none."""
    if not result.costs:
        # The reason for a missing library is shown once, at the end.
        why = result.error or result.left_out or "stopped"
        return "-", "", "", "not installed" if why.startswith("not installed") else escape(why)
    ratio = measure.ratio(result)
    marks = ["[bold red]we lose[/]"] if ratio is not None and ratio < 1 else []
    if result.is_unstable:
        marks.append("[yellow]unstable[/]")
    if result.error:
        marks.append(f"[yellow]{escape(result.error)}[/]")
    shown = "" if ratio is None else _times(ratio)
    return measure.unit.show(result.median), measure.unit.show(result.best), shown, ", ".join(marks)


def new_table(title: str, *columns: str) -> Table:
    """Make a table without rows."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _facts(title: str, facts: dict[str, str]) -> Table:
    table = new_table("", title, "")
    table.columns[1].justify = "left"
    for name, fact in facts.items():
        table.add_row(name, fact)
    return table


def _measure_table(measure: Measure) -> Table:
    facts = list(dict.fromkeys(name for result in measure.results for name in result.facts))
    has_notes = any(result.note for result in measure.results)
    ratio_title = "its size / ours" if measure.unit in (Unit.BYTES, Unit.FACTOR) else "its time / ours"
    title = escape(measure.title) + (f" ({', '.join(measure.labels)})" if measure.labels else "")
    table = new_table(title, "", "median", "best", ratio_title, "", *facts, *["note"] * has_notes)
    # The reason for which a contender has no figures may be long, and so may facts.
    for column in table.columns[4:]:
        column.no_wrap = False
    for group in _groups(measure):
        for result in group:
            style = "bold cyan" if result.is_ours else "dim" if result.is_reference else ""
            table.add_row(
                escape(result.name),
                *_cells(measure, result),
                *(escape(result.facts.get(name, "")) for name in facts),
                *[escape(result.note)] * has_notes,
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
    for result in sorted(measure.results, key=lambda one: one.median if one.costs else float("inf")):
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


def _show_targets(console: Console, measures: list[Measure], is_narrow: bool) -> None:
    table = new_table("targets", "measure", "ours", "target", "measured", "")
    for measure in measures:
        for target in measure.targets:
            verdict = measure.verdict(target)
            mark = MARKS[verdict.is_met]
            if is_narrow:
                console.print(f"{escape(measure.title)}: {verdict.wanted}: {verdict.measured}, {mark}")
            ours = target.ours or (measure.ours.name if measure.ours else "")
            table.add_row(escape(measure.title), ours, verdict.wanted, verdict.measured, mark)
    if not is_narrow:
        console.print(table)
