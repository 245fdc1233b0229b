"""This module uses LevelDB. Where it stores records, it stores the JSON of orjson."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType

from pellucid_bench.contenders.dicts import Pair, Player, Session
from pellucid_bench.contenders.writers import PACK, Opened, Row, Writer
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


def _writer(plyvel: ModuleType, orjson: ModuleType) -> Writer:
    each = "iterator(start=pack(k), stop=pack(k + 100), include_key=False)"
    return Writer(
        "plyvel + orjson",
        "plyvel",
        partial(_open_alone, plyvel, orjson),
        put="put(pack(k), dumps(v))",
        age="loads(get(pack(k)))['age']",
        scan=f"for found in {each}: total += loads(found)['age']",
        change="v = loads(get(pack(k)))\nv['age'] += 1\nput(pack(k), dumps(v))",
        transaction="with batch() as puts:\n for k, v in pairs: puts.put(pack(k), dumps(v))",
        loop="for found in iterator(include_key=False): total += loads(found)['age']",
        is_shared=False,
    )


def _open_alone(plyvel: ModuleType, orjson: ModuleType, path: Path, *, full: bool = False) -> Opened:
    database = plyvel.DB(str(path), create_if_missing=True)
    names = {
        "put": database.put,
        "get": database.get,
        "iterator": database.iterator,
        "batch": partial(database.write_batch, sync=full),
        "dumps": orjson.dumps,
        "loads": orjson.loads,
        "pack": PACK,
    }

    def fill(rows: Iterable[Row]) -> None:
        with database.write_batch() as batch:
            for number, one in enumerate(rows):
                batch.put(PACK(number), orjson.dumps(one))
        finish_writes()

    def finish_writes() -> None:
        database.compact_range()

    return Opened(lambda: names, fill, finish_writes, database.close)


def writers(rivals: Rivals) -> list[Writer]:
    """Return LevelDB, which one process may have open."""
    modules = rivals.found(plyvel="plyvel", orjson="orjson")
    return [_writer(**modules)] if modules else []
