"""This module makes an instance from its stored fields, without initialising it a second time.

The stored data had been initialised: `__post_init__`, converters and validators have run. If they ran on each
read, they would change the data again. So this module sets the fields as `copy` and `pickle` do, without the
constructor. With `table(name, type=..., run_init=True)`, instances.py calls the constructor instead.

A field that a record lacks, because the class got it later, gets its default.
"""

from __future__ import annotations

import functools
import sys

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Restore = Callable[[dict[str, Any]], Any]
    # Returns the default of one field, for an instance that has the fields before it.
    Default = Callable[[Any], Any]
    SetField = Callable[[Any, str, Any], None]

__all__ = ["restorer"]


def restorer(cls: Any, kind: str) -> Restore:
    """Return a function that makes an instance of `cls`, of this kind (classes.py), from a dict of fields."""
    return _RESTORERS[kind](cls)


def _dataclass(cls: Any) -> Restore:
    import dataclasses

    missing = dataclasses.MISSING
    defaults: dict[str, Default] = {}
    for field in dataclasses.fields(cls):
        if field.default is not missing:
            defaults[field.name] = _value(field.default)
        elif field.default_factory is not missing:
            defaults[field.name] = _call(field.default_factory)
    names = [field.name for field in dataclasses.fields(cls)]
    arguments = [field.name for field in dataclasses.fields(cls) if field.init]
    return _object(cls, names, defaults, arguments)


def _attrs(cls: Any) -> Restore:
    attributes = cls.__attrs_attrs__
    defaults: dict[str, Default] = {}
    for attribute in attributes:
        default = _attrs_default(attribute)
        if default is not None:
            defaults[attribute.name] = default
    names = [attribute.name for attribute in attributes]
    arguments = [attribute.name for attribute in attributes if attribute.init]
    restore = _object(cls, names, defaults, arguments)
    cached_hash = "_attrs_cached_hash"
    if cached_hash not in getattr(getattr(cls.__hash__, "__code__", None), "co_names", ()):
        return restore

    def restore_with_hash(values: dict[str, Any]) -> Any:
        instance = restore(values)
        object.__setattr__(instance, cached_hash, None)
        return instance

    return restore_with_hash


def _attrs_default(attribute: Any) -> Default | None:
    """Return the default of an attribute, converted as the constructor does it."""
    attr: Any = sys.modules["attr"]
    default, converter = attribute.default, attribute.converter
    if default is attr.NOTHING:
        return None
    if not isinstance(default, attr.Factory):
        made = _value(default)
    elif default.takes_self:
        made = default.factory
    else:
        made = _call(default.factory)
    if converter is None:
        return made

    def converted(instance: Any) -> Any:
        arguments = [made(instance)]
        # Since attrs 24.1, converters may be objects with these attributes.
        if getattr(converter, "takes_self", False):
            arguments.append(instance)
        if getattr(converter, "takes_field", False):
            arguments.append(attribute)
        # A converter that needs neither argument can be called with the value only.
        return getattr(converter, "converter", converter)(*arguments)

    return converted


def _by_setting(
    make: Callable[[], Any],
    set_field: Callable[[Any, str, Any], None],
    count: int,
    defaults: dict[str, Default],
) -> Restore:
    """Make an empty instance and set its `count` fields."""

    def restore(values: dict[str, Any]) -> Any:
        instance = make()
        for name, value in values.items():
            set_field(instance, name, value)
        if len(values) < count:
            for name, default in defaults.items():
                if name not in values:
                    set_field(instance, name, default(instance))
        return instance

    return restore


def _object(cls: Any, names: list[str], defaults: dict[str, Default], arguments: list[str]) -> Restore:
    """Return the restorer of a class written in Python. `arguments` are the fields of its constructor."""
    # A frozen class sets its own fields in this way.
    set_field = _past_descriptors(cls, names, _native(cls, "__setattr__"))
    make = functools.partial(_native(cls, "__new__"), cls)
    restore = _by_setting(make, set_field, len(names), defaults)
    if not issubclass(cls, BaseException):
        return restore

    def restore_exception(values: dict[str, Any]) -> Any:
        instance = restore(values)
        instance.args = tuple(getattr(instance, name) for name in arguments if hasattr(instance, name))
        return instance

    return restore_exception


def _past_descriptors(cls: Any, names: Iterable[str], set_field: SetField) -> SetField:
    """Return a `set_field` that leaves in a field what was stored, although a descriptor sets that field.

    A descriptor may change what it is given, and it had done so before the instance was stored. Only the
    descriptor knows where it keeps the value, so it sets the field first.
    """
    import types

    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        members.update(vars(base))
    slots = {name for name, member in members.items() if isinstance(member, types.MemberDescriptorType)}
    described = {name for name in names if hasattr(type(members.get(name)), "__set__")} - slots
    if not described:
        return set_field

    def state(instance: Any) -> dict[str, Any]:
        held = {name: getattr(instance, name) for name in slots if hasattr(instance, name)}
        return held | getattr(instance, "__dict__", {})

    def set_past(instance: Any, name: str, value: Any) -> None:
        if name not in described:
            set_field(instance, name, value)
            return
        before = state(instance)
        set_field(instance, name, value)
        shown = getattr(instance, name)
        if shown is value:
            return
        # Where the descriptor shows something else than it keeps, it turns this back into what it shows.
        for place, held in state(instance).items():
            if held is shown and before.get(place, instance) is not held:
                if place in slots:
                    set_field(instance, place, value)
                else:
                    vars(instance)[place] = value

    return set_past


def _namedtuple(cls: Any) -> Restore:
    new, names, defaults = _native(cls, "__new__"), cls._fields, cls._field_defaults

    def restore(values: dict[str, Any]) -> Any:
        return new(cls, [values[name] if name in values else defaults[name] for name in names])

    return restore


def _struct(cls: Any) -> Restore:
    if not hasattr(cls, "__post_init__"):

        def construct(values: dict[str, Any]) -> Any:
            return cls(**values)

        return construct
    msgspec = sys.modules["msgspec"]
    set_field, copy = msgspec.structs.force_setattr, msgspec.Struct.__copy__
    template = _struct_template(cls, set_field)
    factory = sys.modules["msgspec._core"].Factory
    defaults: dict[str, Default] = {}
    # Defaults belong to the last fields.
    for name, default in zip(
        reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__), strict=False
    ):
        if default is not msgspec.NODEFAULT:
            defaults[name] = _call(default.factory) if isinstance(default, factory) else _value(default)
    return _by_setting(functools.partial(copy, template), set_field, len(cls.__struct_fields__), defaults)


def _struct_template(cls: Any, set_field: Callable[[Any, str, Any], None]) -> Any:
    """Return an instance whose `__post_init__` has not run, to be copied.

    msgspec offers no such instance: a Struct has no `__new__` except its constructor. So this function makes
    an instance of a subclass whose method does nothing, and then sets its class to `cls`. It drops the
    subclass, and does not call `__init_subclass__` of `cls`.
    """
    import types

    class Quiet:
        __slots__ = ()

        def __init_subclass__(cls, **_keywords: object) -> None:
            pass

    def body(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = cls.__module__
        namespace["__post_init__"] = lambda _self: None

    twin = types.new_class(cls.__name__, (Quiet, cls), {}, body)
    # Use lists, so the garbage collector tracks the copies, whatever is set in them later.
    template = twin(**{name: [] for name in cls.__struct_fields__})
    set_field(template, "__class__", cls)
    return template


def _model(cls: Any) -> Restore:
    if not cls.__pydantic_post_init__:

        def construct(values: dict[str, Any]) -> Any:
            # Do not validate stored values again. They use the names of the fields here.
            return cls.model_construct(**values)

        return construct
    pydantic = sys.modules["pydantic"]
    new, set_state = _native(cls, "__new__"), pydantic.BaseModel.__setstate__
    fields, private = cls.model_fields, cls.__private_attributes__
    has_extra = cls.model_config.get("extra") == "allow"
    undefined = sys.modules["pydantic_core"].PydanticUndefined

    def restore(values: dict[str, Any]) -> Any:
        known = {
            name: values[name] if name in values else _model_default(field, values)
            for name, field in fields.items()
        }
        made: dict[str, Any] = {}
        for name, attribute in private.items():
            default = _private_default(attribute, {**known, **made})
            if default is not undefined:
                made[name] = default
        instance = new(cls)
        state = {
            "__dict__": known,
            "__pydantic_extra__": {name: part for name, part in values.items() if name not in fields}
            if has_extra
            else None,
            "__pydantic_fields_set__": set(values),
            "__pydantic_private__": made if private else None,
        }
        set_state(instance, state)
        return instance

    return restore


def _model_default(field: Any, values: dict[str, Any]) -> Any:
    # Since pydantic 2.10, factories may take the fields.
    if getattr(field, "default_factory_takes_validated_data", False):
        return field.get_default(call_default_factory=True, validated_data=values)
    return field.get_default(call_default_factory=True)


def _private_default(attribute: Any, data: dict[str, Any]) -> Any:
    # Newer releases of pydantic call the factory only if asked, and older ones cannot be asked.
    factory = attribute.default_factory
    if factory is None:
        return attribute.get_default()
    return factory(data) if getattr(attribute, "default_factory_takes_validated_data", False) else factory()


def _native(cls: type, method: str) -> Any:
    """Return the nearest `__new__` or `__setattr__` not written in Python, so no code of the class runs."""
    native = (type(object.__new__), type(object.__setattr__))
    for base in cls.__mro__:
        if isinstance(vars(base).get(method), native):
            return getattr(base, method)
    return getattr(object, method)


def _value(default: Any) -> Default:
    return lambda _instance: default


def _call(factory: Any) -> Default:
    return lambda _instance: factory()


_RESTORERS: dict[str, Callable[[Any], Restore]] = {
    "dataclass": _dataclass,
    "namedtuple": _namedtuple,
    "attrs": _attrs,
    "struct": _struct,
    "model": _model,
}
