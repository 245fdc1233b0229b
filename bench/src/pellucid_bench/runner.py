"""This module times the contenders of a measure under the same conditions.

A measure runs in rounds. In each round, every contender gives one sample, in turn. Each round begins with
another contender, so none is always first after a pause, or last with a warm cache. The report compares the
medians of the samples. Before the first round, each contender must give the right answer once. Otherwise, a
contender that reads the wrong field would win every time. A contender that fails leaves the measure, and its
row says why; the others go on.

Small operations are timed as `timeit` does it: the statement is compiled into the loop, all names are local,
the garbage collector is off, and one sample is long enough for the clock. Large operations (a scan, a bulk
load) run with the garbage collector on, as in a program. An operation that only reads repeats for a fifth of
a second, or runs once if it takes longer: a single scan of 14 ms would measure the load of the machine more
than the scan. An operation that changes something runs once in a sample.
"""

from __future__ import annotations

import contextlib
import gc
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, TypeVar

from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.rivals import library_of, reason

T = TypeVar("T")

SLOW_FACTOR = 10
"""A contender with more than this multiple of the time of the fastest one gives few samples."""


class WrongAnswerError(AssertionError):
    """A contender does not do the work for which it is timed."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work of a measure."""

    name: str
    sample: Callable[[], float]
    """Do the work once and return its cost."""
    answer: Callable[[], object] | None = None
    """Do the work once and return its answer, to compare it with the other answers."""
    is_ours: bool = False
    is_reference: bool = False
    note: str = ""
    like: str = ""
    """Our contender with which this one is compared, if it is not the first."""

    @property
    def library(self) -> str:
        """Return the library that the name begins with."""
        return "pellucid" if self.is_ours else library_of(self.name)

    def result(self) -> Result:
        """Return an empty result of this contender."""
        return Result(self.name, self.is_ours, self.is_reference, self.note, self.like)


@dataclass(slots=True)
class Pace:
    """How long a run may take. Tests use the shortest run that still does everything."""

    rounds: int = 7
    bulk_rounds: int = 3
    """Rounds of measures that take seconds (bulk loads, updates)."""
    start_rounds: int = 7
    """Rounds of measures that start a process."""
    sample_seconds: float = 0.05
    """The least length of a sample of a small operation."""
    repeat_seconds: float = 0.2
    """A sample of a large operation that only reads repeats the operation for this time."""
    on_progress: Callable[[str], None] = field(default=lambda _title: None)
    slow_seconds: float = 3.0
    """After this time, a contender that is much slower than the fastest gives no more samples."""
    is_quick: bool = False
    asked: int | None = None
    """The rounds that were asked for."""

    def rounds_of(self, usual: int) -> int:
        """Return the rounds of a measure of which one takes minutes: as many as were asked for, or few."""
        return self.asked or min(usual, self.rounds)

    @staticmethod
    def of(rounds: int | None = None, *, quick: bool = False, tick: float = 0.0) -> Pace:
        """Return the pace of a run. No sample is shorter than 1,000 steps of the clock, `tick`."""
        if quick:
            pace = Pace(2, 2, 1, sample_seconds=0.0005, repeat_seconds=0.0)
        else:
            pace = Pace()
        pace.sample_seconds = max(pace.sample_seconds, 1_000 * tick)
        pace.asked, pace.is_quick = rounds, quick
        if rounds:
            pace.rounds = pace.bulk_rounds = pace.start_rounds = rounds
        return pace


def statement(
    name: str,
    code: str,
    names: dict[str, Any],
    pace: Pace,
    *,
    over: tuple[str, Sequence[object]] | None = None,
    is_ours: bool = False,
    is_reference: bool = False,
    is_expression: bool = True,
    note: str = "",
) -> Contender:
    """Make a contender from a line of Python, timed as `timeit` does it.

    With `over=("buf", buffers)`, the line runs once for each element, under that name. Its inner loop is the
    same for every contender. The cost is that of one element.
    """
    names = dict(names)
    line, count = code, 1
    if over is not None:
        variable, values = over
        names["_values"] = values
        line, count = f"for {variable} in _values: {code}", len(values)
    setup = "\n".join(f"{name} = _names[{name!r}]" for name in names) or "pass"
    timer = timeit.Timer(line, setup, globals={"_names": names})
    loops = _Loops(timer, pace.sample_seconds)
    answer = None
    if is_expression:
        answer = function("", code if over is None else f"[{code} for {over[0]} in _values]", names)

    return Contender(
        name,
        lambda: timer.timeit(loops.count) / loops.count / count,
        answer,
        is_ours=is_ours,
        is_reference=is_reference,
        note=note,
    )


class _Loops:
    """How many loops make one sample long enough. Found at the first use, then kept."""

    def __init__(self, timer: timeit.Timer, sample_seconds: float) -> None:
        self._timer = timer
        self._sample_seconds = sample_seconds
        self._count = 0

    @property
    def count(self) -> int:
        if not self._count:
            count, seconds = 1, self._timer.timeit(1)
            while seconds < self._sample_seconds / 10:
                count *= 4
                seconds = self._timer.timeit(count)
            self._count = max(1, round(count * self._sample_seconds / max(seconds, 1e-9)))
        return self._count


def timed(
    name: str,
    work: Callable[[], object],
    count: int,
    *,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    repeat_seconds: float = 0.0,
    is_ours: bool = False,
    note: str = "",
    like: str = "",
) -> Contender:
    """Make a contender from a function that does `count` operations. `before` and `after` are not timed.

    Work that only reads takes the `repeat_seconds` of the pace. A sample is then the mean of all repetitions.
    """

    def sample() -> float:
        if before is not None:
            before()
        repetitions = 0
        started = time.perf_counter()
        while True:
            work()
            repetitions += 1
            seconds = time.perf_counter() - started
            if seconds >= repeat_seconds:
                break
        if after is not None:
            after()
        return seconds / repetitions / count

    answer = work if before is None and after is None else None
    return Contender(name, sample, answer, is_ours=is_ours, note=note, like=like)


def function(parameters: str, expression: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Compile a function that returns the value of an expression, which can use `names`."""
    known = ", ".join(f"{name}=_names[{name!r}]" for name in names)
    given = ", ".join(filter(None, [parameters, known]))
    return compiled(f"def work({given}):\n return {expression}\n", names)


def loop(row: str, rows: str, value: str, names: dict[str, Any]) -> Callable[[], Any]:
    """Compile `for row in rows: total += value`, the same loop for every contender, with local names."""
    parameters = ", ".join(f"{name}=_names[{name!r}]" for name in names)
    source = (
        f"def work({parameters}):\n total = 0\n for {row} in {rows}:\n  total += {value}\n return total\n"
    )
    return compiled(source, names)


def compiled(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Run `source`, which defines the function `work`, and return this function."""
    code: CodeType = compile(source, "<benchmark loop>", "exec")
    space: dict[str, Any] = {"_names": names}
    exec(code, space)  # noqa: S102 (our own lines, inlined to give every contender the same loop)
    made: Callable[..., Any] = space["work"]
    return made


def freeze() -> None:
    """Hide all live objects from the garbage collector."""
    gc.collect()
    gc.freeze()


def unfreeze() -> None:
    """Show them to the garbage collector again."""
    gc.unfreeze()
    gc.collect()


def in_turn(everybody: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Yield all contenders once in each round. Each round begins with the next one."""
    for round_index in range(rounds):
        start = round_index % max(1, len(everybody))
        for one in [*everybody[start:], *everybody[:start]]:
            yield round_index, one


def measure(
    made: Measure,
    contenders: Sequence[Contender],
    pace: Pace,
    *,
    rounds: int | None = None,
    expected: object = None,
) -> Measure:
    """Check the answer of every contender, then sample all of them in turn, into the results of a measure."""
    pace.on_progress(made.title)
    results = {result.name: result for result in made.results}
    taken = [one for one in contenders if _answers(one, results[one.name], expected)]
    gc.collect()
    seconds = dict.fromkeys(results, 0.0)
    early: dict[str, None] = {}
    for _, contender in in_turn(taken, pace.rounds if rounds is None else rounds):
        result = results[contender.name]
        if result.error is not None:
            continue
        if seconds[contender.name] > pace.slow_seconds and _is_slow(result, made):
            early[contender.name] = None
            continue
        started = time.perf_counter()
        with kept(result):
            result.costs.append(contender.sample())
        seconds[contender.name] += time.perf_counter() - started
    if early:
        made.notes.append(
            f"fewer samples of what is {SLOW_FACTOR} times as slow as the fastest: {'; '.join(early)}"
        )
    return made


def _is_slow(result: Result, made: Measure) -> bool:
    """Say whether a contender is so slow that more samples would change no conclusion."""
    fastest = min((one.best for one in made.results if one.costs and not one.is_reference), default=0.0)
    return bool(result.costs) and result.best > SLOW_FACTOR * fastest


def _answers(contender: Contender, result: Result, expected: object) -> bool:
    """Have a contender do its work once, and say whether its answer is right."""
    if expected is None or contender.answer is None:
        return True
    with kept(result):
        answer = contender.answer()
        if not (answer == expected):
            raise WrongAnswerError(f"answers {_short(answer)}, not {_short(expected)}")
    return result.error is None


@contextlib.contextmanager
def kept(result: Result) -> Iterator[None]:
    """Keep the reason for which the work of a contender fails in its result, and go on."""
    try:
        yield
    except WrongAnswerError as error:
        result.error = str(error)
    except Exception as error:
        result.error = reason(error)


def sizes(title: str, costs: dict[str, float], ours: str, targets: Sequence[Target] = ()) -> Measure:
    """Make a measure without a clock: bytes for each contender."""
    results = [Result(name, is_ours=name == ours, costs=[cost]) for name, cost in costs.items()]
    return Measure(title, Unit.BYTES, results, list(targets))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
