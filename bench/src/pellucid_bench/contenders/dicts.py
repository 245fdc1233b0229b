"""This module uses each library as a dict of str to str on disk.

A player opens a path and gives two lines of Python: how a program puts `v` under `k`, and how it reads it.
The same loop runs the lines of all players. Each player also says what a single put survives, because a fast
put that a crash loses is not the same as a slow put that it does not lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pellucid_bench import contenders
from pellucid_bench.rivals import Rivals

Names = dict[str, Any]
Pair = tuple[str, str]
Survives = Literal["nothing", "kill -9", "power loss"]


@dataclass(frozen=True, slots=True)
class Session:
    """An open library."""

    names: Names
    """Names for the put line."""
    complete: Callable[[], object]
    """The call that must follow the last put: a commit, an index. Its time counts as writing."""
    reading: Callable[[], Names]
    """Names for the get line, when the writing is complete."""
    close: Callable[[], object]
    fill: Callable[[Iterable[Pair]], object] | None = None
    """Put the pairs that a stopped writer did not write, in bulk and not timed. So all contenders read from
    the same number of keys. None if bulk puts are as slow as single puts."""


@dataclass(frozen=True, slots=True)
class Player:
    """One library, used in one way."""

    name: str
    open: Callable[[Path], Session]
    put: str
    get: str
    survives: Survives
    """What a put survives when it returns."""
    is_ours: bool = False
    puts_blocks: bool = False
    """Whether the put line takes a `block` of (key, value) pairs instead of one pair."""
    in_memory: bool = False

    @property
    def like(self) -> str:
        """Return the name of our player with the same promise, with which this one is compared."""
        if self.in_memory:
            return "pellucid, in memory"
        if self.puts_blocks:
            return "pellucid, update()"
        ways = {"nothing": "pellucid, one transaction", "kill -9": "pellucid", "power loss": "pellucid, full"}
        return ways[self.survives]


def players(rivals: Rivals) -> list[Player]:
    """Return the players of all libraries, ours first."""
    return contenders.of("players", rivals)


def of_mapping(
    mapping: Any, complete: Callable[[], object] = lambda: None, *, fills: bool = False
) -> Session:
    """Make a session of an object that is used only as `d[k] = v` and `d[k]`."""

    def fill(pairs: Iterable[Pair]) -> None:
        for key, value in pairs:
            mapping[key] = value

    names = {"d": mapping}
    return Session(names, complete, lambda: names, mapping.close, fill if fills else None)
