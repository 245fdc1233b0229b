"""This module uses pickle of the standard library."""

from __future__ import annotations

import pickle

from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def readers(_rivals: Rivals, population: Population) -> list[Reader]:
    """Return the unpickler in C, with protocol 5."""
    loads = {"loads": pickle.loads}
    item = f"loads(buf){population.by_item}"
    return [
        Reader(
            "pickle", lambda record: pickle.dumps(record, 5), item, "loads(buf)['mydict']['c']['num']", loads
        )
    ]
