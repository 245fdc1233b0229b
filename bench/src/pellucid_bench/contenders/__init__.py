"""This package says how each library is used: one module for each library, and one for each role.

A role is what an experiment needs of a library. The module of a library has a function for each role that it
takes: `players` for a dict on disk (`dicts.py` has the classes), `readers` for a field in bytes
(`readers.py`). The roles whose contenders build on each other have them in their own module: stores of
records (`stores.py`), commits (`writers.py`), questions (`queries.py`), many rows (`big_stores.py`). None of
these files may be run by its path: `json.py` would hide the module of that name.
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
