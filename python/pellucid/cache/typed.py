"""This module stores instances of dataclasses and similar classes by their fields, and makes them again.

The entry does not name the class. The caller does: by `type=`, or by the return annotation of the function.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from pellucid import instances
from pellucid.classes import as_plain, is_enum, kind_of
from pellucid.errors import WrongClass

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["build", "plain"]


@lru_cache(maxsize=1024)
def _holder(hint: Any) -> Any:
    """A class with one field of this type: what a class with fields has, is made at any depth."""
    return dataclasses.make_dataclass("Result", [("result", hint)])


def plain(result: Any, hint: Any) -> Any:
    """The plain value that stands for a result. Raises `WrongClass` if it would not come back as it is."""
    holder = _holder(hint)
    check = instances.checker(holder, False)
    if check is not None and (why := check(holder(result))) is not None:
        raise WrongClass(f"a result {why}")
    value = _plain(result)
    if _types(build(value, hint)) != _types(result):
        raise WrongClass(f"a result of {type(result).__qualname__} would come back as something else")
    return value


def _plain(value: Any) -> Any:
    cls = type(value)
    if cls is dict:
        return {key: _plain(each) for key, each in value.items()}
    if cls in (list, tuple, set, frozenset):
        return cls(map(_plain, value))
    if kind_of(cls) or is_enum(cls):
        found = as_plain(value)
        return value if found is None else _plain(found[0])
    return value


def _types(value: Any) -> Any:
    """The classes of a value and of its parts: an annotation such as `list` says nothing of the parts."""
    cls = type(value)
    if cls is dict:
        return {key: _types(each) for key, each in value.items()}
    if cls in (list, tuple):
        return cls, list(map(_types, value))
    if cls in (set, frozenset):
        return cls, set(map(type, value))
    return (cls, _types(as_plain(value)[0])) if kind_of(cls) else cls  # type: ignore[index]


def build(value: Any, hint: Any) -> Any:
    """The result that a plain value stands for. Raises `WrongClass` if the class has changed since."""
    return instances.build(_holder(hint), {"result": value}, False).result  # type: ignore[attr-defined]
