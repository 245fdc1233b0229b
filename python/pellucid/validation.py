"""This module checks values against the annotations of their classes, for `table(..., validate=True)`.

Dataclasses, attrs classes, NamedTuples and msgspec Structs are checked field by field; the constraints of
`msgspec.Meta` are checked by msgspec, and a pydantic model by its own validators. As for a type checker, an
int is a float, and a bool an int. An annotation that says nothing that can be checked admits everything.
"""

from __future__ import annotations

import sys

from pellucid.classes import fields, is_enum, kind_of
from pellucid.instances import annotations_of

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    # Raises `Invalid` for a value that is not valid.
    Check = Callable[[Any], None]

__all__ = ["Invalid", "check_instance"]


class Invalid(Exception):
    """A value that is not what its annotation says. `path` grows on the way out, innermost step first."""

    def __init__(self, why: str, path: Iterable[object] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = list(path)

    def placed(self) -> str:
        """Return what is wrong, after the place where it is."""
        place = "".join(f"[{step!r}]" for step in reversed(self.path))
        return f"{f'at {place} ' if place else ''}{self.why}"


def check_instance(value: Any) -> None:
    """Raise `Invalid` if a field of an instance is not what its annotation says."""
    _of_class(type(value))(value)


# By class. A class may contain itself, so its check is there before those of its fields.
_CHECKS: dict[type, _Fields | _Model] = {}


class _Fields:
    """The check of an instance of a class with fields."""

    def __init__(self, cls: Any, kind: str) -> None:
        self.cls, self.kind = cls, kind
        self.checks: dict[str, Check] | None = None

    def __call__(self, value: Any) -> None:
        if not isinstance(value, self.cls):
            raise Invalid(_is_no(value, self.cls.__qualname__))
        if self.checks is None:
            hints = annotations_of(self.cls)
            # A field without an annotation, or with one that is nowhere, may be anything.
            made = {name: _check(hints.get(name, object)) for name in fields(self.cls, self.kind)}
            self.checks = {name: check for name, check in made.items() if check is not None}
        unset = getattr(sys.modules.get("msgspec"), "UNSET", self)
        for name, check in self.checks.items():
            part = getattr(value, name, unset)
            if part is not unset:
                _at(name, check, part)


class _Model:
    """The check of a pydantic model: its own, of the values that it has now."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __call__(self, value: Any) -> None:
        import pydantic

        if not isinstance(value, self.cls):
            raise Invalid(_is_no(value, self.cls.__qualname__))
        held = value.model_dump(round_trip=True, warnings=False)
        try:
            self.cls.model_validate(held, by_name=True, by_alias=True)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise Invalid(
                f"is not valid: {first['msg']} (pydantic, {first['type']})", reversed(first["loc"])
            ) from error


def _of_class(cls: Any) -> _Fields | _Model:
    check = _CHECKS.get(cls)
    if check is None:
        kind = kind_of(cls) or ""
        check = _CHECKS[cls] = _Model(cls) if kind == "model" else _Fields(cls, kind)
    return check


def _at(step: object, check: Check, value: Any) -> None:
    try:
        check(value)
    except Invalid as invalid:
        invalid.path.append(step)
        raise


def _is_no(value: Any, what: str) -> str:
    shown = repr(value)
    return f"is {shown if len(shown) <= 60 else shown[:57] + '...'}, which is no {what}"


def _check(hint: Any) -> Check | None:
    """Return the check of an annotation; None if it admits everything."""
    import types
    import typing

    if hint is None or hint is type(None):
        return _exactly_none
    if hasattr(hint, "__supertype__") and not isinstance(hint, type):
        return _check(hint.__supertype__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    named = hint if origin is None else origin
    if hasattr(named, "__value__") and not isinstance(named, type):
        # A name for an annotation, which may occur in itself.
        return _check(named.__value__) or _admit
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        return _of_union(hint, arguments)
    if origin is typing.Literal:
        return _of_literal(hint, arguments)
    if origin is typing.Annotated:
        return _of_annotated(hint, arguments[0])
    if origin is not None and not isinstance(origin, type):
        # Final, ClassVar, Required and others, which only wrap an annotation.
        return _check(arguments[0]) if arguments else None
    if isinstance(named, type):
        return _of_type(named, arguments)
    return None


def _admit(_value: Any) -> None:
    """Admit everything."""


def _exactly_none(value: Any) -> None:
    if value is not None:
        raise Invalid(_is_no(value, "None"))


def _of_union(hint: Any, members: tuple[Any, ...]) -> Check | None:
    checks = [_check(member) for member in members]
    if None in checks:
        return None

    others = [member for member in checks if member is not _exactly_none]

    def check(value: Any) -> None:
        if value is None and len(others) < len(checks):
            return
        deepest: Invalid | None = None
        for member in others:
            try:
                (member or _admit)(value)
            except Invalid as invalid:
                if deepest is None or len(invalid.path) > len(deepest.path):
                    deepest = invalid
            else:
                return
        if deepest is not None and (deepest.path or len(others) == 1):
            raise deepest
        raise Invalid(_is_no(value, str(hint).replace("typing.", "")))

    return check


def _of_literal(hint: Any, choices: tuple[Any, ...]) -> Check:
    def check(value: Any) -> None:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise Invalid(_is_no(value, str(hint).replace("typing.", "")))

    return check


def _of_annotated(hint: Any, inner: Any) -> Check | None:
    check = _check(inner)
    msgspec = sys.modules.get("msgspec")
    if msgspec is None or not any(isinstance(part, msgspec.Meta) for part in hint.__metadata__):
        return check

    def constrained(value: Any) -> None:
        (check or _admit)(value)
        try:
            msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise Invalid(f"is not valid: {error} (msgspec)") from error

    return constrained


def _of_type(cls: Any, arguments: tuple[Any, ...]) -> Check | None:
    if cls is object:
        return None
    if kind_of(cls) is not None:
        return _of_class(cls)
    if issubclass(cls, dict) and hasattr(cls, "__total__"):
        return _of_typed_dict(cls)
    # As for type checkers: an int is a float, and both are complex.
    wider = {float: (float, int), complex: (complex, float, int)}
    kinds = wider.get(cls, (cls,))
    name = cls.__name__ if not is_enum(cls) else cls.__qualname__

    def check_kind(value: Any) -> None:
        try:
            fits = isinstance(value, kinds)
        except TypeError:
            # A Protocol that cannot be asked.
            return
        if not fits:
            raise Invalid(_is_no(value, name))

    inner = _of_parts(cls, arguments)
    if inner is None:
        return check_kind

    def check(value: Any) -> None:
        check_kind(value)
        inner(value)

    return check


def _of_parts(cls: Any, arguments: tuple[Any, ...]) -> Check | None:
    """The check of the parts of a container; None if they may be anything."""
    checks = [None if argument is ... else _check(argument) for argument in arguments]
    if issubclass(cls, tuple) and arguments and arguments[-1] is not ...:
        return lambda value: _check_places(value, checks)
    if not any(checks):
        return None
    if hasattr(cls, "keys") and len(checks) == 2:
        return lambda value: _check_items(value, checks[0], checks[1])
    if len(checks) == 1 or (len(checks) == 2 and arguments[-1] is ...):
        return lambda value: _check_parts(value, checks[0] or _admit)
    return None


def _check_places(value: Any, checks: list[Check | None]) -> None:
    if len(value) != len(checks):
        raise Invalid(f"has {len(value)} elements, and its annotation {len(checks)}")
    for index, (check, part) in enumerate(zip(checks, value, strict=True)):
        _at(index, check or _admit, part)


def _check_items(value: Any, key_check: Check | None, check: Check | None) -> None:
    for key, part in value.items():
        _at(key, key_check or _admit, key)
        _at(key, check or _admit, part)


def _check_parts(value: Any, check: Check) -> None:
    for index, part in enumerate(value):
        _at(index, check, part)


def _of_typed_dict(cls: Any) -> Check:
    hints = {name: _check(hint) or _admit for name, hint in annotations_of(cls).items()}

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Invalid(_is_no(value, cls.__name__))
        missing = sorted(cls.__required_keys__ - value.keys())
        if missing:
            raise Invalid(f"has no field {missing[0]!r}, and {cls.__name__} requires it")
        for name, part in value.items():
            _at(name, hints.get(name, _admit), part)

    return check
