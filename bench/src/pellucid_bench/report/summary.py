"""This module says in four sentences what a run comes to: who is better, where, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pellucid_bench.headlines import headlines
from pellucid_bench.report import units
from pellucid_bench.report.figures import compared_with, usable

if TYPE_CHECKING:
    from pellucid_bench.dataset import Dataset, Measure, Result

PLOTTED, WORST = 4, 3
"""Most measures that a sentence names: of the plot, and of those in which others are ahead."""

Sentence = list[str]
"""The parts of a sentence, of which those that are a `Title` are set apart."""


class Title(str):
    """The title of a measure."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Duel:
    """A result of another library, and how it stands beside ours."""

    measure: Measure
    theirs: Result
    ratio: float
    """How many times our cost it has: below 1, the other library is better."""
    is_sure: bool
    """The 95 % intervals of the two are known, and do not overlap."""

    def example(self) -> Sentence:
        """Return the measure, the other library and the ratio."""
        return [Title(self.measure.title), f" ({self.theirs.contender} {units.times(self.ratio)})"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run comes to, in figures."""

    run: Dataset
    duels: list[Duel]

    @property
    def lost(self) -> list[Duel]:
        """Return the comparisons in which another library is better, the greatest differences first."""
        lost = (one for one in self.duels if one.ratio < 1)
        return sorted(lost, key=lambda one: (one.ratio, one.measure.title, one.theirs.contender))

    @property
    def unsure(self) -> int:
        """Return how many comparisons may be chance."""
        return sum(not one.is_sure for one in self.duels)

    @property
    def unstable(self) -> int:
        """Return how many results have an interval that is too wide."""
        return sum(result.unstable for measure in self.run.measures for result in measure.results)

    @property
    def targets(self) -> tuple[int, int]:
        """Return how many targets were met, of how many that were measured."""
        verdicts = [target.met for measure in self.run.measures for target in measure.targets]
        return sum(met is True for met in verdicts), sum(met is not None for met in verdicts)

    def plotted(self) -> list[Duel]:
        """Return the best of the others in each measure of the plot."""
        shown = headlines(self.run)
        groups = [[duel for duel in self.duels if duel.measure is one] for one in shown]
        return [min(group, key=lambda duel: duel.ratio) for group in groups if group][:PLOTTED]

    def worst(self) -> list[Duel]:
        """Return where others are furthest ahead: one comparison of each measure, whatever its size."""
        found: dict[tuple[str, str], Duel] = {}
        for duel in self.lost:
            # A figure of 0 says that there was nothing to do, and the ratio says nothing.
            if usable(duel.theirs):
                found.setdefault((duel.measure.group, duel.measure.unit), duel)
        return list(found.values())[:WORST]


def summarized(run: Dataset) -> Summary:
    """Return the summary of a run.

    A comparison of which one side has no figure, or one below 0, is none.
    """
    duels = [
        Duel(measure, result, ratio, _apart(result, ours))
        for measure in run.measures
        for result in measure.results
        if (ours := compared_with(measure, result)) is not None
        and (ratio := ratio_of(measure, usable(result), usable(ours))) is not None
    ]
    return Summary(run, duels)


def ratio_of(measure: Measure, theirs: float | None, ours: float | None) -> float | None:
    """Return how many times our cost another one has."""
    if theirs is None or ours is None or min(theirs, ours) < 0:
        return None
    return units.ratio(theirs, ours) if measure.better == "lower" else units.ratio(ours, theirs)


def _apart(one: Result, two: Result) -> bool:
    """Say whether the intervals of two results are known and do not overlap."""
    if one.interval is None or two.interval is None:
        return False
    return one.interval[1] < two.interval[0] or two.interval[1] < one.interval[0]


def sentences(of: Summary) -> Iterator[Sentence]:
    """Yield who is better, by how much in the plot, where others are ahead, and how sure that is."""
    count, lost = len(of.duels), len(of.lost)
    if not count:
        yield ["No other library was compared."]
    else:
        yield [
            f"pellucid is better in {count - lost} of {count} comparisons with other libraries; "
            "a ratio is the time or size of the other library divided by ours."
        ]
        plotted = of.plotted()
        if plotted:
            yield ["The plot shows, each with the best of the others, ", *_listed(plotted), "."]
        worst = of.worst()
        yield (
            ["Others are furthest ahead in ", *_listed(worst), "."]
            if worst
            else ["No other library is better in any of them."]
        )
    yield [f"{_sureness(of)}."]


def _listed(duels: Sequence[Duel]) -> Iterable[str]:
    for place, duel in enumerate(duels):
        if place:
            yield " and " if place == len(duels) - 1 else ", "
        yield from duel.example()


def _sureness(of: Summary) -> str:
    machine, (met, wanted) = of.run.machine, of.targets
    chance = (
        f"the intervals of {of.unsure} comparisons overlap or are missing, so that their order may be chance"
    )
    if of.unsure == 1:
        chance = "the intervals of 1 comparison overlap or are missing, so that its order may be chance"
    parts = [
        *(
            [chance if of.unsure else "the intervals of no comparison overlap or are missing"]
            if of.duels
            else []
        ),
        "1 result is unstable" if of.unstable == 1 else f"{of.unstable or 'no'} results are unstable",
        *([f"{met} of {wanted} target{'s were' if wanted > 1 else ' was'} met"] if wanted else []),
        f"and the machine was {machine.processor}, {units.cores(machine.cores)}, on {of.run.created[:10]}",
    ]
    text = ", ".join(parts)
    return text[0].upper() + text[1:]
