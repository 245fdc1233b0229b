"""This module has the classes `Deque` and `Index` of diskcache: a sequence, and an ordered mapping."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import ItemsView, KeysView, MutableMapping, Sequence, ValuesView
from contextlib import contextmanager, suppress
from itertools import islice

from pellucid.contrib.diskcache.core import Cache
from pellucid.contrib.diskcache.settings import ENOVAL

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

__all__ = ["Deque", "Index"]


class Deque(Sequence):  # type: ignore[type-arg]
    """A sequence in a folder, quick at both ends, with the methods of `diskcache.Deque`.

    >>> from pellucid.contrib import diskcache
    >>> deque = diskcache.Deque([1, 2, 3], "folder", maxlen=3)
    >>> deque.append(4)
    >>> deque.popleft(), list(deque)
    (2, [3, 4])
    """

    def __init__(
        self,
        iterable: Iterable[Any] = (),
        directory: Any = None,
        maxlen: float | None = None,
        *,
        pickle: Any = "deny",
    ) -> None:
        self._cache = Cache(directory, eviction_policy="none", pickle=pickle)
        self._maxlen = float("inf") if maxlen is None else maxlen
        self.extend(iterable)

    @classmethod
    def fromcache(cls, cache: Cache, iterable: Iterable[Any] = (), maxlen: float | None = None) -> Deque:
        """Make a deque of a cache."""
        self = cls.__new__(cls)
        self._cache = cache
        self._maxlen = float("inf") if maxlen is None else maxlen
        self.extend(iterable)
        return self

    @property
    def cache(self) -> Cache:
        """The cache that has the values."""
        return self._cache

    @property
    def directory(self) -> str:
        """The folder of the deque."""
        return self._cache.directory

    @property
    def maxlen(self) -> float:
        """How many values there are at most. A smaller number removes values at the left."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, value: float) -> None:
        self._maxlen = value
        with self._cache.transact():
            while len(self._cache) > self._maxlen:
                self.popleft()

    def _key(self, index: int) -> Any:
        """The key of the value at an index."""
        keys = self._cache.iterkeys(reverse=index < 0)
        for key in islice(keys, -index - 1 if index < 0 else index, None):
            if key in self._cache:
                return key
        raise IndexError("deque index out of range")

    def __getitem__(self, index: Any) -> Any:
        return self._cache[self._key(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        self._cache[self._key(index)] = value

    def __delitem__(self, index: int) -> None:
        del self._cache[self._key(index)]

    def __len__(self) -> int:
        return len(self._cache)

    def _values(self, reverse: bool) -> Iterator[Any]:
        for key in self._cache.iterkeys(reverse=reverse):
            # Another caller may have removed it meanwhile.
            with suppress(KeyError):
                yield self._cache[key]

    def __iter__(self) -> Iterator[Any]:
        return self._values(reverse=False)

    def __reversed__(self) -> Iterator[Any]:
        return self._values(reverse=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(directory={self.directory!r})"

    def _compared(self, other: object, compare: Callable[[Any, Any], bool]) -> Any:
        if not isinstance(other, Sequence):
            return NotImplemented
        if len(self) != len(other) and compare in (operator.eq, operator.ne):
            return compare is operator.ne
        return compare(list(self), list(other))

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __lt__(self, other: object) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: object) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compared(other, operator.ge)

    __hash__ = None  # type: ignore[assignment]

    def __iadd__(self, iterable: Iterable[Any]) -> Deque:
        self.extend(iterable)
        return self

    def append(self, value: Any) -> None:
        """Add a value at the right."""
        with self._cache.transact():
            self._cache.push(value)
            if len(self._cache) > self._maxlen:
                self.popleft()

    def appendleft(self, value: Any) -> None:
        """Add a value at the left."""
        with self._cache.transact():
            self._cache.push(value, side="front")
            if len(self._cache) > self._maxlen:
                self.pop()

    def extend(self, iterable: Iterable[Any]) -> None:
        """Add values at the right."""
        for value in iterable:
            self.append(value)

    def extendleft(self, iterable: Iterable[Any]) -> None:
        """Add values at the left, each before the one before."""
        for value in iterable:
            self.appendleft(value)

    def clear(self) -> None:
        """Remove all values."""
        self._cache.clear()

    def copy(self) -> Deque:
        """Another deque of the same folder."""
        return type(self)(directory=self.directory, maxlen=self.maxlen, pickle=self._cache._pickle)

    def count(self, value: Any) -> int:
        """How many values are equal to this one."""
        return sum(1 for each in self if each == value)

    def _taken(self, side: str, removes: bool) -> Any:
        take = self._cache.pull if removes else self._cache.peek
        value = take(default=(None, ENOVAL), side=side)[1]
        if value is ENOVAL:
            raise IndexError(f"{'pop' if removes else 'peek'} from an empty deque")
        return value

    def peek(self) -> Any:
        """Return the value at the right; `IndexError` if there is none."""
        return self._taken("back", removes=False)

    def peekleft(self) -> Any:
        """Return the value at the left; `IndexError` if there is none."""
        return self._taken("front", removes=False)

    def pop(self) -> Any:
        """Remove the value at the right and return it; `IndexError` if there is none."""
        return self._taken("back", removes=True)

    def popleft(self) -> Any:
        """Remove the value at the left and return it; `IndexError` if there is none."""
        return self._taken("front", removes=True)

    def remove(self, value: Any) -> None:
        """Remove the first value that is equal; `ValueError` if there is none."""
        for key in self._cache.iterkeys():
            with suppress(KeyError):
                if self._cache[key] == value:
                    del self._cache[key]
                    return
        raise ValueError("deque.remove(value): value not in deque")

    def reverse(self) -> None:
        """Reverse the order of the values, in one transaction."""
        with self._cache.transact():
            values = list(reversed(self))
            self.clear()
            self.extend(values)

    def rotate(self, steps: int = 1) -> None:
        """Move values from the right to the left, or with negative steps from the left to the right."""
        if not isinstance(steps, int):
            raise TypeError(f"integer argument expected, got {type(steps).__name__}")
        with self._cache.transact():
            size = len(self)
            for _ in range(abs(steps) % size if size else 0):
                if steps > 0:
                    self.appendleft(self.pop())
                else:
                    self.append(self.popleft())

    @contextmanager
    def transact(self) -> Iterator[None]:
        """A block whose changes are stored together, or not at all."""
        with self._cache.transact():
            yield

    def __getstate__(self) -> Any:
        return self.directory, self.maxlen, self._cache._pickle

    def __setstate__(self, state: Any) -> None:
        self.__init__(directory=state[0], maxlen=state[1], pickle=state[2])  # type: ignore[misc]


class Index(MutableMapping):  # type: ignore[type-arg]
    """A mapping in a folder, in the order of insertion, with the methods of `diskcache.Index`.

    >>> from pellucid.contrib import diskcache
    >>> index = diskcache.Index("folder", b=1, a=2)
    >>> list(index), index.popitem()
    (['b', 'a'], ('a', 2))
    """

    def __init__(self, *arguments: Any, pickle: Any = "deny", **values: Any) -> None:
        directory = arguments[0] if arguments and isinstance(arguments[0], (str, bytes)) else None
        if arguments and (directory is not None or arguments[0] is None):
            arguments = arguments[1:]
        self._cache = Cache(directory, eviction_policy="none", pickle=pickle)
        self.update(*arguments, **values)

    @classmethod
    def fromcache(cls, cache: Cache, *arguments: Any, **values: Any) -> Index:
        """Make an index of a cache."""
        self = cls.__new__(cls)
        self._cache = cache
        self.update(*arguments, **values)
        return self

    @property
    def cache(self) -> Cache:
        """The cache that has the entries."""
        return self._cache

    @property
    def directory(self) -> str:
        """The folder of the index."""
        return self._cache.directory

    def __getitem__(self, key: Any) -> Any:
        return self._cache[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cache[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._cache[key]

    def __len__(self) -> int:
        return len(self._cache)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cache)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._cache)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; store `default` first if there is none."""
        with self._cache.transact():
            self._cache.add(key, default)
            return self._cache[key]

    def peekitem(self, last: bool = True) -> Any:
        """Return the pair that was inserted last, or first; `KeyError` if there is none."""
        return self._cache.peekitem(last)

    def pop(self, key: Any, default: Any = ENOVAL) -> Any:
        """Remove a key and return its value, or `default`; `KeyError` without one."""
        value = self._cache.pop(key, default)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def popitem(self, last: bool = True) -> Any:
        """Remove the pair that was inserted last, or first, and return it."""
        with self._cache.transact():
            key, value = self._cache.peekitem(last)
            del self._cache[key]
        return key, value

    def push(self, value: Any, prefix: str | None = None, side: str = "back") -> Any:
        """Put a value at a side of the queue `prefix`, and return its key."""
        return self._cache.push(value, prefix, side)

    def pull(self, prefix: str | None = None, default: Any = (None, None), side: str = "front") -> Any:
        """Remove the pair at a side of a queue, and return it."""
        return self._cache.pull(prefix, default, side)

    def clear(self) -> None:
        """Remove all entries."""
        self._cache.clear()

    def keys(self) -> KeysView[Any]:
        """A view of the keys."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        """A view of the values."""
        return ValuesView(self)

    def items(self) -> ItemsView[Any, Any]:
        """A view of the pairs."""
        return ItemsView(self)

    def __eq__(self, other: object) -> Any:
        if not hasattr(other, "get") or len(self) != len(other):  # type: ignore[arg-type]
            return False
        if isinstance(other, (Index, OrderedDict)):
            return list(self.items()) == list(other.items())
        return all(self[key] == other.get(key, ENOVAL) for key in self)

    def __ne__(self, other: object) -> Any:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def memoize(
        self, name: str | None = None, typed: bool = False, ignore: Collection[int | str] = ()
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the results of a function."""
        return self._cache.memoize(name, typed, ignore=ignore)

    @contextmanager
    def transact(self) -> Iterator[None]:
        """A block whose changes are stored together, or not at all."""
        with self._cache.transact():
            yield

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory!r})"

    def __getstate__(self) -> Any:
        return self.directory, self._cache._pickle

    def __setstate__(self, state: Any) -> None:
        self.__init__(state[0], pickle=state[1])  # type: ignore[misc]
