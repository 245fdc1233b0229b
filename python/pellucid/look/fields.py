"""This module has the fields of a table as rows: what types they have, how often they are there, and more."""

from __future__ import annotations

import math
import sys
from typing import Any

from pellucid._native import Table, _figures, _survey, parse
from pellucid.look.rows import Rows

__all__ = ["described", "fields_of"]

# A server sends whole rows, so that no more are read.
SERVER_ROWS = 10_000
NUMBERS = {"int", "float", "Decimal"}
# The squares of larger numbers may be no floats.
SCALED_FROM = 1e150
QUARTILES = ("min", "25%", "50%", "75%", "max")


def fields_of(table: Any, exact: bool) -> Rows[dict[str, Any]]:
    """The paths of all rows; see `verbs.fields`."""
    if not isinstance(exact, bool):
        raise TypeError(f"fields() takes exact=True or exact=False, not {type(exact).__name__}")
    is_here = isinstance(table, Table)
    total = len(table)
    rows = table if is_here else table.where() if exact else table.limit(SERVER_ROWS)
    count = total if is_here or exact else min(total, SERVER_ROWS)
    found, met, read, has_more = _survey(rows, count, exact)
    fields = [_field(parts, met, total) for parts in found if not _is_plain_root(parts)]
    return Rows(fields, note=_note(met, read, total, has_more))


def _is_plain_root(parts: Any) -> bool:
    # That all rows are dicts need not be said.
    return bool(parts[0] == "record()" and [name for name, _ in parts[2]] == ["dict"])


def _field(parts: Any, met: int, total: int) -> dict[str, Any]:
    path, rows, types, distinct, least, greatest, example = parts
    return {
        "path": path,
        "types": ", ".join(name for name, _ in types),
        "share": float(f"{rows / met:.4g}"),
        "rows": rows if met == total else round(rows / met * total),
        "distinct": distinct,
        "min": least,
        "max": greatest,
        "example": example,
    }


def _note(met: int, read: int, total: int, has_more: bool) -> str:
    notes = []
    if met < total:
        notes.append(f"of {met:,} of {total:,} rows")
    if read < met:
        notes.append(f"types and values are those of {read:,} rows by chance; fields(exact=True) reads all")
    if has_more:
        notes.append("there are more paths; these were met first")
    return "; ".join(notes)


def described(table: Any) -> Rows[dict[str, Any]]:
    """The figures of the paths that have numbers; see `verbs.describe`."""
    paths = [
        field["path"]
        for field in fields_of(table, exact=False)
        if "[*]" not in field["path"] and NUMBERS & set(field["types"].split(", "))
    ]
    rows = table if isinstance(table, Table) else table.where()
    found = []
    for path in paths:
        figures = _figures(rows, parse(path))
        if figures is None or any(max(-values[0], values[-1]) > SCALED_FROM for *_, values in figures):
            figures = _of_any(_numbers(table.column(parse(path))))
        for count, mean, std, values in figures:
            quartiles = dict(zip(QUARTILES, values, strict=True))
            found.append({"path": path, "count": count, "mean": mean, "std": std, **quartiles})
    return Rows(found)


def _numbers(values: list[Any]) -> list[float]:
    """The finite numbers among values, sorted; no bools, and no int that no float is near."""
    kinds = set(map(type, values))
    if kinds != {int}:
        # Where a value differs from itself by something, it is NaN or infinite.
        values = [value for value in values if type(value) in (int, float) and value - value == 0] + [
            float(value) for value in values if type(value).__name__ == "Decimal" and value.is_finite()
        ]
    values.sort()
    if values and max(-values[0], values[-1]) > sys.float_info.max:
        values = [value for value in values if abs(value) <= sys.float_info.max]
    return values


def _of_any(values: list[float]) -> list[tuple[int, float, float | None, list[float]]]:
    """What `_figures` returns, of sorted numbers that may be larger ints than a float holds exactly."""
    count = len(values)
    if not count:
        return []
    # Squares and differences of the largest floats have no float.
    largest = max(-values[0], values[-1])
    scale = 2.0 ** (math.frexp(largest)[1] - 1) if largest > SCALED_FROM else 1
    scaled = [value / scale for value in values] if scale > 1 else values
    mean = math.fsum(scaled) / count
    spread = math.fsum((value - mean) ** 2 for value in scaled)
    std = math.sqrt(spread / (count - 1)) * scale if count > 1 else None
    inner = [_quantile(scaled, share) * scale for share in (0.25, 0.5, 0.75)]
    return [(count, mean * scale, std, [values[0], *inner, values[-1]])]


def _quantile(values: list[float], share: float) -> float:
    """The value at a share of the sorted values, between two of them if it falls there."""
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)
