"""This module writes a shelf of the standard library."""

from __future__ import annotations

import shelve

from pellucid.transfer.outgoing import Export, plain

__all__ = ["write"]


def write(export: Export, path: str) -> int:
    """Write the rows under their keys as strings, and return their number."""
    count = 0
    with shelve.open(path, "n") as shelf:  # noqa: S301  it only writes
        for key, row in export.items():
            name = str(key) if type(key) in (int, float) else key
            if not isinstance(name, str):
                export.skip(f"key {key!r}", f"the keys of a shelf are strings, and not {type(key).__name__}")
                continue
            try:
                if name in shelf:
                    raise ValueError(f"the shelf has the key {name!r} already")
                shelf[name] = plain(row)
            except (OSError, MemoryError):
                raise
            except Exception as error:
                # Pickling an object runs its code, which may raise anything.
                export.skip(f"key {key!r}", str(error))
            else:
                count += 1
    return count
