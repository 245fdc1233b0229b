"""This module uses pysimdjson."""

from __future__ import annotations

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return a parser that is used again, over text of orjson."""
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
