"""This module reads rows into classes that have changed, and checks instances before they are stored.

It is what `validate=`, `ignore_extra=` and `renames=` of `Database.table` ask for. instances.py makes the
instances, and validation.py checks them.
"""

from __future__ import annotations

from pellucid import instances
from pellucid.classes import fields, kind_of
from pellucid.validation import Invalid, check_instance

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["Evolving"]


class Evolving:
    """How a table makes instances of its class, and checks them."""

    __slots__ = ("_check", "_cls", "_ignores", "_renames", "_run_init", "_validates")

    def __init__(
        self,
        cls: Any,
        run_init: bool,
        validates: bool,
        ignores: bool,
        renames: Mapping[str, str] | None,
    ) -> None:
        kind = kind_of(cls)
        if kind is None:
            raise TypeError(
                "validate=, ignore_extra= and renames= are about the fields of a class, and "
                f"{cls.__qualname__} has none; leave them out"
            )
        self._cls = cls
        self._run_init = run_init
        self._validates = validates
        self._ignores = ignores
        self._renames = _checked(renames or {}, cls, fields(cls, kind))
        self._check = instances.checker(cls, run_init)

    def build(self, value: Any) -> object:
        """Return the instance of the class that was stored as the plain `value`."""
        if isinstance(value, dict):
            for old, new in self._renames.items():
                if old in value:
                    # A row that has both got the new one later.
                    part = value.pop(old)
                    value.setdefault(new, part)
        return instances.build(self._cls, value, self._run_init, self._ignores)

    def check(self, value: object) -> str | None:
        """Say why an instance cannot be stored; None if it can. The text continues after its place."""
        why = None if self._check is None else self._check(value)
        if why is None and self._validates:
            try:
                check_instance(value)
            except Invalid as invalid:
                return invalid.placed()
            except RecursionError:
                # The encoder says how deep values may nest.
                return None
        return why


def _checked(renames: Any, cls: Any, known: Mapping[str, object]) -> dict[str, str]:
    """Return `renames` as a dict, or raise for names that cannot be renamed so."""
    try:
        checked = dict(renames)
    except (TypeError, ValueError):
        raise TypeError('renames= is a dict of old names to new ones: {"old": "new"}') from None
    for old, new in checked.items():
        if not isinstance(old, str) or not isinstance(new, str):
            raise TypeError(f"renames= has names of fields, which are texts, not {old!r}: {new!r}")
        if new not in known:
            listed = ", ".join(map(repr, known))
            raise ValueError(
                f"renames= renames {old!r} to {new!r}, which is no field of {cls.__qualname__}; its fields "
                f"are {listed}"
            )
        if old in known:
            raise ValueError(
                f"renames= renames {old!r}, which is a field of {cls.__qualname__} still; rename what "
                "the class has no more"
            )
    return checked
