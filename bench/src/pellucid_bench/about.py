"""This module has the form of an experiment: what it asks, what it measures, and its settings.

An experiment is a module of `pellucid_bench.experiments` with `ABOUT`, which is an `About`, and `run(run)`,
which takes a `Run`. `docs/guides/benchmarks.md` shows how to add one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pellucid_bench.run import Run

Isolation = Literal["libraries", "always", "never"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of an experiment. It is an option of the command: `scan_rows` is `--scan-rows`."""

    name: str
    default: Any
    """A number, a string, a bool, None for an optional string, or a tuple of numbers or strings."""
    quick: Any
    """The value of the shortest run that does everything."""
    text: str
    """What it means, for the help."""

    @property
    def option(self) -> str:
        """Return the option of the command."""
        return "--" + self.name.replace("_", "-")

    def add_to(
        self, parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, is_hidden: bool = False
    ) -> None:
        """Add the option to a parser, or to its help, too. Without it, the parsed value is None."""
        if isinstance(self.default, bool):
            text = argparse.SUPPRESS if is_hidden else self.text
            parser.add_argument(self.option, dest=self.name, action="store_true", default=None, help=text)
            return
        is_list = isinstance(self.default, tuple)
        kind = type(self.default[0]) if is_list and self.default else type(self.default)
        shown = " ".join(map(_shown, self.default)) if is_list else _shown(self.default)
        text = f"{self.text} (default: {shown})" if shown else self.text
        parser.add_argument(
            self.option,
            dest=self.name,
            type=_positive(kind) if kind in (int, float) else str,
            nargs="+" if is_list else None,
            metavar="N" if kind in (int, float) else "TEXT",
            help=argparse.SUPPRESS if is_hidden else text,
        )

    def value(self, given: Any, *, quick: bool) -> Any:
        """Return the value of a run: the one that was given, or a default."""
        if given is None:
            return self.quick if quick else self.default
        if isinstance(self.default, tuple):
            # An option of the same name may be a single value in another experiment.
            return tuple(given) if isinstance(given, list | tuple) else (given,)
        return given[0] if isinstance(given, list) else given


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of numbers of 0 or more, with or without separators of thousands."""

    def number(text: str) -> Any:
        try:
            value = kind(text.replace(",", "").replace("_", ""))
        except ValueError:
            value = -1
        if not 0 <= value < 1e15:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
        return value

    return number


@dataclass(frozen=True, slots=True)
class About:
    """An experiment, for people: its name, what it asks, what it measures, and its settings."""

    name: str
    question: str
    measured: str
    settings: tuple[Setting, ...] = ()
    isolation: Isolation = "libraries"
    """What `--isolate` does: a worker process for each library. Or the contenders have processes of their own
    in any case, or they cannot have them."""

    def values(self, given: dict[str, Any] | None = None, *, quick: bool = False) -> SimpleNamespace:
        """Return the values of all settings, as attributes."""
        given = given or {}
        return SimpleNamespace(
            **{one.name: one.value(given.get(one.name), quick=quick) for one in self.settings}
        )


class Experiment(Protocol):
    """A module of `pellucid_bench.experiments`."""

    ABOUT: About

    def run(self, run: Run) -> None:
        """Measure, and leave the measures in the run."""
