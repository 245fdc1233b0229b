"""This module reads, checks and writes the JSON files of datasets.

Every value is checked when it is read, so that a report never meets a string where a number belongs. Fields
that are not known are passed over: a later version may add some without another number of the schema.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pellucid_bench.dataset.model import (
    SCHEMA,
    UNITS,
    Dataset,
    DatasetError,
    Interpreter,
    Machine,
    Measure,
    Result,
    Target,
    Unit,
)

T = TypeVar("T")
SIZE_MAX = 1 << 28
"""A file that is larger is no dataset. Nothing is read of it."""


def read(path: str | os.PathLike[str]) -> list[Dataset]:
    """Read the runs of a file: one, or all of a merged file."""
    path = Path(path)
    try:
        if path.stat().st_size > SIZE_MAX:
            raise DatasetError(f"{path} has more than {SIZE_MAX >> 20} MiB, so it is no dataset")
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise DatasetError(f"{path} is no dataset: it is not text in UTF-8") from None
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from error
    return parse(text, str(path))


def parse(text: str, name: str = "the dataset") -> list[Dataset]:
    """Read the runs of a text; `name` is what messages call it."""

    def refuse_constant(constant: str) -> NoReturn:
        raise DatasetError(f"{name} is damaged: it has {constant}, which is no number of JSON")

    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise DatasetError(
            f"{name} is damaged, or no dataset: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise DatasetError(f"{name} is no dataset: it is nested too deeply") from None
    return from_json(value, name)


def from_json(value: object, name: str = "the dataset") -> list[Dataset]:
    """Make runs of what a JSON parser gave."""
    if not isinstance(value, dict) or not isinstance(value.get("schema"), str):
        raise DatasetError(f'{name} is no dataset: it has no "schema"')
    if value["schema"] != SCHEMA:
        raise DatasetError(
            f"{name} has the schema {value['schema']!r}, and this version reads {SCHEMA!r}: "
            "use the pellucid that wrote it, or measure again"
        )
    try:
        if "runs" not in value:
            return [_dataset(_Object(value, ""))]
        return [_dataset(run) for run in _Object(value, "").objects("runs")]
    except _DamageError as error:
        raise DatasetError(f"{name} is damaged: {error}") from None


def to_json(run: Dataset) -> dict[str, Any]:
    """Return one run as what a JSON writer takes."""
    fields = dataclasses.asdict(run)
    for measure in fields["measures"]:
        for result in measure["results"]:
            result["interval"] = result["interval"] and list(result["interval"])
    order = ("created", "command", "experiment", "quick", "complete", "machine", "python", "settings")
    return {"schema": SCHEMA, **{name: fields.pop(name) for name in order}, **fields}


def write(path: str | os.PathLike[str], runs: Sequence[Dataset]) -> None:
    """Write one run, or several as a merged file. A file that is there is replaced, whole or not at all."""
    values = [to_json(run) for run in runs]
    whole = values[0] if len(values) == 1 else {"schema": SCHEMA, "runs": values}
    replace(Path(path), json.dumps(whole, indent=1, allow_nan=False) + "\n")


def replace(path: Path, content: str | bytes) -> None:
    """Put a text under a path. The old file stays if the new one cannot be written, as on a full disk."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise DatasetError(
            f"cannot write {path}: {error.strerror}; make room there, or name another file"
        ) from error


def merge(runs: Iterable[Dataset]) -> list[Dataset]:
    """Put runs in the order of their experiment and their time. One that is there twice is kept once."""
    found = {json.dumps(to_json(run), sort_keys=True): run for run in runs}
    return sorted(found.values(), key=lambda run: (run.experiment, run.created))


class _DamageError(Exception):
    """A value is not what its field has to be."""


class _Object:
    """A JSON object whose values are taken with their types."""

    def __init__(self, value: dict[str, Any], where: str) -> None:
        self._value = value
        self._where = where

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Raise, naming a field and what belongs there."""
        value = self._value.get(name)
        shown = "is not there" if name not in self._value else f"is {_short(value)}"
        raise _DamageError(f"{self._where}{name} {shown}, where {wanted} belongs")

    def __call__(self, name: str, kind: type[T], wanted: str, *default: T) -> T:
        if name not in self._value and default:
            return default[0]
        value = self._value.get(name)
        # A bool is an int for Python, and not for JSON.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.refuse(name, wanted)
        return value

    def text(self, name: str, *default: str) -> str:
        return self(name, str, "a string", *default)

    def truth(self, name: str, *default: bool) -> bool:
        return self(name, bool, "true or false", *default)

    def count(self, name: str) -> int:
        value = self(name, int, "a whole number")
        if value < 0:
            self.refuse(name, "a whole number of 0 or more")
        return value

    def number(self, name: str) -> float:
        value: Any = self._value.get(name)
        if not _is_number(value):
            self.refuse(name, "a number")
        number: float = value
        return number

    def maybe(self, name: str, take: Callable[[str], T]) -> T | None:
        """Take a value that may be null or absent."""
        return None if self._value.get(name) is None else take(name)

    def numbers(self, name: str) -> list[float]:
        values = self(name, list, "a list of numbers")
        if not all(map(_is_number, values)):
            self.refuse(name, "a list of numbers")
        return values

    def texts(self, name: str) -> list[str]:
        values: list[Any] = self(name, list, "a list of strings", [])
        if not all(isinstance(value, str) for value in values):
            self.refuse(name, "a list of strings")
        return values

    def named_texts(self, name: str) -> dict[str, str]:
        values: dict[str, Any] = self(name, dict, "an object of strings", {})
        if not all(isinstance(value, str) for value in values.values()):
            self.refuse(name, "an object of strings")
        return values

    def object(self, name: str) -> _Object:
        return _Object(self(name, dict, "an object"), f"{self._where}{name}.")

    def objects(self, name: str, *default: list[Any]) -> list[_Object]:
        values: list[Any] = self(name, list, "a list of objects", *default)
        if not all(isinstance(value, dict) for value in values):
            self.refuse(name, "a list of objects")
        return [_Object(value, f"{self._where}{name}[{index}].") for index, value in enumerate(values)]


def _is_number(value: object) -> bool:
    # An int may be too large for a float, and then for any arithmetic with one.
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 1000
    return isinstance(value, float) and math.isfinite(value)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _dataset(value: _Object) -> Dataset:
    machine, python = value.object("machine"), value.object("python")
    run = Dataset(
        created=value.text("created"),
        command=value.text("command"),
        experiment=value.text("experiment"),
        quick=value.truth("quick"),
        complete=value.truth("complete"),
        settings=value("settings", dict, "an object", {}),
        machine=Machine(
            processor=machine.text("processor"),
            cores=machine.count("cores"),
            memory_bytes=machine.maybe("memory_bytes", machine.count),
            system=machine.text("system"),
            kernel=machine.text("kernel"),
            file_system=machine.text("file_system"),
            load=machine.maybe("load", machine.number),
            id=machine.text("id"),
        ),
        python=Interpreter(python.text("implementation"), python.text("version"), python.text("build")),
        versions=value.named_texts("versions"),
        missing=value.named_texts("missing"),
        notes=value.texts("notes"),
        measures=[_measure(one) for one in value.objects("measures")],
    )
    if len({measure.id for measure in run.measures}) < len(run.measures):
        value.refuse("measures", "a list in which no id is there twice")
    return run


def _measure(value: _Object) -> Measure:
    given = value.text("unit")
    unit: Unit | None = next((one for one in UNITS if one == given), None)
    if unit is None:
        value.refuse("unit", " or ".join(map(repr, UNITS)))
    better = value.text("better", UNITS[unit])
    if better not in ("lower", "higher"):
        value.refuse("better", "'lower' or 'higher'")
    measure = Measure(
        id=value.text("id"),
        title=value.text("title"),
        group=value.text("group"),
        size=value.maybe("size", value.number),
        size_unit=value.text("size_unit", ""),
        unit=unit,
        better="lower" if better == "lower" else "higher",
        labels=value.texts("labels"),
        notes=value.texts("notes"),
        results=[_result(one) for one in value.objects("results")],
        targets=[
            Target(
                text=one.text("text"),
                ratio=one.maybe("ratio", one.number),
                measured=one.maybe("measured", one.number),
                met=one.maybe("met", one.truth),
            )
            for one in value.objects("targets", [])
        ],
    )
    if len({result.contender for result in measure.results}) < len(measure.results):
        value.refuse("results", "a list in which no contender is there twice")
    return measure


def _result(value: _Object) -> Result:
    ends = value.maybe("interval", value.numbers)
    if ends is not None and (len(ends) != 2 or ends[0] > ends[1]):
        value.refuse("interval", "a pair of ascending numbers")
    result = Result(
        contender=value.text("contender"),
        library=value.text("library"),
        ours=value.truth("ours", False),
        reference=value.truth("reference", False),
        samples=value.numbers("samples"),
        median=value.maybe("median", value.number),
        interval=None if ends is None else (ends[0], ends[1]),
        unstable=value.truth("unstable", False),
        error=value.maybe("error", value.text),
        like=value.maybe("like", value.text),
        note=value.text("note", ""),
        facts=value.named_texts("facts"),
    )
    if (result.median is None) != (not result.samples):
        value.refuse("median", "the median of the samples, or null if there are none,")
    if result.error is None and not result.samples:
        value.refuse("error", "the reason why there are no samples")
    return result
