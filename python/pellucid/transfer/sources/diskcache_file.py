"""This module reads the folder of a diskcache: its SQLite file, and the files of its large values."""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

from pellucid.transfer.job import Job, Part, in_chunks
from pellucid.transfer.sources.sqlite import check_read, check_table, opened

__all__ = ["parts"]

# How diskcache stores a value.
RAW, BINARY_FILE, TEXT_FILE, PICKLE = 1, 2, 3, 4


def parts(job: Job) -> Iterator[Part]:
    """The one table of a Cache or an Index, or of all shards of a FanoutCache."""
    path = job.input.path
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    shards = [folder] if os.path.exists(os.path.join(folder, "cache.db")) else []
    shards = shards or sorted(
        map(os.path.dirname, glob.glob(os.path.join(glob.escape(folder), "[0-9]*/cache.db")))
    )
    if not shards:
        raise job.damaged("it is not the folder of a diskcache, which has a file cache.db")
    yield Part(None, "pairs", in_chunks(_pairs(job, shards), "key"))


def _pairs(job: Job, shards: list[str]) -> Iterator[tuple[object, Any]]:
    now = time.time()
    # A file has the value of one key.
    taken: set[str] = set()
    for folder in shards:
        with opened(job.input.name, os.path.join(folder, "cache.db")) as reader:
            check_table(reader, "Cache")
            rows = reader.rows(
                "SELECT key, raw, expire_time, tag, mode, filename, value FROM Cache ORDER BY rowid"
            )
            for key, is_raw, expires, tag, mode, filename, value in rows:
                if expires is not None and expires < now:
                    job.skip(f"key {key!r}", "it has expired")
                    continue
                try:
                    check_read({"key": key, "filename": filename, "value": value})
                    found = _value(job, taken, folder, mode, filename, value)
                    pair = (key if is_raw else job.unpickle(key), found)
                    if job.entry is not None:
                        pair = job.entry(*pair, expires, tag)
                except (ValueError, TypeError, OSError, ImportError, AttributeError) as error:
                    job.skip(f"key {key!r}", str(error))
                    continue
                yield pair[0], pair


def _value(job: Job, taken: set[str], folder: str, mode: int, filename: str | None, value: Any) -> Any:
    if filename is not None:
        root = os.path.realpath(folder)
        path = os.path.realpath(os.path.join(root, filename))
        if os.path.commonpath([root, path]) != root:
            raise ValueError(f"its file {filename!r} is not inside the folder of the cache")
        if path in taken:
            raise ValueError(f"its file {filename!r} is that of another key")
        taken.add(path)
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"its file {filename!r} is no ordinary file")
        with open(path, "rb") as file:
            value = file.read()
    if mode == PICKLE:
        return job.unpickle(value)
    if mode == TEXT_FILE:
        return value.decode("utf-8") if isinstance(value, bytes) else value
    return value
