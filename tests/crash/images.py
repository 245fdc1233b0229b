"""Which databases are damaged, and what is in them?

Each population is made once, and kept as bytes: at rest; with a log that a dead process left, of which
nothing or everything was known to be on the disk; and after that log went into the file. Populations have
what has a form of its own in the files: indexes, large values, free pages, many tables, long keys, compressed
rows, objects.

The content of a database is the sum of the hashes of its rows. So what is there after each commit is known
without reading everything after each.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import hashlib
import os
import resource
import signal
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pellucid
from pellucid import KEY, F
from pellucid._native import _testing
from processes import fork

SEGMENT_SIZE = 1 << 19
"""Of the log: what is done to each database fits into it."""
HEAD_SIZE, PIECE_SIZE = 40_960, 1 << 16
"""Of the log; pieces belong to the first and the second segment in turn."""
TAIL, SEGMENT_BEGIN = 128, 4096
"""Places of words in the log: the position after its last commit, and the one at which its segment begins."""
MEMORY_MAX = 4 << 30
"""Bytes that a child may ask for: what a forged number asks for ends it."""
SECONDS_MAX = 60

DEFAULT = "default"
"""The name of the table that a database itself is."""

Change = tuple[Any, ...]
"""The name of a table, a key, and the value that is put there. Without a value the row is deleted, and
without a key the table is dropped."""


# What databases are made of


def _records(numbers: Iterator[int] | range) -> dict[Any, Any]:
    return {n: {"a": n, "b": -n % 97, "tags": [n % 5, n % 7], "text": f"row {n}"} for n in numbers}


def _with_indexes(db: Any) -> None:
    table = db.table("t")
    table.update(_records(range(600)))
    _index(table)


def _index(table: Any) -> None:
    table.create_index("a", F.a, unique=True)
    table.create_index("text", (F.text.desc(), F.b))
    table.create_index("tags", F.tags.each())
    table.create_index("some", F.b, where=F.a > 100)
    table.create_index("key", (KEY, F.b))


def _change_indexes() -> Iterator[list[Change]]:
    for n in range(0, 600, 3):
        yield [("t", n, {"a": n, "b": 5, "tags": [n % 3], "text": f"other {n}"})]
    for n in range(1, 600, 9):
        yield [("t", n)]


def _with_values(db: Any) -> None:
    for n in range(40):
        db[n] = {"n": n, "bytes": bytes([n]) * (3000 + 977 * n % 30_000), "text": "x" * (n * 53 % 3000)}


def _change_values() -> Iterator[list[Change]]:
    for n in range(0, 40, 4):
        yield [(DEFAULT, n, {"n": n, "bytes": b"new" * (n * 100), "text": "y" * 2500})]
    for n in range(1, 40, 5):
        yield [(DEFAULT, n)]


def _with_large_values(db: Any) -> None:
    # From 128 KiB on a value is written to the file ahead of its commit.
    for n in range(4):
        db[n] = {"n": n, "bytes": bytes([n]) * (131_072 + n * 20_000)}
    db["alone"] = b"alone" * 30_000


def _change_large_values() -> Iterator[list[Change]]:
    for n in range(8):
        yield [(DEFAULT, n % 3, {"n": n, "bytes": bytes([100 + n]) * (131_072 + n * 5_000)})]
        yield [(DEFAULT, f"small {n}", n)]
    yield [(DEFAULT, "alone")]
    yield [(DEFAULT, "one", b"1" * 140_000), (DEFAULT, "two", b"2" * 200_000), (DEFAULT, 1)]


def _with_free_pages(db: Any) -> None:
    for part in range(6):
        db.update({n: {"a": n, "text": "x" * (n * 7 % 120)} for n in range(part * 500, part * 500 + 700)})
        db.sync()
    for part in (1, 3, 4):
        with db.transaction():
            for n in range(part * 500, part * 500 + 400):
                del db[n]
        db.sync()


def _change_free_pages() -> Iterator[list[Change]]:
    for n in range(100, 500, 2):
        yield [(DEFAULT, n)]
    for n in range(3200, 3400, 4):
        yield [(DEFAULT, n + more, {"a": n, "text": "z" * 100}) for more in range(4)]
    for n in range(2500, 3100, 12):
        yield [(DEFAULT, n + more) for more in range(12)]


def _with_many_tables(db: Any) -> None:
    with db.transaction():
        for n in range(1200):
            db.table(f"the table of the number {n:05}")[n] = {f"field{n % 50}": n}


def _change_many_tables() -> Iterator[list[Change]]:
    for n in range(0, 1200, 8):
        yield [(f"the table of the number {n:05}", "more", {"m": n})]
    for n in range(3, 1200, 60):
        yield [(f"the table of the number {n:05}",)]


def _with_long_keys(db: Any) -> None:
    db.update({f"{n:04}" + "k" * 400: {"n": n} for n in range(900)})


def _change_long_keys() -> Iterator[list[Change]]:
    for n in range(100, 420, 2):
        yield [(DEFAULT, f"{n + more:04}" + "k" * 400) for more in range(2)]
    for n in range(0, 100, 7):
        yield [(DEFAULT, f"{n:04}" + "k" * 300, {"n": -n})]


def _with_compacted(db: Any) -> None:
    _with_free_pages(db)
    db.compact()


def _with_history(db: Any) -> None:
    for n in range(400):
        db[n] = {"a": n, "text": "x" * 400}
        if n % 100 == 0:
            db.sync()


def _change_history() -> Iterator[list[Change]]:
    for n in range(0, 400, 2):
        yield [(DEFAULT, n, {"a": -n, "text": "y" * 100})]


def _with_compressed(db: Any) -> None:
    table = db.table("packed", compress=True)
    for part in range(3):
        rows = _records(range(part * 400, part * 400 + 400))
        table.update(
            {n: {**row, "text": f"a row with the number {n}, and more text" * 3} for n, row in rows.items()}
        )
        db.sync()
    table.create_index("a", F.a, unique=True)
    table.create_index("tags", F.tags.each())


def _change_compressed() -> Iterator[list[Change]]:
    for n in range(0, 600, 6):
        yield [("packed", n, {"a": n, "b": 5, "tags": [n % 3], "text": f"a row with another number {n}" * 4})]
    for n in range(1, 600, 12):
        yield [("packed", n), ("packed", n + 1200, {"a": n + 1200, "b": 1, "tags": [], "text": "a row" * 9})]


def _object(n: int) -> Any:
    made: list[Any] = [
        (f"thing {n}", decimal.Decimal(n) / 8, {1: n, "part": None}),
        uuid.UUID(int=n),
        [datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(n), complex(n, 1)],
        {"x": n, (1, n): (decimal.Decimal("0.10"), ()), "text": "t" * (n * 31 % 2000)},
    ]
    return made[n % len(made)]


def _with_objects(db: Any) -> None:
    db.table("objects", type=object).update({n: _object(n) for n in range(300)})


def _change_objects() -> Iterator[list[Change]]:
    for n in range(0, 300, 3):
        yield [("objects", n, _object(n + 1))]
    for n in range(1, 300, 9):
        yield [("objects", n)]


Make, Commits = Callable[[Any], None], Callable[[], Iterator[list[Change]]]
POPULATIONS: dict[str, tuple[Make, Commits, dict[str, Any]]] = {
    "indexes": (_with_indexes, _change_indexes, {}),
    "values": (_with_values, _change_values, {}),
    "large values": (_with_large_values, _change_large_values, {}),
    "free pages": (_with_free_pages, _change_free_pages, {}),
    "many tables": (_with_many_tables, _change_many_tables, {}),
    "long keys": (_with_long_keys, _change_long_keys, {}),
    "compacted": (_with_compacted, _change_free_pages, {}),
    "history": (_with_history, _change_history, {"keep": 1 << 17}),
    "compressed": (_with_compressed, _change_compressed, {}),
    "objects": (_with_objects, _change_objects, {}),
}
"""What a database is made of, the commits that its log has then, and how it is opened."""


# What is in them


Rows = dict[str, dict[Any, int]]
"""The hash of each row, by table and key."""


@dataclass
class Image:
    """The files of a database, and what is in it."""

    name: str
    data: bytes
    log: bytes
    """Empty for a database at rest."""
    contents: list[int]
    """What is there after each commit in the log; at first, without any of them."""
    ends: list[int] = field(default_factory=list)
    """The positions in the log after each of these commits."""

    is_synced: bool = False
    """Whether the log says that all of them are on the disk."""
    index_order: str | None = None
    """What the indexes lead to after all of them."""

    def whole_before(self, at: int) -> int:
        """How many commits are whole in a log that is damaged from this byte of the file on."""
        piece, rest = divmod(at - HEAD_SIZE, PIECE_SIZE)
        if piece % 2:
            # A piece of the other segment, which has no commits.
            piece, rest = piece + 1, 0
        position = word_of(self.log, SEGMENT_BEGIN) + piece // 2 * PIECE_SIZE + rest
        return sum(end <= position for end in self.ends)


def word_of(log: bytes, offset: int) -> int:
    """A word of the log."""
    return int.from_bytes(log[offset : offset + 8], "little")


def _hash(*parts: Any) -> int:
    sums = hashlib.blake2b(digest_size=8)
    for part in parts:
        # A large value as it is: it would be four times as long in words.
        sums.update(bytes(part) if isinstance(part, bytes) else repr(part).encode())
    return int.from_bytes(sums.digest(), "little")


def hash_of(name: str, key: Any, value: Any) -> int:
    """The hash of a row."""
    if isinstance(value, pellucid.Record):
        value = value.to_dict()
    return _hash(name, key, *value.items()) if _is_plain(value) else _hash(name, key, value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def table_of(db: Any, name: str) -> Any:
    """A table as the populations use it."""
    return db.table(name, type=object) if name == "objects" else db.table(name)


def rows_of(db: Any) -> Rows:
    """The hashes of all rows."""
    hashes = {}
    for name in db.tables():
        hashes[name] = {key: hash_of(name, key, row) for key, row in table_of(db, name).items()}
    return hashes


def content_of(rows: Rows) -> int:
    """The sum of all rows."""
    total = 0
    for table in rows.values():
        for one in table.values():
            total ^= one
    return total


def index_order_of(db: Any) -> str:
    """A digest of what each index leads to, in its order."""
    sums = hashlib.blake2b(digest_size=8)
    for name in db.tables():
        table = table_of(db, name)
        for info in table.indexes():
            for found in table.index(info.name):
                sums.update(repr((name, info.name, found)).encode())
    return sums.hexdigest()


def commit_to(db: Any, commit: list[Change]) -> None:
    """Make the changes of one commit."""

    def one(name: str, *change: Any) -> None:
        if not change:
            db.drop_table(name)
        elif len(change) == 1:
            del table_of(db, name)[change[0]]
        else:
            table_of(db, name)[change[0]] = change[1]

    if len(commit) == 1:
        one(*commit[0])
        return
    with db.transaction():
        for change in commit:
            one(*change)


def _do_to_rows(rows: Rows, commit: list[Change]) -> None:
    for name, *change in commit:
        if not change:
            del rows[name]
        elif len(change) == 1:
            del rows[name][change[0]]
        else:
            rows.setdefault(name, {})[change[0]] = hash_of(name, change[0], change[1])


# How they are made


def images(folder: Path, names: list[str] | None = None) -> list[Image]:
    """Make all databases."""
    _testing.limit_log(SEGMENT_SIZE)
    try:
        return [image for name in names or POPULATIONS for image in _images_of(name, folder / "made.pel")]
    finally:
        _testing.limit_log(0)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-log")


def _images_of(name: str, path: Path) -> Iterator[Image]:
    make, commits, how = POPULATIONS[name]
    told = path.with_name("told.txt")

    def at_rest() -> None:
        with pellucid.open(path, "n", **how) as db:
            make(db)

    def changed(durability: Any) -> None:
        db = pellucid.open(path, "w", durability=durability)
        ends = []
        for commit in commits():
            commit_to(db, commit)
            with log_of(path).open("rb") as file:
                ends.append(word_of(file.read(HEAD_SIZE), TAIL))
        told.write_text(repr(ends))
        os.kill(os.getpid(), signal.SIGKILL)

    done_in_child(at_rest)
    data = path.read_bytes()
    contents = contents_after(name, path)
    index_order = _index_order_at(path)
    yield Image(f"{name}, at rest", data, b"", contents[:1], index_order=index_order)
    left = []
    for kind, durability in (("a log", "process"), ("a synced log", "full")):
        log_of(path).unlink(missing_ok=True)
        path.write_bytes(data)
        done_in_child(lambda durability=durability: changed(durability), by=signal.SIGKILL)
        ends = ast.literal_eval(told.read_text())
        left.append((f"{name}, with {kind}", path.read_bytes(), log_of(path).read_bytes(), ends))
    done_in_child(lambda: pellucid.open(path, "w").close())
    # The changes in the file itself, so that it has free pages from them.
    index_order = _index_order_at(path)
    for which, there, log, ends in left:
        yield Image(which, there, log, contents, ends, "synced" in which, index_order)
    yield Image(f"{name}, changed", path.read_bytes(), b"", contents[-1:], index_order=index_order)
    path.unlink()
    told.unlink()


def _index_order_at(path: Path) -> str:
    told = path.with_name("order.txt")

    def look() -> None:
        with pellucid.open(path, "r") as db:
            told.write_text(index_order_of(db))

    done_in_child(look)
    order = told.read_text()
    told.unlink()
    return order


def contents_after(name: str, path: Path) -> list[int]:
    """What is in a database, which lies there at rest, and what would be there after each commit."""
    told = path.with_name("rows.txt")

    def rows() -> None:
        with pellucid.open(path, "r") as db:
            told.write_text(repr(rows_of(db)))

    done_in_child(rows)
    now: Rows = ast.literal_eval(told.read_text())
    told.unlink()
    contents = [content_of(now)]
    for commit in POPULATIONS[name][1]():
        _do_to_rows(now, commit)
        contents.append(content_of(now))
    return contents


def done_in_child(work: Callable[[], object], by: int = 0) -> None:
    """Do something in a child, which ends well, or by this signal."""
    status = forked(work)
    if (os.WIFSIGNALED(status) and os.WTERMSIG(status) == by) or status == by == 0:
        return
    raise RuntimeError(f"a database could not be made: {status}")


def forked(work: Callable[[], object]) -> int:
    """Do something in a child that may die of it; its status."""
    pid = fork()
    if pid == 0:
        in_child(work)
    return os.waitpid(pid, 0)[1]


def in_child(work: Callable[[], object]) -> None:
    """Do something in a child that was just forked, and end it."""
    status = 1
    try:
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(SECONDS_MAX)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
