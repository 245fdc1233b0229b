"""What is a measure, and when is its target met?

Everything is kept as a *cost*, of which less is better: seconds for one operation, bytes, or a factor.
Units only say how a cost is shown. A ratio is always the rival's cost over ours: above 1 we win, below 1
we lose.
"""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field


class Unit(enum.Enum):
    """How a cost is shown to a person."""

    TIME = "time per operation"
    RATE = "operations per second"
    BYTES = "bytes"
    FACTOR = "times the best"

    def show(self, cost: float) -> str:
        """Write a cost as people read it.

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
    """Write `value` with the first unit whose upper bound it is below: (bound, factor, unit)."""
    factor, unit = next(((factor, unit) for bound, factor, unit in steps if value < bound), steps[-1][1:])
    shown = value * factor
    if unit == "B" and shown == int(shown):
        return f"{int(shown)} B"
    decimals = 2 if unit in ("M/s", "G/s", "s") or shown < 10 else 1
    return f"{shown:,.{decimals}f} {unit}"


@dataclass(slots=True)
class Result:
    """What one contender scored in one measure: a cost for each round."""

    name: str
    is_ours: bool = False
    # Shown for orientation only (the empty loop): neither a rival nor a loss.
    is_reference: bool = False
    note: str = ""
    like: str = ""
    """Our result that this one is compared with, where it is not the first."""
    facts: dict[str, str] = field(default_factory=dict)
    """What the report shows in columns of their own."""
    costs: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The cost that the report compares."""
        return statistics.median(self.costs)

    @property
    def best(self) -> float:
        """The least disturbed round."""
        return min(self.costs)


@dataclass(frozen=True, slots=True)
class Target:
    """What a measure must reach: `wanted` times a rival's speed, or (no rival) a figure of its own.

    A figure of its own is a rate to reach where the unit is `Unit.RATE`, else a cost to stay below.
    """

    wanted: float
    against: str | None = None
    ours: str | None = None
    """Which of our results is meant, where there are several; the first otherwise."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target beside what was measured."""

    wanted: str
    measured: str
    is_met: bool | None
    """None: the rival is not installed, or the measure did not run here."""


@dataclass(slots=True)
class Measure:
    """One table of the report: several contenders doing the same work."""

    title: str
    unit: Unit
    results: list[Result] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ours(self) -> Result | None:
        """Our first result: what rivals are compared with."""
        return next((result for result in self.results if result.is_ours), None)

    def result(self, name: str) -> Result | None:
        """The result of one contender, or None if it did not run."""
        return next((result for result in self.results if result.name == name), None)

    def beside(self, rival: Result) -> Result | None:
        """Our result that a rival is compared with."""
        return self.result(rival.like) if rival.like else self.ours

    def ratio(self, rival: Result) -> float | None:
        """How many times our speed is the rival's (for bytes: how many times smaller we are)."""
        ours = self.beside(rival)
        if ours is None or rival.is_ours or rival.is_reference:
            return None
        return rival.median / ours.median

    def losses(self) -> list[Result]:
        """The rivals that beat us."""
        return [result for result in self.results if (ratio := self.ratio(result)) is not None and ratio < 1]

    def verdict(self, target: Target) -> Verdict:
        """Say whether `target` is met by the medians."""
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
