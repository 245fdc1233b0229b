"""This module formats figures and ratios for people, with the unit that fits."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pellucid_bench.figures import percent

if TYPE_CHECKING:
    from pellucid_bench.dataset import Unit

Step = tuple[float, float, str]
"""The first value that is too large for a unit, the factor, and the unit."""

SECONDS: tuple[Step, ...] = (
    (1e-6, 1e9, "ns"),
    (1e-3, 1e6, "\u00b5s"),
    (1.0, 1e3, "ms"),
    (math.inf, 1.0, "s"),
)
BYTES: tuple[Step, ...] = ((1e4, 1.0, "B"), (1e7, 1e-3, "kB"), (1e10, 1e-6, "MB"), (math.inf, 1e-9, "GB"))
RATE: tuple[Step, ...] = ((1e3, 1.0, "/s"), (1e6, 1e-3, "k/s"), (1e9, 1e-6, "M/s"), (math.inf, 1e-9, "G/s"))
STEPS: dict[str, tuple[Step, ...]] = {
    "seconds": SECONDS,
    "bytes": BYTES,
    "rows/s": RATE,
    "operations/s": RATE,
}


def figure(value: float, unit: Unit) -> str:
    """Format a figure with its unit.

    >>> figure(30.84e-9, "seconds"), figure(171, "bytes"), figure(16.2e6, "rows/s"), figure(0, "seconds")
    ('30.8 ns', '171 B', '16.2 M/s', '0 s')
    >>> figure(0.543, "share"), figure(-0.03, "share"), figure(-0.03, "ratio")
    ('54 %', '-3.0 %', '-0.03x')
    """
    if unit == "ratio":
        return times(value)
    if unit == "share":
        return percent(value)
    steps = STEPS[unit]
    if value == 0:
        return f"0 {steps[-1][2] if unit == 'seconds' else steps[0][2]}"
    factor, name = next(
        (factor, name) for bound, factor, name in steps if abs(value) < bound or bound == math.inf
    )
    return f"{_digits(value * factor)} {name}"


def tick(value: float, unit: Unit) -> str:
    """Format a figure at an axis, without digits that say nothing.

    >>> tick(2e-6, "seconds"), tick(1500, "bytes"), tick(0, "bytes")
    ('2 \u00b5s', '1.5 kB', '0')
    """
    if not value:
        return "0"
    if unit == "share":
        return f"{value * 100:g} %"
    if unit == "bytes" and 1e3 <= value < 1e4:
        return f"{value / 1e3:g} kB"
    return re.sub(r"(\.\d*?)0+(?=\D|$)", r"\1", figure(value, unit)).replace(".x", "x").replace(". ", " ")


def times(ratio: float) -> str:
    """Format a ratio so that neither 0.0004 nor 1,234,567 loses its meaning.

    >>> times(2), times(0.00042), times(56.6), times(1234567)
    ('2.00x', '0.0004x', '57x', '1,234,567x')
    """
    if not math.isfinite(ratio):
        return "\u221ex"
    if 0 <= ratio < 0.01:
        return f"{ratio:.1g}x"
    return f"{ratio:,.{2 if ratio < 10 else 0}f}x"


def ratio(high: float, low: float) -> float:
    """Divide two costs, of which either may be 0 for a clock that is too coarse."""
    return high / low if low else math.inf if high else 1.0


def count(number: float) -> str:
    """Format a count of rows or keys.

    >>> count(1_000_000)
    '1,000,000'
    """
    return f"{number:,.0f}" if number == int(number) else f"{number:,g}"


def cores(number: int) -> str:
    """Format the cores of a machine.

    >>> cores(2), cores(1)
    ('2 cores', '1 core')
    """
    return f"{number} core{'s' if number != 1 else ''}"


def memory(size: int | None) -> str:
    """Format the size of a machine's memory.

    >>> memory(24 * 2**30), memory(None)
    ('24 GiB', '')
    """
    return f"{size / 2**30:.3g} GiB" if size else ""


def _digits(value: float) -> str:
    """Format three digits that count, and no exponent."""
    if value < 0:
        return f"-{_digits(-value)}"
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
