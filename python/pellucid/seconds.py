"""Lengths of time that users give: a number of seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from math import inf, isnan
from numbers import Real

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["seconds_of"]


def seconds_of(length: Any, name: str) -> float:
    """Return a length of time in seconds; `name` is what the user calls it.

    Raises `TypeError` for what is neither a number nor a timedelta, and `ValueError` for NaN.

    >>> from datetime import timedelta
    >>> from pellucid.seconds import seconds_of
    >>> seconds_of(timedelta(minutes=1), "expire")
    60.0
    """
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    kind = type(seconds)
    # NumPy's timedelta64 counts as a number, of a unit of its own.
    is_other = kind is bool or kind.__name__ == "timedelta64"
    if kind not in (int, float) and (is_other or not isinstance(seconds, Real)):
        raise TypeError(f"{name} has to be a number of seconds or a timedelta, not {kind.__name__}")
    try:
        seconds = float(seconds)
    except OverflowError:
        return inf if seconds > 0 else -inf
    if isnan(seconds):
        raise ValueError(f"{name} has to be a number of seconds or a timedelta, not NaN")
    return seconds
