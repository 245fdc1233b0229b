"""This module chooses the measures of an experiment that matter most: those of its plot and its summary."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid_bench.dataset import Dataset, Measure

LARGEST = "/largest"
# By patterns of their ids. All sizes of a measure are a curve, and LARGEST stands for the largest of them.
PLOTS = {
    "records": [
        "records/bytes-at-hand-read-one-field-uniform",
        "records/a-record-at-hand-read-one-field-uniform",
        "records/loop-over-all-records-adding-one-field-uniform",
        "records/bulk-load-of-many-records-uniform",
    ],
    "dict": ["dict/write/*", "dict/read/*"],
    "writes": [
        "writes/rec.age-+-1-each-a-commit",
        "writes/until-another-process-sees-a-put-median",
        "writes/transactions-of-10-puts-in-full-*",
    ],
    "query": [
        "query/count-where-one-field-is-above-a-number",
        "query/sum-and-mean-in-100-groups",
        "query/loop-over-the-rows-that-pass-one-in-ten",
        "query/one-field-of-all-rows-as-an-array-of-numpy",
    ],
    "pickle": ["pickle/dump/largest", "pickle/memo/*"],
    "buffers": ["buffers/client-one/*", "buffers/client-whole/*", "buffers/server-one/*"],
    "compressed": ["compressed/size/*", "compressed/loop-*", "compressed/one-field-*"],
    "scale": [
        "scale/load-random/*",
        "scale/get-random/*",
        "scale/put-median-random/*",
        "scale/load-file-random/*",
    ],
    "megabyte": ["megabyte/write/*", "megabyte/cold-read/*", "megabyte/warm-read/*", "megabyte/file/*"],
    "cache": ["cache/get-hit-*", "cache/set-100-bytes", "cache/memoized-hit-*"],
    "look": ["look/fields-*", "look/json-*", "look/rows-with-*"],
    "queues": ["queues/claims-*", "queues/additions-to-one-counter-by-*"],
    "dropins": ["dropins/shelve-both/*", "dropins/dbm-both/*"],
    "json-lines": ["json-lines/*"],
    "fast-paths": [
        "fast-paths/sum-uniform/*",
        "fast-paths/append-a-row-to-a-table-with-indexes",
        "fast-paths/loop-over-1000-rows-*",
        "fast-paths/dumps-*",
        "fast-paths/queue/*",
    ],
    "postgres": [
        "postgres/bulk-load-*",
        "postgres/the-sum-of-a-nested-field",
        "postgres/one-row-by-its-key",
        "postgres/one-row-by-an-index-*",
    ],
}


def matching(run: Dataset, pattern: str) -> list[Measure]:
    """Return the measures that a pattern chooses."""
    many = pattern.removesuffix(LARGEST) + "/*" if pattern.endswith(LARGEST) else pattern
    found = [one for one in run.measures if fnmatchcase(one.id, many)]
    return found if many == pattern else _largest(found)


def headlines(run: Dataset) -> list[Measure]:
    """Return the measures of the plot, each at its largest size; all of a run that has none of them."""
    chosen = [found for pattern in PLOTS.get(run.experiment, ()) for found in matching(run, pattern)]
    groups: dict[tuple[str, str], list[Measure]] = {}
    for measure in chosen or run.measures:
        groups.setdefault((measure.group, measure.unit), []).append(measure)
    return [largest for group in groups.values() for largest in _largest(group)]


def _largest(measures: list[Measure]) -> list[Measure]:
    """Return the measure of the largest size, or all if they have none."""
    if any(one.size is None for one in measures):
        return measures
    return [max(measures, key=lambda one: one.size or 0)] if measures else []
