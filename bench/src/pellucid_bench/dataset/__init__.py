"""This package is the dataset: what one run of an experiment measured, as classes and as a JSON file.

    from pellucid_bench.dataset import read, write

    [run] = read(path)                  # a merged file has several
    write(path, [run])
    run.measures[0].results[0].median

`docs/reference/datasets.md` has every field. This package imports nothing of pellucid, and no library.
"""

from __future__ import annotations

from pellucid_bench.dataset.files import from_json, merge, parse, read, to_json, write
from pellucid_bench.dataset.model import (
    SCHEMA,
    UNITS,
    Better,
    Dataset,
    DatasetError,
    Interpreter,
    Machine,
    Measure,
    Result,
    Target,
    Unit,
)

__all__ = [
    "SCHEMA",
    "UNITS",
    "Better",
    "Dataset",
    "DatasetError",
    "Interpreter",
    "Machine",
    "Measure",
    "Result",
    "Target",
    "Unit",
    "from_json",
    "merge",
    "parse",
    "read",
    "to_json",
    "write",
]
