"""This module compares two datasets: what improved, what regressed, and what did not change.

A difference counts only if chance is an unlikely reason for it, if it is large enough to matter, and if the
other contenders of the same measure do not have it too: contenders alternate, so what slows down all of them
is the machine, and how much they differ is its noise. An unstable result has no verdict. Datasets of
different machines are shown side by side, without a verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pellucid_bench import figures
from pellucid_bench.dataset import Dataset, DatasetError, Measure, Result
from pellucid_bench.measures import Unit

Verdict = Literal["improved", "regressed", "unchanged", "unclear"]
CHANCE_MAX = 0.01
"""A difference that chance makes more often than this is no difference."""
THRESHOLD = 0.05
"""A difference that is smaller than this share is none that matters."""
SAMPLES_MIN = 5
"""With fewer samples on each side, no difference can be told from chance."""
DEVIATIONS = 3
"""Least difference, in standard deviations of the contenders that did not change."""
OTHERS_MIN = 3
"""With fewer other contenders, their figures cannot show what the machine does to all of them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One contender of one measure in two datasets."""

    measure: Measure
    contender: str
    ours: bool
    before: Result
    after: Result
    verdict: Verdict
    ratio: float | None
    """How many times as good it is after as before. None if one of them has no figures."""
    reason: str = ""

    @property
    def text(self) -> str:
        """Return the change in one line."""
        figures_ = f"{_shown(self.measure, self.before)} -> {_shown(self.measure, self.after)}"
        ratio = "" if self.ratio is None else f" ({self.ratio:.2f}x)"
        why = f" [{self.reason}]" if self.reason else ""
        return f"{self.verdict:<10} {self.measure.id}: {self.contender}: {figures_}{ratio}{why}"


def _shown(measure: Measure, result: Result) -> str:
    if result.median is None:
        return f"no figure ({result.error})"
    unit = Unit(measure.unit)
    return unit.show(1 / result.median if unit.is_rate and result.median else result.median)


def pairs(before: Sequence[Dataset], after: Sequence[Dataset]) -> list[tuple[Dataset, Dataset]]:
    """Pair the runs of two files: the newest of each experiment that both have."""
    newest = [
        {run.experiment: run for run in sorted(runs, key=lambda run: (run.complete, run.created))}
        for runs in (before, after)
    ]
    found = [(run, newest[1][name]) for name, run in newest[0].items() if name in newest[1]]
    if not found:
        raise DatasetError(
            "the two have no experiment in common: "
            f"{', '.join(newest[0]) or 'none'} before, {', '.join(newest[1]) or 'none'} after"
        )
    return found


def obstacle(before: Dataset, after: Dataset) -> str | None:
    """Return why two runs cannot be compared, or None if they can."""
    if before.machine.id != after.machine.id:
        return f"different machines ({_machine(before)}; {_machine(after)}): shown side by side, not compared"
    if before.settings != after.settings:
        names = sorted(set(before.settings) | set(after.settings))
        other = [name for name in names if before.settings.get(name) != after.settings.get(name)]
        return f"other settings ({', '.join(other)}): shown side by side, not compared"
    if before.quick or after.quick:
        return "a quick run, whose figures mean nothing: shown side by side, not compared"
    return None


def _machine(run: Dataset) -> str:
    machine = run.machine
    return f"{machine.processor}, {machine.cores} cores, {machine.kernel}, {machine.file_system}"


def changes(before: Dataset, after: Dataset, threshold: float = THRESHOLD) -> Iterator[Change]:
    """Yield every contender that both runs have in the same measure."""
    hindered = obstacle(before, after)
    for old in before.measures:
        new = after.measure(old.id)
        if new is None or new.unit != old.unit:
            continue
        for result in old.results:
            other = new.result(result.contender)
            has_figure = other is not None and (result.median is not None or other.median is not None)
            if other is not None and has_figure and not result.reference:
                verdict, ratio, why = _judged(before, after, old, new, result, threshold)
                if hindered:
                    verdict, why = "unclear", ""
                yield Change(old, result.contender, result.ours, result, other, verdict, ratio, why)


def _judged(
    before: Dataset, after: Dataset, old: Measure, new: Measure, result: Result, threshold: float
) -> tuple[Verdict, float | None, str]:
    other = new.result(result.contender)
    assert other is not None
    ratio = gain(old, result, other)
    if ratio is None:
        if result.median is None or other.median is None:
            lost = result.median is not None
            return ("regressed" if lost else "unclear"), None, ""
        # A figure of 0 has no ratio: no memory at all, or none in excess.
        if result.median == other.median:
            return "unchanged", None, ""
        return "unclear", None, "a figure of 0 has no ratio"
    few = min(len(result.samples), len(other.samples))
    if few < SAMPLES_MIN:
        # Bytes are the same each time, so one sample is enough to see a change.
        if old.unit in ("bytes", "ratio") and few == 1 and result.samples != other.samples:
            return _direction(ratio, threshold), ratio, "one sample"
        if result.samples == other.samples:
            return "unchanged", ratio, ""
        return "unclear", ratio, f"{few} samples; {SAMPLES_MIN} are needed"
    if figures.difference(result.samples, other.samples) >= CHANCE_MAX:
        return "unchanged", ratio, ""
    drift, noise = _others(before, after, old, new, result)
    verdict = _direction(ratio, threshold)
    if verdict == "unchanged":
        return verdict, ratio, ""
    if result.unstable or other.unstable:
        return "unclear", ratio, "unstable"
    if _direction(ratio / drift, max(threshold, noise)) != verdict:
        if _direction(ratio / drift, threshold) == verdict:
            return "unchanged", ratio, f"the others, which did not change, differ by up to {noise:.0%}"
        return "unchanged", ratio, f"the other contenders changed by {drift:.2f}x too"
    return verdict, ratio, ""


def _direction(ratio: float, threshold: float) -> Verdict:
    if ratio > 1 + threshold:
        return "improved"
    return "regressed" if ratio < 1 / (1 + threshold) else "unchanged"


def gain(measure: Measure, before: Result, after: Result) -> float | None:
    """Return how many times as good a result has become, or None if one of them has no figures."""
    if not before.median or not after.median:
        return None
    quotient = before.median / after.median
    return quotient if measure.better == "lower" else 1 / quotient


def _others(
    before: Dataset, after: Dataset, old: Measure, new: Measure, result: Result
) -> tuple[float, float]:
    """Return by how much the other libraries of the same version changed, and the spread of this.

    They did not change, so what they show is the machine: the median of their ratios is how much slower or
    faster it was, and the spread around it is what a ratio is uncertain by.
    """
    found = []
    for one in old.results:
        other = new.result(one.contender)
        same = before.versions.get(one.library) == after.versions.get(one.library)
        if other is None or one.library == result.library or one.reference or not same:
            continue
        ratio = gain(old, one, other)
        if ratio is not None and math.isfinite(ratio) and ratio > 0:
            found.append(math.log(ratio))
    if len(found) < OTHERS_MIN:
        return 1.0, 0.0
    middle = statistics.median(found)
    # With normal noise, the median distance from the median is two thirds of a standard deviation.
    deviation = 1.5 * statistics.median(abs(one - middle) for one in found)
    return math.exp(middle), math.expm1(min(DEVIATIONS * deviation, 10.0))


def confirmed(found: Sequence[Change], again: Sequence[Change]) -> list[Change]:
    """Take back each regression that was not there when the measure was repeated."""
    second = {(one.measure.id, one.contender): one for one in again}
    result = []
    for change in found:
        repeated = second.get((change.measure.id, change.contender))
        if change.verdict == "regressed" and repeated is not None and repeated.verdict != "regressed":
            result.append(
                Change(
                    change.measure,
                    change.contender,
                    change.ours,
                    change.before,
                    repeated.after,
                    "unchanged",
                    repeated.ratio,
                    "it seemed to have regressed, and did not when it was repeated",
                )
            )
        else:
            result.append(change)
    return result
