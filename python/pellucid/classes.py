"""This module finds the fields of dataclasses and similar classes, so that pellucid can store instances.

pellucid stores dataclasses, NamedTuples, attrs and pydantic classes, and msgspec Structs as a dict of their
fields. It stores an Enum as its value. instances.py makes instances again. This module is not for classes of
`pellucid.register` (objects.py), whose instances come back without it.
"""

from __future__ import annotations

import sys

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# No value: None may be one.
MISSING = object()

__all__ = [
    "MISSING",
    "Field",
    "admits",
    "as_plain",
    "check_row_class",
    "fields",
    "foreign_field",
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


def foreign_field(cls: Any, names: list[str]) -> str | None:
    """What is wrong with the first of these names that is no field of `cls`; None where there is none."""
    kind = kind_of(cls)
    if kind is None or (kind == "model" and cls.model_config.get("extra") == "allow"):
        return None
    known = fields(cls, kind)
    for name in names:
        if name not in known:
            listed = ", ".join(map(repr, known)) or "none"
            return f"{cls.__qualname__} has no field {name!r}; its fields are {listed}"
    return None


# Which classes have fields, and which fields are they?


def is_enum(cls: type) -> bool:
    """Say whether the class is an Enum."""
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(cls, enum.Enum)


def kind_of(cls: type) -> str | None:
    """Return what kind of class with fields it is; None if it has no fields."""
    # If the program never imported a module, none of its classes comes from there.
    msgspec, pydantic = sys.modules.get("msgspec"), sys.modules.get("pydantic")
    if hasattr(cls, "__dataclass_fields__"):
        return "dataclass"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "namedtuple"
    if hasattr(cls, "__attrs_attrs__"):
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
