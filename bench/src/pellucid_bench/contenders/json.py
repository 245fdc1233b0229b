"""This module uses json of the standard library."""

from __future__ import annotations

import json

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(_rivals: Rivals, population: Population) -> list[Reader]:
    """Return the decoder."""
    loads = {"loads": json.loads}
    item = f"loads(buf){population.by_item}"
    return [
        Reader(
            "json",
            lambda record: json.dumps(record).encode(),
            item,
            "loads(buf)['mydict']['c']['num']",
            loads,
        )
    ]
