"""This module uses diskcache."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Player, Session, of_mapping
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return a cache without a limit of size."""
    diskcache = rivals.find("diskcache")
    if diskcache is None:
        return []
    return [Player("diskcache", partial(_open_cache, diskcache), "d[k] = v", "d[k]", "kill -9")]


def _open_cache(diskcache: ModuleType, path: Path) -> Session:
    # The default limit would evict values. The other databases keep all of them.
    return of_mapping(diskcache.Cache(str(path), size_limit=1 << 40))
