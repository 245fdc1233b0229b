"""This module reads the files of dbm, with whichever of its backends wrote them, and shelves."""

from __future__ import annotations

import dbm
import importlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Job, Part, in_chunks

__all__ = ["locate", "looks_like_a_shelf", "parts", "parts_of_shelf"]

SUFFIXES = ("", ".db", ".dat", ".dir", ".pag", ".bak")


def locate(path: str) -> tuple[str, str] | None:
    """The name that dbm has for a file, and the module of its backend; None if it is not of dbm.

    A dbm adds suffixes to the name, so the path may have one too many.
    """
    stem, suffix = os.path.splitext(path)
    for name in (path, stem) if suffix in SUFFIXES else (path,):
        if found := dbm.whichdb(name):
            return name, found
    return None


def _open(path: str) -> Any:
    found = locate(path)
    if found is None:
        raise SourceError(f"{path} is not a file of dbm, or of a kind that this Python does not know")
    name, module = found
    try:
        backend = importlib.import_module(module)
    except ImportError:
        raise SourceError(
            f"{path} was written by {module}, which this Python does not have; convert it with a Python that "
            "has it: shelve or dbm.open the file there, and store its items in dbm.dumb"
        ) from None
    try:
        return backend.open(name, "r")
    except (OSError, ValueError, SyntaxError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def looks_like_a_shelf(path: str) -> bool:
    """Whether the first values of a dbm are pickles."""
    with _open(path) as file:
        values = [file[key] for key in itertools.islice(_keys(file), 8)]
    return bool(values) and all(value[:1] == b"\x80" and value[-1:] == b"." for value in values)


def parts(job: Job) -> Iterator[Part]:
    """The one table of a dbm: bytes under bytes, or what `types` makes of them."""
    yield from _parts(job, lambda key, value: (key, value))


def parts_of_shelf(job: Job) -> Iterator[Part]:
    """The one table of a shelf: objects under strings."""
    yield from _parts(job, lambda key, value: (key.decode("utf-8"), job.unpickle(value)))


def _shown(key: bytes) -> str:
    try:
        return f"key {key.decode('utf-8')!r}"
    except UnicodeDecodeError:
        return f"key {key!r}"


def _parts(job: Job, read: Any) -> Iterator[Part]:
    name = (locate(job.input.path) or (job.input.path,))[0]
    job.input.watch(*(name + suffix for suffix in SUFFIXES))
    with _open(job.input.path) as file:
        yield Part(None, "pairs", in_chunks(_pairs(job, file, read), "key", len(file)))


def _keys(file: Any) -> Iterator[bytes]:
    if hasattr(file, "firstkey"):
        # A dbm.gnu gives all its keys at once only as a list.
        key = file.firstkey()
        while key is not None:
            yield key
            key = file.nextkey(key)
    else:
        yield from file.keys()


def _pairs(job: Job, file: Any, read: Any) -> Iterator[tuple[object, Any]]:
    try:
        for key in _keys(file):
            try:
                pair = read(key, file[key])
            except (ValueError, ImportError, AttributeError) as error:
                job.skip(_shown(key), str(error))
                continue
            yield pair[0], pair
    except OSError as error:
        raise job.damaged(error) from error
