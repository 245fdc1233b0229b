"""This module uses LevelDB."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Pair, Player, Session
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return LevelDB."""
    plyvel = rivals.find("plyvel")
    if plyvel is None:
        return []
    put, get = "put(k.encode(), v.encode())", "get(k.encode()).decode()"
    return [Player("plyvel", partial(_open_plyvel, plyvel), put, get, "kill -9")]


def _open_plyvel(plyvel: ModuleType, path: Path) -> Session:
    database = plyvel.DB(str(path), create_if_missing=True)

    def fill(pairs: Iterable[Pair]) -> None:
        with database.write_batch() as batch:
            for key, value in pairs:
                batch.put(key.encode(), value.encode())

    names = {"put": database.put, "get": database.get}
    return Session(names, lambda: None, lambda: names, database.close, fill)
