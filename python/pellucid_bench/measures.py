"""This module defines measures, results and targets.

Every result is a *cost*, and a lower cost is better: seconds for one operation, bytes, or a factor. A unit
only says how to print a cost. A ratio is the cost of the other library divided by ours. Above 1 we win, below
1 we lose.
"""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field


class Unit(enum.Enum):
    """How to print a cost."""

    TIME = "time per operation"
    RATE = "operations per second"
    BYTES = "bytes"
    FACTOR = "times the best"

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
            case Unit.RATE:
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

    @property
    def median(self) -> float:
        """Return the cost that the report compares."""
        return statistics.median(self.costs)

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


@dataclass(slots=True)
class Measure:
    """One table of the report: several contenders that do the same work."""

    title: str
    unit: Unit
    results: list[Result] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ours(self) -> Result | None:
        """Return our first result, with which the others are compared."""
        return next((result for result in self.results if result.is_ours), None)

    def result(self, name: str) -> Result | None:
        """Return the result of one contender, or None if it did not run."""
        return next((result for result in self.results if result.name == name), None)

    def beside(self, rival: Result) -> Result | None:
        """Return our result with which another one is compared."""
        return self.result(rival.like) if rival.like else self.ours

    def ratio(self, rival: Result) -> float | None:
        """Return the cost of another library divided by ours."""
        ours = self.beside(rival)
        if ours is None or rival.is_ours or rival.is_reference:
            return None
        return rival.median / ours.median

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
            ratio = rival.median / ours.median
            return Verdict(wanted, f"{ratio:.2f}x", is_met=ratio >= target.wanted)
        cost = 1 / target.wanted if self.unit is Unit.RATE else target.wanted
        bound = "at least" if self.unit is Unit.RATE else "at most"
        wanted = f"{bound} {self.unit.show(cost)}"
        if ours is None:
            return Verdict(wanted, "not measured", is_met=None)
        return Verdict(wanted, self.unit.show(ours.median), is_met=ours.median <= cost)
