"""What do the databases in fixtures/ hold?

Every later release must open them and give back exactly this. Nothing here may change: a new format gets
new contents and a new file. `python tests/kept_databases.py FOLDER` writes such files with today's code.
"""

from __future__ import annotations

import datetime as dt
import gzip
import os
import subprocess
import sys
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pellucid
from pellucid import F
from pellucid._native import _testing

NAMED_ZONE = zoneinfo.ZoneInfo("Europe/Berlin")
FIXED_ZONE = dt.timezone(dt.timedelta(hours=-3, minutes=-30))
AWARE = dt.datetime(2024, 10, 27, 2, 30, tzinfo=NAMED_ZONE, fold=1)

# Every type of the format, and what has broken codecs before: limits of widths, both zeros, surrogates.
VALUES: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 127, 128, 2**31, -(2**63), 2**63, 2**200, -(2**200)],
    "floats": [0.0, -0.0, 0.1, 5e-324, 1e300, float("inf"), float("-inf")],
    "complex": 1 - 2j,
    "strings": ["", "ascii", "caf\xe9", "\u65e5\u672c", "\U0001f600", "\ud800", "x" * 300],
    "bytes": [b"", b"\x00\xff", bytearray(b"array")],
    "decimals": [Decimal("1.10"), Decimal("-0"), Decimal("1E-7"), Decimal("7" * 60), Decimal("Infinity")],
    "dates": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.timedelta(days=-1, microseconds=1)],
    "times": [dt.time(23, 59, 59, 999999), dt.time(1, tzinfo=FIXED_ZONE)],
    "datetimes": [dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc), AWARE],
    "uuid": uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF),
    "tuple": (1, ("nested", ()), [2.5]),
    "sets": [{1, "a", None}, frozenset({2.5, b"b"})],
    "dict": {"b": 1, "a": {"deeper": [{"deepest": 0}]}, "items": "an attribute's name", "": "no name"},
    "odd_keys": {1: "int", None: "none", (1, "t"): "tuple", 2.5: "float"},
    "many_keys": {f"key {n}": n for n in range(20)},
    "packed_ints": list(range(-50, 1000)),
    "packed_floats": [n / 4 for n in range(300)],
    "array": numpy.arange(24, dtype="<f4").reshape(2, 3, 4),
    "fortran": numpy.asfortranarray(numpy.arange(6, dtype=">i8").reshape(2, 3)),
    "numpy_scalar": numpy.float32(0.1),
}
KEYS: list[Any] = [
    None,
    b"bytes",
    "",
    "str",
    "a\x00b",
    "k" * 600 + "a",
    "k" * 600 + "b",
    ("tuple", 1, ("nested", None)),
    -(2**70),
    -1.5,
    True,
    7,
    2**64,
    Decimal("1.10"),
    dt.date(2024, 2, 29),
    dt.datetime(2024, 2, 29, 12),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc),
    uuid.UUID(int=5),
]
LARGE = {"text": "large " * 2_000, "blob": bytes(range(256)) * 40, "small": 1}


def person(number: int) -> dict[str, Any]:
    """Row `number` of the table that has indexes."""
    return {
        "name": f"Person {number % 40}",
        "age": number % 90,
        "city": ["Bath", "York", "Wells"][number % 3],
        "email": f"P{number}@example.org",
        "tags": [f"t{number % 5}", f"t{number % 7}", number],
    }


def plain_tables() -> dict[str, dict[Any, Any]]:
    """The tables of a database without indexes."""
    return {
        "default": {"fred": {"name": "Fred Bloggs", "age": 22, "tags": ["a", "b", "c"]}, **VALUES},
        "values": {name: {"value": value, "twice": [value, value]} for name, value in VALUES.items()},
        "keys": {key: {"n": n} for n, key in enumerate(KEYS)},
        "large": {n: {**LARGE, "n": n} for n in range(3)},
        # Of 400 rows every third was deleted, and the others changed in place: the tree has free pages.
        "rows": {n: {"n": n, "text": f"row {n}", "count": n * 2} for n in range(400) if n % 3},
        "renamed \u65e5": {"k": "v"},
    }


def indexed_tables() -> dict[str, dict[Any, Any]]:
    """The tables of a database with indexes."""
    return {**plain_tables(), "people": {n: person(n) for n in range(300)}}


def place_rows() -> dict[Any, Any]:
    """Rows with values so large that a log has only their places in the file, and one beside a place."""
    data = bytes(range(256)) * 600
    return {
        "row": data,
        "text": "text " * 40_000,
        "record": {"n": 1, "image": b"image" + data, "apart": data[:40_000]},
        "array": {"n": 2, "samples": numpy.arange(20_000, dtype="<f8")},
        "replaced": b"new" + data,
    }


def placed_tables() -> dict[str, dict[Any, Any]]:
    """The tables of a database with a log that has places."""
    return {**indexed_tables(), "places": place_rows()}


def compressed_rows() -> dict[int, dict[str, Any]]:
    """Rows that are packed with trained dictionaries: half of them look different."""
    rows: dict[int, dict[str, Any]] = {n: person(n) for n in range(1_500)}
    for n in range(1_500, 12_000, 7):
        rows[n] = {
            "path": f"/static/{n % 40}/image-{n}.png",
            "status": 200 + n % 3,
            "agent": "Mozilla/5.0 (X11)",
        }
    return rows


def compressed_tables() -> dict[str, dict[Any, Any]]:
    """The tables of a database in which all tables are compressed."""
    return {**indexed_tables(), "compressed": compressed_rows()}


def write_compressed(path: Path) -> None:
    """Writes a database whose tables are compressed: most from the first row on, with any dictionary."""
    _testing.compress_all(True)
    _testing.limit_log(1 << 14)
    with pellucid.open(path, "n") as db:
        fill(db)
        index(db)
    _testing.compress_all(False)
    with pellucid.open(path) as db:
        db.table("compressed", compress=True).update(compressed_rows())
        db.table("compressed")[3].tags.append("t3")
        db.table("compressed")[3].tags.pop()
    _testing.limit_log(0)


def write_places(path: Path) -> None:
    """Puts the large values of a database into its log, in a process that dies."""
    db = pellucid.open(path)
    table = db.table("places")
    table["replaced"] = bytes(200_000)
    table["deleted"] = bytes(200_000)
    table.update(place_rows())
    del table["deleted"]
    db.sync()
    os.kill(os.getpid(), 9)


def fill(db: pellucid.Database) -> None:
    """Writes the plain tables into an empty database."""
    for name, rows in plain_tables().items():
        table = db.table(name)
        if name == "rows":
            table.update({n: {"n": n, "text": f"row {n}", "count": 0} for n in range(400)})
            db.sync()
            for n in range(0, 400, 3):
                del table[n]
            for n, row in rows.items():
                table[n].count = row["count"]
        else:
            table.update(rows)
    db.table("dropped").update({n: n for n in range(100)})
    db.drop_table("dropped")


def index(db: pellucid.Database) -> None:
    """Adds the table with indexes of every kind, made before and after its rows."""
    people = db.table("people")
    people.create_index("by_age", F.age)
    people.create_index("by_email", F.email.lower(), unique=True)
    people.update(indexed_tables()["people"])
    people.create_index("by_place", (F.city, F.age.desc()))
    people.create_index("by_tag", F.tags.each())
    people.create_index("adults", F.name, where=F.age >= 18)


def main(folder: Path) -> None:
    """Writes one database of each kind: without indexes, with indexes, and with logs of killed processes."""
    if folder.suffix == ".pel":
        write_places(folder)
    places = folder / "format-2-places.pel"
    with pellucid.open(places, "n") as db:
        fill(db)
        index(db)
    subprocess.run([sys.executable, __file__, places], check=False)
    # Most of it is room that was reserved.
    Path(f"{places}.gz").write_bytes(gzip.compress(places.read_bytes(), mtime=0))
    places.unlink()
    with pellucid.open(folder / "format-1.pel", "n") as db:
        fill(db)
    with pellucid.open(folder / "format-2.pel", "n", keep=1 << 20) as db:
        fill(db)
        index(db)
    compressed = folder / "format-3.pel"
    write_compressed(compressed)
    Path(f"{compressed}.gz").write_bytes(gzip.compress(compressed.read_bytes(), mtime=0))
    compressed.unlink()
    _testing.limit_log(1 << 17)
    with pellucid.open(folder / "format-2-log.pel", "n") as db:
        index(db)
    db = pellucid.open(folder / "format-2-log.pel")
    fill(db)
    os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
