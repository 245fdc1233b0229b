"""This module reads the files of dbm, with whichever of its backends wrote them, and shelves."""

from __future__ import annotations

import dbm
import importlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Allowance, Job, Part, in_chunks
from pellucid.transfer.safe_pickles import is_pickle

__all__ = ["is_part_of_dumb", "locate", "looks_like_a_shelf", "parts", "parts_of_shelf"]

# What opening a damaged dbm raises: dbm.dumb evaluates literals in its index.
DAMAGES = (OSError, ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError)
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
        file = backend.open(name, "r")
        if module == "dbm.dumb":
            _check_dumb(name, file)
    except DAMAGES as error:
        raise SourceError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error
    return file


def _check_dumb(name: str, file: Any) -> None:
    """Raise `ValueError` if the index of a dbm.dumb has a place outside of its values.

    It is a text of Python literals, and its places and lengths are used as they are.
    """
    size = os.path.getsize(f"{name}.dat")
    for key, found in file._index.items():
        begin, length = found if type(found) is tuple and len(found) == 2 else (None, None)
        if type(begin) is not int or type(length) is not int or not 0 <= begin <= begin + length <= size:
            index = f"{os.path.basename(name)}.dir"
            raise ValueError(f"{index} is damaged: {_shown(key)} has the place {found!r:.40}")


def looks_like_a_shelf(path: str) -> bool:
    """Whether the first values of a dbm are pickles."""
    with _open(path) as file:
        values = [file[key] for key in itertools.islice(_keys(file), 8)]
    return bool(values) and all(map(is_pickle, values))


def is_part_of_dumb(path: str) -> bool:
    """Whether a file is one of the three of a dbm.dumb."""
    stem, suffix = os.path.splitext(path)
    return suffix in (".dat", ".dir", ".bak") and dbm.whichdb(stem) == "dbm.dumb"


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
        yield Part(None, "pairs", in_chunks(_pairs(job, name, file, read), "key", len(file)))


def _keys(file: Any) -> Iterator[bytes]:
    if hasattr(file, "firstkey"):
        # A dbm.gnu gives all its keys at once only as a list.
        key = file.firstkey()
        while key is not None:
            yield key
            key = file.nextkey(key)
    else:
        yield from file.keys()


def _pairs(job: Job, name: str, file: Any, read: Any) -> Iterator[tuple[object, Any]]:
    files = filter(os.path.exists, (name + suffix for suffix in SUFFIXES))
    # The places of several keys may be the same bytes.
    allowance = Allowance(job.input.name, sum(map(os.path.getsize, files)))
    try:
        for key in _keys(file):
            value = file[key]
            allowance.take((key, value))
            try:
                pair = read(key, value)
            except (ValueError, ImportError, AttributeError) as error:
                job.skip(_shown(key), str(error))
                continue
            yield pair[0], pair
    except OSError as error:
        raise job.damaged(error) from error
