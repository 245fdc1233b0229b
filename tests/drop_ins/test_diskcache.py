"""Does `pellucid.contrib.diskcache` do what diskcache does?

`diskcache_suite.py` runs diskcache's own tests. Here each script runs over both, and their answers are
compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
import pellucid
import processes
import pytest
from pellucid.contrib import diskcache as ours

Script = Callable[[Any, str, Callable[[object], None]], None]


def answers(script: Script, library: Any, folder: Path) -> list[object]:
    """What a script notes: values, and the names of exceptions."""
    noted: list[object] = []
    folder.mkdir()
    script(library, str(folder), noted.append)
    return noted


def raised(work: Callable[[], object]) -> object:
    try:
        return work()
    except (KeyError, IndexError, ValueError, TypeError, AssertionError) as error:
        return type(error).__name__


def entries(library: Any, folder: str, note: Callable[[object], None]) -> None:
    with library.Cache(folder) as cache:
        for number, value in enumerate(
            [None, 1, 1.5, "text", b"bytes", (1, 2), [1, [2]], {"a": (1,)}, 2**80]
        ):
            note(
                cache.set(number, value, expire=1000 if number % 2 else None, tag="t" if number % 3 else None)
            )
            note((cache[number], cache.get(number, tag=True), type(cache[number]).__name__))
        note((cache.add(0, 1), cache.add("new", 1), cache.add("new", 2), len(cache)))
        note((cache.incr("n"), cache.incr("n", 5), cache.decr("n"), cache.incr("m", default=10)))
        note(raised(lambda: cache.incr("missing", default=None)))
        note((cache.pop("n"), cache.pop("n"), cache.pop("n", "none"), cache.pop(1, tag=True)))
        note((raised(lambda: cache["gone"]), raised(lambda: cache.__delitem__("gone")), cache.delete("gone")))
        note((cache.touch("new", 10), cache.touch("gone", 10), "new" in cache, "gone" in cache))
        note((cache.set("late", 1, expire=0.001), time.sleep(0.01), cache.get("late"), "late" in cache))
        note((raised(lambda: cache.__delitem__("late")), cache.touch("late"), cache.add("late", 2)))
        note((cache.evict("t"), cache.evict("t"), list(cache), list(reversed(cache)), cache.check()))
        note((cache.set("f", io.BytesIO(b"file"), read=True), cache["f"]))
        with cache.read("f") as file:
            note(file.read())
        note((cache.get("gone", read=True), raised(lambda: cache.read("gone"))))
        note((cache.expire(), cache.cull(), cache.clear(), len(cache), list(cache)))


def order(library: Any, folder: str, note: Callable[[object], None]) -> None:
    with library.Cache(folder) as cache:
        for key in ["b", "a", ("c", 1), ["list"], {"x": 1}, 5, None]:
            cache[key] = str(key)
        cache["b"] = "again"
        note((list(cache), list(reversed(cache)), cache[["list"]], cache[{"x": 1}]))
        del cache["b"]
        cache["b"] = "new"
        note((list(cache), cache.peekitem(), cache.peekitem(last=False)))
        cache.clear()
        for key in ("b", "a", "c"):
            cache[key] = 1
        note((list(cache.iterkeys()), list(cache.iterkeys(reverse=True))))
        cache.clear()
        note(raised(cache.peekitem))


def queues(library: Any, folder: str, note: Callable[[object], None]) -> None:
    with library.Cache(folder) as cache:
        note([cache.push(value) for value in "abc"])
        note(cache.push("first", side="front"))
        note([cache.push(value, prefix="jobs") for value in "xy"])
        note((cache.push("timed", expire=1000, tag="t", side="back"), cache.push("over", expire=-1)))
        note((cache.peek(), cache.peek(side="back"), cache.peek(prefix="jobs"), cache.peek(prefix="none")))
        note(cache.pull(side="back", tag=True))
        note([cache.pull() for _ in range(5)])
        note((cache.pull(default=5), cache.pull("jobs", side="back"), cache.pull("jobs"), cache.pull("jobs")))
        note(len(cache))


def functions(library: Any, folder: str, note: Callable[[object], None]) -> None:
    calls = []
    with library.Cache(folder) as cache:

        @cache.memoize(tag="t", ignore={1, "log"})
        def call(*arguments: Any, **keywords: Any) -> Any:
            calls.append(arguments)
            return arguments, sorted(keywords)

        note(
            (cache.stats(), call(1, 2), call(1, 3), call(1, 2, log=5), call([1], 2), call([1], 2), len(calls))
        )
        note((cache.stats(reset=True), cache.stats(enable=False), call.__cache_key__(1, 2) in cache))
        del cache[call.__cache_key__(1, 2)]
        note((call(1, 2), len(calls), cache.evict("t"), raised(lambda: cache.memoize(len))))

        @cache.memoize(typed=True)
        def typed(value: object) -> str:
            return type(value).__name__

        note((typed(1), typed(1.0), typed(1)))


def limits(library: Any, folder: str, note: Callable[[object], None]) -> None:
    for policy in ("least-recently-stored", "least-recently-used", "least-frequently-used", "none"):
        with library.Cache(
            os.path.join(folder, policy), eviction_policy=policy, size_limit=1_100_000, cull_limit=3
        ) as cache:
            for number in range(10):
                cache[number] = b"x" * 100_000
                time.sleep(0.002)
            for number in (0, 0, 0, 3, 3, 7):
                cache.get(number)
                time.sleep(0.002)
            note((len(cache), cache.set("more", b"x" * 100_000), sorted(cache, key=str)))
            note((cache.eviction_policy, cache.size_limit, cache.cull_limit, cache.reset("cull_limit", 0)))
            note((cache.cull() > 0, cache.volume() <= 1_100_000))


def sequences(library: Any, folder: str, note: Callable[[object], None]) -> None:
    deque = library.Deque("abcde", os.path.join(folder, "deque"))
    note((len(deque), deque[0], deque[-1], deque[2], raised(lambda: deque[9]), raised(lambda: deque[-9])))
    deque[1] = "B"
    del deque[2]
    deque.rotate(1)
    deque.extendleft([1, 2])
    deque += [3]
    note(
        (
            list(deque),
            list(reversed(deque)),
            deque.count(3),
            deque == [*deque],
            raised(lambda: deque < ["z"]),
            deque != [],
        )
    )
    deque.remove(3)
    deque.reverse()
    deque.rotate(-2)
    note((list(deque), raised(lambda: deque.remove(9)), raised(lambda: deque.rotate(0.5))))
    note((deque.pop(), deque.popleft(), deque.peek(), deque.peekleft(), deque.index(deque[1])))
    deque.maxlen = 2
    deque.append(7)
    note((list(deque), list(pickle.loads(pickle.dumps(deque))), list(deque.copy())))
    deque.clear()
    note((raised(deque.pop), raised(deque.popleft), raised(deque.peek), raised(deque.peekleft), list(deque)))
    with contextlib.suppress(ZeroDivisionError), deque.transact():
        deque.append(1)
        1 / 0
    note(list(deque))


def mappings(library: Any, folder: str, note: Callable[[object], None]) -> None:
    path = os.path.join(folder, "index")
    index = library.Index(path, [("b", 1), ("a", 2)], c=3)
    note((list(index), list(index.items()), list(index.values()), 2 in index.values(), len(index)))
    note((index == {"a": 2, "b": 1, "c": 3}, index == {"a": 2}, index != library.Index(path)))
    note((index.setdefault("d", 4), index.setdefault("d", 5), index.pop("a"), raised(lambda: index.pop("a"))))
    note((index.peekitem(), index.popitem(), index.popitem(last=False), list(reversed(index))))
    note((index.push("x"), index.push("y", side="front"), index.pull(), index.pull(side="back")))
    note((list(pickle.loads(pickle.dumps(index))), repr(index) == f"Index({path!r})"))
    index.clear()
    note((raised(index.popitem), len(index)))


def recipes(library: Any, folder: str, note: Callable[[object], None]) -> None:
    with library.Cache(folder) as cache:
        average = library.Averager(cache, "average")
        note([average.get(), average.add(1), average.add(2), average.get(), average.pop(), average.get()])
        lock = library.Lock(cache, "lock")
        note(lock.locked())
        with lock:
            note(lock.locked())
        again = library.RLock(cache, "again")
        again.acquire()
        with again:
            note(cache["again"][1])
        again.release()
        note(raised(again.release))
        semaphore = library.BoundedSemaphore(cache, "semaphore", value=2)
        semaphore.acquire()
        semaphore.release()
        note(raised(semaphore.release))
        slept = [100.0]

        @library.throttle(cache, 1, 4, time_func=lambda: sum(slept), sleep_func=slept.append)
        def work() -> int:
            return 1

        note((work(), work(), slept))

        @library.barrier(cache, library.Lock)
        def alone() -> int:
            return 2

        @library.memoize_stampede(cache, 60)
        def slow(number: int) -> int:
            return number

        note((alone(), slow(3), slow(3)))


def fanout(library: Any, folder: str, note: Callable[[object], None]) -> None:
    with library.FanoutCache(folder, shards=2, size_limit=10**9) as cache:
        for number in range(50):
            cache.set(number, number, tag="even" if number % 2 == 0 else None)
        note(
            (sorted(cache), len(cache), cache.get(3), cache.get(99, "none"), cache.evict("even"), len(cache))
        )
        note((cache.incr("n"), cache.decr("n"), cache.add("n", 1), cache.pop("n"), cache.touch(1, 100)))
        note((cache.size_limit, cache.delete(1), cache.delete(1), 3 in cache, raised(lambda: cache["gone"])))
        cache.cache("inner")["a"] = 1
        cache.deque("inner").append(2)
        cache.index("inner")["b"] = 3
        note((list(cache.cache("inner")), list(cache.deque("inner")), dict(cache.index("inner"))))
        note((cache.stats(), cache.get(3), cache.get("no"), cache.stats(), cache.clear(), cache.expire()))
        with cache.transact():
            cache["a"] = 1
        note(cache["a"])


SCRIPTS = [entries, order, queues, functions, limits, sequences, mappings, recipes, fanout]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_gets_the_answers_of_diskcache(script: Script, tmp_path: Path) -> None:
    assert answers(script, ours, tmp_path / "ours") == answers(script, diskcache, tmp_path / "theirs")


def test_the_names_are_those_of_diskcache() -> None:
    assert set(diskcache.__all__) - {"DjangoCache"} == set(ours.__all__)
    for name in ("Cache", "FanoutCache", "Deque", "Index", "Lock", "RLock", "Averager", "BoundedSemaphore"):
        public = {each for each in dir(getattr(diskcache, name)) if each[0] != "_"}
        assert public <= set(dir(getattr(ours, name))), name
    with pytest.raises(AttributeError):
        ours.missing  # type: ignore[attr-defined]


class Own:
    def __init__(self, number: int) -> None:
        self.number = number


def test_an_own_class_needs_the_one_argument_that_the_error_names(tmp_path: Path) -> None:
    with (
        ours.Cache(tmp_path / "a") as cache,
        pytest.raises(pellucid.UnsupportedValue, match=r'Cache\(\.\.\., pickle="allow"\)'),
    ):
        cache["own"] = Own(1)
    with ours.Cache(tmp_path / "a", pickle="allow") as cache:
        cache["own"] = Own(1)
        assert cache["own"].number == 1
        copy = pickle.loads(pickle.dumps(cache))
        assert copy["own"].number == 1


def test_arrays_of_a_value_can_be_changed(tmp_path: Path) -> None:
    with ours.Cache(tmp_path / "a") as cache:
        cache["a"] = {"list": [np.zeros(3), "x"], "tuple": (np.ones((2, 2), order="F"), 1)}
        cache["b"] = np.arange(100_000)
        kept = cache.memoize(name="kept")(lambda: np.zeros(3))
        for _ in range(2):
            assert kept().flags.writeable
            found = cache["a"]
            found["list"][0][0] += 1
            found["tuple"][0][0, 0] += 1
            assert (found["list"][0][0], found["tuple"][0][0, 0], found["list"][1]) == (1, 2, "x")
            assert found["tuple"][0].flags.f_contiguous
            assert cache.get("b").flags.writeable
            cache.push(np.zeros(3))
            assert cache.peek()[1].flags.writeable
            assert cache.pull()[1].flags.writeable
            cache["c"] = np.zeros(3)
            assert cache.pop("c").flags.writeable


def test_a_memoized_function_opens_a_closed_cache_again(tmp_path: Path) -> None:
    calls = []

    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    cache, fanout = ours.Cache(tmp_path / "a"), ours.FanoutCache(tmp_path / "b")
    made = [
        cache.memoize("f")(double),
        fanout.memoize("f")(double),
        ours.memoize_stampede(cache, 60, "g")(double),
    ]
    for _ in range(2):
        assert [function(3) for function in made] == [6] * 3
        assert made[0].__cache_key__(3) in cache
        cache.close()
        fanout.close()
    assert calls == [3] * 3


def test_a_folder_of_diskcache_is_refused_with_the_way_to_move(tmp_path: Path) -> None:
    diskcache.Cache(str(tmp_path / "old")).close()
    with pytest.raises(pellucid.NotADatabase, match="import_from"):
        ours.Cache(tmp_path / "old")


def test_a_closed_cache_opens_again(tmp_path: Path) -> None:
    cache = ours.Cache(tmp_path / "a")
    cache["a"] = 1
    cache.close()
    cache.close()
    assert cache["a"] == 1
    cache.reset("cull_limit", 3)
    cache.close()
    assert ours.Cache(tmp_path / "a").cull_limit == 3


def test_arguments_that_would_change_nothing_are_refused(tmp_path: Path) -> None:
    class Compressed(ours.Disk):
        pass

    with pytest.raises(ValueError, match="Compressed would not be used"):
        ours.Cache(tmp_path / "a", disk=Compressed)
    with pytest.raises(ValueError, match="as a class"):
        ours.Cache(tmp_path / "a", disk=ours.Disk("x"))
    with pytest.raises(ValueError, match="least-recently-used"):
        ours.Cache(tmp_path / "a", eviction_policy="lru")
    with pytest.raises(ValueError, match="front"):
        ours.Cache(tmp_path / "b").push(1, side="middle")
    assert ours.Cache(tmp_path / "c", disk=ours.JSONDisk, disk_compress_level=6).disk.compress_level == 6


def test_another_process_that_holds_the_lock_is_a_timeout(tmp_path: Path) -> None:
    cache = ours.Cache(tmp_path / "a", timeout=0.05)
    fanout = ours.FanoutCache(tmp_path / "a", timeout=0.05)
    cache["a"] = 1
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ours.Cache(tmp_path / "a").transact():
            holding.set()
            assert done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(60)
    with pytest.raises(ours.Timeout):
        cache.incr("n")
    assert fanout.set("b", 1) is False
    assert fanout.add("b", 1) is False
    assert fanout.incr("n") is None
    assert fanout.touch("a") is False
    assert fanout.pop("a", "none") == "none"
    done.set()
    thread.join()


def test_a_fanout_cache_tries_again_where_diskcache_does(tmp_path: Path) -> None:
    fanout = ours.FanoutCache(tmp_path / "a", timeout=0.01)
    fanout.set("gone", 1, tag="t")
    calls: list[Callable[[], object]] = [
        lambda: fanout.__setitem__("a", 1),
        lambda: fanout.set("b", io.BytesIO(b"x"), read=True, retry=True),
        lambda: fanout.add("c", 1, retry=True),
        lambda: fanout.incr("n", retry=True),
        lambda: fanout.evict("t"),
        lambda: fanout.__delitem__("n"),
    ]
    for call in calls:
        begun, done = threading.Event(), threading.Event()
        with ours.Cache(tmp_path / "a").transact():
            thread = threading.Thread(target=lambda: (begun.set(), call(), done.set()))  # noqa: B023
            thread.start()
            assert begun.wait(60)
            # Longer than its timeout.
            assert not done.wait(0.1)
        thread.join()
        assert done.is_set()
    assert {key: fanout[key] for key in fanout} == {"a": 1, "b": b"x", "c": 1}


def test_processes_push_and_pull_each_job_once(tmp_path: Path) -> None:
    with ours.Cache(tmp_path / "a") as cache:
        for number in range(60):
            cache.push(number)

        def work() -> None:
            with ours.Cache(tmp_path / "a") as mine:
                while (job := mine.pull()) != (None, None):
                    mine.push(job[1], prefix="done")

        threads = [threading.Thread(target=work)]
        threads[0].start()
        processes.in_child(work)
        threads[0].join()
        done = []
        while (job := cache.pull(prefix="done")) != (None, None):
            done.append(job[1])
        assert sorted(done) == list(range(60))


DJANGO = """
import sys, time
from django.conf import settings
backend = {"BACKEND": "pellucid.contrib.diskcache.DjangoCache", "LOCATION": sys.argv[1]}
settings.configure(CACHES={"default": backend})
from django.core.cache import cache
calls = []
@cache.memoize(timeout=60, tag="t")
def double(number):
    calls.append(number)
    return number * 2
cache.set("a", {"x": 1}, 60)
cache.set("gone", 1, 0)
assert cache.add("a", 2) is False and cache.get("a") == {"x": 1} and cache.get("gone") is None
assert cache.get_many(["a", "b"]) == {"a": {"x": 1}} and cache.has_key("a") and "b" not in cache
assert cache.incr("n", default=5) == 6 and cache.decr("n") == 5 and cache.pop("n") == 5
try:
    cache.incr("missing")
except ValueError:
    pass
assert (double(2), double(2), calls, cache.evict("t"), double(2), len(calls)) == (4, 4, [2], 1, 4, 2)
assert cache.touch("a", 100) and cache.delete("a") and not cache.delete("a")
assert cache.directory == sys.argv[1]
cache.deque("d").append(1); cache.index("i")["a"] = 1; cache.cache("c")["a"] = 1
assert list(cache.deque("d")) == [1] and cache.stats() == (0, 0)
assert cache.expire() in (0, 1) and cache.cull() == 0
cache.create_tag_index(); cache.drop_tag_index()
cache.set("file", b"x"); assert cache.read("file") is not None
assert cache.clear() > 0
cache.close()
assert (double(7), double(7), calls.count(7)) == (14, 14, 1)
print("done")
"""


def test_django_uses_it_as_a_backend(tmp_path: Path) -> None:
    program = [sys.executable, "-W", "ignore", "-c", DJANGO.replace("calls, cache", "list(calls), cache")]
    done = subprocess.run([*program, str(tmp_path / "django")], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
