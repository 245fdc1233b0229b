"""Does a cache stay within its limit, and which entries go?"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pellucid
import processes
import pytest
from pellucid.cache import core, limits

LIMIT = 32 << 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a cache sees: later with each look."""
    now = [1_000_000.0]

    def look() -> float:
        now[0] += 1
        return now[0]

    monkeypatch.setattr(core, "time", look)
    monkeypatch.setattr(limits, "time", look)
    return now


def opened(path: Any, policy: str) -> Any:
    return pellucid.Cache(path, size_limit=LIMIT, policy=policy)


def evicted(cache: Any, count: int) -> list[Any]:
    """The entries that go first, by the cache's own order."""
    before = list(cache)
    with cache.transact():
        cache._order.evict(1 << 40, count)
    return [key for key in before if key not in cache]


@pytest.fixture(params=["file", "memory"])
def target(request: pytest.FixtureRequest, path: Path) -> Any:
    return path if request.param == "file" else ":memory:"


@pytest.mark.usefixtures("clock")
def test_least_recently_stored_goes_by_the_last_set(target: Any) -> None:
    with opened(target, "least-recently-stored") as cache:
        cache.update(dict.fromkeys(range(6), b"x"))
        cache[0] = b"y"
        assert cache[1] == b"x"
        assert evicted(cache, 3) == [1, 2, 3]
        assert cache.check() == []


def test_least_recently_used_goes_by_the_last_use(target: Any) -> None:
    with opened(target, "least-recently-used") as cache:
        cache.update({f"key {number}": number for number in range(6)})
        assert cache["key 0"] == 0
        assert cache.get("key 2", tag=True) == (2, None)
        cache["key 1"] = 1
        assert evicted(cache, 2) == ["key 3", "key 4"]
        assert "key 0" in cache
        assert evicted(cache, 2) == ["key 0", "key 5"]


@pytest.mark.usefixtures("clock")
def test_least_frequently_used_goes_by_the_count_of_uses(target: Any) -> None:
    with opened(target, "least-frequently-used") as cache:
        cache.update(dict.fromkeys(range(5), b"x"))
        for number, uses in {0: 4, 1: 1, 2: 3, 4: 2}.items():
            for _ in range(uses):
                assert cache[number] == b"x"
        assert evicted(cache, 2) == [1, 3]
        assert cache[4] == b"x"
        assert evicted(cache, 1) == [2]
        assert evicted(cache, 1) == [4]


@pytest.mark.usefixtures("clock")
def test_the_uses_by_another_process_count(path: Path) -> None:
    with opened(path, "least-recently-used") as cache:
        cache.update(dict.fromkeys(range(4), b"x"))

        def child() -> None:
            with pellucid.Cache(path) as other:
                assert other.policy == "least-recently-used"
                assert other[0] == b"x"
                assert other[1] == b"x"

        version = cache.database.stats()["version"]
        processes.in_child(child)
        assert cache.database.stats()["version"] == version
        assert evicted(cache, 2) == [2, 3]


@pytest.mark.usefixtures("clock")
def test_expired_entries_go_first(target: Any) -> None:
    with opened(target, "least-recently-used") as cache:
        cache["old"] = 1
        cache.set("expired", 1, expire=0.5)
        cache["new"] = 1
        assert evicted(cache, 1) == []
        assert dict.fromkeys(cache) == dict.fromkeys(["new", "old"])
        assert len(cache) == 2


def test_without_a_limit_or_under_the_policy_none_nothing_is_evicted(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        assert (cache.size_limit, cache.policy) == (0, "least-recently-stored")
        cache["a"] = 1
        assert cache.cull() == 0
        assert cache.database.tables() == ["cache"]
    with pellucid.Cache(path, size_limit=LIMIT, policy="none") as cache:
        for number in range(60):
            cache[number] = os.urandom(1 << 20)
        assert cache.cull() == 0
        assert len(cache) == 61


def size(path: Path) -> int:
    files = [path, path.with_name(f"{path.name}-log"), path.with_name(f"{path.name}-uses")]
    return sum(file.stat().st_blocks * 512 for file in files if file.exists())


# The promise: file, log and file of uses are never longer than this part of the limit.
MOST = 1.15


@pytest.mark.parametrize("policy", ["least-recently-stored", "least-recently-used", "least-frequently-used"])
def test_file_and_log_stay_within_the_limit_under_a_flood(path: Path, policy: str) -> None:
    rng, blob, most = random.Random(3), os.urandom(1 << 21), 0
    limit = 64 << 20
    with pellucid.Cache(path, size_limit=limit, policy=policy) as cache:
        for number in range(1200):
            cache[number] = blob[: int(10 ** rng.uniform(2, 6.2))]
            cache.get(rng.randrange(number + 1))
            most = max(most, size(path))
        assert 0.6 * limit < most < MOST * limit
        assert cache.check() == []
        assert 1199 in cache
        # Most of the room has entries.
        assert sum(len(value) for value in cache.values()) > 0.35 * limit


def test_a_limit_holds_for_small_values(path: Path) -> None:
    rng, blob, most = random.Random(4), os.urandom(1 << 14), 0
    with pellucid.Cache(path, size_limit=LIMIT) as cache:
        for number in range(30_000):
            cache[rng.random()] = blob[: int(10 ** rng.uniform(1, 4))]
            if number % 50 == 0:
                most = max(most, size(path))
        assert 0.6 * LIMIT < most < MOST * LIMIT
        assert cache.check() == []


def test_a_smaller_limit_evicts_down_to_it_and_not_much_further(path: Path) -> None:
    limit, blob = 64 << 20, os.urandom(100_000)
    with pellucid.Cache(path, size_limit=256 << 20) as cache:
        for number in range(1500):
            cache[number] = blob
    with pellucid.Cache(path, size_limit=limit) as cache:
        cache.cull()
        assert size(path) < limit
        assert 0.65 * limit < len(cache) * len(blob) < 0.9 * limit
        assert list(cache) == list(range(1500 - len(cache), 1500))
        # The pages of what went are free, and do not count again.
        assert cache.cull() < 50
        assert cache.check() == []


def test_a_limit_holds_for_several_processes_together(path: Path) -> None:
    limit = 64 << 20
    program = """
import os, pellucid, random, sys
rng, blob = random.Random(int(sys.argv[2])), os.urandom(1 << 20)
with pellucid.Cache(sys.argv[1]) as cache:
    for number in range(300):
        cache[sys.argv[2], number] = blob[: int(10 ** rng.uniform(3, 6))]
"""
    with pellucid.Cache(path, size_limit=limit, policy="least-recently-used") as cache:
        command = [sys.executable, "-c", program, str(path)]
        children = [subprocess.Popen([*command, str(number)]) for number in range(3)]
        most = 0
        while any(child.poll() is None for child in children):
            most = max(most, size(path))
            time.sleep(0.005)
        assert [child.returncode for child in children] == [0, 0, 0]
        assert 0.6 * limit < most < MOST * limit
        assert cache.check() == []


def test_what_a_transaction_takes_beyond_the_limit_is_made_up_for_by_the_next_set(path: Path) -> None:
    blob = os.urandom(100_000)
    with pellucid.Cache(path, size_limit=LIMIT) as cache:
        with cache.transact():
            for number in range(900):
                cache[number] = blob
            cache.incr("count")
            assert cache.add("more", blob)
        assert len(cache) == 902
        assert size(path) > 2 * LIMIT
        cache["next"] = blob
        assert size(path) < LIMIT
        assert "next" in cache
        assert len(cache) > 100
        assert cache.check() == []


def test_additions_of_all_kinds_stay_within_the_limit(path: Path) -> None:
    blob, most = os.urandom(300_000), 0
    with pellucid.Cache(path, size_limit=LIMIT) as cache:
        for number in range(200):
            assert cache.add(number, blob)
            cache.incr("count")
            cache.get_or_create(("made", number), lambda: blob)
            cache.touch(number, 100)
            most = max(most, size(path))
        assert most < MOST * LIMIT
        assert cache["count"] > 0


def test_a_snapshot_that_stays_stops_no_writer(path: Path) -> None:
    blob = os.urandom(100_000)
    with pellucid.Cache(path, size_limit=LIMIT) as cache:
        for number in range(300):
            cache[number] = blob
        with cache.database.snapshot():
            for number in range(600):
                cache[number] = blob
        # Its pages are free now.
        for number in range(100):
            cache[number] = blob
        assert size(path) < MOST * LIMIT


def test_a_limit_is_stored_and_holds_for_processes_that_had_the_cache_open(path: Path) -> None:
    with pellucid.Cache(path) as first:
        first["before"] = 1
        with pellucid.Cache(path, size_limit=LIMIT, policy="least-recently-used") as second:
            first["after"] = 2
            first.set("dict", {"a": 1}, tag="t")
            assert second.check() == []
            assert evicted(second, 2) == ["after", "before"]
    with pellucid.Cache(path) as cache:
        assert (cache.size_limit, cache.policy) == (LIMIT, "least-recently-used")
    with pellucid.Cache(path, size_limit=0) as cache:
        assert cache.size_limit == 0


@pytest.mark.usefixtures("clock")
def test_a_process_that_had_the_cache_open_notes_its_uses_from_its_next_miss_on(path: Path) -> None:
    with pellucid.Cache(path) as first:
        first.update(dict.fromkeys(range(3), b"x"))
        with opened(path, "least-recently-used") as second:
            assert first.get("none") is None
            assert first.get(0) == b"x"
            assert evicted(second, 2) == [1, 2]


@pytest.mark.parametrize("verb", ["clear", "delete", "pop", "evict", "expire"])
def test_what_a_process_that_had_the_cache_open_deletes_leaves_the_order(path: Path, verb: str) -> None:
    with pellucid.Cache(path) as first:
        for number in range(5):
            first.set(number, b"x", expire=-1 if number else None, tag="t")
        with opened(path, "least-recently-used") as second:
            arguments = {"delete": (0,), "pop": (0,), "evict": ("t",)}.get(verb, ())
            getattr(first, verb)(*arguments)
            assert second.check() == []
            assert len(second) < 5


def test_an_entry_that_is_set_while_another_process_sets_the_limit_is_in_the_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pellucid.Cache(path) as first:
        table = first._table

        class Late:
            """A table that is given a row after the limit was set."""

            def __getattr__(self, name: str) -> Any:
                return getattr(table, name)

            def __setitem__(self, key: Any, row: Any) -> None:
                monkeypatch.setattr(first, "_table", table)
                opened(path, "least-recently-used").close()
                table[key] = row

        first["before"] = 1
        monkeypatch.setattr(first, "_table", Late())
        first["while"] = 2
        assert first.check() == []
        assert len(first._order.rows) == 2


class Slotted:
    __slots__ = ("weights",)

    def __init__(self, number: int) -> None:
        self.weights = numpy.full(250_000, number + 0.1)


@pytest.mark.parametrize("verb", ["set", "add", "setdefault"])
def test_a_limit_holds_for_objects_and_for_each_verb(path: Path, verb: str) -> None:
    most = 0
    with pellucid.Cache(path, size_limit=LIMIT, pickle="allow") as cache:
        for number in range(40):
            getattr(cache, verb)(number, Slotted(number))
            most = max(most, cache.volume())
        assert len(cache) > 5
        assert cache.check() == []
    assert most < 1.15 * LIMIT


def test_a_large_value_evicts_no_small_ones_while_there_is_room(path: Path) -> None:
    with pellucid.Cache(path, size_limit=2 * LIMIT) as cache:
        for number in range(100):
            cache.set(number, number, expire=1000, tag="user")
        cache["large"] = os.urandom(12 << 20)
        assert len(cache) == 101


def test_a_miss_while_another_process_sets_the_limit_does_not_keep_the_old_settings(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pellucid.Cache(path) as first, pellucid.Cache(path) as second:
        first["before"] = 1
        begin = second._order.begin

        def begin_beside_a_miss() -> None:
            begin()
            # It sees the state before this transaction.
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(first.get, "none").result(60) is None

        monkeypatch.setattr(second._order, "begin", begin_beside_a_miss)
        second._change(size_limit=LIMIT)
        first["after"] = 2
        assert first.check() == []


def test_a_larger_limit_gives_more_slots_to_all_processes(path: Path) -> None:
    with pellucid.Cache(path) as first:
        first.update(dict.fromkeys(range(4), b"x"))
        small = len(first._uses.slots)
        with pellucid.Cache(path, size_limit=1 << 30, policy="least-recently-used") as second:
            first["new"] = 1
            assert len(first._uses.slots) == len(second._uses.slots) > small
            assert first[0] == b"x"
            assert first.get(1, tag=True) == (b"x", None)
            assert evicted(second, 3) == ["new", 2, 3]


def test_deletions_of_all_kinds_keep_the_order(target: Any) -> None:
    with opened(target, "least-recently-stored") as cache:
        for number in range(20):
            cache.set(number, b"x" * number, expire=100 if number % 2 else None, tag=number % 3)
        del cache[0]
        assert cache.pop(1) == b"x"
        assert cache.evict(2) == 6
        assert cache.incr("n", 5) == 5
        assert cache.touch(3, expire=0)
        assert cache.expire() == 1
        with contextlib.suppress(ZeroDivisionError), cache.transact():
            cache[100] = b"x"
            1 / 0
        assert cache.check() == []
        assert cache.clear() == len(range(20)) - 9 + 1
        assert cache.check() == []
        assert cache._order.totals["size"] == 0


def test_check_finds_an_order_that_was_changed_by_other_means(path: Path) -> None:
    with opened(path, "least-recently-stored") as cache:
        cache.update(dict.fromkeys(range(5), b"x"))
        cache.database.table("cache order").pop(3)
        assert "order" in cache.check(fix=True)[0]
        assert cache.check() == []
        assert evicted(cache, 5) == list(range(5))


def test_a_value_that_is_larger_than_the_limit_is_not_stored(path: Path) -> None:
    with opened(path, "least-recently-stored") as cache:
        cache["key"] = "old"
        with pytest.warns(pellucid.DatabaseWarning, match="larger than the limit"):
            assert cache.set("key", b"x" * (LIMIT + 1)) is False
        assert "key" not in cache
        assert cache.set("key", b"x") is True
        assert cache.check() == []


def test_an_eviction_stores_the_uses(path: Path) -> None:
    with opened(path, "least-recently-used") as cache:
        cache.update(dict.fromkeys(range(4), b"x"))
        assert cache[0] == b"x"
        assert evicted(cache, 1) == [1]
    os.remove(f"{path}-uses")
    with pellucid.Cache(path) as cache:
        assert evicted(cache, 2) == [2, 3]
