"""Does an import fill a cache from the folders of diskcache, with times and tags?"""

from __future__ import annotations

import time
from pathlib import Path

import diskcache
import pellucid
import pytest
from pellucid import F


def test_a_folder_of_diskcache_becomes_a_cache(tmp_path: Path) -> None:
    now = time.time()
    with diskcache.Cache(str(tmp_path / "old"), cull_limit=0) as old:
        old.set("timed", [1, (2,)], expire=1000, tag="t")
        old.set("gone", 1, expire=-1)
        old[1, "x"] = "z" * 100_000
        old[{"a": 1}.__repr__(), None] = {"cache:tag": "t"}
        old["bytes"] = b"z"
    with pellucid.Cache(tmp_path / "new.pel") as cache:
        report = pellucid.import_from(tmp_path / "old", cache, verify=True)
        assert (report.rows, report.verified) == (4, True)
        assert [skipped.reason for skipped in report.skipped] == ["it has expired"]
        value, expire, tag = cache.get("timed", expire_time=True, tag=True)
        assert (value, tag) == ([1, (2,)], "t")
        assert now + 990 < expire < now + 1100
        assert cache[1, "x"] == "z" * 100_000
        assert cache.evict("t") == 1
        assert "tag" in str(cache.database.table("cache").where(F["cache:tag"] == "t").explain())
        assert cache.expire(now=now + 2000) == 0
        assert len(cache) == 3


def test_an_import_into_a_cache_with_a_limit_keeps_its_order(tmp_path: Path) -> None:
    with diskcache.FanoutCache(str(tmp_path / "old"), shards=2) as old:
        for number in range(50):
            old.set(number, b"x", expire=100)
    with pellucid.Cache(tmp_path / "new.pel", size_limit=1 << 30) as cache:
        assert pellucid.import_from(str(tmp_path / "old"), cache, dry_run=True).rows == 50
        assert len(cache) == 0
        pellucid.import_from(str(tmp_path / "old"), cache)
        assert sorted(cache) == list(range(50))
        assert cache.check() == []


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    with (
        pellucid.Cache(tmp_path / "new.pel") as cache,
        pytest.raises(ValueError, match="a cache takes folders of diskcache"),
    ):
        pellucid.import_from(tmp_path / "a.jsonl", cache)
