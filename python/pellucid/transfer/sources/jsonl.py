"""This module reads JSON Lines: one JSON value in each line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any

from pellucid.transfer.job import CHUNK_SIZE, Chunk, Job, Part

__all__ = ["BOMS_UTF16", "fast_loads", "parts", "reason_of"]

BOMS_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file."""
    yield Part(None, "rows", _chunks(job))


def _chunks(job: Job) -> Iterator[Chunk]:
    loads = fast_loads()
    number, done = 1, 0
    for lines in _lines(job):
        done += sum(map(len, lines))
        try:
            rows = list(map(loads, lines))
            places: Any = range(number, number + len(lines))
        except (ValueError, RecursionError):
            # Something in this chunk is not plain JSON: look at each line.
            rows, places = _one_by_one(job, lines, number, loads)
        number += len(lines)
        yield Chunk(rows, places, "line", job.share(done))


def _lines(job: Job) -> Iterator[list[bytes]]:
    encoding = job.encoding or ("utf-16" if job.input.head[:2] in BOMS_UTF16 else "utf-8")
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
        with job.input.open() as file:
            while lines := file.readlines(CHUNK_SIZE):
                yield lines
        return
    with job.input.text(encoding, "\n") as text:
        try:
            while decoded := text.readlines(CHUNK_SIZE):
                yield [line.encode("utf-8", "surrogatepass") for line in decoded]
        except UnicodeDecodeError as error:
            raise job.damaged(reason_of(error)) from error


def fast_loads() -> Callable[[bytes], Any]:
    """A function from bytes to a value: msgspec's if it is installed, else the standard library's.

    msgspec keeps ints of any size. It refuses NaN and half of a surrogate pair, which the other one reads.
    """
    try:
        import msgspec
    except ImportError:
        return json.loads
    return msgspec.json.Decoder().decode


def _one_by_one(
    job: Job, lines: list[bytes], number: int, loads: Callable[[bytes], Any]
) -> tuple[list[Any], list[int]]:
    rows, numbers = [], []
    for place, line in enumerate(lines, number):
        if place == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            try:
                row = loads(line)
            except ValueError:
                row = json.loads(line.decode("utf-8").rstrip())
        except (ValueError, RecursionError) as error:
            job.skip(f"line {place}", reason_of(error))
            continue
        rows.append(row)
        numbers.append(place)
    return rows, numbers


def reason_of(error: Exception) -> str:
    """What is wrong with a text, in words."""
    if isinstance(error, json.JSONDecodeError):
        what = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        return f"not JSON: {what} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return f"not {error.encoding}: byte 0x{byte:02x}; pass encoding= if it has another one"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)
