"""This module turns whole values into bytes and back, with each library.

A codec is compared by what it does to one plain value: lists, dicts, strings, numbers and bools. Those of the
standard library are in `collect.py`, which runs without this package too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pellucid

from pellucid_bench import collect
from pellucid_bench.rivals import Rivals


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """One way to make bytes of a value, and the value of the bytes."""

    name: str
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    facts: dict[str, str] = field(default_factory=dict)
    is_ours: bool = False


def value_codecs(rivals: Rivals) -> Iterator[ValueCodec]:
    """Yield the codecs of all libraries that are installed, ours first."""
    yield ValueCodec("pellucid", pellucid.dumps, pellucid.loads, is_ours=True)
    for library in ("pickle", "marshal", "json"):
        rivals.find(library)
    for codec in collect.standard_codecs():
        yield ValueCodec(codec.name, codec.dumps, codec.loads, codec.facts)
    if orjson := rivals.find("orjson"):
        yield ValueCodec("orjson", orjson.dumps, orjson.loads)
    if ujson := rivals.find("ujson"):
        dumps = ujson.dumps
        yield ValueCodec("ujson", lambda value: dumps(value).encode(), ujson.loads)
    if rivals.find("msgspec"):
        import msgspec

        for name, kind in (("json", msgspec.json), ("msgpack", msgspec.msgpack)):
            encoder, decoder = kind.Encoder(), kind.Decoder()
            yield ValueCodec(f"msgspec {name}", encoder.encode, decoder.decode)
    if cbor2 := rivals.find("cbor2"):
        yield ValueCodec("cbor2", cbor2.dumps, cbor2.loads)
