"""This module has the statistics of samples: medians with intervals, and whether two sets of samples differ.

It needs no library. Samples of one machine are few and skewed: other work makes some of them slow. So nothing
here assumes a normal distribution.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate

CONFIDENCE = 0.95
SAMPLES_MIN = 3
"""With fewer samples there is no interval."""
UNSTABLE_WIDTH = 0.25
"""An interval wider than this share of its median is too wide for conclusions."""
EXACT_MAX = 400
"""Up to this product of sample counts, the test counts all orders. Above it, it uses the normal curve."""


def interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the bootstrap interval of the median, or None if there are too few samples.

    A bootstrap draws samples with replacement, again and again, and looks at the medians. Their distribution
    is known without drawing: the median of a draw is at most the k-th sample if at least half of the draw is.
    So the result is exact, and the same each time.

    >>> interval([5.0, 1.0, 2.0, 4.0, 3.0])
    (1.0, 5.0)
    >>> interval([10.0] * 20 + [99.0])
    (10.0, 10.0)
    """
    count = len(samples)
    if count < SAMPLES_MIN:
        return None
    ordered = sorted(samples)
    tail = (1 - CONFIDENCE) / 2
    # With an even count, the median is the mean of the two in the middle: each end uses the outer one.
    lower_half, upper_half = (count + 1) // 2, count // 2 + 1
    low = next(k for k in range(1, count + 1) if _at_least(count, k / count, lower_half) > tail)
    high = next(k for k in range(1, count + 1) if _at_least(count, k / count, upper_half) >= 1 - tail)
    return ordered[low - 1], ordered[high - 1]


def _at_least(count: int, chance: float, wanted: int) -> float:
    """Return the probability of `wanted` or more hits in `count` tries."""
    return sum(
        math.comb(count, hits) * chance**hits * (1 - chance) ** (count - hits)
        for hits in range(wanted, count + 1)
    )


def is_unstable(samples: Sequence[float], scale_min: float = 0.0) -> bool:
    """Say whether the interval is too wide beside the median, or beside `scale_min` if that is more.

    >>> is_unstable([1.0, 1.01, 1.02, 1.0]), is_unstable([1.0, 2.0, 1.5, 1.2])
    (False, True)
    """
    ends = interval(samples)
    width = UNSTABLE_WIDTH * max(statistics.median(samples), scale_min) if ends else 0.0
    return ends is not None and ends[1] - ends[0] > width


def percent(share: float) -> str:
    """Format a share for people.

    >>> percent(0.5432), percent(-0.004), percent(0)
    ('54 %', '-0.4 %', '0 %')
    """
    return f"{share:.{1 if 0 < abs(share) < 0.0995 else 0}%}".replace("%", " %")


def difference(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how likely chance alone makes two sets of samples differ as these do (Mann-Whitney, two-sided).

    >>> round(difference([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]), 4)
    0.0079
    >>> difference([1, 2, 3], [1, 2, 3])
    1.0
    """
    # Ties count as a half, on both sides.
    above = sum((b > a) + (b == a) / 2 for a in first for b in second)
    pairs = len(first) * len(second)
    if not pairs:
        return 1.0
    extreme = max(above, pairs - above)
    if pairs <= EXACT_MAX:
        ways = _orders(len(first), len(second))
        as_extreme = sum(ways[math.ceil(extreme) :])
        return min(1.0, 2 * as_extreme / sum(ways))
    spread = math.sqrt(pairs * (len(first) + len(second) + 1) / 12)
    return min(1.0, math.erfc((extreme - 0.5 - pairs / 2) / spread / math.sqrt(2)))


def _orders(first: int, second: int) -> list[int]:
    """Return how many orders of two sets have each number of pairs in which the second is greater."""
    # The coefficients of the Gaussian binomial: product of (1 - x^(second + i)) / (1 - x^i).
    size = first * second + 1
    ways = [1] + [0] * (size - 1)
    for step in range(1, first + 1):
        for index in range(size - 1, second + step - 1, -1):
            ways[index] -= ways[index - second - step]
        for start in range(step):
            ways[start::step] = accumulate(ways[start::step])
    return ways
