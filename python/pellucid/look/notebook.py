"""This module tells IPython how records are shown, where it is loaded before pellucid.

IPython asks its own registry before it asks an object, so that a record with a field `_repr_html_` is shown,
too.
"""

from __future__ import annotations

import sys
from typing import Any

from pellucid._native import Record

__all__ = ["register"]


def register() -> None:
    """Register the HTML of records with the IPython that runs, if one runs."""
    shell = sys.modules["IPython"].get_ipython()
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None:
        formatter.formatters["text/html"].for_type(Record, _html)


def _html(record: Any) -> str:
    from pellucid.look import show

    return show.html_of(record)
