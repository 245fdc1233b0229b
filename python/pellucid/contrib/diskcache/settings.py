"""This module has the constants, settings and warnings of diskcache."""

from __future__ import annotations

from pellucid import Busy
from pellucid.cache.limits import POLICIES

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "UNKNOWN",
    "Disk",
    "EmptyDirWarning",
    "JSONDisk",
    "Timeout",
    "UnknownFileWarning",
]

# Another caller had the lock for longer than `timeout`.
Timeout = Busy


class Constant(tuple):  # type: ignore[type-arg]
    """A value that stands for no value, and shows its name."""

    def __new__(cls, name: str) -> Constant:
        return tuple.__new__(cls, (name,))

    def __repr__(self) -> str:
        return str(self[0])


ENOVAL = Constant("ENOVAL")
UNKNOWN = Constant("UNKNOWN")

DEFAULT_SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 2**30,
    "cull_limit": 10,
    # These are about SQLite and its files. They are kept, and change nothing.
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 2**26,
    "sqlite_synchronous": 1,
    "disk_min_file_size": 2**15,
    "disk_pickle_protocol": 5,
}

# The names of the policies. diskcache has SQL under them.
EVICTION_POLICY: dict[str, dict[str, Any]] = {name: {} for name in POLICIES}


class EmptyDirWarning(UserWarning):
    """A folder of a cache is empty. There is none in a folder of pellucid."""


class UnknownFileWarning(UserWarning):
    """A file of a cache is unknown. There is none in a folder of pellucid."""


class Disk:
    """How diskcache would store values. pellucid stores them natively, so only the numbers are kept."""

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        self._directory = directory
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol


class JSONDisk(Disk):
    """How diskcache would store values as JSON. pellucid stores what JSON holds natively."""

    def __init__(self, directory: str, compress_level: int = 1, **options: Any) -> None:
        self.compress_level = compress_level
        super().__init__(directory, **options)
