"""What does a cache do when the disk is full, or its file is damaged while it is open?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import faults
import pellucid
import pytest
from processes import Child


@pytest.fixture
def child(faulty: str) -> Iterator[Child]:
    """Another process, in which the system fails where it is told to."""
    with Child(preload=faulty) as process:
        process(faults.PRELUDE)
        process("import warnings; warnings.simplefilter('always')")
        yield process


FULL = "fault('fallocate', '.pel-log', errno.ENOSPC)"
ROOM = "fault('fallocate', '.pel-log', COUNT)"


@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_on_a_full_disk_a_cache_says_so_once_and_goes_on_without_storing(
    path: Path, child: Child, limit: int | None
) -> None:
    child(
        f"cache = pellucid.Cache({str(path)!r}, size_limit={limit}); cache['a'] = 1; cache['large'] = 'old'"
    )
    child("calls = []; slow = cache.memoize(name='slow')(lambda n: calls.append(n) or b'x' * 120_000)")
    child(FULL)
    child("found = warnings.catch_warnings(record=True); told = found.__enter__()")
    # The log may have room for one more.
    assert child("[cache.set('large', b'x' * 120_000) for _ in range(4)][1:]") == [False] * 3
    child("cache['large'] = b'x' * 120_000")
    assert child("[len(slow(1)), len(slow(1)), len(calls)]") == [120_000, 120_000, 2]
    assert child("[(each.category.__name__, 'without storing' in str(each.message)) for each in told]") == [
        ("DatabaseWarning", True)
    ]
    # What the value would have replaced is gone, and the rest is there.
    assert child("cache.get('large')") is None
    assert child("cache['a']") == 1
    child(ROOM)
    assert child("cache.set('large', b'x' * 120_000)") is True
    child("cache.close()")
    with pellucid.Cache(path) as cache:
        assert (len(cache["large"]), cache["a"]) == (120_000, 1)
        assert cache.check() == []


def test_a_number_that_cannot_be_stored_raises(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pellucid.Cache(path) as cache:
        assert cache.incr("n") == 1
        with monkeypatch.context() as full:
            full.setattr(cache, "_store", lambda _key, _row: False)
            with pytest.raises(pellucid.DiskFull, match="count again"):
                cache.incr("n")
        assert cache.incr("n") == 2


def flip(path: Path, part: bytes) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(part)
    while at >= 0:
        data[at - 2 : at] = b"\xff\xff"
        at = data.find(part, at + 1)
    path.write_bytes(data)


def test_a_damaged_entry_is_an_error_or_computed_again_if_told_to(path: Path) -> None:
    text = "damaged " * 20
    with pellucid.Cache(path) as cache:
        kept = cache.memoize(name="text")(lambda: text)
        assert kept() == text
        key = kept.__cache_key__()
    flip(path, text.encode())
    with pellucid.Cache(path) as cache, pytest.raises(pellucid.CorruptRecord):
        cache.memoize(name="text")(lambda: text)()
    with pellucid.Cache(path, on_damage="recreate") as cache:
        assert cache.memoize(name="text")(lambda: text)() == text
        assert cache[key] == text
