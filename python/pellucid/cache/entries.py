"""This module says how an entry of a cache is stored: the value alone, or in a dict beside other facts.

A value alone is read by one lookup. The dict is needed for a time, a tag and a few odd values. Its names
begin with "cache:", so that `F["cache:tag"]` finds them in a query; a dict of the user that has one of these
names is put into such a dict itself.
"""

from __future__ import annotations

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "ABSENT",
    "ERROR",
    "EXPIRE",
    "FRESH",
    "TAG",
    "TYPED",
    "VALUE",
    "is_expired",
    "is_wrapped",
    "opened",
    "with_facts",
    "wrapped",
]

VALUE = "cache:value"
# When the entry expires, in seconds since 1970.
EXPIRE = "cache:expire"
TAG = "cache:tag"
# Until when a result is fresh that may be served for a while longer.
FRESH = "cache:fresh"
# The value has the fields of an instance, and the function knows its class.
TYPED = "cache:typed"
# The value says which exception the function raised.
ERROR = "cache:error"

# What a lookup or an index would take for ours.
INDEXED = frozenset({VALUE, EXPIRE, TAG})

ABSENT: Any = object()
"""What a lookup gives that finds nothing: no value is this object."""


def is_wrapped(row: Any) -> bool:
    """Say whether a row has its value in a dict of ours."""
    return type(row) is dict and VALUE in row


def is_expired(row: Any, now: float) -> bool:
    """Say whether a wrapped row has expired."""
    expire = row.get(EXPIRE)
    return expire is not None and expire <= now


def opened(row: Any, now: float) -> tuple[Any, Any]:
    """Return the value of a row, and the dict of its facts. What has expired, and an error, is ABSENT."""
    if not is_wrapped(row):
        return row, {}
    return (ABSENT, {}) if is_expired(row, now) or ERROR in row else (row[VALUE], row)


def with_facts(found: Any, facts: Any, expire_time: bool, tag: bool) -> Any:
    """Return what was found, or a tuple of it, when it expires, and its tag, as far as asked for."""
    if not (expire_time or tag):
        return found
    return (found, *((facts.get(EXPIRE),) if expire_time else ()), *((facts.get(TAG),) if tag else ()))


def wrapped(value: object, expire: float | None, tag: object, **more: object) -> Any:
    """Return the row for a value: the value itself where nothing needs to be said beside it."""
    has_our_names = type(value) is dict and not INDEXED.isdisjoint(value)
    if expire is None and tag is None and not more and not has_our_names:
        return value
    row = {VALUE: value}
    if expire is not None:
        row[EXPIRE] = expire
    if tag is not None:
        row[TAG] = tag
    for name, fact in more.items():
        row[f"cache:{name}"] = fact
    return row
