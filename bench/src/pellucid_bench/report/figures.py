"""This module arranges datasets for plots: experiments, each with its runs, and figures with their rows.

A figure has one measure, or all sizes of a group. Runs stand side by side: figures of two machines are never
put into one number. The page, the Matplotlib files and the Markdown table are made from the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pellucid_bench.report import units

if TYPE_CHECKING:
    from pellucid_bench.dataset import Better, Dataset, Measure, Result, Unit

CURVES_MAX = 12
"""Most curves of a plot: more cannot be told apart by colour, dash and mark."""

Role = Literal["ours", "slower", "faster", "other", "reference", "failed"]


@dataclass(frozen=True, slots=True)
class Row:
    """A contender's result in one run and at one size."""

    run: int
    variant: int
    role: Role
    result: Result

    @property
    def name(self) -> str:
        """Return the contender."""
        return self.result.contender

    @property
    def median(self) -> float | None:
        """Return the figure, or None for a contender that failed."""
        return usable(self.result)


@dataclass(slots=True)
class Figure:
    """Results that belong into one plot."""

    title: str
    unit: Unit
    better: Better
    labels: list[str]
    sizes: list[float | None]
    """The size of each variant; `[None]` for a measure that has no size."""
    size_unit: str = ""
    """What the sizes count."""
    measures: dict[tuple[int, int], Measure] = field(default_factory=dict)
    """The measure of each run and variant."""

    def rows(self) -> Iterator[Row]:
        """Yield all results: by run, then by size, the best first and failures last."""
        for (run, variant), measure in sorted(self.measures.items(), key=lambda item: item[0]):
            yield from _ranked(run, variant, measure)

    @property
    def labels_beside(self) -> list[str]:
        """Return the labels that the title does not say."""
        return [label for label in self.labels if label not in re.findall(r"\w+", self.title)]

    def notes(self) -> list[str]:
        """Return the notes of the measures, each once."""
        return list(dict.fromkeys(note for measure in self.measures.values() for note in measure.notes))

    def ratio(self, figure: float, base: float) -> float:
        """Return how many times the baseline's cost a figure is: above 1 is worse than the baseline."""
        high, low = (figure, base) if self.better == "lower" else (base, figure)
        return units.ratio(high, low)

    @property
    def cost(self) -> str:
        """Return what a ratio compares."""
        return {"bytes": "size", "ratio": "factor", "share": "share"}.get(self.unit, "time")

    @property
    def axis(self) -> str:
        """Return the title of the axis of figures: what they are, and what is better."""
        kinds = {"seconds": "time", "bytes": "size", "ratio": "multiple", "share": "share"}
        return f"{kinds.get(self.unit, self.unit)}, {'less' if self.better == 'lower' else 'more'} is better"

    @property
    def size_axis(self) -> str:
        """Return the title of the axis of sizes. Old datasets do not say what a size counts."""
        return self.size_unit or "size"


@dataclass(slots=True)
class Experiment:
    """All runs of one experiment."""

    name: str
    runs: list[Dataset]
    figures: list[Figure]

    def contenders(self) -> list[str]:
        """Return the names of all contenders, in the order of the datasets: ours first."""
        results = [result for run in self.runs for measure in run.measures for result in measure.results]
        ours = dict.fromkeys(result.contender for result in results if result.ours)
        others = sorted({result.contender for result in results}, key=str.casefold)
        return list(ours | dict.fromkeys(others))

    def ours(self) -> set[str]:
        """Return the names of our contenders."""
        return {row.name for figure in self.figures for row in figure.rows() if row.result.ours}

    def libraries(self) -> dict[str, str]:
        """Return the library of each contender."""
        return {row.name: row.result.library for figure in self.figures for row in figure.rows()}

    def name_of_run(self, run: int) -> str:
        """Return the letter of a run, if there is more than one."""
        if len(self.runs) == 1:
            return ""
        return chr(ord("A") + run) if run < 26 else str(run + 1)


def experiments(datasets: Iterable[Dataset]) -> list[Experiment]:
    """Arrange datasets by experiment, in the order in which they are given."""
    runs: dict[str, list[Dataset]] = {}
    for dataset in datasets:
        runs.setdefault(dataset.experiment, []).append(dataset)
    return [Experiment(name, of_one, _figures(of_one)) for name, of_one in runs.items()]


def shown_in_color(rows: Sequence[Row]) -> list[str]:
    """Return the contenders whose curves have a colour: ours, and of each other library the best one.

    A plot in which each of 25 ways to use ten libraries had a colour could not be read. Up to `CURVES_MAX`
    all of them have one. The best is judged at the largest size of a contender, so the rows have to be in the
    order of `Figure.rows`.
    """
    ours = dict.fromkeys(row.name for row in rows if row.result.ours and row.median is not None)
    last = {row.name: row for row in rows if row.median is not None and row.name not in ours}
    # Rows are ranked within each size. Later sizes come first here, as they say more.
    place = {row.name: index for index, row in enumerate(rows) if row.median is not None}
    ranked = sorted(last.values(), key=lambda row: (-row.variant, place[row.name]))
    if len(ours) + len(last) <= CURVES_MAX:
        return [*ours, *(row.name for row in ranked)]
    best: dict[str, str] = {}
    for row in ranked:
        best.setdefault(row.result.library, row.name)
    return [*ours, *best.values()]


def usable(result: Result) -> float | None:
    """Return the median, or None if the contender failed. It can be below 0: a share, in noise."""
    return None if result.median is None else float(result.median)


def compared_with(measure: Measure, result: Result) -> Result | None:
    """Return our result with which one of another library is compared."""
    if result.ours or result.reference:
        return None
    return next((one for one in measure.results if one.ours and result.like in (None, one.contender)), None)


def machine_line(dataset: Dataset) -> str:
    """Return the machine, the interpreter and the day in one line."""
    machine, python = dataset.machine, dataset.python
    facts = [
        machine.processor,
        units.cores(machine.cores) if machine.cores else "",
        units.memory(machine.memory_bytes),
        " ".join(str(part) for part in (machine.system, machine.kernel) if part),
        machine.file_system,
        f"{python.implementation} {python.version}".strip(),
        str(dataset.created)[:10],
    ]
    return ", ".join(str(fact) for fact in facts if fact)


def size_text(size: float | None) -> str:
    """Format a size: how many keys, rows or values there are."""
    return "" if size is None else units.count(size)


def reason(result: Result) -> str:
    """Return why a contender has no figure."""
    return result.error or "the dataset does not say why"


def _figures(runs: Sequence[Dataset]) -> list[Figure]:
    figures: dict[tuple[object, ...], Figure] = {}
    sized = _groups_with_sizes(runs)
    for run, dataset in enumerate(runs):
        for measure in dataset.measures:
            group = _group(measure)
            if group in sized:
                figure = figures.setdefault(group, _figure(measure, sized[group]))
            else:
                figure = figures.setdefault((measure.id, measure.unit), _figure(measure, [measure.size]))
            figure.measures[run, figure.sizes.index(measure.size)] = measure
    for group, figure in figures.items():
        if group in sized:
            figure.title = _common_title(
                [measure.title for measure in figure.measures.values()], str(group[0])
            )
    return list(figures.values())


def _common_title(titles: Sequence[str], group: str) -> str:
    """Return what the titles of all sizes have in common, or the group's name if that is too little.

    >>> _common_title(["get of 1,000 rows (server)", "get of 10,000 rows (server)"], "get")
    'get of \u2026 rows (server)'
    >>> _common_title(["100 single writes", "300 single writes"], "write")
    'single writes'
    """
    start, end = _common_ends(titles)
    if len(set(titles)) > 1:
        # Both ends may be within a number, as those of "get of 1,000 rows" and "get of 10,000 rows".
        start = re.sub(r"[\d,.]*$", "", start)
        end = re.sub(r"^[\d,.]*", "", end)
        end = end if re.match(r"\W", end) else end.partition(" ")[2]
        if re.search(r"[,:;(]\s*$", start):
            # The number has a part of its own, which goes with the word that it counts.
            start, end = re.sub(r"[\s,:;(]+$", "", start), re.sub(r"^\s*\w+", "", end)
        elif not end.strip():
            start = re.sub(r"\s+((of|with|at|for|from|after)\s*)?$", "", start)
        gap = " \u2026 " if start.strip() and re.match(r"\s*\w", end) else " "
        gap = "" if end.startswith(",") else gap
        start = f"{start.strip()}{gap}{end.strip()}".strip()
    return start if len(start) > 3 else group.replace("-", " ")


def _common_ends(titles: Sequence[str]) -> tuple[str, str]:
    """Return the longest common start, and the longest common end of what follows it."""
    start = _common_start(titles)
    rest = [title[len(start) :][::-1] for title in titles]
    return start, _common_start(rest)[::-1]


def _common_start(titles: Sequence[str]) -> str:
    lowest, highest = min(titles), max(titles)
    pairs = enumerate(zip(lowest, highest, strict=False))
    return lowest[
        : next((index for index, (one, two) in pairs if one != two), min(len(lowest), len(highest)))
    ]


def _figure(measure: Measure, sizes: Sequence[float | None]) -> Figure:
    return Figure(
        measure.title, measure.unit, measure.better, list(measure.labels), list(sizes), measure.size_unit
    )


def _group(measure: Measure) -> tuple[object, ...]:
    return (measure.group, measure.unit, measure.better, tuple(measure.labels))


def _groups_with_sizes(runs: Sequence[Dataset]) -> dict[tuple[object, ...], list[float | None]]:
    """Return the groups whose measures differ by size alone, with all sizes."""
    sizes: dict[tuple[object, ...], set[float | None]] = {}
    unlike: set[tuple[object, ...]] = set()
    for dataset in runs:
        seen: set[tuple[object, ...]] = set()
        for measure in dataset.measures:
            group = _group(measure)
            if measure.size is None or (*group, measure.size) in seen:
                unlike.add(group)
            seen.add((*group, measure.size))
            sizes.setdefault(group, set()).add(measure.size)
    return {
        group: sorted(found, key=lambda size: size or 0)
        for group, found in sizes.items()
        if group not in unlike and len(found) > 1
    }


def _ranked(run: int, variant: int, measure: Measure) -> list[Row]:
    """Return a measure's results, the best first and failures last."""
    sign = 1 if measure.better == "lower" else -1
    rows = [Row(run, variant, _role(measure, result), result) for result in measure.results]
    return sorted(rows, key=lambda row: (row.median is None, sign * (row.median or 0)))


def _role(measure: Measure, result: Result) -> Role:
    median = usable(result)
    if median is None:
        return "failed"
    if result.ours:
        return "ours"
    ours = compared_with(measure, result)
    our_median = usable(ours) if ours else None
    if our_median is None:
        return "reference" if result.reference else "other"
    return (
        "faster" if (median < our_median if measure.better == "lower" else median > our_median) else "slower"
    )
