"""This package has the classes and functions of diskcache, over one file in the folder of each cache.

Changing the import is enough, unless values need pickle: then the error says that `pickle="allow"` does.
Arguments that are about SQLite are taken, and change nothing.
"""

from __future__ import annotations

from pellucid.contrib.diskcache.core import Cache
from pellucid.contrib.diskcache.fanout import FanoutCache
from pellucid.contrib.diskcache.persistent import Deque, Index
from pellucid.contrib.diskcache.recipes import (
    Averager,
    BoundedSemaphore,
    Lock,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)
from pellucid.contrib.diskcache.settings import (
    DEFAULT_SETTINGS,
    ENOVAL,
    EVICTION_POLICY,
    UNKNOWN,
    Disk,
    EmptyDirWarning,
    JSONDisk,
    Timeout,
    UnknownFileWarning,
)

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "UNKNOWN",
    "Averager",
    "BoundedSemaphore",
    "Cache",
    "Deque",
    "Disk",
    "EmptyDirWarning",
    "FanoutCache",
    "Index",
    "JSONDisk",
    "Lock",
    "RLock",
    "Timeout",
    "UnknownFileWarning",
    "barrier",
    "memoize_stampede",
    "throttle",
]


def __getattr__(name: str) -> object:
    """`DjangoCache`, which needs Django."""
    if name == "DjangoCache":
        from pellucid.contrib.diskcache.django import DjangoCache

        return DjangoCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
