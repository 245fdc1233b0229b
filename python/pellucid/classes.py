"""This module finds the fields of dataclasses and similar classes, so that pellucid can store instances.

pellucid stores dataclasses, NamedTuples, attrs and pydantic classes, and msgspec Structs as a dict of their
fields. It stores an Enum as its value. instances.py makes instances again. This module is not for classes of
`pellucid.register` (objects.py), whose instances come back without it.
"""

from __future__ import annotations

import sys

from pellucid.errors import WrongClass

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# No value: None may be one.
MISSING = object()

# Fields of a row that are its table's, and not of its class: the lease of a claim, and when the row expires.
LEASE, EXPIRES = "_lease", "_expires"

__all__ = [
    "EXPIRES",
    "LEASE",
    "MISSING",
    "Field",
    "admits",
    "as_plain",
    "beside_fields",
    "check_fields",
    "check_row_class",
    "fields",
    "has",
    "is_enum",
    "kind_of",
]


def as_plain(value: Any) -> tuple[object] | None:
    """Return the dict (for an Enum, the value) that stands for `value`, in a tuple; None if there is none."""
    cls = type(value)
    if is_enum(cls):
        return (value.value,)
    kind = kind_of(cls)
    if kind is None:
        return None
    if kind == "namedtuple":
        return (dict(zip(cls._fields, value, strict=True)),)
    try:
        fields = {name: getattr(value, name) for name in _names(value, kind)}
    except AttributeError:
        # A field may have no value, if no constructor sets it.
        fields = {name: getattr(value, name) for name in _names(value, kind) if hasattr(value, name)}
    if kind == "struct":
        unset = sys.modules["msgspec"].UNSET
        fields = {name: field for name, field in fields.items() if field is not unset}
    elif kind == "model" and value.__pydantic_extra__:
        fields |= value.__pydantic_extra__
    return (fields,)


def admits(cls: type, value: object) -> bool:
    """Say whether a table of `cls` takes `value`, whose class is not exactly `cls`.

    An instance of a subclass would not come back as one. A plain type like int has no fields to lose.
    """
    return isinstance(value, cls) and kind_of(cls) is None


def check_row_class(cls: Any) -> None:
    """`TypeError` for a class of which no value is an instance, so that a table of it would take none."""
    typing = sys.modules.get("typing")
    kind = None
    if hasattr(cls, "__total__") and hasattr(cls, "__required_keys__"):
        kind = "is a TypedDict, and its rows are plain dicts"
    elif typing is not None and cls is typing.Any:
        kind = "is no class"
    elif getattr(cls, "_is_protocol", False):
        kind = "is a Protocol, which makes no instances"
    if kind is not None:
        raise TypeError(
            f"type= is the class that rows come back as, and {cls.__qualname__} {kind}; open the table "
            "without type= for records, or make it a dataclass"
        )


def check_fields(cls: Any, names: Iterable[str], what: str) -> None:
    """Raise `WrongClass` if one of these names is no field of the class of a table: it would not come back.

    `what` was called, as the message begins: `update() of table "people"`.
    """
    kind = kind_of(cls)
    if kind is None or (kind == "model" and cls.model_config.get("extra") == "allow"):
        return
    known = fields(cls, kind)
    for name in names:
        if name not in known and name not in (LEASE, EXPIRES):
            listed = ", ".join(map(repr, known)) or "none"
            raise WrongClass(
                f"{what}, which was opened with type={cls.__name__}: {cls.__qualname__} has no field "
                f"{name!r}; its fields are {listed}; nothing was written"
            )


# Which classes have fields, and which fields are they?


def is_enum(cls: type) -> bool:
    """Say whether the class is an Enum."""
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(cls, enum.Enum)


def has(cls: type, name: str) -> bool:
    """Say whether a class or a base class defines `name`.

    No code of the class runs for this. `hasattr` would call a `__getattr__`, which may raise or do anything.
    """
    return any(name in base.__dict__ for base in cls.__mro__)


def kind_of(cls: type) -> str | None:
    """Return what kind of class with fields it is; None if it has no fields."""
    # If the program never imported a module, none of its classes comes from there.
    msgspec, pydantic = sys.modules.get("msgspec"), sys.modules.get("pydantic")
    if has(cls, "__dataclass_fields__"):
        return "dataclass"
    if issubclass(cls, tuple) and has(cls, "_fields"):
        return "namedtuple"
    if has(cls, "__attrs_attrs__"):
        return "attrs"
    if msgspec is not None and issubclass(cls, msgspec.Struct):
        return "struct"
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return "model"
    return None


def _names(value: Any, kind: str) -> Iterable[str]:
    """Return the names of the fields of an instance, to store them."""
    if kind == "dataclass":
        import dataclasses

        # Take the fields of the instance, as dataclasses.asdict() does: an instance may have its own fields.
        return (field.name for field in dataclasses.fields(value))
    cls = type(value)
    if kind == "attrs":
        return (attribute.name for attribute in cls.__attrs_attrs__)
    names: Iterable[str] = cls.__struct_fields__ if kind == "struct" else cls.model_fields
    return names


# What does an instance hold beside its fields?


class _Layout:
    """What instances of a class can hold, for `beside_fields`."""

    __slots__ = ("described", "kind", "names", "place_of_attributes", "slots", "whole")

    def __init__(self, cls: Any, kind: str) -> None:
        self.kind = kind
        self.names = frozenset(fields(cls, kind))
        # Fields with a descriptor, which keeps the value of the field under a name of its own.
        has_own = kind in ("dataclass", "attrs")
        self.described = {name for name in self.names if has_own and _is_described(cls, name)}
        # A class without this place has no attributes but its slots.
        self.place_of_attributes = cls.__dictoffset__
        # Slots of base classes that are no fields.
        self.slots = tuple(
            (name, vars(base)[name])
            for base in cls.__mro__
            if not base.__module__.startswith("pydantic.")
            for name in _slots(base)
            if not self.explains(cls, name)
        )
        # The base class written in C that keeps content of its own: list, str, Exception.
        self.whole = None if kind in ("namedtuple", "struct") else _native_base(cls)

    def explains(self, cls: Any, name: str) -> bool:
        """Say whether an attribute of this name loses nothing: it is a field, or is derived from fields."""
        if name in self.names or name == "_attrs_cached_hash":
            return True
        if name.startswith("__") and name.endswith("__") and name != "__notes__":
            # What typing and dataclasses note about the instance.
            return True
        member = _of_class(cls, name)
        kind = type(member)
        if hasattr(kind, "__get__") and not hasattr(kind, "__set__") and not callable(member):
            # A cached_property, for example, which is computed again.
            return True
        return any(f"_{field}_" in f"_{name}_" for field in self.described)


# By class. Classes that are made in a loop do not fill the memory.
_LAYOUTS: dict[type, _Layout | None] = {}
_LAYOUT_COUNT_MAX = 4096


def beside_fields(value: Any, runs_init: bool) -> str | None:
    """Name what `value` holds that is in none of its fields, and would be lost; None if there is nothing.

    With `runs_init`, the constructor makes attributes again that are no fields.
    """
    cls = type(value)
    layout = _LAYOUTS.get(cls, MISSING)
    if layout is MISSING:
        kind = None if is_enum(cls) else kind_of(cls)
        layout = None if kind is None else _Layout(cls, kind)
        if len(_LAYOUTS) >= _LAYOUT_COUNT_MAX:
            _LAYOUTS.clear()
        _LAYOUTS[cls] = layout
    if not isinstance(layout, _Layout):
        return None
    if layout.whole is not None:
        content = _native_content(value, layout, layout.whole)
        if content is not None:
            return content
    if runs_init:
        return None
    if layout.place_of_attributes:
        # The object's own place, since the class may define __getattribute__.
        held = object.__getattribute__(value, "__dict__")
        if not held.keys() <= layout.names:
            known = held.get("__dataclass_fields__", ())
            for name in held:
                if name not in known and not layout.explains(cls, name):
                    return f"its attribute {name!r}"
    for name, slot in layout.slots:
        try:
            slot.__get__(value, cls)
        except AttributeError:
            continue
        return f"its attribute {name!r}"
    return _private_content(value) if layout.kind == "model" else None


def _of_class(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


def _is_described(cls: type, name: str) -> bool:
    import types

    member = _of_class(cls, name)
    return hasattr(type(member), "__set__") and not isinstance(member, types.MemberDescriptorType)


def _slots(base: type) -> Iterable[str]:
    """Return the names of the slots that a class itself adds, as they are in its namespace."""
    import types

    return [name for name, member in vars(base).items() if isinstance(member, types.MemberDescriptorType)]


def _native_base(cls: type) -> Any:
    """Return the nearest base class that is not written in Python; None if that is `object`."""
    # From CPython's object.h: types made at run time, and types that cannot be changed.
    heap_type, immutable_type = 1 << 9, 1 << 8
    for base in cls.__mro__:
        if not base.__flags__ & heap_type or base.__flags__ & immutable_type:
            return None if base is object else base
    return None


def _native_content(value: Any, layout: _Layout, whole: Any) -> str | None:
    """Name the content of a base class that is written in C; None if there is none."""
    if issubclass(whole, BaseException):
        arguments = BaseException.args.__get__(value)  # type: ignore[attr-defined]
        parts = [getattr(value, name, MISSING) for name in layout.names]
        if all(any(part is argument or _equals(part, argument) for part in parts) for argument in arguments):
            return None
        return "its args"
    if hasattr(whole, "__len__"):
        count = whole.__len__(value)
        return f"what it holds as a {whole.__name__} of length {count}" if count else None
    return f"its value as {whole.__name__}"


def _is_equal_to_itself_alone(value: object) -> bool:
    return _of_class(type(value), "__eq__") is vars(object)["__eq__"]


def _equals(one: object, other: object) -> bool:
    if type(one) is not type(other) or _is_equal_to_itself_alone(one):
        return False
    try:
        return bool(one == other)
    except ValueError:
        # Arrays say for each element whether it is equal.
        return False


def _private_content(model: Any) -> str | None:
    """Name a private attribute of a pydantic model that has another value than a new one has."""
    held: dict[str, Any] = model.__pydantic_private__ or {}
    for name, part in held.items():
        attribute = type(model).__private_attributes__.get(name)
        if attribute is None:
            return f"its private attribute {name!r}"
        factory = attribute.default_factory
        if factory is None:
            default = attribute.default
        else:
            default = factory({**model.__dict__, **held}) if _takes_data(attribute) else factory()
        is_own = type(part) is type(default) and _is_equal_to_itself_alone(part)
        # An object that is equal to no other, as a lock is: one of a factory is as good as another.
        if part is default or (factory is not None and is_own) or _equals(part, default):
            continue
        return f"its private attribute {name!r}"
    return None


def _takes_data(attribute: Any) -> bool:
    return bool(getattr(attribute, "default_factory_takes_validated_data", False))


class Field:
    """One field, and how the constructor of the class takes it."""

    __slots__ = ("argument", "default", "factory", "is_required")

    def __init__(
        self, argument: str | None, is_required: bool, default: object = MISSING, factory: Any = None
    ) -> None:
        # None if the constructor does not take this field.
        self.argument = argument
        self.is_required = is_required
        # MISSING if there is none.
        self.default = default
        self.factory = factory if callable(factory) else None


def fields(cls: Any, kind: str) -> dict[str, Field]:
    """Return the fields of a class of this kind, by the names under which they are stored."""
    if kind == "dataclass":
        import dataclasses

        missing = dataclasses.MISSING
        return {
            field.name: Field(
                field.name if field.init else None,
                field.init and field.default is missing and field.default_factory is missing,
                MISSING if field.default is missing else field.default,
                None if field.default_factory is missing else field.default_factory,
            )
            for field in dataclasses.fields(cls)
        }
    if kind == "namedtuple":
        return {
            name: Field(name, name not in cls._field_defaults, cls._field_defaults.get(name, MISSING))
            for name in cls._fields
        }
    if kind == "attrs":
        nothing = sys.modules["attr"].NOTHING
        return {
            attribute.name: Field(
                attribute.alias if attribute.init else None,
                attribute.init and attribute.default is nothing,
                MISSING if attribute.default is nothing else attribute.default,
            )
            for attribute in cls.__attrs_attrs__
        }
    if kind == "struct":
        # Do not use structs.fields(): it needs every annotation to be resolvable.
        no_default, names = sys.modules["msgspec"].NODEFAULT, cls.__struct_fields__
        defaults = (no_default,) * (len(names) - len(cls.__struct_defaults__)) + cls.__struct_defaults__
        return {
            name: Field(name, default is no_default, default)
            for name, default in zip(names, defaults, strict=True)
        }
    return {
        name: Field(name, info.is_required(), info.default, info.default_factory)
        for name, info in cls.model_fields.items()
    }
