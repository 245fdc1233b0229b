"""This module reads JSON Lines: one JSON value in each line. A value may also take several lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pellucid.transfer.digits import read_int
from pellucid.transfer.job import CHUNK_SIZE, Chunk, Job, Part

__all__ = ["BOMS_UTF16", "SPACE", "decode", "fast_loads", "loads", "parts", "reason_of"]

BOMS_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SPACE = re.compile(r"[ \t\r\n]*")
# How much text may be read again and again because a value that begins in it does not end. Without a limit,
# a file of opening brackets takes the square of its size.
AGAIN = 1 << 20

_DECODER = json.JSONDecoder()
_DECODER_OF_LONG_INTS = json.JSONDecoder(parse_int=read_int)


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file."""
    yield Part(None, "rows", _chunks(job))


def _chunks(job: Job) -> Iterator[Chunk]:
    loads = fast_loads()
    source = _lines(job)
    across = _Across(source)
    number, done = 1, 0
    for lines in source:
        try:
            rows = list(map(loads, lines))
            places: Any = range(number, number + len(lines))
        except (ValueError, RecursionError):
            # Something in this chunk is not plain JSON: look at each line, and at those that follow if a
            # value goes on in them. They are then in `lines`.
            rows, places = _one_by_one(job, lines, number, loads, across)
        done += sum(map(len, lines))
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

    msgspec refuses NaN, half of a surrogate pair and ints of thousands of digits, which `decode` reads.
    """
    try:
        import msgspec
    except ImportError:
        return json.loads
    return msgspec.json.Decoder().decode


def decode(text: str, position: int = 0) -> tuple[Any, int]:
    """The JSON value at a position, and where it ends."""
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # `int` refuses more digits than 4,300.
        return _DECODER_OF_LONG_INTS.raw_decode(text, position)


def loads(text: str | bytes) -> Any:
    """The JSON value that a text is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # `int` refuses more digits than 4,300.
        return json.loads(text, parse_int=read_int)


def _one_by_one(
    job: Job, lines: list[bytes], number: int, loads: Callable[[bytes], Any], across: _Across
) -> tuple[list[Any], list[int]]:
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
        try:
            try:
                found = [loads(line)]
            except ValueError:
                found, count = across.values(lines, at)
        except (ValueError, RecursionError) as error:
            job.skip(f"line {place}", reason_of(error))
            at += 1
            continue
        rows += found
        numbers += [place] * len(found)
        at += count
    return rows, numbers


class _Across:
    """Reads the values in lines that hold a part of a value, or several."""

    def __init__(self, source: Iterator[list[bytes]]) -> None:
        self.source = source
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
                values, position, broken_here = _values(text)
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


def _values(text: str) -> tuple[list[Any], int, json.JSONDecodeError | None]:
    """The values that follow each other in a text, where the last one ends, and what ended that too early."""
    values: list[Any] = []
    position = 0
    while True:
        start = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        if start == len(text):
            return values, position, None
        try:
            value, position = decode(text, start)
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
