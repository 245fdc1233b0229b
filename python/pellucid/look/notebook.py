"""This module tells IPython of our classes, where it is loaded before pellucid.

IPython asks its own registry before it asks an object, so that a record with a field `_repr_html_` is shown,
too. It completes the names of a class besides those of `dir`, and our classes have names that only say what
to call instead.
"""

from __future__ import annotations

import sys
from typing import Any

from pellucid._native import Database, Record, Snapshot, Table

__all__ = ["register"]


def register() -> None:
    """Register how records are shown, and what is completed, with the IPython that runs, if one runs."""
    shell = sys.modules["IPython"].get_ipython()
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None:
        formatter.formatters["text/html"].for_type(Record, _html)
    generics = sys.modules.get("IPython.utils.generics")
    if generics is not None:
        for cls in (Table, Database, Snapshot):
            generics.complete_object.register(cls)(_names)


def _html(record: Any) -> str:
    from pellucid.look import show

    return show.html_of(record)


def _names(thing: Any, names: list[str]) -> list[str]:
    """The names that an object has, of those that its class may have, too."""
    own = set(dir(thing))
    return [name for name in names if name in own]
