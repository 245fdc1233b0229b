"""Does damage in a database's files end the process that reads them, or pass for sound?

A flip takes a database at rest, or one whose log a dead process has left, changes one bit of the data file or
the log, and lets forked children do what users do with such files: open, replay the log, check, read a
copy with `untrusted=True`. No child may die by a signal; and where `check` finds nothing, every row and every
index is read and must be as it was.

What is not promised is not done: rows of a file in which `check` finds damage are not read through the
engine, which believes its pages.

A seed says which bit of which database is changed. Other kinds of damage than a bit are there too: several
bits, some bytes, whole pages.
"""

from __future__ import annotations

import collections
import hashlib
import os
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pellucid
from pellucid import KEY, F
from pellucid._native import _testing
from processes import fork

PAGE = 4096
SEGMENT_SIZE = 1 << 19
"""Of the log: what is done to each database fits into it."""
MEMORY_MAX = 4 << 30
"""Bytes that a child may ask for: what a forged number asks for ends it."""
SECONDS_MAX = 60
KINDS = ["bit", "bits", "bytes", "pages"]


@dataclass
class Tally:
    """What a campaign has done."""

    flips: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    """What became of those who used the damaged files."""

    def add(self, other: Tally) -> None:
        self.flips += other.flips
        self.outcomes += other.outcomes


class FailedFlipError(Exception):
    """Damage that ended a process, or that nobody noticed: says with which seed, and where the files are."""

    def __init__(self, seed: int, folder: Path, what: str) -> None:
        super().__init__(f"the flip of seed {seed} failed: {what}; its files are in {folder}")
        self.seed = seed
        self.folder = folder


# Databases


def _records(numbers: Iterator[int] | range) -> dict[Any, Any]:
    return {n: {"a": n, "b": -n % 97, "tags": [n % 5, n % 7], "text": f"row {n}"} for n in numbers}


def _with_indexes(db: Any) -> None:
    table = db.table("t")
    table.update(_records(range(600)))
    table.create_index("a", F.a, unique=True)
    table.create_index("text", (F.text.desc(), F.b))
    table.create_index("tags", F.tags.each())
    table.create_index("some", F.b, where=F.a > 100)
    table.create_index("key", (KEY, F.b))


def _change_indexes(db: Any) -> None:
    table = db.table("t")
    for n in range(0, 600, 3):
        table[n] = {"a": n, "b": 5, "tags": [n % 3], "text": f"other {n}"}
    for n in range(1, 600, 9):
        del table[n]


def _with_large_values(db: Any) -> None:
    for n in range(40):
        db[n] = {"n": n, "bytes": bytes([n]) * (3000 + 977 * n % 30_000), "text": "x" * (n * 53 % 3000)}


def _change_large_values(db: Any) -> None:
    for n in range(0, 40, 4):
        db[n] = {"n": n, "bytes": b"new" * (n * 100), "text": "y" * 2500}
    for n in range(1, 40, 5):
        del db[n]


def _with_free_pages(db: Any) -> None:
    for part in range(6):
        db.update({n: {"a": n, "text": "x" * (n * 7 % 120)} for n in range(part * 500, part * 500 + 700)})
        db.sync()
    for part in (1, 3, 4):
        with db.transaction():
            for n in range(part * 500, part * 500 + 400):
                del db[n]
        db.sync()


def _change_free_pages(db: Any) -> None:
    for n in range(100, 1500, 2):
        db.pop(n, None)
    for n in range(3000, 3200):
        db[n] = {"a": n, "text": "z" * 100}
    for n in range(2200, 3100):
        db.pop(n, None)


def _with_many_tables(db: Any) -> None:
    with db.transaction():
        for n in range(1200):
            db.table(f"the table of the number {n:05}")[n] = {f"field{n % 50}": n}


def _change_many_tables(db: Any) -> None:
    for n in range(0, 1200, 8):
        db.table(f"the table of the number {n:05}")["more"] = {"m": n}
    for n in range(3, 1200, 60):
        db.drop_table(f"the table of the number {n:05}")


def _with_long_keys(db: Any) -> None:
    db.update({f"{n:04}" + "k" * 400: {"n": n} for n in range(900)})


def _change_long_keys(db: Any) -> None:
    for n in range(100, 420):
        db.pop(f"{n:04}" + "k" * 400, None)
    for n in range(500, 900, 3):
        db.pop(f"{n:04}" + "k" * 400, None)
    for n in range(0, 100, 7):
        db[f"{n:04}" + "k" * 300] = {"n": -n}


def _with_compacted(db: Any) -> None:
    _with_free_pages(db)
    db.compact()


def _with_history(db: Any) -> None:
    for n in range(400):
        db[n] = {"a": n, "text": "x" * 400}
        if n % 100 == 0:
            db.sync()


def _change_history(db: Any) -> None:
    for n in range(0, 400, 2):
        db[n] = {"a": -n, "text": "y" * 100}


Work = Callable[[Any], None]
POPULATIONS: dict[str, tuple[Work, Work, dict[str, Any]]] = {
    "indexes": (_with_indexes, _change_indexes, {}),
    "large values": (_with_large_values, _change_large_values, {}),
    "free pages": (_with_free_pages, _change_free_pages, {}),
    "many tables": (_with_many_tables, _change_many_tables, {}),
    "long keys": (_with_long_keys, _change_long_keys, {}),
    "compacted": (_with_compacted, _change_free_pages, {}),
    "history": (_with_history, _change_history, {"keep": 1 << 17}),
}
"""What a database is made of, what its log says afterwards, and how it is opened."""


@dataclass
class Image:
    """The files of a database, and what is in it."""

    name: str
    data: bytes
    log: bytes
    """Empty for a database at rest."""
    content: str


def images(folder: Path) -> list[Image]:
    """Make all databases, each at rest and with a log that a dead process left."""
    _testing.limit_log(SEGMENT_SIZE)
    try:
        return [image for name in POPULATIONS for image in _images_of(name, folder / "made.pel")]
    finally:
        _testing.limit_log(0)


def _images_of(name: str, path: Path) -> Iterator[Image]:
    make, change, how = POPULATIONS[name]
    log = log_of(path)

    def at_rest() -> None:
        with pellucid.open(path, "n", **how) as db:
            make(db)

    def changed() -> None:
        db = pellucid.open(path, "w")
        change(db)
        os.kill(os.getpid(), signal.SIGKILL)

    def closed() -> None:
        pellucid.open(path, "w").close()

    def content() -> str:
        told = path.with_name("content.txt")
        _done(lambda: told.write_text(content_of(path)))
        said = told.read_text()
        told.unlink()
        return said

    _done(at_rest)
    yield Image(f"{name}, at rest", path.read_bytes(), b"", content())
    _done(changed, by=signal.SIGKILL)
    data, left = path.read_bytes(), log.read_bytes()
    _done(closed)
    yield Image(f"{name}, with a log", data, left, content())
    # The changes in the file itself, so that it has free pages from them.
    yield Image(f"{name}, changed", path.read_bytes(), b"", content())
    path.unlink()


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-log")


def _done(work: Callable[[], object], by: int = 0) -> None:
    status = _forked(work)
    if (os.WIFSIGNALED(status) and os.WTERMSIG(status) == by) or status == by == 0:
        return
    raise RuntimeError(f"a database could not be made: {status}")


def content_of(path: Path) -> str:
    """A digest of every row, and of what each index leads to."""
    with pellucid.open(path, "r") as db:
        return digest(db)


def digest(db: Any) -> str:
    """The same of an open database."""
    sums = hashlib.blake2b(digest_size=16)
    for name in ["", *db.tables()]:
        table = db.table(name) if name else db
        for key, row in table.items():
            sums.update(repr((name, key, row)).encode())
        for info in table.indexes():
            for found in table.index(info.name):
                sums.update(repr((info.name, found)).encode())
    return sums.hexdigest()


# Damage


@dataclass
class Damage:
    """What is done to which file."""

    kind: str
    is_log: bool
    places: list[tuple[int, bytes]]
    """Where bytes are written, and which."""

    def done_to(self, original: bytes) -> bytes:
        changed = bytearray(original)
        for at, there in self.places:
            changed[at : at + len(there)] = there
        return bytes(changed)

    def __str__(self) -> str:
        which = "log" if self.is_log else "data file"
        places = ", ".join(f"{len(there)} bytes at {at} (page {at // PAGE})" for at, there in self.places[:4])
        return f"{self.kind} of the {which}: {places}"


def damage_of(dice: random.Random, image: Image, kind: str) -> Damage:
    """Think of some damage: everywhere, but more of it where the structure is than where the values are."""
    is_log = bool(image.log) and dice.random() < 0.25
    original = image.log.rstrip(b"\0") if is_log else image.data
    if kind == "pages":
        return Damage(kind, is_log, [_page(dice, original)])
    count = dice.randint(2, 8) if kind == "bits" else 1
    places: list[tuple[int, bytes]] = []
    for _ in range(count):
        at = _place(dice, original, is_log=is_log)
        if kind == "bytes":
            places.append((at, dice.randbytes(min(dice.randint(1, 16), len(original) - at))))
        else:
            places.append((at, bytes([original[at] ^ 1 << dice.randrange(8)])))
    return Damage(kind, is_log, places)


def _page(dice: random.Random, original: bytes) -> tuple[int, bytes]:
    """A page that the disk lost, never wrote, or wrote elsewhere."""
    count = len(original) // PAGE
    at, other = dice.randrange(count) * PAGE, dice.randrange(count) * PAGE
    there = dice.choice([bytes(PAGE), b"\xff" * PAGE, dice.randbytes(PAGE), original[other : other + PAGE]])
    size = dice.choice([PAGE, PAGE, 512])
    start = dice.randrange(0, PAGE, size)
    return at + start, there[start : start + size]


def _place(dice: random.Random, original: bytes, *, is_log: bool) -> int:
    chance = dice.random()
    if is_log:
        return dice.randrange(min(2 * PAGE, len(original))) if chance < 0.3 else dice.randrange(len(original))
    if chance < 0.4:
        return dice.randrange(len(original))
    if chance < 0.7:
        # What stands at the beginning of a page: its head, and where its entries are.
        return dice.randrange(len(original) // PAGE) * PAGE + dice.randrange(64)
    # A page that is neither a leaf nor part of a large value.
    kinds = [original[at + 10] for at in range(0, len(original) - 11, PAGE)]
    inner = [number for number, kind in enumerate(kinds) if kind in (1, 8)]
    start = dice.choice(inner) * PAGE
    used = range(start, start + 200) if start < 2 * PAGE else range(start, start + PAGE)
    return dice.choice(used)


# Use


def run(seed: int, made: list[Image], folder: Path, kind: str = "bit") -> Tally:
    """Do the damage of one seed, and use the files; they are removed if all was well."""
    dice = random.Random(seed)
    image = dice.choice(made)
    damage = damage_of(dice, image, kind)
    folder.mkdir(parents=True)
    tally = Tally(flips=1)
    data = image.data if damage.is_log else damage.done_to(image.data)
    log = damage.done_to(image.log) if damage.is_log else image.log
    for name, use in (USES_OF_LOG if image.log else USES).items():
        path = folder / "used.pel"
        for file in folder.iterdir():
            file.unlink()
        path.write_bytes(data)
        if log:
            log_of(path).write_bytes(log)
        told = folder / "told.txt"
        content = None if damage.is_log else image.content
        status = _forked(lambda use=use, path=path, content=content: use(path, content), told)
        what = told.read_text() if told.exists() else ""
        if os.WIFSIGNALED(status):
            what = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        elif os.WEXITSTATUS(status) == 0:
            tally.outcomes[f"{name}: {what}"] += 1
            continue
        path.write_bytes(data)
        if log:
            log_of(path).write_bytes(log)
        raise FailedFlipError(seed, folder, f"'{name}' of '{image.name}', after {damage}: {what}")
    shutil.rmtree(folder)
    return tally


def _forked(work: Callable[[], object], told: Path | None = None) -> int:
    """Do something in a child, which leaves what it has to tell in a file; its status."""
    pid = fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    status = 1
    try:
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(SECONDS_MAX)
        said = work()
        status = 0
    except BaseException:
        said = traceback.format_exc()
    finally:
        if told is not None:
            told.write_text(str(said))
        os._exit(status)


class UnnoticedError(Exception):
    """`check` found nothing, and yet something is not as it was."""


REFUSALS = (pellucid.DatabaseCorrupt, pellucid.NotADatabase, pellucid.NewerFormat)


def _checked(db: Any, content: str | None) -> str:
    """Check a database; where nothing is found, what is in it must be what was."""
    findings = db.check()
    if findings:
        return "found by check"
    if content is not None and digest(db) != content:
        raise UnnoticedError
    return "sound"


def _check(path: Path, content: str | None) -> str:
    try:
        with pellucid.open(path, "r") as db:
            return _checked(db, content)
    except REFUSALS:
        return "refused"


def _replay(path: Path, content: str | None) -> str:
    try:
        with pellucid.open(path, "c") as db:
            return _checked(db, content)
    except REFUSALS:
        # What may not be written can perhaps still be read, with the log, and must be told by a check.
        told = _check(path, content)
        if told == "sound" and content is not None:
            raise UnnoticedError("it was refused, and nothing is found in it") from None
        return f"refused, then {told}"


def _just_open(path: Path, content: str | None) -> str:
    try:
        pellucid.open(path, "c").close()
    except REFUSALS:
        return "refused"
    return "opened"


def _untrusted(path: Path, content: str | None) -> str:
    try:
        with pellucid.open(path, "r", untrusted=True) as db:
            if digest(db) != content:
                raise UnnoticedError
    except REFUSALS:
        return "refused"
    return "sound"


USES: dict[str, Callable[[Path, str | None], str]] = {
    "check": _check,
    "untrusted": _untrusted,
    "open": _just_open,
}
USES_OF_LOG: dict[str, Callable[[Path, str | None], str]] = {"check": _check, "replay": _replay}
