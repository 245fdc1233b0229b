"""How does what is stored become instances of a class again?

Nothing in the stored bytes names a class: a table that was opened with `type=` says which it is, and the
annotations of its fields say the rest, to any depth. What is worked out of the annotations of a class is
kept, so that a row costs no look at them.

Leaves alone what is not annotated, plain types (a `str` where `int` is annotated stays one), and objects
that came back by themselves.
"""

from __future__ import annotations

import sys
from _thread import RLock

from pellucid.classes import Field, fields, is_enum, kind_of
from pellucid.errors import WrongClass

# Not typing's: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["build"]


def build(cls: type, value: object) -> object:
    """The instance of `cls` that was stored as the plain `value`.

    Raises `WrongClass`, with a message that goes on from "record 'ann' of table 'people'".
    """
    maker = _MAKERS.get(cls)
    if maker is None:
        maker = _worked_out(cls)
    try:
        return maker.make(value)
    except _Misfit as misfit:
        place = "".join(f"[{step!r}]" for step in reversed(misfit.path))
        raise WrongClass(f"{f'at {place} ' if place else ''}{misfit.why}") from misfit.__cause__


class _Misfit(Exception):
    """What is stored is not what an annotation says; `path` is collected on the way out, innermost first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[object] = []


# What does an annotation make of a stored value? Each maker also says whether a value fits, for unions.


class _Maker:
    """Leaves a value as it is, if it is of one of the given types."""

    def __init__(self, *types: type) -> None:
        self.types = types

    def fits(self, value: object) -> bool:
        return isinstance(value, self.types)

    def make(self, value: Any) -> Any:
        return value


class _PlainClass(_Maker):
    """The class of a table that has no fields: int, list, a registered one."""

    def make(self, value: Any) -> Any:
        if not self.fits(value):
            raise _Misfit(_holds(value, self.types[0]))
        return value


class _EnumMember(_Maker):
    def fits(self, value: object) -> bool:
        try:
            self.types[0](value)
        except ValueError:
            return False
        return True

    def make(self, value: Any) -> Any:
        try:
            return self.types[0](value)
        except ValueError as error:
            raise _Misfit(f"holds {value!r}, which is no {self.types[0].__name__}") from error


class _Instance(_Maker):
    """An instance of a class with fields."""

    def __init__(self, cls: Any, kind: str) -> None:
        super().__init__(cls)
        self.cls = cls
        self.fields: dict[str, Field] = fields(cls, kind)
        self.makers: dict[str, _Maker] = {}
        self.required = {name for name, field in self.fields.items() if field.is_required}
        # What is stored was valid when it was made, and its fields are called by their own names here.
        self.construct: Callable[..., Any] = cls.model_construct if kind == "model" else cls
        self.takes_more = kind == "model" and cls.model_config.get("extra") == "allow"

    def fits(self, value: object) -> bool:
        if not isinstance(value, dict):
            return isinstance(value, self.cls)
        return self.required <= value.keys() and (self.takes_more or value.keys() <= self.fields.keys())

    def fits_exactly(self, value: object) -> bool:
        return isinstance(value, dict) and value.keys() == self.fields.keys()

    def make(self, value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, self.cls):
                return value
            raise _Misfit(_holds(value, self.cls))
        given: dict[str, object] = {}
        later: dict[str, object] = {}
        for name, part in value.items():
            field = self.fields.get(name)
            if field is None:
                if not self.takes_more:
                    raise _Misfit(
                        self._unlike(f"has a field {name!r}, which {self.cls.__name__} does not have")
                    )
                given[name] = part
                continue
            if name in self.makers:
                part = _at(name, self.makers[name], part)
            if field.argument is None:
                later[name] = part
            else:
                given[field.argument] = part
        if not self.required <= value.keys():
            missing = next(name for name in self.fields if name in self.required and name not in value)
            raise _Misfit(
                self._unlike(f"has no field {missing!r}, and {self.cls.__name__} has no default for it")
            )
        try:
            instance = self.construct(**given)
        except TypeError as error:
            raise _Misfit(self._unlike(f"does not make a {self.cls.__name__}: {error}")) from error
        for name, part in later.items():
            # As a frozen class does it itself.
            object.__setattr__(instance, name, part)
        return instance

    def _unlike(self, what: str) -> str:
        return f"{what}; give the class that field or a default, or read the record without type="


class _Parts(_Maker):
    """A list, set or tuple of any size: what holds the parts stays, the parts are made."""

    def __init__(self, origin: type, part: _Maker) -> None:
        super().__init__(origin)
        self.part = part

    def make(self, value: Any) -> Any:
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)([_at(index, self.part, part) for index, part in enumerate(value)])
        return value


class _Places(_Maker):
    """A tuple with an annotation for each place."""

    def __init__(self, parts: list[_Maker | None]) -> None:
        super().__init__(tuple)
        self.parts = parts

    def fits(self, value: object) -> bool:
        return isinstance(value, tuple) and len(value) == len(self.parts)

    def make(self, value: Any) -> Any:
        if not self.fits(value):
            return value
        makers = enumerate(zip(self.parts, value, strict=True))
        return tuple(part if maker is None else _at(index, maker, part) for index, (maker, part) in makers)


class _Items(_Maker):
    """A dict whose keys, values, or values under certain keys, are made."""

    def __init__(self, key: _Maker | None, value: _Maker | None, named: Mapping[str, _Maker]) -> None:
        super().__init__(dict)
        self.key, self.value, self.named = key, value, named

    def make(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        made = {}
        for key, part in value.items():
            maker = self.named.get(key, self.value) if self.named else self.value
            made[key if self.key is None else _at(key, self.key, key)] = (
                part if maker is None else _at(key, maker, part)
            )
        return made


class _Either(_Maker):
    """One of several: a plain type where the value is of one, else the class with just these fields."""

    def __init__(self, members: list[_Maker], shown: str) -> None:
        super().__init__()
        self.members = members
        self.shown = shown

    def fits(self, value: object) -> bool:
        return any(member.fits(value) for member in self.members)

    def make(self, value: Any) -> Any:
        fitting = [member for member in self.members if member.fits(value)]
        for member in fitting:
            if type(member) is _Maker:
                return value
        exact = [member for member in fitting if isinstance(member, _Instance) and member.fits_exactly(value)]
        if exact:
            fitting = [*exact]
        if len(fitting) > 1 and all(isinstance(member, _Instance) for member in fitting):
            raise _Misfit(
                f"has the fields of more than one class of {self.shown}, and which of them it was is not "
                "stored; give them different fields, or pellucid.register() them"
            )
        if not fitting and isinstance(value, dict) and any(isinstance(m, _Instance) for m in self.members):
            raise _Misfit(f"has the fields of no class of {self.shown}; read the record without type=")
        return fitting[0].make(value) if fitting else value


class _Unknown(_Maker):
    """An annotation that cannot be looked up: harmless until something would have to be made by it."""

    def __init__(self, annotation: str) -> None:
        super().__init__(object)
        self.annotation = annotation

    def make(self, value: Any) -> Any:
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            raise _Misfit(
                f"is annotated {self.annotation!r}, which names nothing when the record is read; define or "
                "import it at the top of the module that has the class"
            )
        return value


def _at(step: object, maker: _Maker, value: object) -> Any:
    try:
        return maker.make(value)
    except _Misfit as misfit:
        misfit.path.append(step)
        raise


def _holds(value: object, cls: type) -> str:
    return (
        f"holds a value of type {type(value).__name__}, and {cls.__qualname__} is wanted there; read it "
        "without type="
    )


# From annotations to makers


# By class; a generic class by itself and what it is of, `(Box, Person)`.
_MAKERS: dict[object, _Maker] = {}
# Those not yet finished: a class may be a field of itself. Others see them when all are.
_UNFINISHED: dict[object, _Maker] = {}
_LOCK = RLock()


def _worked_out(cls: type) -> _Maker:
    with _LOCK:
        try:
            maker = _maker_of_class(cls, {}, cls)
            _MAKERS.update(_UNFINISHED)
        finally:
            _UNFINISHED.clear()
    return maker


def _maker_of_class(cls: type, bound: dict[object, object], key: object) -> _Maker:
    known = _MAKERS.get(key) or _UNFINISHED.get(key)
    if known is not None:
        return known
    kind = kind_of(cls)
    if kind is None:
        plain = _UNFINISHED[key] = _EnumMember(cls) if is_enum(cls) else _PlainClass(cls)
        return plain
    instance = _UNFINISHED[key] = _Instance(cls, kind)
    hints = _hints(cls)
    for name in instance.fields:
        maker = _maker(hints.get(name), bound)
        if maker is not None:
            instance.makers[name] = maker
    return instance


def _hints(cls: type) -> dict[str, Any]:
    """The annotations of a class, evaluated as far as they can be."""
    import typing

    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        pass
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = {**vars(sys.modules.get(base.__module__, object)), base.__name__: base}
        for name, annotation in _annotations(base).items():
            # One by one: the name that is missing is missed by its own field alone.
            alone = type("alone", (), {"__annotations__": {name: annotation}})
            try:
                hints |= typing.get_type_hints(alone, names, dict(vars(base)), include_extras=True)
            except NameError:
                hints[name] = _Unknown(getattr(annotation, "__forward_arg__", str(annotation)))
    return hints


def _annotations(cls: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    import inspect

    return inspect.get_annotations(cls)


def _maker(hint: Any, bound: dict[object, object]) -> _Maker | None:
    """What `hint` makes of a stored value; None where it leaves it as it is."""
    import types
    import typing

    if isinstance(hint, _Unknown):
        return hint
    if isinstance(hint, (str, typing.ForwardRef)):
        return _Unknown(hint if isinstance(hint, str) else hint.__forward_arg__)
    if isinstance(hint, typing.TypeVar):
        return _maker(bound.get(hint), bound)
    # NewType has the first, `type X = ...` the second.
    inner = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)
    if inner is not None and not isinstance(hint, type):
        return _maker(inner, bound)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        return _maker_of_hinted_class(hint, bound) if isinstance(hint, type) else None
    if origin in _wrappers(typing):
        return _maker(arguments[0], bound)
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        return _maker_of_union(hint, arguments, bound)
    if not isinstance(origin, type):
        return None
    if kind_of(origin) is not None:
        parameters = getattr(origin, "__parameters__", ())
        values = [bound.get(argument, argument) for argument in arguments]
        key = (origin, *values)
        return _maker_of_class(origin, dict(zip(parameters, values, strict=False)), key)
    parts = [_maker(argument, bound) for argument in arguments]
    if issubclass(origin, tuple) and arguments[-1:] != (...,):
        return _Places(parts) if any(parts) else None
    if len(arguments) == 2 and arguments[-1] is not ...:
        return _Items(parts[0], parts[1], {}) if any(parts) else None
    return _Parts(origin, parts[0]) if parts and parts[0] is not None else None


def _maker_of_hinted_class(cls: Any, bound: dict[object, object]) -> _Maker | None:
    if is_enum(cls) or kind_of(cls) is not None:
        return _maker_of_class(cls, {}, cls)
    if issubclass(cls, dict) and hasattr(cls, "__total__"):
        # A TypedDict stays a dict.
        makers = {name: _maker(hint, bound) for name, hint in _hints(cls).items()}
        named = {name: maker for name, maker in makers.items() if maker is not None}
        return _Items(None, None, named) if named else None
    return None


def _maker_of_union(hint: object, members: tuple[Any, ...], bound: dict[object, object]) -> _Maker | None:
    import typing

    makers = [(member, _maker(member, bound)) for member in members]
    if not any(maker for _, maker in makers):
        return None
    plain = []
    for member, maker in makers:
        kind = typing.get_origin(member) or member
        if maker is None and isinstance(kind, type):
            plain.append(kind)
    made = [maker for _, maker in makers if maker is not None]
    return _Either([_Maker(*plain), *made], str(hint).replace("typing.", ""))


def _wrappers(typing: Any) -> tuple[object, ...]:
    """What says something about a field that is no matter here."""
    names = ("Annotated", "Final", "ClassVar", "Required", "NotRequired", "ReadOnly")
    return tuple(getattr(typing, name) for name in names if hasattr(typing, name))
