"""This module compares values with the text of their cells, in another way than the cells were read."""

from __future__ import annotations

import base64
import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

__all__ = ["says_the_same"]

# The parts of a datetime or a time that may be written in several ways.
DATETIME = re.compile(r"(?:(.{10})[T ])?(\d\d:\d\d)(?::(\d\d))?(?:\.(\d+))?(Z|[-+]\d\d:\d\d)?\Z", re.ASCII)


def says_the_same(value: Any, cell: str) -> bool:
    """Whether a cell says what a value is. A float is the nearest one to its decimal number.

    `cell` has a point in its number, and nothing between thousands.
    """
    kind = type(value)
    if kind is str:
        return bool(value == cell)
    if kind is bytes:
        return base64.b64encode(value).decode() == "".join(cell.split())
    if kind is bool:
        return cell.lower() == str(value).lower() or value is (cell.lower() in ("1", "yes"))
    if kind is int or kind is float or kind is Decimal:
        return _is_number(value, cell)
    if hasattr(value, "isoformat"):
        return _parts(value.isoformat()) == _parts(cell)
    # Other types are named by the caller, and have texts of many forms.
    return True


def _is_number(value: Any, cell: str) -> bool:
    # `math.isfinite` makes a float of a Decimal, which may be larger than that.
    if not (value.is_finite() if type(value) is Decimal else type(value) is int or math.isfinite(value)):
        return cell.strip().lower() in (str(value).lower(), str(value).lower().replace("inf", "infinity"))
    try:
        exact = Fraction(Decimal(cell.strip()))
    except (InvalidOperation, ValueError, OverflowError):
        return False
    distance = abs(exact - Fraction(value))
    return distance <= Fraction(math.ulp(value)) / 2 if type(value) is float else not distance


def _parts(text: str) -> tuple[str, ...]:
    found = DATETIME.match(text)
    if found is None:
        return (text,)
    day, minute, second, fraction, zone = found.groups("")
    zone = "+00:00" if zone == "Z" else zone
    return day, minute, second or "00", fraction.rstrip("0"), zone
