"""This module has the views of a cache: another process may evict an entry between its key and its value."""

from __future__ import annotations

from collections.abc import ItemsView, ValuesView

from pellucid.cache.entries import ABSENT

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pellucid.cache.core import Cache

__all__ = ["Items", "Values"]


class Items(ItemsView):  # type: ignore[type-arg]
    """The items of a cache, without those that go meanwhile."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self._cache = cache

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        look = self._cache.get
        return ((key, value) for key in self._cache if (value := look(key, ABSENT)) is not ABSENT)


class Values(ValuesView):  # type: ignore[type-arg]
    """The values of a cache, with the same rule."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self._cache = cache

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in Items(self._cache))
