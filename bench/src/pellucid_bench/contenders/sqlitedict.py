"""This module uses sqlitedict."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Player, Session, of_mapping
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return a dict that commits each put, and one that commits once."""
    sqlitedict = rivals.find("sqlitedict")
    if sqlitedict is None:
        return []
    found = []
    for name, autocommit in (("autocommit", True), ("one commit", False)):
        opened = partial(_open_sqlitedict, sqlitedict, autocommit=autocommit)
        found.append(Player(f"sqlitedict, {name}", opened, "d[k] = v", "d[k]", "nothing"))
    return found


def _open_sqlitedict(sqlitedict: ModuleType, path: Path, *, autocommit: bool) -> Session:
    # Puts go to a thread through a queue; commit() waits for this thread.
    mapping = sqlitedict.SqliteDict(str(path), autocommit=autocommit)
    return of_mapping(mapping, mapping.commit)
