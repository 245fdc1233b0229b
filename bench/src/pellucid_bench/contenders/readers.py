"""This module reads one field from the bytes of a record, in the format of each library.

Every reader encodes a record in its own format once. It gives a line of Python that reads `age` from those
bytes, as a program would. Only this line is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pellucid_bench import contenders
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population, Record


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: how to encode a record, and the line that reads the field from `buf`."""

    name: str
    encode: Callable[[Record], bytes]
    field_line: str
    nested_line: str = ""
    """Reads `mydict.c.num` of the uniform record, three levels down."""
    names: dict[str, Any] = field(default_factory=dict)
    is_ours: bool = False
    note: str = ""


def readers(rivals: Rivals, population: Population) -> list[Reader]:
    """Return the readers of all libraries, ours first."""
    return contenders.of("readers", rivals, population)
