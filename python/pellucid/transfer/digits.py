"""This module keeps all digits of numbers: of ints of any length, and of numbers in JSON."""

from __future__ import annotations

from typing import Any

__all__ = ["Number", "is_long", "keeps_digits", "read_int", "with_numbers", "write_int"]

# The types of `types=` that may have digits which a float does not have.
WITH_ALL_DIGITS = ("text", "decimal", "int")

# `int` and `str` take at least 640 digits under any `sys.set_int_max_str_digits`.
PIECE_DIGITS = 512
PIECE_BITS = 1024


class Number(str):
    """The text of a number in JSON, until it is known whether a type wants its digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def read(self) -> int | float:
        """The number as JSON is read without types."""
        return float(self) if "." in self or "e" in self or "E" in self else read_int(self)


def keeps_digits(types: Any) -> bool:
    """Whether `types=` names a type that may need more digits than a float has."""
    kinds = (types,) if isinstance(types, str) else (types or {}).values()
    return any(kind in WITH_ALL_DIGITS for kind in kinds)


def with_numbers(value: Any) -> Any:
    """The value with an int or float in place of each `Number`, at any depth."""
    kind = type(value)
    if kind is Number:
        return value.read()
    if kind is dict:
        return {name: with_numbers(part) for name, part in value.items()}
    return list(map(with_numbers, value)) if kind is list else value


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


def is_long(number: int) -> bool:
    """Whether an int may have more digits than `str` writes under any setting."""
    return number.bit_length() > PIECE_BITS


def write_int(number: int) -> str:
    """The digits of an int of any size. Decimals multiply large numbers in much less time than ints."""
    if not is_long(number):
        return str(number)
    import decimal

    powers: dict[int, decimal.Decimal] = {}

    def write(part: int, bits: int) -> decimal.Decimal:
        if bits <= PIECE_BITS:
            return decimal.Decimal(part)
        low = bits // 2
        if low not in powers:
            powers[low] = decimal.Decimal(2) ** low
        return write(part >> low, bits - low) * powers[low] + write(part & ((1 << low) - 1), low)

    exact = decimal.Context(
        prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.Inexact]
    )
    with decimal.localcontext(exact):
        digits = str(write(abs(number), number.bit_length()))
    return f"-{digits}" if number < 0 else digits
