"""This module turns stored values into instances of a class again.

The stored bytes do not name a class. The `type=` of the table names it, and the annotations of its fields
name the classes of the parts, at any depth. The module caches what it derives from annotations, so a row does
not read them again. It derives this when the first instance of the class is made, because a class may contain
itself.

It does not change fields without annotation, plain types (a `str` stays a `str` if `int` is annotated), and
objects that come back without its help.
"""

from __future__ import annotations

import sys

from pellucid.classes import EXPIRES, LEASE, MISSING, Field, as_plain, fields, is_enum, kind_of
from pellucid.errors import WrongClass
from pellucid.objects import is_registered
from pellucid.restore import restorer

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["annotations_of", "build", "checker"]

# The types of defaults that a record shows as they are.
SIMPLE = (type(None), bool, int, float, str, bytes)


def build(cls: type, value: object, run_init: bool, ignores: bool = False) -> object:
    """Return the instance of `cls` that was stored as the plain `value`.

    Its fields are set without initialising it again (restore.py). With `run_init`, the constructor gets them.
    With `ignores`, stored fields that the classes do not have are left out.
    Raises `WrongClass`, with a message that continues after "record 'ann' of table 'people'".
    """
    maker = _MAKERS[run_init, ignores].get(cls)
    if maker is None:
        maker = _maker_of_class(cls, _Scope({}, run_init, ignores, {}), cls)
    if type(value) is dict and (LEASE in value or EXPIRES in value):
        value = maker.without_fields_of_table(value)
    try:
        return maker.make(value)
    except _Misfit as misfit:
        raise WrongClass(misfit.placed()) from misfit.__cause__


def checker(cls: type, run_init: bool) -> Callable[[object], str | None] | None:
    """Return a function that says why an instance of `cls` would not come back from a record.

    The message continues after "the value at 'ann' of table 'people'". The function returns None for an
    instance that comes back. If this does not depend on its parts, there is no function.
    """
    maker = _maker_of_class(cls, _Scope({}, run_init, False, {}), cls)
    if not isinstance(maker, _Instance) or not maker.checked():
        return None

    def check(value: object) -> str | None:
        try:
            maker.check(value)
        except _Misfit as misfit:
            return misfit.placed()
        except RecursionError:
            # The encoder says how deep values may nest.
            return None
        return None

    return check


class _Misfit(Exception):
    """A stored value that does not fit its annotation. `path` grows on the way out, innermost step first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[object] = []

    def placed(self) -> str:
        """Return what is wrong, after the place where it is."""
        place = "".join(f"[{step!r}]" for step in reversed(self.path))
        return f"{f'at {place} ' if place else ''}{self.why}"


# Makers turn a stored value into what an annotation says. Each also says if a value fits, for unions, and
# checks before a write that a value will come back.


class _Maker:
    """Leaves a value as it is, if it has one of the given types."""

    def __init__(self, *types: type) -> None:
        self.types = types

    def fits(self, value: object) -> bool:
        return isinstance(value, self.types)

    def make(self, value: Any) -> Any:
        return value

    def check(self, value: Any) -> None:
        """Raise `_Misfit` if `make` would raise for the stored `value`, or make something else of it."""

    def without_fields_of_table(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a row that are for its class."""
        return row


class _PlainClass(_Maker):
    """The class of a table, if it has no fields: int, list, a registered class."""

    def make(self, value: Any) -> Any:
        if not self.fits(value):
            raise _Misfit(f"{_holds(value, self.types[0])}; read it without type=")
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

    def check(self, value: Any) -> None:
        if type(value) is not self.types[0]:
            self.make(value.value if is_enum(type(value)) else value)


class _Instance(_Maker):
    """An instance of a class with fields."""

    def __init__(self, cls: Any, kind: str, scope: _Scope) -> None:
        super().__init__(cls)
        self.cls = cls
        self.scope = scope
        self.fields: dict[str, Field] = fields(cls, kind)
        self.required = {name for name, field in self.fields.items() if field.is_required}
        self.takes_more = kind == "model" and cls.model_config.get("extra") == "allow"
        self.finish = self._constructor(kind) if scope.run_init else restorer(cls, kind)
        # Only fields whose annotations need a maker; derived when the first instance is made or checked.
        self.makers: dict[str, _Maker] | None = None
        # The same, without annotations that are not yet defined.
        self.checks: dict[str, _Maker] | None = None

    def fits(self, value: object) -> bool:
        if not isinstance(value, dict):
            return isinstance(value, self.cls)
        takes_more = self.takes_more or self.scope.ignores
        return self.required <= value.keys() and (takes_more or value.keys() <= self.fields.keys())

    def fits_exactly(self, value: object) -> bool:
        return isinstance(value, dict) and value.keys() == self.fields.keys()

    def without_fields_of_table(self, row: dict[str, Any]) -> dict[str, Any]:
        left_out = {LEASE, EXPIRES} - self.fields.keys()
        return {name: part for name, part in row.items() if name not in left_out}

    def make(self, value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, self.cls):
                return value
            raise _Misfit(_holds(value, self.cls))
        if self.scope.ignores and not self.takes_more:
            value = {name: part for name, part in value.items() if name in self.fields}
        self._refuse_more(value)
        makers = self._makers() if self.makers is None else self.makers
        if makers:
            value = {
                name: _at(name, makers[name], part) if name in makers else part
                for name, part in value.items()
            }
        self._refuse_less(value)
        try:
            return self.finish(value)
        except TypeError as error:
            raise _Misfit(
                f"does not make a {self.cls.__name__}: {error}; change the class, or read the record "
                "without type="
            ) from error

    def check(self, value: Any) -> None:
        cls = type(value)
        if is_registered(cls) and isinstance(value, self.cls):
            return
        record = getattr(sys.modules.get("pellucid"), "Record", ())
        if isinstance(value, (dict, record)):
            parts = value if isinstance(value, dict) else value.to_dict()
            self._refuse_more(parts)
            self._refuse_less(parts)
        elif cls is self.cls or cls is _generic_origin(self.cls):
            parts = {name: getattr(value, name, MISSING) for name in self.checked()}
        else:
            raise _Misfit(
                f"{_holds(value, self.cls)}, so it would not come back; store an instance of exactly that "
                "class, or open the table without type= to store anything"
            )
        # A record does not hold this, so the default of its field comes back.
        unset = getattr(sys.modules.get("msgspec"), "UNSET", MISSING)
        for name, maker in self.checked().items():
            part = parts.get(name, MISSING)
            if part is not MISSING and part is not unset:
                _check_at(name, maker, part)

    def checked(self) -> dict[str, _Maker]:
        """Return the makers of the fields that a write must check."""
        if self.makers is not None:
            return self.makers
        if self.checks is None:
            makers = self._makers()
            self.checks = {name: maker for name, maker in makers.items() if not isinstance(maker, _Unknown)}
            if len(self.checks) < len(makers):
                # What is not defined now may be defined when a record is read.
                self.makers = None
        return self.checks

    def _refuse_more(self, value: dict[str, Any]) -> None:
        if not self.takes_more and not value.keys() <= self.fields.keys():
            other = next(name for name in value if name not in self.fields)
            raise _Misfit(
                f"has a field {other!r}, which {self.cls.__name__} does not have; give the class that field, "
                "delete it from the record, or read the record without type="
            )

    def _refuse_less(self, value: dict[str, Any]) -> None:
        if not self.required <= value.keys():
            missing = next(name for name in self.fields if name in self.required and name not in value)
            raise _Misfit(
                f"has no field {missing!r}, and {self.cls.__name__} has no default for it; give it one, or "
                "read the record without type="
            )

    def _makers(self) -> dict[str, _Maker]:
        hints, bindings = _hints(self.cls), _bindings(self.cls, self.scope.bound)
        made: dict[str, _Maker] = {}
        for name, field in self.fields.items():
            # The same type parameter may mean something else in each base class.
            owner = next((base for base in bindings if name in _annotations(base)), self.cls)
            hint = _resolved_by_pydantic(self.cls, name, hints.get(name))
            # Another thread may do the same at the same time.
            maker = _maker(hint, _Scope(bindings[owner], self.scope.run_init, self.scope.ignores, {}))
            if maker is not None:
                is_plain = field.is_required or isinstance(maker, _Unknown)
                made[name] = maker if is_plain else _OrDefault(maker, field)
        # Assign all at once, so another thread sees none or all of them.
        self.makers = made
        return made

    def _constructor(self, kind: str) -> Callable[[dict[str, Any]], Any]:
        # The stored value was valid when it was stored, and uses the names of the fields here.
        construct: Callable[..., Any] = self.cls.model_construct if kind == "model" else self.cls
        arguments = {name: field.argument for name, field in self.fields.items()}

        def constructed(values: dict[str, Any]) -> Any:
            given: dict[str, Any] = {}
            later: dict[str, Any] = {}
            for name, part in values.items():
                argument = arguments.get(name, name)
                if argument is None:
                    later[name] = part
                else:
                    given[argument] = part
            instance = construct(**given)
            for name, part in later.items():
                # A frozen class does the same.
                object.__setattr__(instance, name, part)
            return instance

        return constructed


class _OrDefault(_Maker):
    """A field with its own default, which need not be what the annotation says: `pet: Pet = None`."""

    def __init__(self, maker: _Maker, field: Field) -> None:
        super().__init__(object)
        self.maker, self.field = maker, field

    def make(self, value: Any) -> Any:
        try:
            return self.maker.make(value)
        except _Misfit:
            default = self._default()
            if not _is_same(value, default.value if is_enum(type(default)) else default):
                raise
            return default

    def check(self, value: Any) -> None:
        try:
            self.maker.check(value)
        except _Misfit:
            default = self._default()
            if default is not value and not _is_same(value, default):
                raise

    def _default(self) -> Any:
        """Return the default of the field, if a record holds it as it is; MISSING if not."""
        default = self.field.default if self.field.factory is None else self.field.factory()
        return default if isinstance(default, SIMPLE) or is_enum(type(default)) else MISSING


def _is_same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


class _Parts(_Maker):
    """A list, set or tuple of any size: the container stays, and its parts are made."""

    def __init__(self, origin: type, part: _Maker) -> None:
        super().__init__(origin)
        self.part = part

    def make(self, value: Any) -> Any:
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)([_at(index, self.part, part) for index, part in enumerate(value)])
        return value

    def check(self, value: Any) -> None:
        if type(value) in (list, tuple, set, frozenset):
            for index, part in enumerate(value):
                _check_at(index, self.part, part)


class _Places(_Maker):
    """A tuple with its own annotation for each position."""

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

    def check(self, value: Any) -> None:
        if type(value) is tuple and self.fits(value):
            for index, (maker, part) in enumerate(zip(self.parts, value, strict=True)):
                if maker is not None:
                    _check_at(index, maker, part)


class _Items(_Maker):
    """A dict whose keys or values, or the values of some keys, are made."""

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

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            return
        for key, part in value.items():
            maker = self.named.get(key, self.value) if self.named else self.value
            if self.key is not None:
                _check_at(key, self.key, key)
            if maker is not None:
                _check_at(key, maker, part)


class _Either(_Maker):
    """A union: a plain type if the value has it, else the class that has exactly these fields."""

    def __init__(self, members: list[_Maker], shown: str) -> None:
        super().__init__()
        self.members = members
        self.shown = shown

    def fits(self, value: object) -> bool:
        return any(member.fits(value) for member in self.members)

    def make(self, value: Any) -> Any:
        maker = self._chosen(value)
        return value if maker is None else maker.make(value)

    def check(self, value: Any) -> None:
        plain = None if is_registered(type(value)) else as_plain(value)
        maker = self._chosen(value if plain is None else plain[0])
        if maker is not None:
            maker.check(value)

    def _chosen(self, value: Any) -> _Maker | None:
        """Return the maker for a stored value; None if the value stays as it is."""
        fitting = [member for member in self.members if member.fits(value)]
        for member in fitting:
            if type(member) is _Maker:
                return None
        exact = [member for member in fitting if isinstance(member, _Instance) and member.fits_exactly(value)]
        if exact:
            fitting = [*exact]
        if len(fitting) > 1 and all(isinstance(member, _Instance) for member in fitting):
            raise _Misfit(
                f"has the fields of more than one class of {self.shown}, and does not store which one it "
                "was; give them different fields, or pellucid.register() them"
            )
        if not fitting and isinstance(value, dict) and any(isinstance(m, _Instance) for m in self.members):
            raise _Misfit(f"has the fields of no class of {self.shown}; read the record without type=")
        return fitting[0] if fitting else None


class _Unknown(_Maker):
    """An annotation that cannot be resolved. This is an error only when a value must be made with it."""

    def __init__(self, annotation: str) -> None:
        super().__init__(object)
        self.annotation = annotation

    def make(self, value: Any) -> Any:
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            raise _Misfit(
                f"is annotated {self.annotation!r}, which is not defined when the record is read; define or "
                "import it at the top of the module of the class"
            )
        return value


class _Alias(_Maker):
    """A name for an annotation, used inside this annotation: `type Tree = list[Tree] | Leaf`."""

    def __init__(self) -> None:
        super().__init__(object)
        self.maker: _Maker | None = None

    def make(self, value: Any) -> Any:
        return value if self.maker is None else self.maker.make(value)

    def check(self, value: Any) -> None:
        if self.maker is not None:
            self.maker.check(value)


def _at(step: object, maker: _Maker, value: object) -> Any:
    try:
        return maker.make(value)
    except _Misfit as misfit:
        misfit.path.append(step)
        raise


def _check_at(step: object, maker: _Maker, value: object) -> None:
    try:
        maker.check(value)
    except _Misfit as misfit:
        misfit.path.append(step)
        raise


def _holds(value: object, cls: type) -> str:
    return f"holds a value of type {type(value).__name__}, but {cls.__qualname__} is expected there"


def _generic_origin(cls: type) -> object:
    """Return the generic model of which pydantic made `cls`, as in `Box[Pet]`. Their instances are equal."""
    metadata: Mapping[str, object] = getattr(cls, "__pydantic_generic_metadata__", {})
    return metadata.get("origin")


# Makers for annotations


class _Scope:
    """The context of an annotation: the arguments of a generic class, and `run_init` of the table."""

    def __init__(
        self,
        bound: Mapping[Any, object],
        run_init: bool,
        ignores: bool,
        unfinished: dict[object, _Alias],
    ) -> None:
        self.bound = bound
        self.run_init = run_init
        # Whether stored fields that a class does not have are left out.
        self.ignores = ignores
        # Names of annotations that are being resolved; one may occur in itself.
        self.unfinished = unfinished


# The key is the class; for a generic class, the class and its arguments: `(Box, Person)`.
# There are makers for each pair of `run_init` and `ignores`.
_MAKERS: dict[tuple[bool, bool], dict[object, _Maker]] = {
    (run_init, ignores): {} for run_init in (False, True) for ignores in (False, True)
}


def _maker_of_class(cls: Any, scope: _Scope, key: object) -> _Maker:
    makers = _MAKERS[scope.run_init, scope.ignores]
    try:
        known = makers.get(key)
    except TypeError:
        # In Box[Annotated[int, {}]], the arguments have no hash.
        return _new_maker(cls, scope)
    return known or makers.setdefault(key, _new_maker(cls, scope))


def _new_maker(cls: Any, scope: _Scope) -> _Maker:
    kind = kind_of(cls)
    if kind is not None:
        return _Instance(cls, kind, scope)
    return _EnumMember(cls) if is_enum(cls) else _PlainClass(cls)


def annotations_of(cls: type) -> dict[str, Any]:
    """Return the annotations of a class as far as they can be evaluated; those that cannot are left out."""
    return {name: hint for name, hint in _hints(cls).items() if not isinstance(hint, _Unknown)}


def _hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a class, evaluated as far as possible."""
    import typing

    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        pass
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = {**vars(sys.modules.get(base.__module__, object)), base.__name__: base}
        for name, annotation in _annotations(base).items():
            # One by one, so a missing name affects only its own field.
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


def _bindings(cls: type, bound: Mapping[Any, object]) -> dict[type, Mapping[Any, object]]:
    """Return what the type parameters of `cls` and of its base classes stand for, in the order of the MRO.

    For `class Kennel(Box[Pet])`, the T of Box is Pet.
    """
    import typing

    bindings = {cls: bound}
    for base in cls.__mro__:
        own = bindings.setdefault(base, {})
        for written in vars(base).get("__orig_bases__", ()):
            origin = typing.get_origin(written)
            parameters = getattr(origin, "__parameters__", ())
            if isinstance(origin, type) and parameters:
                bindings.setdefault(origin, _bound(parameters, typing.get_args(written), own))
    return {base: bindings[base] for base in cls.__mro__}


def _resolved_by_pydantic(cls: Any, name: str, hint: Any) -> Any:
    """Return the annotation of a field in which pydantic has put the arguments of a generic model.

    `Box[Pet]` of pydantic is a class of its own, and its annotation still says T.
    """
    is_open = _is_parameter(hint) or bool(getattr(hint, "__parameters__", ()))
    if is_open and hasattr(cls, "__pydantic_generic_metadata__"):
        return cls.model_fields[name].annotation
    return hint


def _maker(hint: Any, scope: _Scope) -> _Maker | None:
    """Return the maker for `hint`; None if `hint` leaves a stored value as it is."""
    import types
    import typing

    if isinstance(hint, _Unknown):
        return hint
    if isinstance(hint, (str, typing.ForwardRef)):
        return _Unknown(hint if isinstance(hint, str) else hint.__forward_arg__)
    if isinstance(hint, typing.TypeVar):
        return _maker(scope.bound.get(hint), scope)
    if hasattr(hint, "__supertype__") and not isinstance(hint, type):
        return _maker(hint.__supertype__, scope)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    named = hint if origin is None else origin
    if hasattr(named, "__value__") and not isinstance(named, type):
        parameters = () if origin is None else origin.__type_params__
        inner = _inner_scope(parameters, arguments, scope)
        return _maker_of_alias(hint, lambda: _maker(named.__value__, inner), scope)
    if origin is None:
        return _maker_of_hinted_class(hint, scope) if isinstance(hint, type) else None
    if origin in _wrappers(typing):
        return _maker(arguments[0], scope)
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        return _maker_of_union(hint, arguments, scope)
    if not isinstance(origin, type):
        return None
    if kind_of(origin) is not None:
        inner = _inner_scope(getattr(origin, "__parameters__", ()), arguments, scope)
        return _maker_of_class(origin, inner, (origin, *inner.bound.items()) if inner.bound else origin)
    if _is_typed_dict(origin):
        inner = _inner_scope(getattr(origin, "__parameters__", ()), arguments, scope)
        return _maker_of_typed_dict(hint, origin, inner)
    parts = [_maker(argument, scope) for argument in arguments]
    if issubclass(origin, tuple) and arguments[-1:] != (...,):
        return _Places(parts) if any(parts) else None
    if len(arguments) == 2 and arguments[-1] is not ...:
        return _Items(parts[0], parts[1], {}) if any(parts) else None
    return _Parts(origin, parts[0]) if parts and parts[0] is not None else None


def _inner_scope(parameters: tuple[Any, ...], arguments: tuple[Any, ...], scope: _Scope) -> _Scope:
    """Return the scope of a generic class or alias. Its arguments may use parameters of `scope`."""
    bound = _bound(parameters, arguments, scope.bound)
    return _Scope(bound, scope.run_init, scope.ignores, scope.unfinished)


def _bound(
    parameters: tuple[Any, ...], arguments: tuple[Any, ...], outer: Mapping[Any, object]
) -> dict[Any, object]:
    """Return what each parameter stands for. The arguments may use parameters of `outer`."""
    import typing

    bound: dict[Any, object] = {}
    for parameter, argument in zip(parameters, arguments, strict=False):
        given = _substituted(argument, outer)
        if given is not typing.Any:
            bound[parameter] = given
    return bound


def _substituted(argument: Any, bound: Mapping[Any, object]) -> Any:
    """Replace the type parameters in an argument by what is bound to them, or by Any."""
    import typing

    if _is_parameter(argument):
        return bound.get(argument, typing.Any)
    parameters = getattr(argument, "__parameters__", ())
    if not parameters or typing.get_origin(argument) is None or not all(map(_is_parameter, parameters)):
        return argument
    return argument[tuple(bound.get(parameter, typing.Any) for parameter in parameters)]


def _is_parameter(hint: object) -> bool:
    import typing

    return isinstance(hint, typing.TypeVar)


def _maker_of_alias(hint: object, work_out: Callable[[], _Maker | None], scope: _Scope) -> _Maker | None:
    """Return the maker of a name for an annotation. The name may occur in its own annotation."""
    if hint in scope.unfinished:
        return scope.unfinished[hint]
    alias = scope.unfinished[hint] = _Alias()
    alias.maker = work_out()
    del scope.unfinished[hint]
    return alias.maker


def _maker_of_hinted_class(cls: Any, scope: _Scope) -> _Maker | None:
    if is_enum(cls) or kind_of(cls) is not None:
        parameters = getattr(cls, "__pydantic_generic_metadata__", {}).get("parameters", ())
        if scope.bound and parameters:
            # Inside a generic class, as in `box: Model[T]`. pydantic returns the same class each time.
            import typing

            cls = cls[tuple(scope.bound.get(parameter, typing.Any) for parameter in parameters)]
        return _maker_of_class(cls, _Scope({}, scope.run_init, scope.ignores, {}), cls)
    return _maker_of_typed_dict(cls, cls, scope) if _is_typed_dict(cls) else None


def _is_typed_dict(cls: Any) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__total__")


def _maker_of_typed_dict(hint: object, cls: type, scope: _Scope) -> _Maker | None:
    """Return the maker of a TypedDict, which stays a dict."""

    def work_out() -> _Maker | None:
        makers = {name: _maker(hint, scope) for name, hint in _hints(cls).items()}
        named = {name: maker for name, maker in makers.items() if maker is not None}
        return _Items(None, None, named) if named else None

    return _maker_of_alias(hint, work_out, scope)


def _maker_of_union(hint: object, members: tuple[Any, ...], scope: _Scope) -> _Maker | None:
    import typing

    makers = [(member, _maker(member, scope)) for member in members]
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
    """Return the annotations that only wrap another one, and add nothing that matters here."""
    names = ("Annotated", "Final", "ClassVar", "Required", "NotRequired", "ReadOnly")
    return tuple(getattr(typing, name) for name in names if hasattr(typing, name))
