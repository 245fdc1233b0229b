"""This package says how each library is used: one module for each library, with all that it can do.

A role is what an experiment needs of a library, and a module for each role has its classes: a dict on disk
(`dicts.py`), a field in bytes (`readers.py`), records (`stores.py`), questions about them (`queries.py`),
commits (`writers.py`), many rows (`big_stores.py`). The module of a library has a function for each role that
it takes: `players`, `readers`, `stores`, `queried`, `writers`. None of these files may be run by its path:
`json.py` would hide the module of that name.
"""

from __future__ import annotations

import importlib
from typing import Any

from pellucid_bench.rivals import Rivals

LIBRARIES = (
    "pellucid",
    "live",
    "orjson",
    "ujson",
    "json",
    "pickle",
    "msgspec",
    "simdjson",
    "flatbuffers",
    "dbm",
    "sqlite3",
    "lmdb",
    "rocksdict",
    "plyvel",
    "duckdb",
    "polars",
    "diskcache",
    "sqlitedict",
)
"""The modules of libraries, in the order of the reports."""


def of(role: str, rivals: Rivals, *arguments: Any) -> list[Any]:
    """Return the contenders of all libraries that take a role. The missing ones are noted in `rivals`."""
    found: list[Any] = []
    for name in LIBRARIES:
        module = importlib.import_module(f"pellucid_bench.contenders.{name}")
        make = getattr(module, role, None)
        if make is not None:
            found += make(rivals, *arguments)
    return found
