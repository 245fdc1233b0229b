"""This module uses the dbm modules of the standard library, and shelve."""

from __future__ import annotations

import shelve
from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Player, Session, Survives, of_mapping
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return each dbm that this Python has, and shelve on the one that it prefers."""
    found = []
    kinds: list[tuple[str, Survives]] = [
        ("dbm.gnu", "kill -9"),
        ("dbm.sqlite3", "power loss"),
        ("dbm.ndbm", "nothing"),
        ("dbm.dumb", "nothing"),
    ]
    for name, survives in kinds:
        if module := rivals.find(name):
            opened = partial(_open_dbm, module, fills=name == "dbm.gnu")
            found.append(Player(name, opened, "d[k] = v", "d[k].decode()", survives))
    rivals.find("shelve")
    # The build of Python decides which dbm shelve uses, and so what a put survives.
    backend = _first_dbm(rivals)
    shelved = dict(kinds).get(backend, "nothing")
    return [*found, Player(f"shelve on {backend}", _open_shelf, "d[k] = v", "d[k]", shelved)]


def _first_dbm(rivals: Rivals) -> str:
    """Return the name of the module that `dbm.open` uses for a new file."""
    import dbm

    names: list[str] = getattr(dbm, "_names", ["dbm.gnu", "dbm.ndbm", "dbm.dumb"])
    return next((name for name in names if rivals.find(name) is not None), "dbm")


def _open_dbm(module: ModuleType, path: Path, *, fills: bool) -> Session:
    return of_mapping(module.open(str(path), "n"), fills=fills)


def _open_shelf(path: Path) -> Session:
    # It reads only what this run has written, and its session closes it.
    return of_mapping(shelve.open(str(path), "n"))
