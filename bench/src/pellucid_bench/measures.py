"""This module defines measures, results and targets.

Every result is a *cost*, and a lower cost is better: seconds for one operation, bytes, or a factor. A unit
only says how to print a cost. A ratio is the cost of the other library divided by ours. Above 1 we win, below
1 we lose. A dataset has rates instead of costs where the unit is a rate.
"""

from __future__ import annotations

import enum
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from pellucid_bench import dataset, figures
from pellucid_bench.rivals import library_of


class Unit(enum.Enum):
    """How to print a cost."""

    TIME = "seconds"
    RATE = "rows/s"
    OPERATIONS = "operations/s"
    BYTES = "bytes"
    FACTOR = "ratio"
    SHARE = "share"

    @property
    def code(self) -> dataset.Unit:
        """Return the name of the unit in a dataset."""
        return next(unit for unit in dataset.UNITS if unit == self.value)

    @property
    def is_rate(self) -> bool:
        """Say whether the unit is a rate, the reciprocal of a cost."""
        return self in (Unit.RATE, Unit.OPERATIONS)

    def sample(self, cost: float) -> float:
        """Return a cost as a dataset has it."""
        return 1 / max(cost, 1e-12) if self.is_rate else cost

    def show(self, cost: float) -> str:
        """Format a cost for people.

        >>> Unit.TIME.show(30.8e-9), Unit.RATE.show(1 / 16.2e6), Unit.BYTES.show(171)
        ('30.8 ns', '16.20 M/s', '171 B')
        """
        match self:
            case Unit.TIME:
                return _scaled(
                    cost, [(1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (1e99, 1.0, "s")]
                )
            case Unit.BYTES:
                return _scaled(
                    cost, [(1e4, 1.0, "B"), (1e7, 1e-3, "kB"), (1e10, 1e-6, "MB"), (1e99, 1e-9, "GB")]
                )
            case Unit.FACTOR:
                return f"{cost:.2f}x"
            case Unit.SHARE:
                return figures.percent(cost)
            case Unit.RATE | Unit.OPERATIONS:
                rate = 1 / cost if cost else float("inf")
                return _scaled(
                    rate, [(1e3, 1.0, "/s"), (1e6, 1e-3, "k/s"), (1e9, 1e-6, "M/s"), (1e99, 1e-9, "G/s")]
                )


def _scaled(value: float, steps: list[tuple[float, float, str]]) -> str:
    """Format `value` with the first unit whose upper bound is above it: (bound, factor, unit)."""
    factor, unit = next(((factor, unit) for bound, factor, unit in steps if value < bound), steps[-1][1:])
    shown = value * factor
    if unit == "B" and shown == int(shown):
        return f"{int(shown)} B"
    decimals = 2 if unit in ("M/s", "G/s", "s") or shown < 10 else 1
    return f"{shown:,.{decimals}f} {unit}"


@dataclass(slots=True)
class Result:
    """The costs of one contender in one measure, one for each round."""

    name: str
    is_ours: bool = False
    # Shown only for orientation (the empty loop). It is neither a contender nor a loss.
    is_reference: bool = False
    note: str = ""
    like: str = ""
    """Our result with which this one is compared, if it is not the first."""
    facts: dict[str, str] = field(default_factory=dict)
    """Values that the report shows in their own columns."""
    costs: list[float] = field(default_factory=list)
    error: str | None = None
    """Why there are no costs, or no more of them."""
    left_out: str = ""
    """Why there are no costs, if that is no failure."""
    library: str = ""
    """The library, if the name does not begin with it."""
    scale_min: float = 0.0
    """What the width of the interval is compared with if the median is less: a share can be around zero."""

    @property
    def median(self) -> float:
        """Return the cost that the report compares."""
        return statistics.median(self.costs)

    @property
    def is_unstable(self) -> bool:
        """Say whether the costs vary too much for conclusions."""
        return figures.is_unstable(self.costs, self.scale_min)

    @property
    def best(self) -> float:
        """Return the cost of the round with the least disturbance."""
        return min(self.costs)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a measure: `wanted` times the speed of another library, or a figure if there is none.

    With `Unit.RATE`, the figure is a rate to reach. With other units, it is a cost to stay below.
    """

    wanted: float
    against: str | None = None
    ours: str | None = None
    """The name of our result that the target is for, if it is not the first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target with the measured value."""

    wanted: str
    measured: str
    is_met: bool | None
    """None if the library is not installed, or the measure did not run here."""
    figure: float | None = field(default=None, compare=False)
    """What was measured, as a number: a ratio, or a value in the unit."""


@dataclass(slots=True)
class Measure:
    """One table of the report: several contenders that do the same work."""

    title: str
    unit: Unit
    results: list[Result] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    group: str = ""
    """Measures of one group are the points of a curve. Without a group, the measure is one of its own."""
    size: float | None = None
    labels: tuple[str, ...] = ()
    size_unit: str = ""
    """What the size counts: `keys`, `rows`."""

    @property
    def ours(self) -> Result | None:
        """Return our first result, with which the others are compared."""
        return next((result for result in self.results if result.is_ours and result.costs), None)

    def result(self, name: str) -> Result | None:
        """Return the result of one contender, or None if it did not run."""
        return next((result for result in self.results if result.name == name and result.costs), None)

    def beside(self, rival: Result) -> Result | None:
        """Return our result with which another one is compared."""
        return self.result(rival.like) if rival.like else self.ours

    def ratio(self, rival: Result) -> float | None:
        """Return the cost of another library divided by ours."""
        ours = self.beside(rival)
        if ours is None or rival.is_ours or rival.is_reference or not rival.costs or self.unit is Unit.SHARE:
            return None
        return rival.median / ours.median if ours.median else None

    def losses(self) -> list[Result]:
        """Return the results that beat ours."""
        return [result for result in self.results if (ratio := self.ratio(result)) is not None and ratio < 1]

    def verdict(self, target: Target) -> Verdict:
        """Say whether the medians meet `target`."""
        ours = self.result(target.ours) if target.ours else self.ours
        if target.against is not None:
            wanted = f"{target.wanted:.2f}x {target.against}"
            rival = self.result(target.against)
            if ours is None or rival is None:
                return Verdict(wanted, "not measured", is_met=None)
            ratio = rival.median / ours.median if ours.median else math.inf
            return Verdict(wanted, f"{ratio:.2f}x", is_met=ratio >= target.wanted, figure=ratio)
        cost = 1 / target.wanted if self.unit.is_rate else target.wanted
        bound = "at least" if self.unit.is_rate else "at most"
        wanted = f"{bound} {self.unit.show(cost)}"
        if ours is None:
            return Verdict(wanted, "not measured", is_met=None)
        figure = self.unit.sample(ours.median)
        return Verdict(wanted, self.unit.show(ours.median), is_met=ours.median <= cost, figure=figure)

    def add_absent(self, reasons: dict[str, str]) -> None:
        """Add a row for each library that could not take part."""
        there = {result.name for result in self.results}
        self.results += [
            Result(name, is_ours=library_of(name) == "pellucid", error=why)
            for name, why in reasons.items()
            if name not in there
        ]

    def to_dataset(self, experiment: str) -> dataset.Measure:
        """Return the measure as a dataset has it."""
        unit: dataset.Unit = self.unit.code
        group = self.group or _code(self.title)
        size = "" if self.size is None else f"/{self.size:.0f}"
        verdicts = [(target, self.verdict(target)) for target in self.targets]
        return dataset.Measure(
            id=f"{experiment}/{_code(group)}{size}",
            title=self.title,
            group=group,
            size=self.size,
            size_unit=self.size_unit,
            unit=unit,
            better=dataset.UNITS[unit],
            labels=list(self.labels),
            notes=list(self.notes),
            results=[self._result(result) for result in self.results],
            targets=[
                dataset.Target(
                    text=f"{target.ours}: {verdict.wanted}" if target.ours else verdict.wanted,
                    ratio=target.wanted,
                    measured=verdict.figure,
                    met=verdict.is_met,
                )
                for target, verdict in verdicts
            ],
        )

    def _result(self, result: Result) -> dataset.Result:
        samples = [self.unit.sample(cost) for cost in result.costs]
        return dataset.Result(
            contender=result.name,
            library=result.library or ("pellucid" if result.is_ours else library_of(result.name)),
            ours=result.is_ours,
            reference=result.is_reference,
            samples=samples,
            median=statistics.median(samples) if samples else None,
            interval=figures.interval(samples),
            unstable=result.is_unstable,
            error=result.error or (None if samples else result.left_out or "stopped before it was measured"),
            like=result.like or None,
            note=result.note,
            facts=dict(result.facts),
        )


def of_dataset(measure: dataset.Measure) -> Measure:
    """Return a measure that a dataset has, as when it was taken here. Its targets are left out."""
    unit = Unit(measure.unit)
    results = [
        Result(
            one.contender,
            one.ours,
            one.reference,
            one.note,
            one.like or "",
            dict(one.facts),
            [unit.sample(sample) for sample in one.samples],
            one.error,
            one.library,
        )
        for one in measure.results
    ]
    labels = tuple(measure.labels)
    return Measure(
        measure.title,
        unit,
        results,
        notes=list(measure.notes),
        group=measure.group,
        size=measure.size,
        labels=labels,
        size_unit=measure.size_unit,
    )


def _code(title: str) -> str:
    """Return a title as a part of an id.

    >>> _code("bytes at hand, read one field (uniform)")
    'bytes-at-hand-read-one-field-uniform'
    """
    return "-".join(re.findall(r"[a-z0-9_.+]+", title.lower().replace(",", "").replace("`", "")))


def unique(measures: Sequence[Measure], experiment: str) -> list[dataset.Measure]:
    """Return measures as a dataset has them. An id that is there twice gets a number."""
    found: list[dataset.Measure] = []
    seen: dict[str, int] = {}
    for measure in measures:
        one = measure.to_dataset(experiment)
        seen[one.id] = seen.get(one.id, 0) + 1
        if seen[one.id] > 1:
            one.id += f"-{seen[one.id]}"
        found.append(one)
    return found
