"""Is a cache a mapping whose entries expire, have a tag, and are what was stored?"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import pellucid
import processes
import pytest
from pellucid.cache import core


@pytest.fixture(params=["file", "memory"])
def cache(request: pytest.FixtureRequest, path: Path) -> Iterator[pellucid.Cache]:
    with pellucid.Cache(path if request.param == "file" else ":memory:") as opened:
        yield opened


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a cache sees, to be set by a test."""
    now = [1_000_000.0]
    monkeypatch.setattr(core, "time", lambda: now[0])
    return now


VALUES = [
    None,
    0,
    2**100,
    1.5,
    "text",
    b"bytes",
    (1, (2, None)),
    [1, [2]],
    {"a": {"b": (1,)}},
    {1: 2, (3, 4): 5},
    {1, 2},
    {"cache:value": 1},
    {"cache:value": 1, "cache:expire": 0.0},
    b"x" * 100_000,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("expire", [None, 60])
@pytest.mark.parametrize("tag", [None, "tag"])
def test_a_value_comes_back_as_it_was(cache: pellucid.Cache, value: Any, expire: Any, tag: Any) -> None:
    assert cache.set("key", value, expire=expire, tag=tag)
    found, until, tagged = cache.get("key", expire_time=True, tag=True)
    assert (found, type(found), tagged) == (value, type(value), tag)
    assert (until is None) == (expire is None)
    assert cache["key"] == cache.pop("key") == value
    assert "key" not in cache


def test_a_cache_is_a_mapping(cache: pellucid.Cache) -> None:
    model = {f"key {number}": [number] for number in range(20)}
    cache.update(model)
    cache["gone"] = 1
    del cache["gone"]
    assert dict(cache) == model
    assert list(reversed(cache)) == sorted(model, reverse=True)
    assert len(cache) == 20
    assert cache.setdefault("key 3", 0) == [3]
    assert bool(pellucid.Cache(":memory:"))
    with pytest.raises(KeyError):
        cache["gone"]
    with pytest.raises(KeyError):
        del cache["gone"]
    assert cache.clear() == 20
    assert list(cache) == []


def test_an_entry_expires_for_every_read_at_once(cache: pellucid.Cache, clock: list[float]) -> None:
    cache.set("short", 1, expire=10)
    cache.set("long", 2, expire=20)
    clock[0] += 10
    assert cache.get("short", "gone") == "gone"
    assert "short" not in cache
    assert list(cache) == list(reversed(cache)) == ["long"]
    assert list(cache.items()) == [("long", 2)]
    assert not cache.delete("short")
    cache.set("short", 1, expire=1)
    clock[0] += 1
    assert cache.pop("short", "gone") == "gone"
    assert not cache.touch("short")
    assert cache.add("short", 3)
    assert cache["short"] == 3


def test_expire_removes_what_has_expired_and_counts_it(cache: pellucid.Cache, clock: list[float]) -> None:
    assert cache.expire() == 0
    for number in range(100):
        cache.set(number, number, expire=number + 1)
    assert cache.expire(now=clock[0] + 11) == 11
    clock[0] += 50
    assert cache.expire(count_max=9) == 9
    assert cache.expire() == 30
    assert len(cache) == 50


def test_sets_remove_what_has_expired(cache: pellucid.Cache, clock: list[float]) -> None:
    for number in range(100):
        cache.set(number, number, expire=1)
    clock[0] += 2
    cache.set("later", 1, expire=1)
    assert len(cache) == 1


def test_sets_remove_what_expires_before_all_that_they_knew(path: Path, clock: list[float]) -> None:
    with pellucid.Cache(path) as cache, pellucid.Cache(path) as other:
        cache.set("late", 1, expire=1000)
        clock[0] += 2
        cache.set("soon", 1, expire=1)
        clock[0] += 2
        cache.set("late", 2, expire=1000)
        assert list(cache.database.table("cache")) == ["late"]
        clock[0] += 2
        # This look finds nothing, and the next one is about entries that only others know.
        cache.set("late", 3, expire=1000)
        other.set("of another", 1, expire=1)
        clock[0] += 2
        cache.set("late", 3, expire=1000)
        assert len(cache.database.table("cache")) == 2
        clock[0] += core.PAUSE_MAX
        cache.set("late", 4, expire=1000)
        assert list(cache.database.table("cache")) == ["late"]


def test_a_clock_that_is_set_back_lets_entries_live_longer_and_loses_none(
    cache: pellucid.Cache, clock: list[float]
) -> None:
    cache.set("key", 1, expire=10)
    clock[0] -= 1000
    assert cache["key"] == 1
    assert cache.get("key", expire_time=True)[1] == clock[0] + 1010
    clock[0] += 1010
    assert "key" not in cache


def test_evict_removes_the_entries_of_a_tag(cache: pellucid.Cache) -> None:
    for number in range(90):
        cache.set(number, number, tag=("red", "blue", 7)[number % 3])
    cache["plain"] = {"cache:tag": "red"}
    assert cache.evict("red") == 30
    assert cache.evict("red") == 0
    assert cache.evict(7) == 30
    assert len(cache) == 31


def test_touch_changes_the_time_and_keeps_the_tag(cache: pellucid.Cache, clock: list[float]) -> None:
    cache.set("key", {"a": 1}, tag="tag")
    assert cache.touch("key", expire=5)
    assert cache.get("key", expire_time=True, tag=True) == ({"a": 1}, clock[0] + 5, "tag")
    assert cache.touch("key")
    assert cache.get("key", expire_time=True, tag=True) == ({"a": 1}, None, "tag")
    assert not cache.touch("missing")


def test_numbers_count(cache: pellucid.Cache, clock: list[float]) -> None:
    assert cache.incr("n") == 1
    assert cache.incr("n", 5) == 6
    assert cache.decr("n", 2) == 4
    assert cache.incr("m", default=10) == 11
    with pytest.raises(KeyError):
        cache.incr("missing", default=None)
    cache.set("timed", 5, expire=10, tag="tag")
    assert cache.incr("timed") == 6
    assert cache.get("timed", expire_time=True, tag=True) == (6, clock[0] + 10, "tag")
    clock[0] += 10
    assert cache.incr("timed") == 1
    assert cache.get("timed", expire_time=True) == (1, None)


def test_a_key_that_is_no_key_of_a_table_goes_by_its_digest(cache: pellucid.Cache) -> None:
    key = {"names": ["ann"], "limit": 3}
    cache[key] = "found"
    assert cache[{"limit": 3, "names": ["ann"]}] == "found"
    assert key in cache
    assert cache.key(key) == ("digest", pellucid.digest(key))
    assert list(cache) == [cache.key(key)]
    assert cache.get(["other"]) is None
    assert cache.add(key, 1) is False
    assert cache.pop(key) == "found"
    assert cache.delete(key) is False
    assert cache.key(("plain", 1)) == ("plain", 1)


def test_a_key_without_a_stable_digest_is_refused(cache: pellucid.Cache) -> None:
    for unstable in (object(), lambda: 0, [io.StringIO()], {"a": object()}):
        with pytest.raises(pellucid.UnsupportedKey, match="no stable digest"):
            cache[unstable] = 1
        with pytest.raises(pellucid.UnsupportedKey):
            cache.get(unstable)
        assert unstable not in cache
    with pytest.raises(pellucid.UnsupportedKey):
        cache.key(lambda: 0)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


def test_an_object_needs_the_pickle_policy(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        with pytest.raises(pellucid.UnsupportedValue, match="pickle"):
            cache["point"] = Point(1)
        shared: list[int] = [1]
        cache["shared"] = [shared, shared]
        assert cache["shared"] == [[1], [1]]
    with pellucid.Cache(path, pickle="allow") as cache:
        cache.set("point", Point(1), expire=60)
        assert cache["point"] == Point(1)
        assert cache["shared"] == [[1], [1]]
    with pellucid.Cache(path) as cache, pytest.raises(pellucid.PickleDenied):
        cache["point"]


def test_a_transaction_of_a_cache_stores_all_or_nothing(cache: pellucid.Cache) -> None:
    cache["a"] = 1
    with contextlib.suppress(ZeroDivisionError), cache.transact():
        cache["a"] = 2
        cache.set("b", 1, expire=60, tag="t")
        cache.incr("n")
        1 / 0
    assert dict(cache) == {"a": 1}
    assert cache.evict("t") == 0
    with cache.transact():
        cache["a"] += 1
        cache["a"] += 1
    assert cache["a"] == 3


def test_an_index_whose_transaction_was_rolled_back_is_made_again(
    cache: pellucid.Cache, clock: list[float]
) -> None:
    with contextlib.suppress(ZeroDivisionError), cache.transact():
        cache.set("a", 1, expire=10, tag="t")
        1 / 0
    cache.set("b", 1, expire=10, tag="t")
    clock[0] += 20
    assert cache.expire() == 1
    cache.set("c", 1, expire=10, tag="t")
    assert cache.evict("t") == 1


def test_hits_and_misses_count_once_they_are_asked_for(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        cache["a"] = 1
        cache["a"]
        assert cache.stats() == (0, 0)
        for _ in range(10):
            cache.get("a")
        cache.get("b")
        cache.get(["c"])
        with pellucid.Cache(path) as other:
            other.get("a")
        assert cache.stats() == (11, 2)
        assert cache.stats(reset=True) == (11, 2)
        assert cache.stats(enable=False) == (0, 0)
        cache.get("a")
        assert cache.stats() == (0, 0)


def test_a_cache_opens_again_with_its_entries(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        cache.set("a", 1, expire=1000, tag="t")
        copy = pickle.loads(pickle.dumps(cache))
        assert copy["a"] == 1
        copy.close()
        assert repr(cache) == f"Cache({str(path)!r})"
        assert cache.path == str(path)
        assert cache.check() == []
        assert cache.volume() > 0
        assert list(cache.database.tables()) == ["cache", "cache info"][: len(cache.database.tables())]
    cache.close()
    for use in (lambda: cache["a"], lambda: cache.set("a", 1), lambda: cache.set("a", 1, 5), cache.clear):
        with pytest.raises(pellucid.Closed):
            use()
    with pellucid.Cache(path) as cache:
        assert cache.get("a", tag=True) == (1, "t")
    with pytest.raises(TypeError, match="in memory"):
        pickle.dumps(pellucid.Cache(":memory:"))


def test_a_forked_child_uses_the_cache_of_its_parent(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        cache["a"] = 1

        def child() -> None:
            assert cache["a"] == 1
            cache.set("b", 2, expire=60)
            cache.incr("n")

        processes.in_child(child)
        assert cache["b"] == 2
        assert cache.incr("n") == 2


def test_a_process_that_is_killed_inside_a_transaction_leaves_nothing_of_it(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        cache["a"] = 1
        child = processes.fork()
        if child == 0:
            with cache.transact():
                cache["a"] = 2
                os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        cache["b"] = 1
        assert dict(cache) == {"a": 1, "b": 1}


def test_a_folder_of_diskcache_is_refused_with_the_way_out_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        pellucid.Cache(folder)
    (folder / "cache.db").write_bytes(b"")
    with pytest.raises(pellucid.NotADatabase, match="import_from"):
        pellucid.Cache(folder)
    assert list(folder.iterdir()) == [folder / "cache.db"]


def test_a_foreign_or_damaged_file_is_begun_anew_only_if_told_to(path: Path) -> None:
    path.write_text("no database " * 1000)
    with pytest.raises(pellucid.NotADatabase):
        pellucid.Cache(path)
    assert path.read_text().startswith("no database")
    with pytest.warns(pellucid.DatabaseWarning, match="anew"):
        cache = pellucid.Cache(path, on_damage="recreate")
    cache["a"] = 1
    cache.close()
    with path.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(pellucid.DatabaseCorrupt):
        pellucid.Cache(path)
    with pytest.warns(pellucid.DatabaseWarning, match="anew"):
        cache = pellucid.Cache(path, on_damage="recreate")
    assert dict(cache) == {}
    cache.close()


def test_a_fork_while_a_thread_counts_does_not_block_the_child(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        cache["a"] = 1
        cache.stats()
        cache["a"]
        with cache._lock:
            processes.in_child(lambda: cache["a"])
        assert cache.stats() == (1, 0)


def test_times_may_be_timedeltas(cache: pellucid.Cache, clock: list[float]) -> None:
    begin, minute = clock[0], timedelta(minutes=1)
    cache.set("a", 1, expire=minute)
    cache.add("b", 2, expire=minute)
    cache.set("c", 3)
    assert cache.touch("c", expire=minute)
    assert cache.get_or_create("d", lambda: 4, expire=minute, stale=minute) == 4
    ends = [cache.get(key, expire_time=True)[1] for key in "abc"]
    assert ends == [begin + 60] * 3
    clock[0] += 60
    assert [cache.get(key) for key in "abc"] == [None] * 3
    assert cache.set("e", 5, expire=-minute)
    assert "e" not in cache


def test_one_caller_of_many_sets_a_default_and_one_gets_an_item(cache: pellucid.Cache) -> None:
    with ThreadPoolExecutor(4) as pool:
        for key in range(50):
            assert len(set(pool.map(lambda value, key=key: cache.setdefault(key, value), range(4)))) == 1
        got = list(pool.map(lambda _: cache.popitem()[0], range(50)))
    assert sorted(got) == list(range(50))
    with pytest.raises(KeyError):
        cache.popitem()


def test_wrong_arguments_are_refused_and_nothing_is_stored(cache: pellucid.Cache) -> None:
    for expire in ("60", True, [1]):
        with pytest.raises(TypeError, match="expire has to be a number of seconds or a timedelta"):
            cache.set("a", 1, expire=expire)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NaN"):
        cache.set("a", 1, expire=float("nan"))
    with pytest.raises(TypeError, match="timedelta64"):
        cache.set("a", 1, expire=numpy.timedelta64(1, "s"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expire has"):
        cache.touch("a", expire="60")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="now has"):
        cache.expire(timedelta(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stale=-1 is no time"):
        cache.memoize(expire=60, stale=-1)
    assert cache.set("gone", 1, expire=-(10**400))
    assert "gone" not in cache
    cache.clear()
    with pytest.raises(TypeError, match="expire has"):
        cache.memoize(expire="60")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stale has"):
        cache.memoize(expire=60, stale="60")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="class of exceptions"):
        cache.memoize(errors=KeyError("a"))  # type: ignore[arg-type]
    cache["text"] = "1"
    with pytest.raises(TypeError, match="'text' is a str"):
        cache.incr("text")
    assert dict(cache) == {"text": "1"}
    cache.set("over", 1, expire=0)
    cache.set("never", 1, expire=float("inf"))
    assert (cache.get("over"), cache["never"]) == (None, 1)


def test_wrong_options_are_refused(path: Path) -> None:
    with pytest.raises(TypeError, match="number of bytes"):
        pellucid.Cache(path, size_limit="1GB")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="empty"):
        pellucid.Cache("")
    with pytest.raises(ValueError, match="URL of a server"):
        pellucid.Cache("postgresql://host/database")
    with pytest.raises(ValueError, match="least-recently-used"):
        pellucid.Cache(path, policy="lru")
    with pytest.raises(ValueError, match="33,554,432"):
        pellucid.Cache(path, size_limit=1000)
    with pytest.raises(ValueError, match="recreate"):
        pellucid.Cache(path, on_damage="ignore")
    assert not path.exists()


def test_another_file_in_the_place_of_the_uses_is_refused(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("text")
    (tmp_path / "test.pel-uses").symlink_to(target)
    with pytest.raises(OSError, match="pel-uses"):
        pellucid.Cache(path)
    assert target.read_text() == "text"


def test_what_expires_and_tags_are_found_by_indexes(cache: pellucid.Cache) -> None:
    for number in range(3000):
        cache.set(number, number, expire=1000, tag=number % 2)
    assert cache.expire() == 0
    assert cache.evict("missing") == 0
    table = cache.database.table("cache")
    for condition, index in (
        (pellucid.F["cache:tag"] == 1, "tag"),
        (pellucid.F["cache:expire"] < 1.0, "expire"),
    ):
        assert f'"{index}"' in str(table.where(condition).explain())


def test_values_leave_out_what_goes_while_they_are_read(cache: Any) -> None:
    cache.update(dict.fromkeys(range(4), "x"))
    cache.set(4, None)
    values = iter(cache.values())
    items = iter(cache.items())
    assert (next(values), next(items)) == ("x", (0, "x"))
    del cache[1]
    assert list(values) == ["x", "x", None]
    assert list(items) == [(2, "x"), (3, "x"), (4, None)]
    assert "x" in cache.values()
    assert (4, None) in cache.items()
