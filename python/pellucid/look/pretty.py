"""This module has `pprint` break the lines of records and lists as it does those of dicts and lists."""

from __future__ import annotations

import pprint
from typing import Any

from pellucid._native import Record, RecordList

__all__ = ["register"]


def register() -> None:
    """Give `pprint` its own functions for the two classes; it finds them by the `__repr__` of a class.

    A `pprint` without these parts shows a record in one line.
    """
    printer: Any = pprint.PrettyPrinter
    dispatch = getattr(printer, "_dispatch", {})
    for cls, like in ((Record, dict), (RecordList, list)):
        function = dispatch.get(like.__repr__)
        if function is not None:
            dispatch[cls.__repr__] = function
