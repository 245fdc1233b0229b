"""This module uses FlexBuffers, the format of FlatBuffers without a schema."""

from __future__ import annotations

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return a buffer in which fields are read in place."""
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
