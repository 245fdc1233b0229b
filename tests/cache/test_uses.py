"""What notes the uses of a cache's entries: the same slots everywhere, and no use of a map that is gone."""

from __future__ import annotations

import gc
import mmap
import time
from array import array
from pathlib import Path
from typing import Any

import pellucid
import processes
import pytest
from pellucid._native import NotedTable, UseSlots

KEYS: list[Any] = ["text", "\N{SNOWMAN}", "\ud800", b"bytes", 7, -(2**70), 1.5, None, (1, ("a", b"b"))]


def slots(count: int = 1 << 14) -> array[float]:
    return array("d", [0.0]) * count


def test_a_key_has_one_slot_in_all_processes_and_spellings() -> None:
    noted = UseSlots(slots(), False)
    mine = [noted.slot(key) for key in KEYS]
    assert len(set(mine)) == len(KEYS)

    def child() -> None:
        assert [UseSlots(slots(), True).slot(key) for key in KEYS] == mine

    processes.in_child(child)
    assert noted.slot(1) == noted.slot(1.0) == noted.slot(True)


def test_a_note_is_a_time_or_a_count() -> None:
    numbers = slots(4)
    times, counts = UseSlots(numbers, False), UseSlots(numbers, True)
    before = time.time()
    times.note("a")
    assert before - 1 <= numbers[times.slot("a")] <= time.time() + 1
    numbers[times.slot("a")] = 0.0
    counts.note("a")
    counts.note("a")
    assert sum(numbers) == numbers[counts.slot("a")] == 2.0


def test_a_lookup_notes_what_it_finds_alone(db: pellucid.Database) -> None:
    table, numbers = db.table("t", type=object), slots()
    table["a"] = table[None] = {"value": 1}
    noted = NotedTable(table, UseSlots(numbers, True))
    absent = object()
    assert noted.get("a", absent) == noted.get(None, absent) == {"value": 1}
    assert sum(numbers) == 2
    assert noted.get("b", absent) is absent
    assert noted.get([1], absent) is absent
    assert noted.get(float("nan"), absent) is absent
    assert sum(numbers) == 2
    with pytest.raises(pellucid.UnsupportedKey):
        UseSlots(numbers, True).note([1])
    db.close()
    with pytest.raises(pellucid.Closed):
        noted.get("a", absent)
    assert sum(numbers) == 2


@pytest.mark.parametrize(
    "numbers", [b"\0" * 64, memoryview(slots(8))[::2], slots(3), slots(0), array("q", [0])]
)
def test_other_buffers_are_refused(numbers: Any) -> None:
    with pytest.raises((ValueError, BufferError)):
        UseSlots(numbers, False)


def test_the_map_stays_as_long_as_it_is_noted_in() -> None:
    memory = mmap.mmap(-1, 1 << 17)
    noted = UseSlots(memoryview(memory).cast("d"), True)
    gc.collect()
    with pytest.raises(BufferError):
        memory.close()
    with pytest.raises(BufferError):
        memory.resize(4096)
    noted.note("a")
    del noted
    gc.collect()
    memory.close()


def test_a_lookup_from_before_a_larger_map_still_notes(path: Path) -> None:
    with pellucid.Cache(path, size_limit=32 << 20, policy="least-recently-used") as cache:
        cache["a"] = 1
        read = cache._read
        with pellucid.Cache(path, size_limit=1 << 30):
            cache["b"] = 2
            gc.collect()
            assert read("a", None) == cache.get("a") == 1
            assert "a" in cache
        assert cache.check() == []
