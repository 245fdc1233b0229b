"""This module uses LMDB."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Pair, Player, Session
from pellucid_bench.rivals import Rivals


def players(rivals: Rivals) -> list[Player]:
    """Return LMDB with a transaction for each put, synced or not, and with one for all."""
    lmdb = rivals.find("lmdb")
    if lmdb is None:
        return []
    put = "with begin(write=True) as txn: txn.put(k.encode(), v.encode())"
    get = "begin().get(k.encode()).decode()"
    one_put, one_get = "put(k.encode(), v.encode())", "get(k.encode()).decode()"
    each, unsynced = partial(_open_lmdb, lmdb), partial(_open_lmdb, lmdb, sync=False)
    one = partial(_open_lmdb, lmdb, one_transaction=True)
    return [
        Player("lmdb, a transaction for each", each, put, get, "power loss"),
        Player("lmdb, a transaction for each, sync off", unsynced, put, get, "kill -9"),
        Player("lmdb, one transaction", one, one_put, one_get, "nothing"),
    ]


def _open_lmdb(lmdb: ModuleType, path: Path, *, sync: bool = True, one_transaction: bool = False) -> Session:
    environment = lmdb.open(str(path), map_size=1 << 40, subdir=False, sync=sync)

    def fill(pairs: Iterable[Pair]) -> None:
        with environment.begin(write=True) as txn:
            for key, value in pairs:
                txn.put(key.encode(), value.encode())

    if one_transaction:
        writer = environment.begin(write=True)
        names, complete = {"put": writer.put}, writer.commit
        return Session(names, complete, lambda: {"get": environment.begin().get}, environment.close, fill)
    names = {"begin": environment.begin}
    return Session(names, lambda: None, lambda: names, environment.close, fill)
