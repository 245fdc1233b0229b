"""This module makes the table of a dataset in Markdown, as the README has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid_bench.report import units
from pellucid_bench.report.figures import compared_with, machine_line, reason, usable

if TYPE_CHECKING:
    from pellucid_bench.dataset import Dataset, Measure, Result


def table(dataset: Dataset, only: str = "") -> str:
    """Return our figures, the ratios of the others, the command and the machine, as Markdown.

    Each of our results has a row with the libraries that are compared with it. A library that beats us is in
    bold, and one without a figure has its reason. Measures without `only` in their titles are left out.
    """
    lines = ["| Operation | pellucid | Others |", "| --- | --- | --- |"]
    for measure in dataset.measures:
        if only in measure.title:
            # What is not installed is in one line below the table.
            lines += _rows(measure, set(dataset.missing))
    lines += ["", f"{plain(dataset.experiment)}: `{_code(dataset.command)}`, {plain(machine_line(dataset))}."]
    if dataset.quick:
        lines.append("This was the shortest run (`--quick`): its figures mean nothing.")
    if not dataset.complete:
        lines.append("This run was stopped before its end.")
    if dataset.missing:
        missing = [f"{plain(name)} ({plain(why)})" for name, why in dataset.missing.items()]
        lines.append(f"Not measured: {', '.join(missing)}.")
    lines += [
        "A ratio is the time (or size) of the other library divided by ours: 2.00x means that pellucid is "
        "twice as fast. **Bold** marks a library that is better than pellucid.",
        "",
    ]
    return "\n".join(lines)


def plain(text: str) -> str:
    r"""Return a text whose signs mean nothing to Markdown, in one line.

    >>> print(plain("a|b <i>*c*"))
    a\|b \<i\>\*c\*
    """
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Return a text whose signs mean nothing to Markdown, with the spaces around it."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return re.sub(r"([\\`*_\[\]<>|#&~!])", r"\\\1", text)


def _code(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")


def _rows(measure: Measure, missing: set[str]) -> Iterator[str]:
    ours = [result for result in measure.results if result.ours]
    words = re.findall(r"\w+", measure.title)
    title = plain(", ".join([measure.title, *(label for label in measure.labels if label not in words)]))
    for index, result in enumerate(ours):
        rivals = [rival for rival in measure.results if compared_with(measure, rival) is result]
        rivals = [rival for rival in rivals if usable(rival) is not None or rival.contender not in missing]
        if index and not rivals:
            continue
        name = "" if result.contender == "pellucid" or not ours[1:] else f" ({plain(result.contender)})"
        others = ", ".join(_rival(measure, result, rival) for rival in _ranked(measure, rivals))
        yield f"| {title} | {_ours(measure, result)}{name} | {others} |"


def _ranked(measure: Measure, rivals: list[Result]) -> list[Result]:
    sign = 1 if measure.better == "lower" else -1
    return sorted(rivals, key=lambda rival: (usable(rival) is None, sign * (usable(rival) or 0)))


def _ours(measure: Measure, result: Result) -> str:
    median = usable(result)
    return plain(reason(result)) if median is None else units.figure(median, measure.unit)


def _rival(measure: Measure, ours: Result, rival: Result) -> str:
    name, figure, base = plain(rival.contender), usable(rival), usable(ours)
    if figure is None:
        return f"{name}: {plain(reason(rival))}"
    if base is None or min(base, figure) < 0:
        return f"{name} {units.figure(figure, measure.unit)}"
    if measure.unit == "share":
        # Twice of next to nothing says nothing, so both shares are shown.
        text = f"{name} {units.figure(figure, measure.unit)}"
        return f"**{text}**" if figure < base else text
    high, low = (figure, base) if measure.better == "lower" else (base, figure)
    ratio = units.ratio(high, low)
    text = f"{name} {units.times(ratio)}"
    return f"**{text}**" if ratio < 1 else text
