"""This module reads pickle files: a dict, a list of rows, a DataFrame, or one row after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pellucid.errors import PickleDenied
from pellucid.transfer import safe_pickles
from pellucid.transfer.job import Job, Part, in_chunks

__all__ = ["parts"]


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file."""
    with job.input.open() as file:
        data = file.read()
    values = safe_pickles.load_all(data, job.pickle, job.encoding)
    first = _next(job, values)
    if first is None:
        raise job.damaged("it has no pickle")
    value, *rest = first[0], *_few(job, values)
    if rest:
        yield Part(None, "rows", in_chunks(_one_by_one(job, value, rest[0], values), "pickle"))
    elif isinstance(value, Mapping):
        pairs = ((key, (key, row)) for key, row in value.items())
        yield Part(None, "pairs", in_chunks(pairs, "key", len(value)))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield Part(None, "rows", in_chunks(enumerate(value), "element", len(value)))
    elif hasattr(value, "__arrow_c_stream__"):
        from pellucid.transfer.sources import arrow_file

        batches = arrow_file.pyarrow().table(value).to_batches()
        yield Part(None, "columns", arrow_file.chunks(job, iter(batches), len(value)))
    else:
        yield Part(None, "rows", in_chunks(iter([(0, value)]), "pickle"))


def _next(job: Job, values: Iterator[Any]) -> list[Any] | None:
    try:
        return [next(values)]
    except StopIteration:
        return None
    except PickleDenied:
        raise
    except ValueError as error:
        raise job.damaged(error) from error


def _few(job: Job, values: Iterator[Any]) -> list[Any]:
    return _next(job, values) or []


def _one_by_one(job: Job, first: Any, second: Any, rest: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    yield 0, first
    yield 1, second
    count = 2
    while found := _next(job, rest):
        yield count, found[0]
        count += 1
