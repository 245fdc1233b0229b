"""This package has one module for each experiment. Each has the form that `pellucid_bench.about` describes.

Modules that are in no list of `NAMES` are parts of an experiment. None of these files may be run by its path:
`pickle.py` would hide the module of that name.
"""

from __future__ import annotations

import importlib
from typing import cast

from pellucid_bench.about import Experiment

__all__ = ["NAMES", "load"]

NAMES: dict[str, str] = {
    "records": "records",
    "dict": "dicts",
    "writes": "writes",
    "query": "queries",
    "pickle": "pickles",
    "buffers": "buffers",
    "compressed": "compressed",
    "scale": "scale",
    "megabyte": "megabyte",
    "dropins": "dropins",
    "cache": "caches",
    "json-lines": "json_lines",
    "fast-paths": "fast_paths",
    "queues": "queues",
    "postgres": "postgres",
    "look": "look",
}
"""The experiments in the order in which they run, each with its module."""


def load(name: str) -> Experiment:
    """Import the module of an experiment."""
    return cast("Experiment", importlib.import_module(f"pellucid_bench.experiments.{NAMES[name]}"))
