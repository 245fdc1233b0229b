"""This module reads JSON Lines: one JSON value in each line. A value may also take several lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from pellucid.transfer.job import CHUNK_SIZE, Chunk, Job, Part
from pellucid.transfer.sources.csv_dialect import encoding_of
from pellucid.transfer.sources.json_values import Decoder

__all__ = ["SPACE", "parts", "reason_of"]

SPACE = re.compile(r"[ \t\r\n]*")
# How much text may be read again and again because a value that begins in it does not end. Without a limit,
# a file of opening brackets takes the square of its size.
AGAIN = 1 << 20


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file."""
    yield Part(None, "rows", _chunks(job))


def _chunks(job: Job) -> Iterator[Chunk]:
    decoder = Decoder(job)
    source = _lines(job)
    across = _Across(source, decoder)
    number, done = 1, 0
    for lines in source:
        try:
            rows = list(map(decoder.loads, lines))
            places: Any = range(number, number + len(lines))
            is_plain = not decoder.twice
        except (ValueError, RecursionError):
            is_plain = False
        if not is_plain:
            # Something in this chunk is not plain JSON: look at each line, and at those that follow if a
            # value goes on in them. They are then in `lines`.
            rows, places = _one_by_one(job, lines, number, across)
        done += sum(map(len, lines))
        number += len(lines)
        yield Chunk(rows, places, "line", job.share(done))
    decoder.note(job)


def _lines(job: Job) -> Iterator[list[bytes]]:
    encoding = job.encoding or encoding_of(job.input.head)
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


def _one_by_one(job: Job, lines: list[bytes], number: int, across: _Across) -> tuple[list[Any], list[int]]:
    rows: list[Any] = []
    numbers: list[int] = []
    at = 0
    while at < len(lines):
        line, place = lines[at], number + at
        if place == 1:
            line = lines[at] = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            at += 1
            continue
        count = 1
        across.decoder.twice.clear()
        try:
            try:
                found = [across.decoder.loads(line)]
            except ValueError:
                found, count = across.values(lines, at)
        except (ValueError, RecursionError) as error:
            job.skip(f"line {place}", reason_of(error))
            at += 1
            continue
        across.decoder.place(f"line {place}")
        rows += found
        numbers += [place] * len(found)
        at += count
    return rows, numbers


class _Across:
    """Reads the values in lines that hold a part of a value, or several."""

    def __init__(self, source: Iterator[list[bytes]], decoder: Decoder) -> None:
        self.source = source
        self.decoder = decoder
        self.left = AGAIN

    def values(self, lines: list[bytes], at: int) -> tuple[list[Any], int]:
        """The values that begin in a line, and the number of lines that they take; or what is wrong with it.

        Lines that are read on the way are added to `lines`. What follows a value in its last line is left
        there as a line of its own.
        """
        count = 1
        broken: Exception | None = None
        while True:
            text = ""
            try:
                text = b"".join(lines[at : at + count]).decode("utf-8").rstrip()
                values, position, broken_here = _values(text, self.decoder)
            except (ValueError, RecursionError) as error:
                raise self.failed(broken or error, count, text) from None
            if broken_here is None:
                return values, count
            is_cut = broken_here.pos >= len(text)
            done = text.count("\n", 0, position)
            if values and (done or is_cut):
                lines[at + done] = text[position:].partition("\n")[0].encode("utf-8") + b"\n"
                return values, done
            broken = broken or broken_here
            if not is_cut or self.left < 0 or not self.more(lines, at + count):
                raise self.failed(broken, count, text)
            count = min(2 * count, len(lines) - at)

    def failed(self, error: Exception, count: int, text: str) -> Exception:
        """The error for a line with which no value begins."""
        if count > 1:
            self.left -= len(text)
        return error

    def more(self, lines: list[bytes], wanted: int) -> bool:
        """Whether there are lines behind the first `wanted`, which may have to be read."""
        if len(lines) <= wanted:
            lines += next(self.source, ())
        return len(lines) > wanted


def _values(text: str, decoder: Decoder) -> tuple[list[Any], int, json.JSONDecodeError | None]:
    """The values that follow each other in a text, where the last one ends, and what ended that too early."""
    values: list[Any] = []
    position = 0
    while True:
        start = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        if start == len(text):
            return values, position, None
        try:
            value, position = decoder.decode(text, start)
        except json.JSONDecodeError as error:
            return values, position, error
        values.append(value)


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
