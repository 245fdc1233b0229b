"""This module reads ints of thousands of digits, which `int` refuses."""

from __future__ import annotations

__all__ = ["read_int"]

# `int` takes at least 640 digits under any `sys.set_int_max_str_digits`.
PIECE_DIGITS = 512


def read_int(text: str) -> int:
    """The int that a text of digits is; the time grows more slowly than the square of its length."""
    if len(text) <= PIECE_DIGITS:
        return int(text)
    if text[:1] in ("-", "+"):
        return -read_int(text[1:]) if text[0] == "-" else read_int(text[1:])
    powers: dict[int, int] = {}

    def read(begin: int, end: int) -> int:
        if end - begin <= PIECE_DIGITS:
            return int(text[begin:end])
        low = (end - begin) // 2
        if low not in powers:
            powers[low] = 10**low
        return read(begin, end - low) * powers[low] + read(end - low, end)

    return read(0, len(text))
