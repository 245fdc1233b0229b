"""This module finds out what a file is: by its content, and by its suffix where that leaves a choice."""

from __future__ import annotations

import json
import os
import re

from pellucid.errors import SourceError
from pellucid.transfer.job import Input

__all__ = ["FORMATS", "detect"]

FORMATS = (
    *("jsonl", "json", "tinydb", "csv", "parquet", "arrow"),
    *("sqlite", "sqlitedict", "diskcache", "lmdb", "dbm", "shelve", "pickle"),
)

COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}
LMDB_MAGIC = b"\xde\xc0\xef\xbe"
TINYDB = re.compile(rb'\s*\{\s*("[^"\\]*"\s*:\s*\{\s*"\d+"\s*:\s*\{|"_default"\s*:\s*\{\s*\})')
PICKLES = (".pickle", ".pkl", ".p")


def detect(source: Input) -> str:
    """The format of a source, as one of `FORMATS`; raises `SourceError` if it is none of them."""
    from pellucid.transfer.sources import dbm_file

    if source.stream is None and not source.head:
        return _of_path(source)
    head = source.head
    if not head:
        raise SourceError(f"{source.name} is empty")
    if source.stream is None and dbm_file.is_part_of_dumb(source.path):
        # Its values begin like files of their own.
        return _of_dbm(source.path) or "dbm"
    found = _of_magic(source, head)
    if found is None and source.stream is None:
        found = _of_dbm(source.path)
    if found is None:
        found = _of_text(source, head)
    return found


def _of_path(source: Input) -> str:
    path = source.path
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, "cache.db")) or os.path.exists(
            os.path.join(path, "000/cache.db")
        ):
            return "diskcache"
        if os.path.exists(os.path.join(path, "data.mdb")):
            return "lmdb"
        raise _unknown(source, "a folder without the files of a diskcache or of LMDB")
    if (found := _of_dbm(path)) is not None:
        return found
    if not os.path.exists(path):
        raise FileNotFoundError(2, "there is no such file, and no dbm of this name", path)
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (".jsonl", ".ndjson", ".json", ".csv"):
        raise SourceError(f"{source.name} is empty")
    raise _unknown(source, "an empty file")


def _of_magic(source: Input, head: bytes) -> str | None:
    from pellucid.transfer.sources import sqlite

    for magic, command in COMPRESSED.items():
        if head.startswith(magic):
            raise SourceError(
                f"{source.name} is compressed; decompress it first, as in: "
                f"{command} -c {source.name} | pellucid import FILE -"
            )
    if head.startswith(b"SQLite format 3\x00"):
        return sqlite.kind_of(source)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head[16:20] == LMDB_MAGIC:
        if source.path and _is_ours(source.path):
            raise SourceError(
                f"{source.name} is a pellucid database; pellucid.copy() copies its tables, as does "
                "the command pellucid copy"
            )
        return "lmdb"
    if len(head) > 1 and head[0] == 0x80 and head[1] <= 5:
        return "pickle"
    return None


def _is_ours(path: str) -> bool:
    import pellucid

    try:
        with pellucid.open(path, "r"):
            return True
    except pellucid.NotADatabase:
        return False


def _of_dbm(path: str) -> str | None:
    from pellucid.transfer.sources import dbm_file

    found = dbm_file.locate(path)
    if found is None:
        return None
    name = found[0]
    return "shelve" if dbm_file.looks_like_a_shelf(name) else "dbm"


def _of_text(source: Input, head: bytes) -> str:
    suffix = os.path.splitext(source.name)[1].lower()
    if suffix in PICKLES:
        return "pickle"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(suffix, "csv")
    if b"\x00" in head:
        raise _unknown(source, f"it begins with the bytes {head[:8].hex(' ')}")
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return _of_json(text, suffix)
    if suffix in (".csv", ".tsv") or re.match(rb"[^\n,;\t|]*[,;\t|]", text):
        return "csv"
    raise _unknown(source, "a text that is neither JSON nor CSV")


def _of_json(text: bytes, suffix: str) -> str:
    if TINYDB.match(text):
        return "tinydb"
    if suffix == ".json":
        # Many files with several values are called `.json`.
        first, _, rest = text.partition(b"\n")
        return "jsonl" if _is_value(first) and rest.strip()[:1] in (b"{", b"[") else "json"
    first, newline, _ = text.partition(b"\n")
    if not newline:
        return "json" if text[:1] == b"[" else "jsonl"
    # A value that goes on in the next line is no line of JSON Lines.
    return "json" if first.rstrip()[-1:] in (b"[", b"{", b",", b":") else "jsonl"


def _is_value(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _unknown(source: Input, what: str) -> SourceError:
    return SourceError(
        f"{source.name} has no format that an import knows: {what}. If it is one of these, say so with "
        f"format=: {', '.join(FORMATS)}"
    )
