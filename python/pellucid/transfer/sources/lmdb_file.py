"""This module reads LMDB: a folder or a file, with its named databases; it needs the package lmdb."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Job, Part, in_chunks

__all__ = ["parts"]

# The record of a named database in the main one, which LMDB calls MDB_db.
RECORD_SIZE = 48
NAMES_MAX = 10_000


def parts(job: Job) -> Iterator[Part]:
    """The tables of the environment: its named databases, and the main one if it has rows itself."""
    try:
        import lmdb
    except ImportError as error:
        raise ImportError("LMDB files need the package lmdb: pip install lmdb") from error
    path = job.input.path
    if job.input.stream is not None:
        raise SourceError("LMDB cannot be read from a pipe; name its file or folder")
    is_folder = os.path.isdir(path)
    lock = os.path.join(path, "lock.mdb") if is_folder else f"{path}-lock"
    job.input.watch(os.path.join(path, "data.mdb") if is_folder else path)
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
            yield from _parts(job, lmdb, environment)
    except lmdb.Error as error:
        raise job.damaged(error) from error


def _parts(job: Job, lmdb: Any, environment: Any) -> Iterator[Part]:
    named = _named(lmdb, environment)
    with environment.begin() as transaction:
        count = transaction.stat()["entries"]
        if count > len(named) or not named:
            pairs = _pairs(job, lmdb, transaction, None, frozenset(named))
            yield Part(None if not named else "default", "pairs", in_chunks(pairs, "key", count))
        for name, database in named.items():
            count = transaction.stat(database)["entries"]
            pairs = _pairs(job, lmdb, transaction, database, frozenset())
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


def _pairs(job: Job, lmdb: Any, transaction: Any, database: Any, without: frozenset[bytes]) -> Iterator[Any]:
    try:
        yield from _rows(transaction, database, without)
    except lmdb.Error as error:
        raise job.damaged(error) from error


def _rows(transaction: Any, database: Any, without: frozenset[bytes]) -> Iterator[Any]:
    cursor = transaction.cursor(database) if database is not None else transaction.cursor()
    is_multiple = bool(database is not None and database.flags(transaction).get("dupsort"))
    for key in cursor.iternext_nodup(values=False) if is_multiple else cursor.iternext(values=False):
        if key not in without:
            yield key, (key, list(cursor.iternext_dup()) if is_multiple else cursor.value())
