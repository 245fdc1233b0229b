"""This module checks the arguments of imports, exports and copies, and says what each of them takes."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pellucid

__all__ = ["check", "check_encoding", "check_once"]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    """Whether a value is a list of texts, or another iterable."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return False
    # An iterator can be read once, and is not read here.
    return iter(value) is value or all(isinstance(name, str) for name in value)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and _are_names(value))


def _are_types(value: Any) -> bool:
    if isinstance(value, Mapping):
        return _are_names(value.keys()) and _are_names(value.values())
    return isinstance(value, str)


def _are_fields(value: Any) -> bool:
    """Whether a value is what `select=` takes; the expressions of a dict say themselves what is wrong."""
    return isinstance(value, str) or (
        _are_names(value.keys()) if isinstance(value, Mapping) else _are_names(value)
    )


def _is_condition(value: Any) -> bool:
    return isinstance(value, (str, pellucid.Expression))


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "batch": (lambda value: isinstance(value, int) and type(value) is not bool, "a number of rows"),
    "columns": (_are_names, 'a list of names, such as ["name", "age"]'),
    "dialect": (lambda value: isinstance(value, Mapping), 'a dict, such as {"decimal": ","}'),
    "encoding": (_is_text, 'the name of an encoding, such as "latin-1"'),
    "fields": (_are_names, 'a list of names, such as ["name", "age"]'),
    "key": (_is_text, "the name of a field"),
    "path": (_is_path, 'the names that lead to the rows: a text such as "data.rows", or a list of names'),
    "pickle": (
        lambda value: isinstance(value, str) or _are_names(value),
        '"deny", "allow" or a list of names of classes',
    ),
    "progress": (lambda value: type(value) is bool or callable(value), "True, False or a function"),
    "select": (
        _are_fields,
        'a list of field paths, such as ["name", "at.city"], or a dict of names and these',
    ),
    "table": (_is_text, "the name of a table"),
    "tables": (_are_names, 'a list of names, such as ["people"]'),
    "where": (_is_condition, 'a condition, such as F.age > 30 or "age > 30"'),
    "types": (_are_types, 'the name of a type, or a dict of fields and types, such as {"zip": "text"}'),
}


def check(choices: Mapping[str, Any]) -> None:
    """Raise `TypeError` for a choice of a wrong kind; None is no choice."""
    for name, value in choices.items():
        is_right, what = RULES.get(name, (None, ""))
        if value is not None and is_right is not None and not is_right(value):
            raise TypeError(f"{name}= is {what}, and not {value!r:.60}")


def check_once(choice: str, names: Iterable[str]) -> None:
    """Raise `ValueError` if a choice has a name twice."""
    there = set()
    for name in names:
        if name in there:
            raise ValueError(f"{choice}= has {name!r} twice; leave out one of them")
        there.add(name)


def check_encoding(encoding: str) -> None:
    """Raise `ValueError` if Python knows no such encoding, or not one that decodes bytes to text."""
    try:
        found = codecs.lookup(encoding)
        is_right = found.incrementaldecoder is not None
        # Some are from text to text, or know only part of what a text may need.
        "a".encode(encoding)
        codecs.getincrementaldecoder(encoding)("replace").decode(b"a")
    except (LookupError, ValueError, TypeError):
        is_right = False
    if not is_right:
        raise ValueError(
            f"encoding= has no {encoding!r:.60}; it is the name of an encoding that Python knows, such as "
            '"utf-8", "latin-1", "cp1252" or "utf-16"'
        )
