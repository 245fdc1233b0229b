"""This module keeps the results of functions in a cache: one caller computes, all others get the result."""

from __future__ import annotations

import functools
import warnings
from contextlib import suppress
from hashlib import blake2b
from time import time
from types import GetSetDescriptorType, MemberDescriptorType

from pellucid.cache.entries import ABSENT, ERROR, EXPIRE, FRESH, TYPED, VALUE, is_wrapped
from pellucid.cache.flights import Claim, claim
from pellucid.cache.names import function_name, without_ignored
from pellucid.digests import digest
from pellucid.errors import (
    CorruptRecord,
    DatabaseWarning,
    Error,
    PickleDenied,
    RecordTooLarge,
    UnsupportedKey,
    UnsupportedValue,
    WrongClass,
)
from pellucid.seconds import seconds_of

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import timedelta
    from typing import Any

    from pellucid.cache.core import Cache

__all__ = ["Kept", "Results", "is_of_value", "memoized"]

# Arguments that are longer are in the key by their digest.
ARGUMENT_SIZE_MAX = 256
# How many keys are remembered whose results cannot be stored.
UNKEPT_MAX = 1000
# The attributes of an exception that each `raise` sets.
OF_A_RAISE = frozenset({"__traceback__", "__context__", "__cause__", "__suppress_context__"})
# Results that come back as themselves.
SCALARS = frozenset({type(None), bool, int, float, str, bytes})


class Kept:
    """What is kept of a result, and for how long: the options of `memoize` that no function changes."""

    def __init__(
        self,
        expire: float | timedelta | None = None,
        tag: object = None,
        stale: float | timedelta = 0,
        errors: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        self.expire = None if expire is None else seconds_of(expire, "expire")
        self.stale = seconds_of(stale, "stale")
        if self.stale < 0:
            raise ValueError(f"stale={stale!r:.40} is no time from 0 seconds on")
        if stale and expire is None:
            raise ValueError(
                "stale= says how long a result is served after it has expired; pass expire= as well"
            )
        self.tag = tag
        given: tuple[Any, ...] = errors if isinstance(errors, tuple) else (errors,)
        self.errors: tuple[type[BaseException], ...] = given
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in given):
            raise TypeError(f"errors must be a class of exceptions, or a tuple of them, not {errors!r:.60}")


class Results:
    """The results of one function: reading, computing and storing them."""

    def __init__(self, cache: Cache, kept: Kept, of: str, hint: Any = None, function: Any = None) -> None:
        self.cache = cache
        self._kept = kept
        self._of = of
        self._hint = hint
        self._function = function
        self._has_warned = False

    def look(self, key: Any, *, counts: bool) -> tuple[Any, bool]:
        """The value of a key, and whether it is fresh. A stale one is served while one caller computes."""
        row = self.cache._row(key)
        value, is_fresh = row, row is not ABSENT
        if is_wrapped(row):
            value, is_fresh = self._unwrapped(row)
        if counts and self.cache._watching:
            self.cache._seen_use(key, is_fresh)
        return value, is_fresh

    def _unwrapped(self, row: dict[str, Any]) -> tuple[Any, bool]:
        now = time()
        if (expire := row.get(EXPIRE)) is not None and expire <= now:
            return ABSENT, False
        is_fresh = row.get(FRESH, now + 1) > now
        if ERROR in row:
            error = self._error(row[ERROR])
            return (ABSENT, False) if error is None or not is_fresh else (_Raised(error), True)
        if TYPED in row:
            built = self._built(row[VALUE])
            return built, is_fresh and built is not ABSENT
        return row[VALUE], is_fresh

    def fetch(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The value of a key; if there is none, one caller computes it, and the others wait for that."""
        value, is_fresh = self.look(key, counts=True)
        if is_fresh:
            return given(value)
        # In a transaction, this caller has the lock that the other one needs to store its result.
        in_transaction = self.cache._table._is_in_transaction
        claimed = self.claim(key, waits=value is ABSENT and self.keeps(key) and not in_transaction)
        if claimed is None and value is not ABSENT:
            return value
        if claimed is not None and value is ABSENT and not self.keeps(key):
            # The result of the caller that this one has waited for could not be stored: let the next ones go.
            claimed.release()
            claimed = None
        try:
            found, is_fresh = self.look(key, counts=False)
            if is_fresh:
                return given(found)
            try:
                result = compute()
            except self._kept.errors as error:
                self._keep_error(key, error)
                raise
            return self.keep(key, result)
        finally:
            if claimed is not None:
                claimed.release()

    def keeps(self, key: Any) -> bool:
        """Whether callers wait for the one that computes: not if the last result could not be stored."""
        return key not in self.cache._unkept

    def claim(self, key: Any, waits: bool, in_thread: bool = True) -> Claim | None:
        """The right to compute; None if another caller has it, and this one does not wait."""
        # Not a digest: keys of some libraries have none. Equal names of two keys cost a wait, and nothing
        # else.
        name = blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        path = self.cache._side_path
        return claim(path, name, waits, in_thread, scope=f"in memory {id(self.cache)}")

    def keep(self, key: Any, result: Any) -> Any:
        """Store a result, and return what later calls will give."""
        is_kept, value = False, result
        try:
            is_kept = self._stored(key, result)
        except Exception as problem:
            if not is_of_value(problem):
                raise
            self._warn(problem)
        if is_kept and type(result) not in SCALARS:
            is_kept, value = self._read_back(key, result)
        self._note(key, is_kept)
        return value

    def _note(self, key: Any, is_kept: bool) -> None:
        """Remember whether the last result of a key could be stored."""
        unkept = self.cache._unkept
        if is_kept:
            unkept.discard(key)
        else:
            if len(unkept) >= UNKEPT_MAX:
                unkept.clear()
            unkept.add(key)

    def _stored(self, key: Any, result: Any) -> bool:
        """Store a result; False if there is no room for it. Raises what its classes say against that."""
        try:
            return self._put(key, result)
        except Exception as problem:
            hint = self._resolved_hint() if is_of_value(problem) else None
            if hint is None:
                raise
            from pellucid.cache import typed

            # An instance of the class that the caller has named is stored by its fields.
            try:
                return self._put(key, typed.plain(result, hint), typed=True)
            except Exception as other:
                raise problem if is_of_value(other) else other from None

    def _read_back(self, key: Any, result: Any) -> tuple[bool, Any]:
        """Whether a result that was stored can be read, and what later calls will give."""
        try:
            # Arrays of the file cannot be changed, and an object of a pickle is another one.
            value, is_fresh = self.look(key, counts=False)
        except Exception as problem:
            if isinstance(problem, Error) and not isinstance(problem, (CorruptRecord, PickleDenied)):
                raise
            with suppress(KeyError), self.cache.transact():
                self.cache._remove(key)
            self._warn(problem)
            return False, result
        return True, value if is_fresh else result

    def _put(self, key: Any, value: Any, **facts: Any) -> bool:
        kept, now = self._kept, time()
        expire = None
        if kept.expire is not None:
            expire = now + kept.expire + kept.stale
            if kept.stale:
                facts["fresh"] = now + kept.expire
        return self.cache._keep(key, value, expire, kept.tag, **facts)

    def _built(self, plain: Any) -> Any:
        from pellucid.cache import typed

        hint = self._resolved_hint()
        if hint is None:
            return ABSENT
        try:
            return typed.build(plain, hint)
        except WrongClass:
            # The class has changed since.
            return ABSENT

    def _resolved_hint(self) -> Any:
        """The class of the results: `type=`, or the return annotation of the function."""
        if self._hint is None and self._function is not None:
            from typing import get_type_hints

            try:
                self._hint = get_type_hints(self._function).get("return")
            except Exception as error:
                warnings.warn(
                    f"the annotations of {self._of} say no class: {error}", DatabaseWarning, stacklevel=2
                )
                self._function = None
        return self._hint

    def _keep_error(self, key: Any, error: BaseException) -> None:
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        try:
            stored = {"class": name, "args": _arguments_of(error)}
            again = self._error(stored)
            if again is None or not _is_same(again, error):
                raise UnsupportedValue(f"{name} cannot be made again from its args")
            self._note(key, self._put(key, None, error=stored) and self._read_back(key, None)[0])
        except Exception as problem:
            if not is_of_value(problem):
                raise
            self._note(key, is_kept=False)
            self._warn(problem)

    def _error(self, stored: dict[str, Any]) -> BaseException | None:
        """The exception that was kept, if it is still one of those that are."""
        waiting = list(self._kept.errors)
        while waiting:
            cls = waiting.pop()
            if f"{cls.__module__}.{cls.__qualname__}" == stored["class"]:
                try:
                    return cls(*stored["args"])
                except Exception:
                    # Its class has changed, or takes something else than the args.
                    return None
            waiting += cls.__subclasses__()
        return None

    def _warn(self, problem: BaseException) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"a result of {self._of} is not kept, so it is computed each time: {_text_of(problem)}",
                DatabaseWarning,
                stacklevel=5,
            )


class _Raised:
    """A kept exception in the place of a value."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def given(value: Any) -> Any:
    """The value, or the exception that was kept in its place."""
    if type(value) is _Raised:
        raise value.error
    return value


def is_of_value(problem: Exception) -> bool:
    """Whether a value, or code of its class, is why it was not stored, and not the database."""
    ours = (UnsupportedValue, RecordTooLarge, PickleDenied, WrongClass)
    return isinstance(problem, ours) or not isinstance(problem, (Error, MemoryError))


def _text_of(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:
        # Code of its class.
        return type(problem).__qualname__


def _is_same(again: BaseException, error: BaseException) -> bool:
    """Whether an exception has the class, the text and the attributes of another one."""
    try:
        names = {
            name
            for cls in type(error).__mro__[:-1]
            for name, part in vars(cls).items()
            if isinstance(part, (GetSetDescriptorType, MemberDescriptorType)) and name not in OF_A_RAISE
        }
        return (
            type(again) is type(error)
            and str(again) == str(error)
            and all(bool(getattr(again, name, None) == getattr(error, name, None)) for name in names)
        )
    except Exception:
        # Code of its class, or of what it has as attributes.
        return False


def _arguments_of(error: BaseException) -> list[Any]:
    """The arguments with which pickle makes an exception again: `args` lack the name of a file."""
    try:
        reduced: Any = error.__reduce__()
        if reduced[0] is type(error):
            return list(reduced[1])
    except Exception as problem:
        # Code of its class. The caller is to get the exception itself.
        raise UnsupportedValue(f"__reduce__ of {type(error).__qualname__} fails: {problem!r}") from None
    raise UnsupportedValue(f"{type(error).__qualname__} cannot be made again from its args")


def memoized(
    cache: Cache,
    function: Callable[..., Any],
    kept: Kept,
    *,
    name: str | None,
    version: object,
    typed: bool,
    ignore: Collection[int | str],
    hint: Any,
) -> Callable[..., Any]:
    """The function whose results are kept; of an `async def`, one that is awaited."""
    of = function_name(cache._path, function, name, version)
    results = Results(cache, kept, of, hint, function)
    ignored = frozenset((ignore,) if isinstance(ignore, (str, int)) else ignore)

    def cache_key(*arguments: Any, **keywords: Any) -> Any:
        """Return the key of the cache under which the result for these arguments is."""
        if ignored:
            arguments, keywords = without_ignored(arguments, keywords, ignored)
        if not keywords and not typed and not any(map(_is_long, arguments)):
            try:
                if cache.key((of, arguments)) == (of, arguments):
                    return (of, arguments)
            except UnsupportedKey:
                pass
        try:
            # A list: `f((1,), {"a": 1})` has a tuple of the same parts as `f(1, a=1)`.
            return (of, digest([arguments, keywords] if keywords else arguments))
        except UnsupportedKey as problem:
            raise UnsupportedKey(f"the arguments of {of}: {problem}") from None

    if _is_coroutine_function(function):
        from pellucid.cache.tasks import memoized_task

        wrapper = memoized_task(results, function, cache_key)
    else:
        wrapper = _memoized_call(results, function, cache_key, is_plain=not typed and not ignored)
    wrapper.__cache_key__ = cache_key  # type: ignore[attr-defined]
    return wrapper


def _memoized_call(
    results: Results, function: Callable[..., Any], cache_key: Callable[..., Any], is_plain: bool
) -> Callable[..., Any]:
    cache, of, read = results.cache, results._of, results.cache._look

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if is_plain and not keywords and not cache._watching:
            # Most calls: plain arguments, and a result that is stored alone.
            value = read((of, arguments), ABSENT)
            if value is not ABSENT and (type(value) is not dict or VALUE not in value):
                return value
        key = cache_key(*arguments, **keywords)
        return results.fetch(key, lambda: function(*arguments, **keywords))

    return call


def _is_long(value: object) -> bool:
    return type(value) in (str, bytes) and len(value) > ARGUMENT_SIZE_MAX  # type: ignore[arg-type]


def _is_coroutine_function(function: Any) -> bool:
    from inspect import iscoroutinefunction

    return iscoroutinefunction(function)
