"""The files of other programs that the tests import, each written by the library that owns its format."""

from __future__ import annotations

import csv
import datetime
import dbm.dumb
import decimal
import importlib
import json
import pickle
import shelve
import sqlite3
import uuid
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Values that every source of pickles keeps exactly.
VALUES: dict[str, Any] = {
    "ann": {"n": 1, "born": datetime.date(2000, 1, 31), "tags": ["a", None], "big": 2**70},
    "bob": [1, 2.5, float("inf"), b"\x00", (1, "x"), {1, 2}],
    "cid": {"price": decimal.Decimal("1.10"), "id": uuid.UUID(int=5)},
    "dan": datetime.datetime(2000, 1, 31, 12, tzinfo=datetime.timezone.utc),
    "eve": [
        datetime.datetime(2000, 1, 31, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        bytearray(b"x"),
        b"",
        1j,
    ],
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "Ann", "zip": "01234", "score": 1.5},
    {"id": 2, "name": "Bob", "big": 2**70, "score": float("nan")},
]


class Own:
    """A class that no import may make unless it is asked to."""


def write_shelf(folder: Path) -> Path:
    with shelve.open(str(folder / "shelf")) as shelf:
        shelf.update(VALUES)
    return folder / "shelf"


def write_dumb_shelf(folder: Path) -> Path:
    with shelve.Shelf(dbm.dumb.open(str(folder / "dumb"), "c")) as shelf:
        shelf.update(VALUES)
    return folder / "dumb"


def write_shelf_in_sqlite(folder: Path) -> Path:
    """As dbm.sqlite3 of Python 3.13 writes it, which other Pythons do not have."""
    with sqlite3.connect(folder / "shelf.db") as connection:
        connection.execute("CREATE TABLE Dict (key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)")
        pairs = [(key.encode(), pickle.dumps(value)) for key, value in VALUES.items()]
        connection.executemany("INSERT INTO Dict VALUES (?, ?)", pairs)
    connection.close()
    return folder / "shelf.db"


def write_sqlitedict(folder: Path) -> Path:
    from sqlitedict import SqliteDict

    with SqliteDict(str(folder / "dict.sqlite"), autocommit=True) as found:
        found.update(VALUES)
    return folder / "dict.sqlite"


def write_diskcache(folder: Path) -> Path:
    import diskcache

    with diskcache.Cache(str(folder / "cache")) as cache:
        for key, value in VALUES.items():
            cache[key] = value
    return folder / "cache"


def write_fanout_cache(folder: Path) -> Path:
    import diskcache

    with diskcache.FanoutCache(str(folder / "fanout"), shards=3) as cache:
        for key, value in VALUES.items():
            cache[key] = value
    return folder / "fanout"


def write_pickle(folder: Path) -> Path:
    (folder / "values.pickle").write_bytes(pickle.dumps(VALUES))
    return folder / "values.pickle"


MAPPINGS: dict[str, Callable[[Path], Path]] = {
    "shelve": write_shelf,
    "shelve in dbm.dumb": write_dumb_shelf,
    "shelve in dbm.sqlite3": write_shelf_in_sqlite,
    "sqlitedict": write_sqlitedict,
    "diskcache": write_diskcache,
    "diskcache.FanoutCache": write_fanout_cache,
    "pickle": write_pickle,
}


def write_json_lines(folder: Path) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder / "rows.jsonl"


def write_json(folder: Path) -> Path:
    (folder / "rows.json").write_text(json.dumps(ROWS, indent=2))
    return folder / "rows.json"


def write_csv(folder: Path) -> Path:
    with open(folder / "rows.csv", "w", newline="") as file:
        rows = csv.DictWriter(file, ["id", "name", "zip", "big", "score"])
        rows.writeheader()
        rows.writerows(ROWS)
    return folder / "rows.csv"


def write_pickled_rows(folder: Path) -> Path:
    (folder / "rows.pkl").write_bytes(b"".join(map(pickle.dumps, ROWS)))
    return folder / "rows.pkl"


ROW_FILES: dict[str, Callable[[Path], Path]] = {
    "jsonl": write_json_lines,
    "json": write_json,
    "csv": write_csv,
    "pickle": write_pickled_rows,
}


def backends() -> list[str]:
    """The modules of dbm that this Python has."""
    found = []
    for name in ("dbm.dumb", "dbm.ndbm", "dbm.gnu", "dbm.sqlite3"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        found.append(name)
    return found
