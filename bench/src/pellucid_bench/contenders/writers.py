"""This module has what the measures of commits ask of a library: the role `writers`.

They store small rows under int keys, with one commit for each write. A writer opens a file, which other
processes may also have open. It gives the lines of Python that a program would write. The same loops run the
lines of all writers. If a library stores JSON, orjson encodes it.
"""

from __future__ import annotations

import struct
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pellucid_bench import contenders
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import compiled

Names = dict[str, Any]
Row = dict[str, Any]

SCANNED = 100
"""Rows of one scan."""
TIMEOUT = 60.0
"""Seconds that a writer waits for others. A writer that gives up has no rate."""
PACK = struct.Struct(">Q").pack
"""Makes the keys of libraries whose keys are bytes. Big-endian bytes sort as the numbers do."""


def row(number: int, age: int | None = None) -> Row:
    """Make the small row with this number."""
    return {"name": f"user {number:07}", "age": number % 90 if age is None else age}


@dataclass(frozen=True, slots=True)
class Opened:
    """A library that has a file open."""

    names: Callable[[], Names]
    """Names for the lines, in the calling thread."""
    fill: Callable[[Iterable[Row]], object]
    """Store the rows under 0, 1, 2 ... in bulk, and finish all pending writes."""
    finish_writes: Callable[[], object]
    """Write all pending commits to their final place."""
    close: Callable[[], object]
    stats: Callable[[], dict[str, int]] = dict
    """The figures of our `stats()`."""


class Open(Protocol):
    """Open or create the file. With `full`, a commit is on the disk before it returns."""

    def __call__(self, path: Path, *, full: bool = False) -> Opened:
        """Open it."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One library, as lines of Python."""

    name: str
    module: str
    """The module that a process imports to open it."""
    open: Open
    put: str
    """Put `v` under `k`."""
    age: str
    """An expression: the age of row `k`."""
    scan: str
    """Add the ages of the rows from `k` on, up to `k + 100`, to `total`."""
    change: str
    """Add 1 to the age of row `k`."""
    transaction: str
    """Put all (k, v) of `pairs`, or none."""
    loop: str
    """Add the ages of all rows to `total`."""
    sum: str = ""
    """An expression: the same sum by the library's own function."""
    is_ours: bool = False
    is_shared: bool = True
    """Whether several processes may have the file open."""


def writers(rivals: Rivals) -> list[Writer]:
    """Return all writers whose libraries are installed, ours first."""
    return contenders.of("writers", rivals)


def repeated(head: str, line: str, names: Names, parameters: str = "") -> Callable[..., Any]:
    """Compile `line` under `head` into a function that returns `total`."""
    known = "".join(f", {name}=_names[{name!r}]" for name in names)
    body = textwrap.indent(line, "  ")
    given = f"{parameters}{known}".removeprefix(", ")
    return compiled(f"def work({given}):\n total = 0\n {head}\n{body}\n return total\n", names)
