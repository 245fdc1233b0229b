"""This module uses orjson."""

from __future__ import annotations

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return the decoder."""
    orjson = rivals.find("orjson")
    if orjson is None:
        return []
    loads = {"loads": orjson.loads}
    item = f"loads(buf){population.by_item}"
    return [Reader("orjson", orjson.dumps, item, "loads(buf)['mydict']['c']['num']", loads)]
