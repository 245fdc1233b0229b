"""This module names functions, so that every process finds the same result under the same key."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

from pellucid.digests import digest
from pellucid.errors import DatabaseWarning, UnsupportedKey

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

__all__ = ["function_name", "without_ignored"]

# The code of each function by the name of its cache and its own name, to tell when a name is used again.
_codes: dict[tuple[str, str], Any] = {}


def function_name(cache: str, function: Callable[..., Any], name: str | None, version: object) -> str:
    """The name under which the results of a function are: its module and qualified name, and its version.

    A function of `__main__` is named by the file of the program, and in an interactive session by its code.
    The name also has the object of a bound method, the values that a function closes over and, of a function
    inside a function, its defaults: those that have a digest, and the code of functions that have none.
    """
    if name is None:
        name = _name_of_code(function)
        code = getattr(function, "__code__", None)
        known = _codes.setdefault((cache, f"{name} {version}"), code)
        if known is not None and code is not None and _text_of(known) != _text_of(code):
            warnings.warn(
                f"another function has the name {name} in this cache, and both use the same results; pass "
                "name= or version= to one of them",
                DatabaseWarning,
                stacklevel=4,
            )
    return name if version is None else f"{name} version {version}"


def _name_of_code(function: Any) -> str:
    bound = _bound_to(function)
    function = getattr(function, "__func__", function)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if name is None or "<lambda>" in name:
        raise ValueError(f"{function!r} has no name of its own; pass name= for its results")
    if module in (None, "__main__", "__mp_main__"):
        # While another process of multiprocessing runs the program, only the second name has it.
        main = (sys.modules.get(module) or sys.modules["__main__"]) if module else None
        spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        code = getattr(function, "__code__", None)
        module = getattr(spec, "name", None) or path or f"__main__ {digest(_text_of(code)).hex()}"
    parts = bound + _held_by(function)
    return f"{module}.{name} {digest(parts).hex()}" if parts else f"{module}.{name}"


def _bound_to(method: Any) -> list[Any]:
    """The object of a bound method, whose results depend on it."""
    owner = getattr(method, "__self__", None)
    # That of a builtin function is its module.
    if owner is None or type(owner) is type(sys):
        return []
    try:
        return [("self", digest(owner))]
    except UnsupportedKey as problem:
        raise ValueError(
            f"{method.__qualname__} is bound to an object without a stable digest, so its results would be "
            f"those of all such objects; pass name= for them, with what tells the object apart ({problem})"
        ) from None


def _held_by(function: Any, seen: tuple[Any, ...] = ()) -> list[Any]:
    """The names and digests of what a function closes over, and of the defaults of one inside another."""
    held: dict[object, Any] = {}
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        # Not bound yet, as the class of a method that calls super().
        with suppress(ValueError):
            held[name] = cell.cell_contents
    if "<" in getattr(function, "__qualname__", ""):
        held |= enumerate(getattr(function, "__defaults__", None) or ())
        held |= getattr(function, "__kwdefaults__", None) or {}
    parts = []
    for name, value in held.items():
        try:
            parts.append((name, digest(value)))
        except UnsupportedKey:
            # A function without a name of its own. One may close over itself.
            if type(value) is type(_held_by) and value is not function and value not in seen:
                parts.append((name, digest([_text_of(value.__code__), _held_by(value, (*seen, function))])))
    return parts


def _text_of(code: Any) -> str:
    """What a function does, as text that does not depend on where it stands."""
    if isinstance(code, frozenset):
        # Their order depends on the process.
        return repr(sorted(map(repr, code)))
    if not hasattr(code, "co_code"):
        return repr(code)
    constants = [_text_of(each) for each in code.co_consts]
    return f"{code.co_code!r} {code.co_names} {code.co_varnames} {constants}"


def without_ignored(
    arguments: tuple[Any, ...], keywords: dict[str, Any], ignored: Collection[int | str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that make a difference: without the ignored positions and names."""
    kept = tuple(each for at, each in enumerate(arguments) if at not in ignored)
    return kept, {name: each for name, each in keywords.items() if name not in ignored}
