"""This module uses RocksDB."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Player, Session, of_mapping
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return RocksDB as a dict."""
    rocksdict = rivals.find("rocksdict")
    if rocksdict is None:
        return []
    return [Player("rocksdict", partial(_open_rocks, rocksdict), "d[k] = v", "d[k]", "kill -9")]


def _open_rocks(rocksdict: ModuleType, path: Path) -> Session:
    return of_mapping(rocksdict.Rdict(str(path)), fills=True)
