"""This experiment measures `pellucid.Cache` and its drop-ins beside other caches.

What several processes do together, and what needs a file of gigabytes, runs in `cache_child.py`.
"""

from __future__ import annotations

import functools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pellucid

from pellucid_bench import cache_child, child
from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, kept, statement, timed

ABOUT = About(
    "cache",
    "What does a cache cost beside others, and does it keep its promises under load?",
    "Hits, sets and deletions of 100 bytes, hits of memoized functions, eight processes on one cache, a "
    "flood against a limit, a stampede, and the delay of an asyncio loop beside a writer.",
    (
        Setting("keys", 10_000, 200, "entries of a cache"),
        Setting("limit", 1_000, 48, "the limit of the flood, in MB"),
        Setting("flood", 5_000, 150, "what the flood sets, in MB"),
        Setting("callers", 100, 16, "callers of the stampede, in eight processes"),
        Setting("seconds", 3.0, 0.2, "how long eight processes use one cache"),
        Setting("beside", 1_000, 20, "what a process writes beside the loop, in MB"),
    ),
)
VALUE = bytes(range(100))
KEY = "user 4711"


def run(run: Run) -> None:
    """Measure everything."""
    operations(run)
    functions(run)
    uses(run)
    joblib(run)
    processes(run)
    flood(run)
    stampede(run)
    loop_delay(run)


def caches(run: Run) -> dict[str, Any]:
    """A filled cache of each library, by the name of the contender."""
    made: dict[str, Any] = {}
    if run.takes("pellucid"):
        from pellucid.contrib import diskcache as drop_in

        made["pellucid"] = pellucid.Cache(run.directory / "cache.pel")
        made["pellucid, contrib.diskcache"] = drop_in.Cache(run.directory / "drop-in")
    if (diskcache := run.rivals.find("diskcache")) is not None and run.takes("diskcache"):
        made["diskcache"] = diskcache.Cache(str(run.directory / "diskcache"))
    if (cachetools := run.rivals.find("cachetools")) is not None and run.takes("cachetools"):
        made["cachetools, LRUCache"] = cachetools.LRUCache(1_000_000)
    if run.takes("Python"):
        made["dict"] = {}
    for cache in made.values():
        for number in range(run.settings.keys):
            cache[f"user {number}"] = VALUE
        cache[KEY] = VALUE
    return made


def operations(run: Run) -> None:
    """Get, set and delete, one process."""
    whats = ("get hit", "set", "set with a time and a tag", "delete")
    titles = [f"{what}, 100 bytes" for what in whats]
    if not any(map(run.wants, titles)):
        return
    made = caches(run)
    missing = run.rivals.missing
    run.absent = {name: missing[name] for name in ("diskcache", "cachetools") if name in missing}
    try:
        for title, code, wanted in (
            (titles[0], "cache.get(key)", 15),
            (titles[1], "cache[key] = value", 50),
            (titles[2], "cache.set(key, value, expire=60, tag='t')", 15),
        ):
            contenders = [
                statement(
                    name,
                    code,
                    {"cache": cache, "key": KEY, "value": VALUE},
                    run.pace,
                    is_expression="=" not in code.partition("(")[0],
                    is_ours=name.startswith("pellucid"),
                )
                for name, cache in made.items()
                if "tag" not in code or hasattr(cache, "evict")
            ]
            run.measure(title, Unit.TIME, contenders, targets=[Target(wanted, "diskcache")])
        contenders = [deletion(name, cache, run.settings.keys) for name, cache in made.items()]
        run.measure(titles[3], Unit.TIME, contenders, targets=[Target(50, "diskcache")])
    finally:
        closed(made.values(), run)


def closed(made: Any, run: Run) -> None:
    """Close what can be closed, and remove the files."""
    for cache in made:
        if hasattr(cache, "close"):
            cache.close()
    for path in run.directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run.absent = {}


def deletion(name: str, cache: Any, count: int) -> Contender:
    """A contender that deletes keys which are set before each sample."""
    keys = [f"gone {number}" for number in range(min(count, 1_000))]
    delete = cache.delete if hasattr(cache, "delete") else cache.__delitem__

    def before() -> None:
        for key in keys:
            cache[key] = VALUE

    def work() -> None:
        for key in keys:
            delete(key)

    return timed(name, work, len(keys), before=before, is_ours=name.startswith("pellucid"))


def square(number: int) -> int:
    """Return a small result."""
    return number * number


def functions(run: Run) -> None:
    """A hit of a memoized function."""
    title = "memoized hit of a small result"
    if not run.wants(title):
        return
    made: dict[str, Callable[..., Any]] = {}
    opened: list[Any] = []
    if run.takes("pellucid"):
        opened.append(pellucid.Cache(run.directory / "cache.pel"))
        made["pellucid"] = opened[-1].memoize()(square)
    if (diskcache := run.rivals.find("diskcache")) is not None and run.takes("diskcache"):
        opened.append(diskcache.Cache(str(run.directory / "diskcache")))
        made["diskcache"] = opened[-1].memoize()(square)
    if (library := run.rivals.find("joblib")) is not None and run.takes("joblib"):
        made["joblib, Memory"] = library.Memory(run.directory / "joblib", verbose=0).cache(square)
    if (cachetools := run.rivals.find("cachetools")) is not None and run.takes("cachetools"):
        made["cachetools, cached"] = cachetools.cached(cachetools.LRUCache(1_000_000))(square)
    if run.takes("functools"):
        made["functools, lru_cache"] = functools.lru_cache(square)
    contenders = [
        statement(name, "call(4711)", {"call": call}, run.pace, is_ours=name == "pellucid")
        for name, call in made.items()
    ]
    for contender in contenders:
        contender.sample()
    targets = [Target(8, "diskcache"), Target(25, "joblib, Memory")]
    run.measure(title, Unit.TIME, contenders, targets=targets)
    closed(opened, run)


def uses(run: Run) -> None:
    """A hit that notes its use, beside one that does not."""
    title = "a hit with least-recently-used on"
    if not run.wants(title) or not run.takes("pellucid"):
        return
    made = {
        "pellucid": pellucid.Cache(
            run.directory / "used.pel", policy="least-recently-used", size_limit=1 << 30
        ),
        "pellucid, no limit": pellucid.Cache(run.directory / "plain.pel"),
    }
    for cache in made.values():
        cache[KEY] = VALUE
    contenders = [
        statement(name, "cache.get(key)", {"cache": cache, "key": KEY}, run.pace, is_ours=name == "pellucid")
        for name, cache in made.items()
    ]
    targets = [Target(0.8, "pellucid, no limit")]
    run.measure(title, Unit.TIME, contenders, targets=targets)
    closed(made.values(), run)


def joblib(run: Run) -> None:
    """A hit and a miss of `joblib.Memory` over both backends."""
    library = run.rivals.find("joblib")
    titles = ("joblib: a hit", "joblib: a miss")
    if library is None or not any(map(run.wants, titles)):
        return
    import pellucid.contrib.joblib

    pellucid.contrib.joblib.register()
    backends = {"pellucid": "pellucid", "joblib, Memory": "local"}
    made = {
        name: library.Memory(run.directory / backend, backend=backend, verbose=0).cache(square)
        for name, backend in backends.items()
        if run.takes(name.partition(",")[0])
    }
    hits = [
        statement(name, "call(4711)", {"call": call}, run.pace, is_ours=name == "pellucid")
        for name, call in made.items()
    ]
    run.measure(titles[0], Unit.TIME, hits, targets=[Target(50e-6)])
    numbers = iter(range(10**9))

    def miss(call: Callable[[int], int]) -> Callable[[], object]:
        return lambda: [call(next(numbers)) for _ in range(100)]

    misses = [timed(name, miss(call), 100, is_ours=name == "pellucid") for name, call in made.items()]
    run.measure(titles[1], Unit.TIME, misses, targets=[Target(50e-6)])
    if "pellucid" in made:
        made["pellucid"].store_backend._file.db.close()
    closed([], run)


def asked(*arguments: object) -> Any:
    """What the child program prints."""
    return child.answer([sys.executable, cache_child.__file__, *map(str, arguments)])


def processes(run: Run) -> None:
    """Eight processes on one cache: nine gets for a set."""
    title = "eight processes, 90 % gets and 10 % sets"
    if not run.wants(title):
        return
    measure = Measure(title, Unit.OPERATIONS, targets=[Target(20, "diskcache")], notes=["all eight together"])
    for name in ("pellucid", "diskcache"):
        if not run.takes(name) or (name != "pellucid" and run.rivals.find(name) is None):
            continue
        result = Result(name, is_ours=name == "pellucid")
        run.pace.on_progress(f"{title}: {name}")
        with kept(result):
            for _ in range(run.pace.rounds_of(3)):
                path = run.directory / "shared"
                answers = together("use", name, path, run.settings.seconds, count=8)
                result.costs.append(1 / sum(each["per_second"] for each in answers))
                closed([], run)
        measure.results.append(result)
    run.add(measure)


def together(*arguments: object, count: int) -> list[Any]:
    """What several child programs print that begin at the same moment."""
    moment = time.time() + 1.5
    words = [sys.executable, cache_child.__file__, *map(str, arguments), str(moment)]
    started = [
        subprocess.Popen(
            [*words, str(number)],
            env=child.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    ended = [(process, *process.communicate()) for process in started]
    for process, _, errors in ended:
        if process.returncode:
            raise RuntimeError(errors.strip().splitlines()[-1])
    return [json.loads(out) for _, out, _ in ended]


def flood(run: Run) -> None:
    """The most that file and log take at any moment, while several times the limit is set."""
    title = "a flood against a limit: the most that is on the disk, by the limit"
    if not run.wants(title) or not run.takes("pellucid"):
        return
    limit, total = run.settings.limit, run.settings.flood
    measure = Measure(
        title,
        Unit.FACTOR,
        [Result("pellucid", is_ours=True)],
        [Target(1.15)],
        [f"a limit of {limit:,} MB, {total:,} MB of values of 30 bytes to 2 MB, least recently used first"],
    )
    [result] = measure.results
    run.pace.on_progress(title)
    with kept(result):
        found = asked("flood", run.directory / "flood.pel", limit, total)
        result.costs.append(found["most"] / (limit * 1e6))
        result.facts["a set"] = f"{found['seconds'] / found['sets'] * 1e6:,.0f} us"
    closed([], run)
    run.add(measure)


def stampede(run: Run) -> None:
    """Many callers of one slow function, in eight processes: until all have the result."""
    title = "a stampede: until all callers of a function of 0.2 s are served"
    if not run.wants(title):
        return
    callers = run.settings.callers
    notes = [f"{callers} callers in eight processes, on one key"]
    measure = Measure(title, Unit.TIME, targets=[Target(0.4)], notes=notes)
    for name in ("pellucid", "diskcache"):
        if not run.takes(name) or (name != "pellucid" and run.rivals.find(name) is None):
            continue
        result = Result(name, is_ours=name == "pellucid")
        with kept(result):
            for _ in range(run.pace.rounds_of(3)):
                threads = max(1, callers // 8)
                answers = together("stampede", name, run.directory / "shared", threads, count=8)
                result.costs.append(max(each["seconds"] for each in answers))
                result.facts["calls"] = str(sum(each["calls"] for each in answers))
                closed([], run)
        measure.results.append(result)
    run.add(measure)


def loop_delay(run: Run) -> None:
    """How late an asyncio loop is that uses a cache, beside a process that writes much."""
    title = "asyncio: the delay of the loop, 999 of 1,000, beside a writer"
    if not run.wants(title) or not run.takes("pellucid"):
        return
    notes = ["above that of a loop which does nothing beside the same writer"]
    measure = Measure(title, Unit.TIME, [Result("pellucid", is_ours=True)], [Target(0.005)], notes)
    run.pace.on_progress(title)
    with kept(measure.results[0]):
        idle = []
        # One of a thousand steps: the figures of one round are often those of another program.
        for _ in range(run.pace.bulk_rounds):
            found = asked("loop", run.directory / "loop.pel", run.settings.beside)
            measure.results[0].costs.append(max(1e-6, found["using"] - found["idle"]))
            idle.append(found["idle"])
            closed([], run)
        measure.results[0].facts["idle"] = f"{statistics.median(idle) * 1e3:.2f} ms"
    run.add(measure)
