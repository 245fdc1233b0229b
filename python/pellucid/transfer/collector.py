"""This module pauses Python's cyclic garbage collector during an import."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused"]

# One entry for each pause that will switch the collector on again.
_pauses: list[None] = []


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector from running in the block, whatever ends it.

    The rows of an import hold no garbage, and the collector would walk over all of them again and again. If a
    program has switched it off itself, or a pause runs already, nothing changes.
    """
    if not gc.isenabled():
        yield
        return
    _pauses.append(None)
    gc.disable()
    try:
        yield
    finally:
        # A forked child has switched it on already.
        if _pauses:
            _pauses.pop()
        gc.enable()


def _resume() -> None:
    """In a forked child, the thread that paused the collector may not be there."""
    if _pauses:
        _pauses.clear()
        gc.enable()


os.register_at_fork(after_in_child=_resume)
