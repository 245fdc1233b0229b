"""This module says which key a row gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pellucid.transfer.report import listed

__all__ = ["CONFLICTS", "key_reader"]

CONFLICTS = ("replace", "merge", "ignore", "error")


def key_reader(key: Any) -> Callable[[Any], Any]:
    """The function from a row to its key; it raises `ValueError` for a row that has none.

    `key` is the name of a field or its path with dots, a list of these, or a function.
    """
    if isinstance(key, str):
        return _of_field(key)
    if isinstance(key, Sequence) and key and all(isinstance(name, str) for name in key):
        parts = [_of_field(name) for name in key]
        return parts[0] if len(parts) == 1 else lambda row: tuple(part(row) for part in parts)
    if callable(key):
        return _of_function(key)
    raise TypeError(f"key= is the name of a field, a list of names or a function, and not {key!r:.40}")


def _of_field(name: str) -> Callable[[Any], Any]:
    steps = name.split(".")

    def read(row: Any) -> Any:
        if not isinstance(row, dict):
            raise ValueError(f"it is a {type(row).__name__}, and has no field {name!r} for its key")
        if name in row:
            return row[name]
        found: Any = row
        for step in steps:
            if not isinstance(found, dict) or step not in found:
                raise ValueError(f"it has no field {name!r} for its key{_names(row)}")
            found = found[step]
        return found

    return read


def _names(row: dict[Any, Any]) -> str:
    return f"; it has {listed(row)}" if row else ""


def _of_function(key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(row: Any) -> Any:
        try:
            return key(row)
        except Exception as error:
            raise ValueError(f"key= raised {type(error).__name__}: {error}") from error

    return read
