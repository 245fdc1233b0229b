"""This module loads the pickles of a source: those of plain values, and others that the caller allows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pellucid.errors import PickleDenied

__all__ = ["PLAIN", "load", "load_all"]

# The globals in pickles of values that the record format has. None of them does anything but make a value.
PLAIN = (
    "builtins.bytearray",
    "builtins.bytes",
    "builtins.complex",
    "builtins.frozenset",
    "builtins.set",
    "collections.OrderedDict",
    "datetime.date",
    "datetime.datetime",
    "datetime.time",
    "datetime.timedelta",
    "datetime.timezone",
    "decimal.Decimal",
    "uuid.UUID",
    "uuid.SafeUUID",
    "_codecs.encode",
)


def load(data: bytes, policy: Any) -> Any:
    """The object of a pickle. It may use plain globals and those of `policy`, or all for "allow".

    A pickle that wants more raises `PickleDenied` with the name; a damaged one raises `ValueError`.
    """
    from pellucid import pickles

    try:
        return pickles.decode(data, _globals(policy))
    except PickleDenied as error:
        raise _in_short(error) from None


def load_all(data: bytes, policy: Any) -> Iterator[Any]:
    """The objects of all pickles of a file, one after another."""
    from pellucid import pickles

    try:
        yield from pickles.decode_all(data, _globals(policy))
    except PickleDenied as error:
        raise _in_short(error) from None


def _in_short(error: PickleDenied) -> PickleDenied:
    """The error without the list of plain globals, which the caller did not write."""
    found = re.match(r"a stored pickle wants '([^']+)', which is not among", str(error))
    if found is None:
        return error
    return PickleDenied(
        f'its pickle wants {found[1]!r}; pass pickle=[{found[1]!r}] if you trust that, or pickle="allow" if '
        "you trust the whole file"
    )


def _globals(policy: Any) -> Any:
    if policy == "allow":
        return policy
    if policy == "deny":
        return PLAIN
    if isinstance(policy, str):
        raise ValueError(f'pickle={policy!r} is not "deny", "allow", or a list of globals')
    return (*PLAIN, *policy)
