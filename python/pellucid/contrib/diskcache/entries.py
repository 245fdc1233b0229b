"""This module has a cache with the rules of diskcache: order of insertion, sizes, culling at each set."""

from __future__ import annotations

from time import perf_counter

import pellucid
from pellucid.cache.core import Cache
from pellucid.cache.limits import Order

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["Entries"]

# What stands for a key that is no key of a table: its packed bytes, from which it is made again.
PACKED = "cache:key"


class InsertionOrder(Order):
    """An order whose limit is about the estimated sizes of entries, as diskcache counts them."""

    limit = 0
    cull_limit = 10


class Entries(Cache):
    """The entries of a folder, in the order in which they were inserted."""

    _size_limit_min = 0
    _order_class = InsertionOrder
    _order: InsertionOrder
    # When a set is to look next for what has expired, so that this takes 1 % of the time at most.
    _next_look = 0.0

    def __init__(self, path: str, pickle: Any, timeout: float) -> None:
        super().__init__(path, pickle=pickle, timeout=timeout)
        self._pickle: Any = pickle
        self._indexed.update(info.name for info in self._table.indexes())
        if not self._ordering:
            self._change(size_limit=0, ordering=True)

    def _stand_in(self, key: Any) -> Any:
        return (PACKED, pellucid.dumps(key, pickle=self._pickle))

    def original(self, key: Any) -> Any:
        """The key that was given, of one under which an entry is."""
        if type(key) is tuple and len(key) == 2 and key[0] == PACKED:
            return pellucid.loads(key[1], pickle=self._pickle)
        return key

    def _begin_facts(self, row: Any, now: float) -> None:
        # `_cull_some` removes what has expired.
        self._index_facts(row)

    def _store(self, key: Any, row: Any) -> bool:
        is_stored = super()._store(key, row)
        self._cull_some()
        return is_stored

    def cull(self) -> int:
        """Remove what has expired, and evict by the estimated sizes."""
        return self.expire() + self._order.evict_down_to(self._order.limit)

    def _cull_some(self) -> None:
        """Remove what has expired, or what the policy says, at most `cull_limit` entries at each set."""
        limit = self._order.cull_limit
        if limit <= 0:
            return
        now = perf_counter()
        if "expire" in self._indexed and now >= self._next_look:
            limit -= self.expire(count_max=limit)
            self._next_look = now + 100 * (perf_counter() - now)
        if limit > 0 and self._order.size > self._order.limit:
            with self._db.transaction():
                self._order.evict(1 << 62, limit)

    def keys_in_order(self, reverse: bool = False) -> Iterator[Any]:
        """The keys in the order of their insertion."""
        for _, key in self._order.rows.index("number").keys(reverse=reverse):
            yield self.original(key)

    def __iter__(self) -> Iterator[Any]:
        return self.keys_in_order()

    def __reversed__(self) -> Iterator[Any]:
        return self.keys_in_order(reverse=True)
