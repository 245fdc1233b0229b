"""How do tests leave a transaction so that nothing of it is kept?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pellucid


class Undo(Exception):
    """Leaves a transaction so that it is dropped."""


@contextlib.contextmanager
def undone(db: pellucid.Database) -> Iterator[None]:
    """A transaction that is dropped."""
    with contextlib.suppress(Undo), db.transaction():
        yield
        raise Undo
