"""This module reads LMDB: a folder or a file, with its named databases; it needs the package lmdb."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Allowance, Job, Part, in_chunks

__all__ = ["parts"]

# The record of a named database in the main one, which LMDB calls MDB_db.
RECORD_SIZE = 48
NAMES_MAX = 10_000
# Where the two first pages of a file say how long a page is, which page is the last, and how new that is.
PAGE_MAX = 1 << 16
PAGE_SIZE, PAGE_SIZE_OFFSET = struct.Struct("=I"), 40
META, META_OFFSET = struct.Struct("=QQ"), 136


def parts(job: Job) -> Iterator[Part]:
    """The tables of the environment: its named databases, and the main one if it has rows itself."""
    try:
        import lmdb
    except ImportError as error:
        raise ImportError("LMDB files need the package lmdb: pip install lmdb") from error
    path = job.input.path
    if not job.input.is_plain_file:
        raise SourceError("LMDB cannot be read from a pipe, or compressed; name its file or folder")
    is_folder = os.path.isdir(path)
    lock = os.path.join(path, "lock.mdb") if is_folder else f"{path}-lock"
    data = os.path.join(path, "data.mdb") if is_folder else path
    job.input.watch(data)
    _check_length(job, data)
    try:
        # Without a lock file, no other process has it open, and this import leaves none behind.
        with lmdb.open(
            path,
            subdir=is_folder,
            readonly=True,
            lock=os.path.exists(lock),
            create=False,
            max_dbs=NAMES_MAX,
        ) as environment:
            yield from _parts(job, lmdb, environment, os.path.getsize(data))
    except lmdb.Error as error:
        raise job.damaged(error) from error


def _check_length(job: Job, path: str) -> None:
    """Raise `SourceError` if a file is cut off: LMDB would read behind its end, which ends the process."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(PAGE_MAX + META.size)
    (page_size,) = PAGE_SIZE.unpack_from(head.ljust(PAGE_MAX, b"\0"), PAGE_SIZE_OFFSET)
    found = []
    for offset in (0, page_size):
        meta = head[offset + META_OFFSET : offset + META_OFFSET + META.size]
        if len(meta) == META.size:
            found.append(META.unpack(meta))
    last_page = max(found, key=lambda meta: meta[1])[0] if len(found) == 2 else 1
    if size < (last_page + 1) * page_size:
        raise job.damaged(
            f"it has {size:,} bytes, and says that it has {(last_page + 1) * page_size:,}: it is cut off. If "
            "LMDB reads it, copy it with mdb_copy, and import the copy"
        )


def _parts(job: Job, lmdb: Any, environment: Any, size: int) -> Iterator[Part]:
    # A damaged tree may go in circles.
    allowance = Allowance(job.input.name, size)
    named = _named(lmdb, environment)
    with environment.begin() as transaction:
        count = transaction.stat()["entries"]
        if count > len(named) or not named:
            pairs = _pairs(job, lmdb, transaction, None, frozenset(named), allowance)
            yield Part(None if not named else "default", "pairs", in_chunks(pairs, "key", count))
        for name, database in named.items():
            count = transaction.stat(database)["entries"]
            pairs = _pairs(job, lmdb, transaction, database, frozenset(), allowance)
            yield Part(name.decode("utf-8", "replace"), "pairs", in_chunks(pairs, "key", count))


def _named(lmdb: Any, environment: Any) -> dict[bytes, Any]:
    found = {}
    with environment.begin() as transaction:
        names = [key for key, value in transaction.cursor() if len(value) == RECORD_SIZE]
    for name in names:
        try:
            found[name] = environment.open_db(name, create=False)
        except lmdb.Error:
            # Not a named database, but a row whose value has the same size.
            continue
    return found


def _pairs(
    job: Job, lmdb: Any, transaction: Any, database: Any, without: frozenset[bytes], allowance: Allowance
) -> Iterator[Any]:
    try:
        for key, value in _rows(transaction, database, without):
            allowance.take((key, *value) if isinstance(value, list) else (key, value))
            yield key, (key, value)
    except lmdb.Error as error:
        raise job.damaged(error) from error


def _rows(transaction: Any, database: Any, without: frozenset[bytes]) -> Iterator[Any]:
    cursor = transaction.cursor(database) if database is not None else transaction.cursor()
    is_multiple = bool(database is not None and database.flags(transaction).get("dupsort"))
    for key in cursor.iternext_nodup(values=False) if is_multiple else cursor.iternext(values=False):
        if key not in without:
            yield key, list(cursor.iternext_dup()) if is_multiple else cursor.value()
