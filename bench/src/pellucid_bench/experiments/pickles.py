"""This experiment measures how values become bytes and values again, and what the memo of pickle costs.

    pellucid bench pickle
    pellucid bench pickle --python /usr/bin/python2.7    # the standard library alone, under another Python

A sample is processor time, as in the collector: no contender waits for anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pellucid_bench import collect as collector
from pellucid_bench.about import About, Setting
from pellucid_bench.collected import collect
from pellucid_bench.contenders.value_codecs import ValueCodec, value_codecs
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.rivals import library_of
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, freeze, unfreeze

ABOUT = About(
    "pickle",
    "What does the memo of pickle cost, and how fast are pickle, marshal, JSON, CBOR and pellucid?",
    "Dumps and loads one dict, a list of 100, and a list of 100,000: each protocol of pickle with the memo "
    "and with `fast`, marshal, json, orjson, ujson, msgspec, cbor2 and pellucid.",
    (
        Setting("sizes", (1, 100, 100_000), (1, 100, 500), "dicts in the list; 1 is one dict without a list"),
        Setting(
            "python", None, None, "measure the standard library under this Python: 2.7, 3.6 to 3.15, PyPy"
        ),
    ),
)
SIZE_UNIT = collector.SIZE_UNITS["pickle"]
BULK = 10_000
"""Dicts in the largest list: it takes seconds."""
SLOW_SECONDS = 1.0
"""After this time, a contender that is ten times as slow as the fastest gives no more samples."""


def run(run: Run) -> None:
    """Measure all libraries under this Python, or the standard library under another one."""
    if run.settings.python:
        collect(run, "pickle", run.settings.python, run.settings.sizes, quick=run.pace.is_quick, whole=True)
        return
    # A third of the contenders are picklers in Python, which need seconds for a large list.
    run.pace.slow_seconds = min(run.pace.slow_seconds, SLOW_SECONDS)
    codecs = run.gather(value_codecs)
    missing = run.absent
    # What this package has in memory is not the garbage of a contender.
    freeze()
    try:
        for size in run.settings.sizes:
            run.absent = dict(missing)
            _measure(run, codecs, size)
    finally:
        unfreeze()


def _measure(run: Run, codecs: list[ValueCodec], size: int) -> None:
    """Measure all codecs with one value."""
    value = collector.value_of(size)
    about = collector.of_value(size)
    made: dict[str, Made] = {}
    able = run.able(codecs, partial(_check, value, made, {}))
    dumps = {one.name: Sampled(partial(one.dumps, value), made[one.name].dump_seconds, run) for one in able}
    dump = _timed(run, "dump", size, able, dumps)
    del value, dumps  # the garbage collector would walk through it while others are loaded
    loads = {
        one.name: Sampled(partial(one.loads, made[one.name].data), made[one.name].load_seconds, run)
        for one in able
    }
    _timed(run, "load", size, able, loads)
    title = f"bytes of {about}"
    if run.wants(title):
        rows = [
            Result(one.name, one.is_ours, costs=[float(len(made[one.name].data))], facts=dict(one.facts))
            for one in able
        ]
        run.add(Measure(title, Unit.BYTES, rows, group="size", size=size, size_unit=SIZE_UNIT))
    title = f"share of the memo in the time to dump {about}"
    if dump and run.wants(title):
        run.absent = {}
        shares = memo_shares(dump)
        run.add(
            Measure(
                title,
                Unit.SHARE,
                shares,
                notes=[collector.MEMO],
                group="memo",
                size=size,
                size_unit=SIZE_UNIT,
            )
        )


class Made(NamedTuple):
    """The bytes of a codec, and how long it took to make them and to read them."""

    data: bytes
    dump_seconds: float
    load_seconds: float


def _check(value: Any, made: dict[str, Made], same: dict[bytes, bytes], codec: ValueCodec) -> None:
    """Keep the bytes of a codec, if they give the value back."""
    clock = collector.PROCESSOR_TIME
    started = clock()
    data = codec.dumps(value)
    dumped = clock()
    back = codec.loads(data)
    loaded = clock()
    if back != value:
        raise ValueError("it gives back another value than it was given")
    # Many codecs make the same bytes: keep them once.
    made[codec.name] = Made(same.setdefault(data, data), dumped - started, loaded - dumped)


def _timed(
    run: Run, group: str, size: int, codecs: list[ValueCodec], work: dict[str, Sampled]
) -> Measure | None:
    contenders = [Contender(one.name, work[one.name].sample, is_ours=one.is_ours) for one in codecs]
    measure = run.measure(
        f"{group} {collector.of_value(size)}",
        Unit.TIME,
        contenders,
        rounds=run.pace.bulk_rounds if size >= BULK else None,
        notes=["processor time"],
        group=group,
        size=size,
        size_unit=SIZE_UNIT,
    )
    if measure:
        measure.targets += _targets(measure, size)
    facts = {one.name: one.facts for one in codecs}
    for result in measure.results if measure else ():
        result.facts.update(facts.get(result.name, {}))
    return measure


def _targets(measure: Measure, size: int) -> list[Target]:
    """Return what is wanted: the fastest of all in bulk, else beside pickle and marshal, and near msgspec."""
    rivals = [result for result in measure.results if not result.is_ours and result.costs]
    compared = [(1.0, rivals)]
    if size < BULK:
        compared = [
            (1.0, [one for one in rivals if library_of(one.name) in ("pickle", "marshal")]),
            (0.8, [one for one in rivals if library_of(one.name) == "msgspec"]),
        ]
    return [
        Target(wanted, min(group, key=lambda result: result.median).name)
        for wanted, group in compared
        if group
    ]


class Sampled:
    """Work that is timed as the collector does it."""

    def __init__(self, work: Callable[[], Any], seconds: float, run: Run) -> None:
        self.work = work
        self.pace = collector.Pace(sample_seconds=run.pace.sample_seconds, quick=run.pace.is_quick)
        # One call that was long enough has to be repeated neither to find this out nor to warm up.
        self.loops = 1 if seconds > self.pace.sample_seconds else 0

    def sample(self) -> float:
        """Return the seconds of one call. The first sample finds how many calls are long enough."""
        clock = collector.PROCESSOR_TIME
        if not self.loops:
            self.loops, _ = collector.calibrated(self.work, self.pace, clock)
        return float(collector.sample(self.work, self.loops, clock))


def memo_shares(dump: Measure) -> list[Result]:
    """Return how much of the time of each pickler the memo takes, in each round."""
    shares = []
    for one in dump.results:
        fast = dump.result(f"{one.name}, fast")
        if fast is None or one.error or fast.error:
            continue
        facts = {name: one.facts[name] for name in ("pickler", "protocol")}
        costs = [(long - short) / long for long, short in zip(one.costs, fast.costs, strict=False) if long]
        shares.append(Result(one.name, facts=facts, costs=costs, scale_min=1.0))
    return shares
