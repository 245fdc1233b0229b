"""This module uses ujson."""

from __future__ import annotations

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return the decoder."""
    ujson = rivals.find("ujson")
    if ujson is None:
        return []
    dumps = ujson.dumps
    loads = {"loads": ujson.loads}
    item = f"loads(buf){population.by_item}"
    return [
        Reader(
            "ujson", lambda record: dumps(record).encode(), item, "loads(buf)['mydict']['c']['num']", loads
        )
    ]
