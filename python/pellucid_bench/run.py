"""This module has the settings of a run, and collects its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pellucid_bench.measures import Measure, Target, Unit
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import Contender, Pace, measure


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run does."""

    rows: int = 1_000_000
    """Records in the tables that are scanned."""
    dump_rows: int = 100_000
    """Small dicts in the list that is encoded and decoded."""
    update_rows: int = 100_000
    """Records changed in one transaction."""
    scan_bytes: int = 2_000_000_000
    """Size of the file for the measure of a scan's memory."""
    bulk_rounds: int = 3
    """Rounds of measures that take seconds (bulk loads, updates)."""
    start_rounds: int = 7
    """Rounds of measures that start a process."""
    writes: tuple[int, ...] = (10_000, 1_000_000)
    """Single writes of the dict workload."""
    budget_seconds: float = 10.0
    """A writer or reader of the dict workload stops after this time."""
    commits: int = 20_000
    """Commits of one sample, if each commit is one operation."""
    pending: int = 100_000
    """Entries that are pending in the log."""
    exchanges: int = 5_000
    """How often one process waits for a put of the other one."""
    together_seconds: float = 1.0
    """Seconds for which several writers are measured."""


QUICK = Scale(
    rows=3_000,
    dump_rows=500,
    update_rows=500,
    scan_bytes=3_000_000,
    bulk_rounds=2,
    start_rounds=1,
    writes=(300,),
    budget_seconds=0.2,
    commits=50,
    pending=300,
    exchanges=20,
    together_seconds=0.02,
)


@dataclass(slots=True)
class Run:
    """The settings of a run, and its results so far."""

    directory: Path
    scale: Scale = field(default_factory=Scale)
    pace: Pace = field(default_factory=Pace)
    only: str = ""
    """Run only the measures that have this word in their title."""
    seed: int = 1
    """The seed of a measure that uses random cases."""
    rivals: Rivals = field(default_factory=Rivals)
    measures: list[Measure] = field(default_factory=list)

    def wants(self, title: str) -> bool:
        """Say whether this measure was asked for."""
        return self.only.lower() in title.lower()

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
    ) -> None:
        """Run the measure and keep the result, if it was asked for."""
        if self.wants(title):
            self.measures.append(
                measure(
                    title,
                    unit,
                    contenders,
                    self.pace,
                    rounds=rounds,
                    expected=expected,
                    targets=targets,
                    notes=notes,
                )
            )
