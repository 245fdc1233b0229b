"""This module decodes JSON values, from the text of a line or at a place in a longer text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pellucid.transfer.digits import Number, keeps_digits, read_int
from pellucid.transfer.job import Job

__all__ = ["Decoder", "decode", "fast_loads", "loads"]


class Decoder:
    """Decodes the values of one source.

    Numbers become a `Number`, with the text of each, if `types=` names a type that may need all digits.
    """

    def __init__(self, job: Job) -> None:
        self.loads: Callable[[bytes], Any] = fast_loads()
        self.decode: Callable[[str, int], tuple[Any, int]] = decode
        if keeps_digits(job.types):
            decoder = json.JSONDecoder(parse_float=Number, parse_int=Number)
            self.decode = decoder.raw_decode
            self.loads = lambda line: decoder.decode(line.decode("utf-8"))


def fast_loads() -> Callable[[bytes], Any]:
    """A function from bytes to a value: msgspec's if it is installed, else the standard library's.

    msgspec refuses NaN, half of a surrogate pair and ints of thousands of digits, which `decode` reads.
    """
    try:
        import msgspec
    except ImportError:
        return json.loads
    return msgspec.json.Decoder().decode


_DECODER = json.JSONDecoder()
_DECODER_OF_LONG_INTS = json.JSONDecoder(parse_int=read_int)


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
