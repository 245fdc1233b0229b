"""This module reads one field from the bytes of a record, in the format of each library.

Every reader encodes a record in its own format once. It gives a line of Python that reads `age` from those
bytes, as a program would. Only this line is timed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pellucid

from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population, Record


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: how to encode a record, and the line that reads the field from `buf`."""

    name: str
    encode: Callable[[Record], bytes]
    field_line: str
    nested_line: str = ""
    """Reads `mydict.c.num` of the uniform record, three levels down."""
    names: dict[str, Any] = field(default_factory=dict)
    is_ours: bool = False
    note: str = ""


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return all formats that are installed, ours first."""
    deep = "['mydict']['c']['num']"
    item = population.by_item
    found = [
        Reader(
            "pellucid",
            pellucid.dumps,
            f"view(buf){population.by_attribute}",
            "view(buf).mydict.c.num",
            {"view": pellucid.view},
            is_ours=True,
        )
    ]
    if orjson := rivals.find("orjson"):
        loads = {"loads": orjson.loads}
        found.append(Reader("orjson", orjson.dumps, f"loads(buf){item}", f"loads(buf){deep}", loads))
    if ujson := rivals.find("ujson"):
        dumps = ujson.dumps
        loads = {"loads": ujson.loads}
        found.append(
            Reader("ujson", lambda r: dumps(r).encode(), f"loads(buf){item}", f"loads(buf){deep}", loads)
        )
    loads = {"loads": json.loads}
    found.append(
        Reader("json", lambda r: json.dumps(r).encode(), f"loads(buf){item}", f"loads(buf){deep}", loads)
    )
    loads = {"loads": pickle.loads}
    found.append(
        Reader("pickle", lambda r: pickle.dumps(r, 5), f"loads(buf){item}", f"loads(buf){deep}", loads)
    )
    found += _msgspec(rivals, population)
    found += _simdjson(rivals, population)
    found += _flexbuffers(rivals, population)
    return found


def _msgspec(rivals: Rivals, population: Population) -> list[Reader]:
    msgspec = rivals.find("msgspec")
    if msgspec is None:
        return []
    # One field of the record. msgspec skips the others, which is its way to read only a part.
    one_field = msgspec.defstruct("OneField", [("age", int | float, 0)])
    found = []
    for name, codec in (("json", msgspec.json), ("msgpack", msgspec.msgpack)):
        whole, typed = codec.Decoder().decode, codec.Decoder(one_field).decode
        found.append(
            Reader(
                f"msgspec {name}, dict",
                codec.encode,
                f"decode(buf){population.by_item}",
                "decode(buf)['mydict']['c']['num']",
                {"decode": whole},
            )
        )
        found.append(
            Reader(
                f"msgspec {name}, Struct of one field", codec.encode, "decode(buf).age", "", {"decode": typed}
            )
        )
    return found


def _simdjson(rivals: Rivals, population: Population) -> list[Reader]:
    modules = rivals.found(simdjson="simdjson", orjson="orjson")
    if modules is None:
        return []
    names = {"parse": modules["simdjson"].Parser().parse}
    return [
        Reader(
            "pysimdjson",
            modules["orjson"].dumps,
            f"parse(buf){population.by_item}",
            "parse(buf)['mydict']['c']['num']",
            names,
        )
    ]


def _flexbuffers(rivals: Rivals, population: Population) -> list[Reader]:
    flexbuffers = rivals.find("flatbuffers.flexbuffers")
    if flexbuffers is None:
        return []
    get_root = flexbuffers.GetRoot

    def age_or_zero(buf: bytes) -> int | float:
        try:
            reference = get_root(buf).AsMap["age"]
        except KeyError:
            return 0
        value: int | float = reference.Value
        return value

    line, names, note = "root(buf).AsMap['age'].AsInt", {"root": get_root}, ""
    if not population.always_there:
        line, names, note = (
            "age_or_zero(buf)",
            {"age_or_zero": age_or_zero},
            "its maps have no get(), so this is a function",
        )
    return [
        Reader(
            "FlexBuffers",
            lambda record: bytes(flexbuffers.Dumps(record)),
            line,
            "root(buf).AsMap['mydict'].AsMap['c'].AsMap['num'].AsInt",
            names,
            note=note,
        )
    ]
