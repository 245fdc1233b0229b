"""This module finds out what a file is: by its content, and by its suffix where that leaves a choice."""

from __future__ import annotations

import json
import os
import re

from pellucid.errors import SourceError
from pellucid.transfer.job import Input

__all__ = ["FORMATS", "detect"]

FORMATS = (
    *("jsonl", "json", "tinydb", "csv", "tsv", "parquet", "arrow"),
    *("sqlite", "sqlitedict", "diskcache", "lmdb", "dbm", "shelve", "pickle"),
)

LMDB_MAGIC = b"\xde\xc0\xef\xbe"
# How the tables of TinyDB begin. Few other files do, so that few are read to the end to know more.
TINYDB = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*(?:"\d+"\s*:\s*\{|\})')
PICKLES = (".pickle", ".pkl", ".p")
LINES = (".jsonl", ".ndjson")
SHEETS = (".csv", ".tsv")
# What is before the first value of JSON that is not damaged.
JSON_HEAD = re.compile(rb'\{\s*(?:["}]|\Z)|\[\s*(?:["\[{\]0-9-]|(?:true|false|null|NaN|Infinity)\b|\Z)')
# Names of columns in brackets, as some databases write them.
BRACKETS = re.compile(rb"\[[^\]\n]*\][,;\t|]")
# Characters that no text has. Some programs write NUL into texts, so that alone says nothing.
CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")
CONTROL_SEEN = 512


def detect(source: Input) -> str:
    """The format of a source, as one of `FORMATS`; raises `SourceError` if it is none of them."""
    from pellucid.transfer.sources import dbm_file

    if source.stream is None and not source.head:
        return _of_path(source)
    head = source.head
    if not head:
        raise SourceError(f"{source.name} is empty")
    if source.is_plain_file and dbm_file.is_part_of_dumb(source.path):
        # Its values begin like files of their own.
        return _of_dbm(source.path) or "dbm"
    found = _of_magic(source, head)
    if found is None and source.is_plain_file:
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

    if head.startswith(b"\xfd7zXZ"):
        raise SourceError(
            f"{source.name} is compressed by xz; decompress it first, as in: "
            f"unxz -c {source.name} | pellucid import FILE -"
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
    if head.startswith(b"PK\x03\x04"):
        raise _unknown(source, _zip(head))
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise _unknown(source, "a file of an old Excel or Word; save its sheet as CSV")
    if len(head) > 1 and head[0] == 0x80 and head[1] <= 5:
        return "pickle"
    return None


def is_database(path: str) -> bool:
    """Whether a file is a database of pellucid or LMDB, by its first bytes alone: nothing is opened."""
    try:
        with open(path, "rb") as file:
            return file.read(20)[16:] == LMDB_MAGIC
    except (FileNotFoundError, IsADirectoryError):
        return False


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


def _zip(head: bytes) -> str:
    """What a zip file is, by the names in it."""
    if b"xl/" in head or b"[Content_Types].xml" in head[:100]:
        return "an Excel workbook; save its sheet as CSV"
    if b"opendocument.spreadsheet" in head[:200]:
        return "a sheet of LibreOffice; save it as CSV"
    return "a zip archive; unpack it, and import its files"


def _of_text(source: Input, head: bytes) -> str:
    from pellucid.transfer.sources.csv_dialect import encoding_of

    suffix = source.suffix
    if suffix in PICKLES:
        return "pickle"
    encoding = encoding_of(head)
    text = head.removeprefix(b"\xef\xbb\xbf")
    if not encoding.startswith("utf-8") and text[:1] not in (b"{", b"["):
        # The last bytes may be a part of a character.
        text = head.decode(encoding, "ignore").encode("utf-8", "surrogatepass")
    text = text.lstrip()
    is_sheet = JSON_HEAD.match(text) is None and (suffix in SHEETS or BRACKETS.match(text) is not None)
    if text[:1] in (b"{", b"[") and not is_sheet:
        return _of_json(source, text, suffix)
    # DOS ended texts with one such character.
    seen = text.removesuffix(b"\x1a")[:CONTROL_SEEN]
    if (CONTROL.search(seen) and suffix not in SHEETS) or b"\x00" in text[:2]:
        raise _unknown(source, f"it begins with the bytes {head[:8].hex(' ')}")
    if suffix in LINES:
        return "jsonl"
    if suffix == ".json":
        return "json"
    if suffix in SHEETS or re.match(rb"[^\n,;\t|]*[,;\t|]", text):
        return "csv"
    raise _unknown(source, "a text that is neither JSON nor CSV")


def _of_json(source: Input, text: bytes, suffix: str) -> str:
    """A file that is one value is JSON, and one with more is JSON Lines, whatever its name and its lines.

    Both are read alike but for two things: the elements of a lone array are rows, and a line of JSON Lines
    that is broken is skipped.
    """
    from pellucid.transfer.sources.json_file import is_tinydb

    if suffix not in LINES and TINYDB.match(text) and is_tinydb(source):
        return "tinydb"
    line, newline, rest = text.partition(b"\n")
    if not newline and source.may_have_more:
        # How much of a pipe would have to be kept to know is not known, and most have rows.
        is_lines = text[:1] == b"{" and (source.stream is not None or suffix in LINES)
        return "jsonl" if is_lines or source.goes_on_after_line() else "json"
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        # Either the value goes on in the next line, or the line is broken.
        is_cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip())
        if suffix == ".json" or (is_cut and text[:1] == b"["):
            return "json"
        return "json" if suffix not in LINES and line.rstrip()[-1:] in (b"[", b"{", b",", b":") else "jsonl"
    if rest.strip() or (suffix in LINES and text[:1] == b"{"):
        return "jsonl"
    return "jsonl" if source.goes_on_after_line() else "json"


def _unknown(source: Input, what: str) -> SourceError:
    return SourceError(
        f"{source.name} has no format that an import knows: {what}. If it is one of these, say so with "
        f"format=: {', '.join(FORMATS)}"
    )
