"""This module opens the file of a cache, and refuses what is no cache with a hint."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress

import pellucid
from pellucid.errors import CorruptRecord, DatabaseCorrupt, DatabaseWarning, NotADatabase

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["open_database", "path_of", "stored_limit", "whole"]

SUFFIXES = ("", "-log", "-lock", "-uses")


def path_of(target: Any) -> str:
    """The path of a cache as text; a folder is refused, one of diskcache with the way out of it."""
    path: str = os.fsdecode(target)
    if not path:
        raise FileNotFoundError(2, "the path of the cache is empty", path)
    if path.startswith(("postgresql:", "postgres:")):
        raise ValueError("a cache is a file, and this is the URL of a server; give it a path")
    if path != ":memory:" and os.path.isdir(path):
        shards = (os.path.join(path, "cache.db"), os.path.join(path, "000", "cache.db"))
        if any(map(os.path.exists, shards)):
            raise NotADatabase(
                f"'{path}' is a folder of diskcache. Choose a file for the cache, and copy the entries into "
                f"it: pellucid.import_from({path!r}, pellucid.Cache('cache.pel'))"
            )
        raise IsADirectoryError(21, "a cache is a file, and this is a folder", path)
    return path if path == ":memory:" else os.path.abspath(path)


def open_database(path: str, on_damage: str, options: dict[str, Any]) -> Any:
    """The database of a cache. With `on_damage="recreate"`, a damaged or foreign file is begun anew."""
    if on_damage not in ("raise", "recreate"):
        raise ValueError(f"on_damage must be 'raise' or 'recreate', not {on_damage!r}")
    try:
        return pellucid.open(path, **options)
    except (DatabaseCorrupt, NotADatabase) as error:
        if on_damage != "recreate" or not os.path.isfile(path):
            raise
        reason = str(error).removesuffix("; it was left as it is")
        warnings.warn(
            f"the file is deleted, and the cache begins anew: {reason}", DatabaseWarning, stacklevel=4
        )
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                os.remove(path + suffix)
        return pellucid.open(path, **options)


def stored_limit(db: Any) -> int:
    """The limit that the file of a cache has; 0 for none."""
    settings = db.table("cache info").get("settings")
    return 0 if settings is None else int(settings["size_limit"])


def whole(get: Callable[..., Any]) -> Callable[..., Any]:
    """The lookup of a cache that may begin anew: what is damaged is not there."""

    def look(key: Any, default: Any) -> Any:
        try:
            return get(key, default)
        except CorruptRecord:
            return default

    return look
