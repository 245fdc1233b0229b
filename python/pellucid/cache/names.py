"""This module names functions, so that every process finds the same result under the same key."""

from __future__ import annotations

import sys
import warnings

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

    A function of `__main__` is named by the file of the program, and in an interactive session by its code. A
    function inside a function is named by the values that it closes over, as far as they have a digest.
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
    function = getattr(function, "__func__", function)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if name is None or "<lambda>" in name:
        raise ValueError(f"{function!r} has no name of its own; pass name= for its results")
    if module in (None, "__main__", "__mp_main__"):
        main = sys.modules["__main__"] if module else None
        spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        code = getattr(function, "__code__", None)
        module = getattr(spec, "name", None) or path or f"__main__ {digest(_text_of(code)).hex()}"
    inner = _closed_over(function) if "<locals>" in name else ""
    return f"{module}.{name}{inner}"


def _closed_over(function: Any) -> str:
    parts = []
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, function.__closure__ or (), strict=False):
        try:
            parts.append((name, digest(cell.cell_contents)))
        except (UnsupportedKey, ValueError):
            # No digest, or not bound yet, as a function that calls itself.
            continue
    return f" {digest(parts).hex()}" if parts else ""


def _text_of(code: Any) -> str:
    """What a function does, as text that does not depend on where it stands."""
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
