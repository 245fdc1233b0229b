"""This module has the classes of a dataset. Each attribute is the field of the same name in the JSON file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "pellucid-bench/1"
"""The version of the schema. Another number means that old programs cannot read the file."""

Unit = Literal["seconds", "bytes", "rows/s", "operations/s", "ratio", "share"]
Better = Literal["lower", "higher"]

UNITS: dict[Unit, Better] = {
    "seconds": "lower",
    "bytes": "lower",
    "rows/s": "higher",
    "operations/s": "higher",
    "ratio": "lower",
    "share": "lower",
}
"""The units, each with what is better in it. `seconds` and `bytes` are for one operation or one row, unless
the title says otherwise. A `ratio` is a multiple: the size of a file by the size of its rows. A `share` is a
part of 1, which can be below 0 where it is the difference of two times."""


class DatasetError(ValueError):
    """A file is no dataset, or one that this version cannot read. The message says where and what to do."""


@dataclass(slots=True)
class Machine:
    """The machine of a run. Datasets of different machines are shown side by side, and never averaged."""

    processor: str
    cores: int
    memory_bytes: int | None
    system: str
    kernel: str
    file_system: str
    load: float | None
    """The load average of one minute when the run began."""
    id: str
    """A short hash of the other fields without the load. It says whether two machines are alike."""


@dataclass(slots=True)
class Interpreter:
    """The Python of a run."""

    implementation: str
    version: str
    build: str


@dataclass(slots=True)
class Result:
    """What one contender reached in one measure: samples, or the reason why there are none."""

    contender: str
    """The library and the way in which it is used. Unique in a measure."""
    library: str
    """The library, as in `Dataset.versions`."""
    ours: bool = False
    reference: bool = False
    """Shown for orientation (an empty loop). It is neither a rival nor a loss."""
    samples: list[float] = field(default_factory=list)
    """One value of each round, in the unit of the measure."""
    median: float | None = None
    interval: tuple[float, float] | None = None
    """In which the median lies with 95 %, by a bootstrap of the samples. None with fewer than three."""
    unstable: bool = False
    """The interval is too wide for conclusions."""
    error: str | None = None
    """Why it has no samples: not installed, refused, crashed, another answer, stopped."""
    like: str | None = None
    """Our contender with which this one is compared, if it is not the first of ours."""
    note: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    """More of this contender for people, by the title of its column."""


@dataclass(slots=True)
class Target:
    """A target of the measure that was set before anything was measured."""

    text: str
    ratio: float | None = None
    """What was wanted: how many times as good as the rival in the text, or a figure in the measure's unit."""
    measured: float | None = None
    met: bool | None = None
    """None if it was not measured."""


@dataclass(slots=True)
class Measure:
    """Several contenders that did the same work."""

    id: str
    """Unique in a dataset, and the same in every run with the same settings: `dict/write/10000`."""
    title: str
    group: str
    """Measures of one group differ in `size` only: they are the points of a curve."""
    size: float | None
    unit: Unit
    better: Better = "lower"
    labels: list[str] = field(default_factory=list)
    """Under what conditions: `cold`, `hot`."""
    notes: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    size_unit: str = ""
    """What the size counts: `keys`, `rows`. It is the title of the axis of a curve."""

    def result(self, contender: str) -> Result | None:
        """Return the result of one contender, or None if it has no row."""
        return next((result for result in self.results if result.contender == contender), None)


@dataclass(slots=True)
class Dataset:
    """One run of one experiment."""

    created: str
    """When the run began, in UTC: `2026-11-24T12:00:00+00:00`."""
    command: str
    experiment: str
    machine: Machine
    python: Interpreter
    quick: bool = False
    """The shortest run: its figures mean nothing."""
    complete: bool = True
    """False if the run was stopped. What was measured until then is there."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of the experiment, with which the run can be repeated."""
    versions: dict[str, str] = field(default_factory=dict)
    """The libraries that took part, with their versions."""
    missing: dict[str, str] = field(default_factory=dict)
    """The libraries that did not, with the reasons."""
    notes: list[str] = field(default_factory=list)
    """What a reader has to know of this run: one core, a coarse clock, unstable results."""
    measures: list[Measure] = field(default_factory=list)

    def measure(self, measure_id: str) -> Measure | None:
        """Return the measure with this id, or None if the run has none."""
        return next((measure for measure in self.measures if measure.id == measure_id), None)
