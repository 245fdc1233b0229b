"""This module has the methods that show what is in a table; tables in a file and on a server have them.

`look.rs` in `crates/python` gives them to the classes of the library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

from pellucid._native import count as rows_of
from pellucid.look import show
from pellucid.look.rows import Rows

__all__ = ["describe", "fields", "head", "sample", "tail", "value_counts"]

# A completer asks for all keys, and shows some.
KEYS_MAX = 1000
NOTHING = object()


def _count_of(n: Any, verb: str) -> int:
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        raise TypeError(f"{verb}() takes a count, an int, not {type(n).__name__}")
    count: int = n.__index__()
    if count < 0:
        raise ValueError(f"{verb}() takes a count from 0 on, not {count}")
    # No table has more rows, and `islice` takes no greater number.
    return min(count, sys.maxsize)


def _rows(pairs: Iterable[tuple[Any, Any]]) -> Rows[Any]:
    found = list(pairs)
    return Rows((value for _, value in found), [key for key, _ in found])


def head(self: Any, n: int = 5) -> Rows[Any]:
    """Return the first `n` rows in the order of their keys, in a list that is shown as a table.

    >>> import pellucid
    >>> people = pellucid.open(":memory:").table("people")
    >>> people.update(ann={"age": 30, "city": "Bath"}, bob={"age": 20}, cid={"age": 40})
    >>> people.head(2)
    key    age  city
    'ann'   30  Bath
    'bob'   20
    >>> people.head(2)[0].age
    30
    """
    return _rows(islice(self.items(), _count_of(n, "head")))


def tail(self: Any, n: int = 5) -> Rows[Any]:
    """Return the last `n` rows in the order of their keys, in a list that is shown as a table.

    >>> import pellucid
    >>> log = pellucid.open(":memory:").table("log")
    >>> log.extend({"n": n} for n in range(10))
    10
    >>> [row.n for row in log.tail(2)]
    [8, 9]
    """
    return _rows(reversed(list(islice(self.items(reverse=True), _count_of(n, "tail")))))


def sample(self: Any, n: int = 5, *, seed: int | None = None) -> Rows[Any]:
    """Return `n` rows by chance, or all if there are fewer, in the order of their keys.

    The same `seed` gives the same rows as long as the table has the same keys. It goes through the keys up to
    the last one that is returned.

    >>> import pellucid
    >>> log = pellucid.open(":memory:").table("log")
    >>> log.extend({"n": n} for n in range(1000))
    1000
    >>> log.sample(3, seed=7) == log.sample(3, seed=7)
    True
    """
    import random

    wanted = _count_of(n, "sample")
    keys = self.keys()
    size = len(keys)
    chosen = sorted(random.Random(seed).sample(range(size), min(wanted, size)))
    rest = iter(keys)
    after = 0
    pairs = []
    for place in chosen:
        key = next(islice(rest, place - after, None), NOTHING)
        after = place + 1
        # Other writers may delete rows meanwhile.
        value = NOTHING if key is NOTHING else self.get(key, NOTHING)
        if value is not NOTHING:
            pairs.append((key, value))
    return _rows(pairs)


def fields(self: Any, *, exact: bool = False) -> Rows[dict[str, Any]]:
    """Return the fields that rows have, at any depth: a dict for each path, in a list shown as a table.

    `share` says in how many of the rows the field is, `rows` how many these are, `types` of which types its
    values are, `distinct` how many of them differ (an estimate, within 3 % with `exact=True`), `min` and
    `max` the ends of the most frequent type; `example` is one of the values. Every path is listed, also one
    that few rows have. Of a table of more than 10,000 rows, types and values are those of rows by chance;
    with `exact=True` all rows are read.

    >>> import pellucid
    >>> people = pellucid.open(":memory:").table("people")
    >>> people.extend([{"age": 30, "at": {"city": "Bath"}}, {"age": 41, "tags": ["a"]}])
    2
    >>> people.fields()
    path     types  share  rows  distinct  min   max   example
    age      int      1.0     2         2  30    41    30
    at       dict     0.5     1  None      None  None  None
    at.city  str      0.5     1         1  Bath  Bath  Bath
    tags     list     0.5     1  None      None  None  ['a']
    tags[*]  str      0.5     1         1  a     a     a
    """
    from pellucid.look.fields import fields_of

    return fields_of(self, exact)


def describe(self: Any) -> Rows[dict[str, Any]]:
    """Return figures of the numbers at each path: a dict for each, in a list that is shown as a table.

    They are those of pandas: how many numbers there are, their mean, standard deviation, least, quartiles and
    greatest. All rows are read. Bools are no numbers here; NaN and infinities are left out.

    >>> import pellucid
    >>> people = pellucid.open(":memory:").table("people")
    >>> people.extend([{"name": "Ann", "age": 30}, {"name": "Bob", "age": 20}, {"name": "Cid"}])
    3
    >>> people.describe()
    path  count  mean  std       min   25%   50%   75%  max
    age       2  25.0  7.071...   20  22.5  25.0  27.5   30
    """
    from pellucid.look.fields import described

    return described(self)


def value_counts(self: Any, path: Any, limit: int | None = None) -> Rows[dict[str, Any]]:
    """Return how many rows have each value at a field path, or of an expression; the most frequent first.

    Each is a dict of `value` and `count`. The rows without a value count together, as those with None.
    `limit` gives only the first ones.

    >>> import pellucid
    >>> people = pellucid.open(":memory:").table("people")
    >>> people.extend([{"city": "Bath"}, {"city": "York"}, {"city": "Bath"}, {}])
    4
    >>> people.value_counts("city")
    value  count
    Bath       2
    York       1
    None       1
    """
    shown = None if limit is None else _count_of(limit, "value_counts")
    groups = self.group_by(value=path).agg(count=rows_of())
    return Rows(sorted(groups, key=lambda group: -group["count"])[:shown])


def _ipython_key_completions_(self: Any) -> list[Any]:
    """Return the first keys, for a prompt that completes `table["`."""
    return list(islice(self.keys(), KEYS_MAX))


def _repr_html_(self: Any) -> str:
    """Return the first rows as HTML, for a notebook."""
    return show.html_of(self)


def __dir__(self: Any) -> list[str]:
    """Return the names of the attributes, without those that only say what to call instead."""
    return _without_hints(type(self), object.__dir__(self))


def names_of_class(self: Any) -> list[str]:
    """Return the names of a class's attributes, without those that only say what to call instead."""
    return _without_hints(self, type.__dir__(self))


def _without_hints(cls: type, names: Iterable[str]) -> list[str]:
    own = vars(cls)
    return [name for name in names if type(own.get(name)).__name__ != "WrongName"]
