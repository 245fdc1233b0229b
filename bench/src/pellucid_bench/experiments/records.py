"""This module measures records: reading, storing, scanning, encoding and changing them.

It has the measures that run over both populations. `processes.py` has those that need their own process or
file. The targets belong to the uniform population.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pellucid

from pellucid_bench.about import About, Setting
from pellucid_bench.contenders.live import LiveDicts
from pellucid_bench.contenders.pellucid import Pellucid
from pellucid_bench.contenders.readers import Reader, readers
from pellucid_bench.contenders.stores import Store, stores
from pellucid_bench.experiments import processes
from pellucid_bench.measures import Measure, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import (
    Contender,
    WrongAnswerError,
    freeze,
    kept,
    loop,
    sizes,
    statement,
    timed,
    unfreeze,
)
from pellucid_bench.sample_records import MIXED, UNIFORM, Population, Record, small

ABOUT = About(
    "records",
    "What do records cost that no schema describes, of one shape and of 64?",
    "Reads a field of a record at hand and of bytes, loads, scans, sums and changes many records, encodes "
    "and decodes lists, and measures import, open and memory.",
    (
        Setting("rows", 1_000_000, 1_000, "records in the tables that are scanned"),
        Setting("dump_rows", 100_000, 500, "small dicts in the list that is encoded and decoded"),
        Setting("update_rows", 100_000, 500, "records changed in one transaction"),
        Setting("scan_gigabytes", 2.0, 0.003, "file size for the measure of a scan's memory"),
    ),
)
KEYS_AT_ONCE = 200
KINDS_AT_ONCE = 256
"""Records that a measure of the mixed population reads, so that all 64 kinds occur."""


def run(run: Run) -> None:
    """Run every measure, the uniform population first."""
    for population in (UNIFORM, MIXED):
        one_record(run, population)
        many_records(run, population)
        changes(run, population)
    lists(run)
    processes.run(run)


def one_record(run: Run, population: Population) -> None:
    """Measure reading one field of one record: from bytes, and from a record at hand."""
    is_uniform = population is UNIFORM
    samples = [population.record(number) for number in range(1 if is_uniform else KINDS_AT_ONCE)]
    formats = run.gather(partial(readers, population=population))
    ages = [sample.get("age", 0) for sample in samples]
    expected: object = ages[0] if is_uniform else ages

    title = f"bytes at hand, read one field ({population.name})"
    targets = [Target(10, "orjson"), Target(14, "ujson")] if is_uniform else []
    contenders = [
        _over(
            reader.name,
            reader.field_line,
            reader.names,
            "buf",
            [reader.encode(sample) for sample in samples],
            run,
            reader,
        )
        for reader in formats
    ]
    run.measure(title, Unit.TIME, contenders, expected=expected, targets=targets)

    if is_uniform:
        contenders = [
            _over(
                reader.name, reader.nested_line, reader.names, "buf", [reader.encode(samples[0])], run, reader
            )
            for reader in formats
            if reader.nested_line
        ]
        run.measure(
            "bytes at hand, read a field three levels down (uniform)", Unit.TIME, contenders, expected=9321
        )
        _record_size(run, formats, samples[0])
    _hot_record(run, population, samples, expected)


def _over(
    name: str,
    line: str,
    names: dict[str, Any],
    variable: str,
    values: Sequence[object],
    run: Run,
    reader: Reader | None = None,
) -> Contender:
    """Make a contender: a plain statement for one value, or a loop over several."""
    is_ours, note = (reader.is_ours, reader.note) if reader else (name.startswith("pellucid"), "")
    if len(values) == 1:
        return statement(name, line, {**names, variable: values[0]}, run.pace, is_ours=is_ours, note=note)
    return statement(name, line, names, run.pace, over=(variable, values), is_ours=is_ours, note=note)


def _hot_record(run: Run, population: Population, samples: list[Record], expected: object) -> None:
    title = f"a record at hand, read one field ({population.name})"
    if not run.wants(title):
        return
    with pellucid.open(run.directory / "hot.pel", mode="n") as database:
        table = database.table("people")
        table.extend(samples)
        stored = list(table.values())
        views = [pellucid.view(pellucid.dumps(sample)) for sample in samples]
        attribute, item = population.by_attribute, population.by_item
        contenders = [
            _over("pellucid, stored record", f"rec{attribute}", {}, "rec", stored, run),
            _over("pellucid, view of bytes", f"rec{attribute}", {}, "rec", views, run),
            _over("dict", f"d{item}", {}, "d", samples, run),
        ]
        if population.always_there:
            contenders.insert(
                1, _over("pellucid, stored record, by item", f"rec{item}", {}, "rec", stored, run)
            )
            contenders += _objects(run, samples[0])
        empty = {"variable": None}
        over = None if len(samples) == 1 else ("each", samples)
        contenders.append(
            statement(
                "(empty loop)", "variable", empty, run.pace, over=over, is_reference=True, is_expression=False
            )
        )
        targets = [Target(1.0, "dict")] if population is UNIFORM else []
        run.measure(title, Unit.TIME, contenders, expected=expected, targets=targets)


class _Slotted:
    __slots__ = ("age", "name")

    def __init__(self, age: int, name: str) -> None:
        self.age, self.name = age, name


def _objects(run: Run, sample: Record) -> list[Contender]:
    age, name = sample["age"], sample["name"]
    contenders = [
        _over("object", "obj.age", {}, "obj", [SimpleNamespace(**sample)], run),
        _over("object with __slots__", "obj.age", {}, "obj", [_Slotted(age, name)], run),
    ]
    if msgspec := run.rivals.find("msgspec"):
        person = msgspec.defstruct("Person", [("age", int), ("name", str)])
        contenders.append(_over("msgspec Struct", "obj.age", {}, "obj", [person(age, name)], run))
    return contenders


def _record_size(run: Run, formats: Sequence[Reader], sample: Record) -> None:
    title = "bytes of the record (uniform)"
    if not run.wants(title):
        return
    envelope = bytes(pellucid.dumps(sample))
    # docs/format.md, "Envelope": a head of 16 bytes, tables of the size at byte 4, then the record.
    (tables_size,) = struct.unpack_from("<I", envelope, 4)
    costs = {
        "pellucid, in a table": float(len(envelope) - 16 - tables_size),
        "pellucid, self-contained": float(len(envelope)),
    }
    for reader in formats:
        name = reader.name.partition(",")[0]
        if not reader.is_ours and name not in costs:
            costs[name] = float(len(reader.encode(sample)))
    run.pace.on_progress(title)
    result = sizes(title, costs, "pellucid, in a table", [Target(171)])
    result.results[1].is_ours = True
    run.add(result)


def many_records(run: Run, population: Population) -> None:
    """Measure a million stored records: load them, size them, scan them, read single ones."""
    titles = [
        f"{verb} ({population.name})"
        for verb in (
            "bulk load of many records",
            "file size for a record",
            "loop over all records, adding one field",
            "sum of one field over all records",
            "stored records, read one field of one by its key",
        )
    ]
    if not any(run.wants(title) for title in titles):
        return
    load, weigh, go_through, total, pick = titles
    is_uniform = population is UNIFORM
    count = run.settings.rows
    run.pace.on_progress(f"make {count:,} dicts ({population.name})")
    records = population.records(count)
    expected = sum(record.get("age", 0) for record in records)
    # A million dicts stay alive through all measures. They would make each full collection slow for all
    # contenders.
    freeze()
    everybody = keepers = run.gather(partial(stores, population=population, directory=run.directory))
    try:
        keepers = _load(run, load, keepers, records)
        if run.wants(weigh):
            run.add(_file_sizes(weigh, keepers, count, is_uniform))
        targets = [Target(0.6, LiveDicts.name), Target(16e6)] if is_uniform else []
        loops = [(keeper, keeper.loop_sum()) for keeper in keepers]
        run.measure(
            go_through,
            Unit.RATE,
            [_read(run, keeper, work, count) for keeper, work in loops if work],
            expected=expected,
            targets=targets,
        )
        _sums(run, total, keepers, records, expected, population)
        _picks(run, pick, keepers, records)
    finally:
        for keeper in everybody:
            keeper.remove()
        unfreeze()


def _read(run: Run, keeper: Store, work: Callable[[], object], count: int) -> Contender:
    seconds = run.pace.repeat_seconds
    return timed(keeper.name, work, count, repeat_seconds=seconds, is_ours=keeper.is_ours)


def _load(run: Run, title: str, keepers: list[Store], records: list[Record]) -> list[Store]:
    """Fill every store; time this if asked for. Return those that are full: a disk may have no more room."""
    in_files = [keeper for keeper in keepers if not isinstance(keeper, LiveDicts)]
    contenders = [
        timed(
            keeper.name,
            partial(keeper.fill, records),
            len(records),
            before=keeper.remove,
            is_ours=keeper.is_ours,
        )
        for keeper in in_files
    ]
    targets = [Target(700_000)] if "uniform" in title else []
    notes = ["from a list of dicts to the commit; with JSON encoding, if the store holds JSON"]
    others = [keeper for keeper in keepers if keeper not in in_files or not run.wants(title)]
    full = run.able(others, lambda keeper: keeper.fill(records))
    made = run.measure(
        title, Unit.RATE, contenders, rounds=run.pace.bulk_rounds, targets=targets, notes=notes
    )
    for result in made.results if made else ():
        if result.error:
            run.absent.setdefault(result.name, result.error)
    return [
        keeper
        for keeper in keepers
        if keeper in full or (keeper not in others and keeper.name not in run.absent)
    ]


def _file_sizes(title: str, keepers: list[Store], count: int, is_uniform: bool) -> Measure:
    costs = {}
    for keeper in keepers:
        if isinstance(keeper, Pellucid):
            keeper.close()
        size = keeper.size()
        if size is not None:
            costs[keeper.name] = size / count
    result = sizes(title, costs, Pellucid.name, [Target(199)] if is_uniform else [])
    if is_uniform:
        result.notes.append("all records are alike but for one field, which columns compress away")
    return result


def _sums(
    run: Run,
    title: str,
    keepers: list[Store],
    records: list[Record],
    expected: object,
    population: Population,
) -> None:
    own = [(keeper, keeper.own_sum()) for keeper in keepers]
    contenders = [_read(run, keeper, work, len(records)) for keeper, work in own if work]
    python = loop("row", "rows", f"row{population.by_item}", {"rows": records})
    contenders.append(
        timed("loop over live dicts", python, len(records), repeat_seconds=run.pace.repeat_seconds)
    )
    targets = [Target(35e6), Target(60e6)] if population is UNIFORM else []
    notes = [
        "the API has no switch between a cursor and a scan by pages; the table chooses. "
        "The first target is for a cursor, the second for pages"
    ]
    run.measure(
        title, Unit.RATE, contenders, expected=expected, targets=targets, notes=notes if targets else ()
    )


def _picks(run: Run, title: str, keepers: list[Store], records: list[Record]) -> None:
    keys = random.Random(3).choices(range(len(records)), k=KEYS_AT_ONCE)
    lines = [(keeper, keeper.field_line()) for keeper in keepers]
    run.measure(
        title,
        Unit.TIME,
        [
            statement(keeper.name, line[0], line[1], run.pace, over=("key", keys), is_ours=keeper.is_ours)
            for keeper, line in lines
            if line
        ],
        expected=[records[key].get("age", 0) for key in keys],
        notes=[f"{KEYS_AT_ONCE} random keys, repeatedly: their pages are in the cache, for all contenders"],
    )


def changes(run: Run, population: Population) -> None:
    """Measure changes of one field in many records, one by one, in one transaction."""
    title = f"set one field of each record, in one transaction ({population.name})"
    if not run.wants(title):
        return
    count = run.settings.update_rows
    records = population.records(count)
    keepers = [
        keeper
        for keeper in run.gather(partial(stores, population=population, directory=run.directory))
        if not keeper.name.startswith("duckdb")
    ]
    values = itertools.count(200)
    try:
        contenders = []
        for keeper in keepers:
            keeper.fill(records if not isinstance(keeper, LiveDicts) else population.records(count))
            ways = {keeper.name: keeper.set_all}
            if isinstance(keeper, Pellucid):
                ways[f"{keeper.name}, each by its key"] = keeper.set_all_by_key
            for name, set_all in ways.items():
                work = _setter(set_all, values, count)
                contenders.append(timed(name, work, count, is_ours=keeper.is_ours))
        measure = run.measure(
            title,
            Unit.RATE,
            contenders,
            rounds=run.pace.bulk_rounds,
            targets=[Target(1e6)] if population is UNIFORM else [],
            notes=["with the commit; without DuckDB, which needs about 0.3 ms for a statement"],
        )
        if measure is not None:
            _check_changes(measure, keepers, count)
    finally:
        for keeper in keepers:
            keeper.remove()


def _setter(set_all: Callable[[list[int]], None], values: Iterator[int], count: int) -> Callable[[], None]:
    """Return a function that sets other values each time. Otherwise the second round would change nothing."""
    return lambda: set_all([next(values)] * count)


def _check_changes(measure: Measure, keepers: list[Store], count: int) -> None:
    """Take the figures of a store away that did not keep what was set."""
    for keeper in keepers:
        for result in measure.results:
            if result.costs and result.name in (keeper.name, f"{keeper.name}, each by its key"):
                with kept(result):
                    keeper.set_all([7] * count)
                    work = keeper.loop_sum()
                    if work is not None and work() != 7 * count:
                        result.costs.clear()
                        raise WrongAnswerError("did not keep what was set")


def lists(run: Run) -> None:
    """Measure encoding and decoding a whole list of small dicts."""
    for name, make in (("small dicts", small), ("mixed records", MIXED.record)):
        rows = [make(number) for number in range(run.settings.dump_rows)]
        codecs: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
            ("pellucid", pellucid.dumps, pellucid.loads)
        ]
        if orjson := run.rivals.find("orjson"):
            codecs.append(("orjson", orjson.dumps, orjson.loads))
        if msgspec := run.rivals.find("msgspec"):
            codecs.append(("msgspec json", msgspec.json.Encoder().encode, msgspec.json.Decoder().decode))
            codecs.append(
                ("msgspec msgpack", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode)
            )
        if ujson := run.rivals.find("ujson"):
            codecs.append(("ujson", ujson.dumps, ujson.loads))
        import pickle

        codecs.append(("pickle", lambda value: pickle.dumps(value, 5), pickle.loads))
        is_small = make is small
        rivals = ("msgspec json", "msgspec msgpack", "orjson")
        run.measure(
            f"dumps of a list of {len(rows):,} {name}",
            Unit.RATE,
            [_codec(run, label, dumps, rows, len(rows)) for label, dumps, _ in codecs],
            targets=[Target(1.0, rival) for rival in rivals] if is_small else [],
        )
        run.measure(
            f"loads of a list of {len(rows):,} {name}",
            Unit.RATE,
            [_codec(run, label, loads, dumps(rows), len(rows)) for label, dumps, loads in codecs],
            expected=rows,
            targets=[Target(1.2, "pickle")] if is_small else [],
        )


def _codec(run: Run, name: str, function: Callable[[Any], Any], argument: object, count: int) -> Contender:
    seconds = run.pace.repeat_seconds
    return timed(name, lambda: function(argument), count, repeat_seconds=seconds, is_ours=name == "pellucid")
