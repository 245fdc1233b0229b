"""This module loads the pickles of a source: those of plain values, and others that the caller allows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pellucid.errors import CorruptRecord, PickleDenied

__all__ = ["is_pickle", "load", "load_all"]


# Of more bytes than CHECKED_MAX, OPERATIONS_MAX instructions are read to decide whether they are a pickle.
CHECKED_MAX = 1 << 20
OPERATIONS_MAX = 10_000


def load(data: bytes, policy: Any, encoding: str | None = None) -> Any:
    """The object of a pickle. It may use what plain values need and `policy` allows, or anything for "allow".

    A pickle that wants more raises `PickleDenied` with the name; a damaged one raises `ValueError`.
    """
    return next(load_all(data, policy, encoding))


def load_all(data: bytes, policy: Any, encoding: str | None = None) -> Iterator[Any]:
    """The objects of all pickles of a file, one after another. `encoding` is that of strings of Python 2."""
    from pellucid import plain_pickles

    if policy == "deny":
        policy = ()
    elif isinstance(policy, str) and policy != "allow":
        raise ValueError(f'pickle={policy!r} is not "deny", "allow", or a list of globals')
    file = io.BytesIO(data)
    while True:
        try:
            yield plain_pickles.decode_foreign(
                file, policy if policy == "allow" else tuple(policy), encoding or "ASCII"
            )
        except PickleDenied as error:
            raise _in_short(error) from None
        except (CorruptRecord, UnicodeDecodeError) as error:
            if not isinstance(error.__cause__ or error, UnicodeDecodeError) or encoding is not None:
                raise
            raise ValueError(
                "its pickle is of Python 2, and has text or bytes that are not ASCII; pass "
                'encoding="latin1", which also reads dates, or encoding="utf-8" if its texts are that'
            ) from error
        if file.tell() == len(data):
            return


def is_pickle(data: bytes) -> bool:
    """Whether bytes look like a pickle of protocol 2 or newer, or of protocol 0 or 1, which Python 2 wrote.

    Those have no mark. So it is checked whether their instructions fit together; nothing is done.
    """
    if data[-1:] != b".":
        return False
    if data[:1] == b"\x80":
        return True
    import pickletools

    try:
        if len(data) < CHECKED_MAX:
            pickletools.dis(data, io.StringIO())
        else:
            next(islice(pickletools.genops(data), OPERATIONS_MAX, None), None)
    except UnicodeDecodeError:
        # It came to a quoted str with bytes, as Python 2 wrote dates.
        return True
    except Exception:  # Whatever it says: these are other bytes.
        return False
    # A shorter text may be a pickle by chance.
    return len(data) > 2


def _in_short(error: PickleDenied) -> PickleDenied:
    """The error without the list of all globals, most of which the caller did not write."""
    found = re.match(r"a stored pickle wants '([^']+)', which is not among", str(error))
    if found is None:
        return error
    return PickleDenied(
        f'its pickle wants {found[1]!r}; pass pickle=[{found[1]!r}] if you trust that, or pickle="allow" if '
        "you trust the whole file"
    )
