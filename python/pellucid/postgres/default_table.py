"""The verbs of the table "default", for the databases and snapshots that are mappings over it.

`db.get(key)` is `db.table("default").get(key)`. Each verb is in the one list below, with the signature and
the docstring that the table's own has.
"""

from __future__ import annotations

import collections.abc
import functools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from pellucid._native import _no_attribute
from pellucid.look import verbs
from pellucid.postgres.table.table import Table

P = ParamSpec("P")
R = TypeVar("R")


def forward(verb: Callable[Concatenate[Table, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls a verb of the default table."""

    @functools.wraps(verb)
    def forwarded(self: Forwarded, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return verb(self._default, *arguments, **keywords)

    return forwarded


class Forwarded:
    """The verbs that are forwarded to the table "default"."""

    _default: Table

    __reversed__ = forward(Table.__reversed__)
    __or__ = forward(Table.__or__)
    __ror__ = forward(Table.__ror__)
    get = forward(Table.get)
    keys = forward(Table.keys)
    values = forward(Table.values)
    items = forward(Table.items)
    pop = forward(Table.pop)
    popitem = forward(Table.popitem)
    setdefault = forward(Table.setdefault)
    update = forward(Table.update)
    clear = forward(Table.clear)
    append = forward(Table.append)
    extend = forward(Table.extend)
    edit = forward(Table.edit)
    increment = forward(Table.increment)
    compare_and_set = forward(Table.compare_and_set)
    put_if_absent = forward(Table.put_if_absent)
    get_or_create = forward(Table.get_or_create)
    claim = forward(Table.claim)
    put = forward(Table.put)
    expire = forward(Table.expire)
    range = forward(Table.range)
    first = forward(Table.first)
    last = forward(Table.last)
    buffer = forward(Table.buffer)
    open = forward(Table.open)
    unreadable = forward(Table.unreadable)
    create_index = forward(Table.create_index)
    drop_index = forward(Table.drop_index)
    rebuild_index = forward(Table.rebuild_index)
    indexes = forward(Table.indexes)
    index = forward(Table.index)
    where = forward(Table.where)
    find = forward(Table.find)
    filter = forward(Table.filter)
    order_by = forward(Table.order_by)
    limit = forward(Table.limit)
    offset = forward(Table.offset)
    select = forward(Table.select)
    group_by = forward(Table.group_by)
    agg = forward(Table.agg)
    sum = forward(Table.sum)
    min = forward(Table.min)
    max = forward(Table.max)
    mean = forward(Table.mean)
    count = forward(Table.count)
    column = forward(Table.column)
    to_list = forward(Table.to_list)
    to_dicts = forward(Table.to_dicts)
    to_arrow = forward(Table.to_arrow)
    to_numpy = forward(Table.to_numpy)
    to_polars = forward(Table.to_polars)
    to_pandas = forward(Table.to_pandas)
    head = forward(Table.head)
    tail = forward(Table.tail)
    sample = forward(Table.sample)
    fields = forward(Table.fields)
    describe = forward(Table.describe)
    value_counts = forward(Table.value_counts)
    _repr_html_ = verbs._repr_html_
    _ipython_key_completions_ = forward(Table._ipython_key_completions_)


class DefaultTable(Forwarded, collections.abc.MutableMapping[Any, Any]):
    """A mapping over the table "default"."""

    # What it is, for the message about a name that it does not have.
    _kind = "database"

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self, self._kind, name)

    # What loops over rows call is written out.

    def __getitem__(self, key: Any) -> Any:
        return self._default[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._default[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._default[key]

    def __contains__(self, key: object) -> bool:
        return key in self._default

    def __len__(self) -> int:
        return len(self._default)

    def __bool__(self) -> bool:
        return bool(self._default)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._default)

    def __eq__(self, other: object) -> bool:
        return self._default == (other._default if isinstance(other, DefaultTable) else other)

    __hash__ = None  # type: ignore[assignment]

    def __ior__(self, other: Any) -> Any:
        self._default.update(other)
        return self
