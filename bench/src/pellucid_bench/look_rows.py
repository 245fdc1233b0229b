"""This module measures rows on their way out of a table, as JSON, arrays and dicts, for "look"."""

from __future__ import annotations

import gc
import importlib
from functools import partial
from typing import Any

import pellucid

from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, timed

__all__ = ["rows_on_their_way"]

JSON = "JSON of a stored record of 200 bytes"
NESTED = "to_dicts() of nested rows"
ARRAYS = "rows with 1,000 float32 each, as one array of NumPy"
CALLS = 1000
"""Calls in one sample of a short operation."""
RECORD = {
    "id": 4711,
    "name": "Ann Lee of Bath",
    "email": "ann.lee@bath.example",
    "age": 41,
    "score": 0.875,
    "active": True,
    "city": "Bath",
    "tags": ["cook", "baker", "reads a lot"],
    "address": {"street": "12 Milsom Street", "zip": "BA1 1DD"},
    "note": None,
}
"""A record whose JSON has about 200 bytes."""


def rows_on_their_way(run: Run) -> None:
    """Measure the JSON of a record, many nested dicts, and one array of many."""
    json_of_a_record(run)
    nested_dicts(run)
    one_array(run)


def json_of_a_record(run: Run) -> None:
    """Compare `json_bytes` with orjson over the dict of the record, and over a dict that is there already."""
    try:
        orjson: Any = importlib.import_module("orjson")
    except ImportError:
        return
    table = pellucid.open(":memory:").table("people")
    table[1] = RECORD
    record, live = table[1], dict(RECORD)

    def calls(function: Any) -> Any:
        def many() -> None:
            for _ in range(CALLS):
                function()

        return many

    def contender(name: str, function: Any, **options: Any) -> Contender:
        return timed(name, calls(function), CALLS, **options)

    run.measure(
        JSON,
        Unit.TIME,
        [
            contender("pellucid", partial(pellucid.json_bytes, record), is_ours=True),
            contender("orjson.dumps(record.to_dict())", lambda: orjson.dumps(record.to_dict())),
            contender("orjson, of a dict in memory", partial(orjson.dumps, live)),
        ],
        targets=[Target(2.0, "orjson.dumps(record.to_dict())"), Target(0.7, "orjson, of a dict in memory")],
    )


def nested_dicts(run: Run) -> None:
    """Compare `to_dicts()` with the same loop while Python's collector runs."""
    count = run.settings.rows // 5
    table = pellucid.open(":memory:").table("events")
    table.extend(
        {"id": n, "user": {"name": f"u{n % 99}", "at": {"x": n, "y": [n, n]}}, "tags": [{"t": n}]}
        for n in range(count)
    )

    def collected() -> list[Any]:
        # As it was: the collector looks at the new dicts again and again.
        gc.enable()
        return [row.to_dict() for row in table.values()]

    run.measure(
        NESTED,
        Unit.TIME,
        [
            timed("pellucid", table.to_dicts, 1, is_ours=True),
            timed("the same with the collector", collected, 1),
        ],
        targets=[Target(3.0, "the same with the collector")],
        size=count,
        size_unit="rows",
    )


def one_array(run: Run) -> None:
    """Compare `to_numpy` of a column of arrays with `numpy.stack` over views of them."""
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        return
    count = run.settings.rows // 100
    folder = run.directory / "arrays"
    folder.mkdir()
    with pellucid.open(folder / "arrays.pel") as db:
        db.table("runs").extend({"loss": numpy.arange(1000, dtype="float32") + n} for n in range(count))
        with db.snapshot() as snapshot:
            table = snapshot.table("runs")
            run.measure(
                ARRAYS,
                Unit.TIME,
                [
                    timed("pellucid", partial(table.to_numpy, "loss"), 1, is_ours=True),
                    timed(
                        "numpy.stack over views", lambda: numpy.stack([row.loss for row in table.values()]), 1
                    ),
                ],
                # At most half of the time.
                targets=[Target(2.0, "numpy.stack over views")],
                size=count,
                size_unit="rows",
            )
