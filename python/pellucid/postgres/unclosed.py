"""This module warns of a database on a server that is collected without having been closed."""

from __future__ import annotations

import sys
import warnings

__all__ = ["opened_at", "warn"]


def opened_at() -> str | None:
    """Return the line of the program that opens the database; None if it is one of the package itself."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pellucid.postgres"):
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith("pellucid."):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"


def warn(shown: str, place: str) -> None:
    """Give the `ResourceWarning`, if this is not the end of the program."""
    if not sys.is_finalizing():
        warnings.warn(
            f'database "{shown}" was not closed; it was opened at {place}: use `with pellucid.open(...) as '
            "db:`, or call db.close()",
            ResourceWarning,
            stacklevel=2,
        )
