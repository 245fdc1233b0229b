"""This module decodes JSON values, from the text of a line or at a place in a longer text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pellucid.transfer.digits import Number, keeps_digits, read_int
from pellucid.transfer.job import Job

__all__ = ["Decoder", "fast_loads", "loads"]

SPACES = " \t\r\n"


Decode = Callable[[str, int], tuple[Any, int]]


class Decoder:
    """Decodes the values of one source.

    Numbers become a `Number`, with the text of each, if `types=` names a type that may need all digits. When
    a source is read to verify it, it notes objects that have a name twice: to see that takes a call for each
    object, and msgspec does not tell.
    """

    def __init__(self, job: Job) -> None:
        self.loads: Callable[[bytes], Any] = fast_loads()
        self.decode: Decode = decode
        # The names that objects of the last value have twice.
        self.twice: list[str] = []
        self.first = ""
        self.count = 0
        hooks: dict[str, Any] = {}
        if keeps_digits(job.types):
            hooks = {"parse_float": Number, "parse_int": Number}
        if job.is_verification:
            hooks["object_pairs_hook"] = self._object
        if hooks:
            self.decode = _decoder(**hooks)
            self.loads = self._loads

    def _loads(self, line: bytes) -> Any:
        text = line.decode("utf-8")
        start = len(text) - len(text.lstrip(SPACES))
        value, end = self.decode(text, start)
        if rest := text[end:].lstrip(SPACES):
            raise json.JSONDecodeError("Extra data", text, len(text) - len(rest))
        return value

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            self.twice.append(next(name for name in names if names.count(name) > 1))
        return found

    def place(self, place: str) -> None:
        """Say where the last value was, so that it can be noted."""
        if self.twice:
            self.first = self.first or f"{place}: an object has the name {self.twice[0]!r:.40} twice"
            self.count += 1
            self.twice.clear()

    def note(self, job: Job) -> None:
        """Note what was found, after all values."""
        if self.count:
            more = f", and so have {self.count - 1:,} rows more" if self.count > 1 else ""
            job.note(f"{self.first}{more}; the last value of a name is stored")


def _decoder(**hooks: Any) -> Decode:
    first = json.JSONDecoder(**hooks).raw_decode
    second = json.JSONDecoder(**{"parse_int": read_int, **hooks}).raw_decode

    def decode(text: str, position: int = 0) -> tuple[Any, int]:
        """The JSON value at a position, and where it ends."""
        try:
            return first(text, position)
        except json.JSONDecodeError:
            raise
        except ValueError:
            # `int` refuses more digits than 4,300.
            return second(text, position)

    return decode


decode = _decoder()


def fast_loads() -> Callable[[bytes], Any]:
    """A function from UTF-8 to a value: msgspec's if it is installed, else the standard library's.

    msgspec refuses NaN, half of a surrogate pair and ints of thousands of digits, which `decode` reads.
    """
    try:
        import msgspec
    except ImportError:
        # Of bytes, it would take the encoding for another one, or characters for halves of a pair.
        return lambda line: json.loads(line.decode("utf-8"))
    return msgspec.json.Decoder().decode


def loads(text: str | bytes) -> Any:
    """The JSON value that a text is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # `int` refuses more digits than 4,300.
        return json.loads(text, parse_int=read_int)
