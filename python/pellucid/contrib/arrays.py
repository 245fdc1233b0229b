"""This module gives values whose arrays may be changed, as libraries do that read them from pickles."""

from __future__ import annotations

import sys

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["changeable"]


def changeable(value: Any) -> Any:
    """Return a value with copies of its arrays, also of those in lists, tuples and dicts."""
    numpy = sys.modules.get("numpy")
    return value if numpy is None else _changeable(value, numpy.ndarray)


def _changeable(value: Any, array: type) -> Any:
    cls = type(value)
    if cls is array:
        return value if value.flags.writeable else value.copy(order="K")
    if cls is list:
        value[:] = [_changeable(each, array) for each in value]
    elif cls is dict:
        for key, each in value.items():
            value[key] = _changeable(each, array)
    elif cls is tuple:
        return tuple(_changeable(each, array) for each in value)
    return value
