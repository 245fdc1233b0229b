"""This module has the settings of a run of one experiment, and collects its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol, TypeVar

from pellucid_bench.dataset import Interpreter
from pellucid_bench.measures import Measure, Target, Unit
from pellucid_bench.rivals import Rivals, library_of, reason
from pellucid_bench.runner import Contender, Pace, measure


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)
T = TypeVar("T")


class Unavailable(Exception):
    """An experiment cannot run here, for a reason that its message tells."""


@dataclass(slots=True)
class Run:
    """The settings of a run, and its results so far."""

    directory: Path
    settings: SimpleNamespace = field(default_factory=SimpleNamespace)
    """The settings of the experiment by their names: see `About`."""
    pace: Pace = field(default_factory=Pace)
    only: str = ""
    """Run only the measures that have this word in their title."""
    titles: frozenset[str] | None = None
    """Run only the measures with these titles. None is all of them."""
    libraries: frozenset[str] | None = None
    """Measure the contenders of these libraries only. None is all of them."""
    contender: str = ""
    """Measure only the contender with this name."""
    rivals: Rivals = field(default_factory=Rivals)
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader of the dataset has to know of this run."""
    interpreter: Interpreter | None = None
    """The Python under which everything was measured, if it is another one than this."""
    absent: dict[str, str] = field(default_factory=dict)
    """The libraries that cannot take part in what is measured now, with the reasons. Measures show them."""
    seen: set[str] = field(default_factory=set)
    """The libraries that had something to measure, also those that were not asked for."""

    def wants(self, title: str) -> bool:
        """Say whether this measure was asked for."""
        if self.titles is not None and title not in self.titles:
            return False
        return self.only.lower() in title.lower()

    def takes(self, library: str) -> bool:
        """Say whether the contenders of a library were asked for."""
        self.seen.add(library)
        return self.libraries is None or library in self.libraries

    def gather(self, make: Callable[[Rivals], Iterable[N]]) -> list[N]:
        """Make contenders, and show the libraries that are missing in the measures that follow."""
        before = len(self.rivals.sought)
        made = list(make(self.rivals))
        sought = dict.fromkeys(self.rivals.sought[before:])
        missing = self.rivals.missing
        self.absent = {name: missing[name] for name in sought if name in missing and self.takes(name)}
        # The contender "pellucid, threads" may be a way to use what is gathered as "pellucid".
        return [
            one
            for one in made
            if self.takes(library_of(one.name))
            and f"{self.contender or one.name}, ".startswith(f"{one.name}, ")
        ]

    def able(self, contenders: Iterable[N], prepare: Callable[[N], object]) -> list[N]:
        """Prepare contenders, and return those that can be prepared. The others have rows with the reason."""
        ready = []
        for one in contenders:
            try:
                prepare(one)
            except Exception as error:
                self.absent[one.name] = reason(error)
            else:
                ready.append(one)
        return ready

    def add(self, measure: Measure) -> Measure:
        """Keep a measure, so that what it has is there if the run is stopped."""
        measure.results = [
            one
            for one in measure.results
            if self.takes(
                "pellucid" if one.is_ours or one.is_reference else one.library or library_of(one.name)
            )
        ]
        measure.add_absent(self.absent)
        if measure.results:
            self.measures.append(measure)
        return measure

    def measure(
        self,
        title: str,
        unit: Unit,
        contenders: Sequence[Contender],
        *,
        rounds: int | None = None,
        expected: object = None,
        targets: Sequence[Target] = (),
        notes: Sequence[str] = (),
        group: str = "",
        size: float | None = None,
        size_unit: str = "",
        labels: Sequence[str] = (),
    ) -> Measure | None:
        """Run the measure and keep the result, if it was asked for."""
        if not self.wants(title):
            return None
        taken = [
            one
            for one in contenders
            if self.takes("pellucid" if one.is_reference else one.library)
            and self.contender in ("", one.name)
        ]
        made = Measure(title, unit, [], list(targets), list(notes), group, size, tuple(labels), size_unit)
        made.results = [one.result() for one in taken]
        self.add(made)
        return measure(made, taken, self.pace, rounds=rounds, expected=expected)
