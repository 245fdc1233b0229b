"""This module has FastAPI serve records, lists and queries as the JSON that `json_bytes` writes.

FastAPI knows dicts and lists, and makes a dict of any other object that gives pairs. A `RecordList` of texts
with two letters would be served as an object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pellucid

__all__ = ["install"]

_CLASSES: tuple[type, ...] = (pellucid.Record, pellucid.RecordList, pellucid.Query, pellucid.Table)


def install() -> None:
    """Have FastAPI serve records, lists, queries and tables that a path operation returns, also in a dict.

    `pellucid.open` does this if FastAPI is loaded by then; call it if FastAPI is imported later. It registers
    encoders for pellucid's own classes and changes nothing else. Calling it again does nothing.

    >>> import pellucid
    >>> from fastapi.encoders import jsonable_encoder
    >>> pellucid.contrib.fastapi.install()
    >>> table = pellucid.open(":memory:").table("towns")
    >>> table[1] = {"codes": ["DE", "FR"]}
    >>> jsonable_encoder(table[1])
    {'codes': ['DE', 'FR']}
    """
    import fastapi.encoders

    _register(fastapi.encoders)


def offer() -> None:
    """Install the encoders if FastAPI is loaded and has the place for them; `pellucid.open` calls this."""
    encoders = sys.modules.get("fastapi.encoders")
    if hasattr(encoders, "ENCODERS_BY_TYPE") and hasattr(encoders, "encoders_by_class_tuples"):
        _register(encoders)


def _register(encoders: Any) -> None:
    by_type = encoders.ENCODERS_BY_TYPE
    if by_type.get(pellucid.Record) is plain:
        return
    for cls in _CLASSES:
        by_type[cls] = plain
        _describe(cls)
    # Records over some buffers are of a subclass, which FastAPI looks for here.
    encoders.encoders_by_class_tuples[plain] = _CLASSES


def plain(value: Any) -> Any:
    """Return a value as what JSON has: dicts, lists, texts, numbers, bools and None."""
    return json.loads(pellucid.json_bytes(value))


def _describe(cls: Any) -> None:
    """Tell pydantic how instances are serialised, for path operations with a return annotation."""
    from pydantic_core import SchemaSerializer, core_schema

    serialized = core_schema.plain_serializer_function_ser_schema(plain)
    schema = core_schema.is_instance_schema(cls, serialization=serialized)
    # pydantic looks for these names on the classes of values, and of annotations.
    cls.__pydantic_serializer__ = SchemaSerializer(schema)
    cls.__get_pydantic_core_schema__ = staticmethod(lambda _source, _handler: schema)
    cls.__get_pydantic_json_schema__ = staticmethod(lambda _schema, _handler: {})
