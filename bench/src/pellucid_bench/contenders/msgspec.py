"""This module uses msgspec."""

from __future__ import annotations

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return JSON and msgpack, each decoded to a dict and to a Struct of one field."""
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
