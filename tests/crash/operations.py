"""What does a writer of the campaign do, and what must be there afterwards?

A writer's operations come from a seed and from a model, plain dicts in which each of them is done at once:
so whoever has the seed and the model that a life began with knows what every operation was, and what each
of them must have left. An operation is all or nothing, whatever it consists of.

Each writer has tables of its own, so that its model says everything about them; what writers share is the
table "shared", in which each counts transactions, and the table "journal", which says in which order those
were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pellucid import KEY, F

# Over one field, several in either direction, each element of a list, a computed value, some rows; over long
# keys, too. No two rows have the same key, so that no row is refused as not unique, but each is looked up.
INDEXES: dict[str, tuple[Any, dict[str, Any]]] = {
    "x": (F.x, {}),
    "text": ((F.text.desc(), F.x), {}),
    "tags": (F.tags.each(), {}),
    "key": ((KEY, F.x), {}),
    "upper": (F.text.upper(), {}),
    "some": (F.x, {"where": F.x < 500}),
    "unique": ((F.x, KEY), {"unique": True}),
}

Change = tuple[Any, ...]
Tables = dict[str, dict[Any, Any]]


@dataclass
class Model:
    """What one writer has done, as dicts."""

    tables: Tables = field(default_factory=dict)
    marks: list[int] = field(default_factory=list)
    """The numbers of those of its operations that stand in the journal."""
    count: int = 0
    """How many operations it has done in all its lives."""

    def copy(self) -> Model:
        """Another one; rows are replaced when they change, so that both can have the same ones."""
        return Model({name: rows.copy() for name, rows in self.tables.items()}, self.marks.copy(), self.count)


@dataclass(frozen=True)
class Operation:
    """One commit, or something that commits nothing."""

    phase: str
    """What the campaign counts it as."""
    kind: str
    changes: list[Change] = field(default_factory=list)
    keeps: bool = True
    """Whether a transaction comes to its end, or is rolled back by an exception."""


class Undone(Exception):
    """Ends a transaction or savepoint that is to be rolled back."""


ROWS_MAX, ROWS_MAX_WIDE = 2_000, 9_000
"""So many rows are in a table of sorted rows; a wide one has some hundred leaves."""

RESTS_FIRST_SHARE = 0.3
"""Share of lives in wide tables that begin with a rest."""


# What can be stored. Sizes beside which something changes: a record that no longer fits its slot, a value
# that lies apart from its record, a transaction that no longer fits a small log.


def some_value(dice: random.Random, *, is_small: bool = False) -> Any:
    kind = dice.randrange(2, 10) if is_small else dice.randrange(10)
    if kind == 0:
        return dice.choice([0, -1, 1 << 70, 1.5, True, None, "", "text", b"bytes"])
    if kind == 1:
        return {"x": dice.randrange(100), "data": dice.randbytes(dice.choice([900, 9_000, 40_000, 300_000]))}
    row: dict[str, Any] = {
        "x": dice.randrange(1000),
        "text": "t" * dice.randrange(40),
        "tags": [dice.randrange(9)],
    }
    if kind == 2:
        row["in"] = {"y": dice.randrange(100), f"field {dice.randrange(30)}": "deep"}
    return row


def some_key(dice: random.Random) -> Any:
    kind, number = dice.randrange(8), dice.randrange(60)
    if kind == 0:
        return f"long {number % 10} " + "k" * 700
    if kind == 1:
        return ("pair", number, str(number))
    return number if kind < 5 else f"key {number}"


class Writer:
    """The operations of one writer, one after the other."""

    def __init__(
        self,
        name: str,
        model: Model,
        dice: random.Random,
        *,
        is_alone: bool,
        is_wide: bool = False,
        is_busy: bool = False,
        favourites: tuple[str, ...] = (),
        has_others: bool = True,
    ) -> None:
        self.name = name
        self.favourites = favourites
        self.has_others = has_others
        self.is_wide = is_wide
        self.is_busy = is_busy
        self.model = model
        self.dice = dice
        self.is_alone = is_alone

    def __iter__(self) -> Iterator[Operation]:
        kinds: dict[Callable[[], Operation], int] = {
            self.put: 30,
            self.large: 3,
            self.delete: 6,
            self.patch: 25,
            self.transaction: 18,
            self.mark: 10,
            self.bulk: 3,
            self.table: 3,
            self.index: 3,
            self.sync: 3,
            self.reopen: 2,
            self.compact: 1 if self.is_alone else 0,
            self.online: 1,
            self.sort: 1,
        }
        if self.is_busy:
            kinds = {self.put: 300, self.delete: 60, self.patch: 200, self.transaction: 10, self.sync: 1}
            kinds[self.all_indexes] = 10
        if self.is_wide:
            kinds |= {self.sort: 4, self.thin: 4, self.online: 3, self.rest: 1}
        by_phase = {
            "large": self.large,
            "bulk": self.bulk,
            "checkpoint": self.sync,
            "close": self.reopen,
            "compact": self.compact,
            "online": self.online,
            "sorted": self.sort,
            "merged": self.sort,
            "finished": self.sort,
            "thin": self.thin,
            "rest": self.rest,
            "table": self.table,
            "index": self.index,
        }
        if not self.has_others:
            kinds = dict.fromkeys(kinds, 0) | {self.put: 2}
        for phase in self.favourites:
            favourite = by_phase.get(phase)
            is_allowed = kinds.get(favourite) or favourite == self.rest or not self.has_others
            if favourite is not None and is_allowed:
                kinds[favourite] = kinds.get(favourite, 0) + 15
        makers, weights = list(kinds), list(kinds.values())
        if self.is_wide and self.dice.random() < RESTS_FIRST_SHARE:
            # The checkpointer gives room of the log back while that still has the commits of a dead process.
            yield self.rest()
            self.model.count += 1
        while True:
            (make,) = self.dice.choices(makers, weights)
            operation = make()
            yield operation
            self.done(operation)

    def done(self, operation: Operation) -> None:
        """Do it in the model."""
        if operation.kind == "mark":
            self.model.marks.append(self.model.count)
        if operation.keeps:
            apply_to_model(self.model.tables, operation.changes)
        self.model.count += 1

    def any_table(self) -> str:
        return f"{self.name} {self.dice.choice('abc')}"

    def any_row(self, wanted: Callable[[Any], bool] = lambda _value: True) -> tuple[str, Any] | None:
        names = [name for name, rows in self.model.tables.items() if rows]
        if not names:
            return None
        name = self.dice.choice(names)
        keys = [key for key, value in self.model.tables[name].items() if wanted(value)]
        return (name, self.dice.choice(keys)) if keys else None

    def put(self) -> Operation:
        value = some_value(self.dice, is_small=self.is_busy)
        return Operation("put", "change", [("put", self.any_table(), some_key(self.dice), value)])

    def large(self) -> Operation:
        """Put a value that is written to the file ahead of its commit: a row, or a field beside small ones.

        Few keys have one, so that most replace another one.
        """
        size = self.dice.choice([131_072, 200_000, 900_000])
        data = self.dice.randbytes(64) * (size // 64)
        value = data if self.dice.random() < 0.5 else {"x": self.dice.randrange(100), "data": data}
        return Operation(
            "large", "change", [("put", self.any_table(), f"large {self.dice.randrange(4)}", value)]
        )

    def delete(self) -> Operation:
        found = self.any_row()
        return Operation("put", "change", [("delete", *found)]) if found else self.put()

    def a_patch(self) -> Change | None:
        found = self.any_row(lambda value: isinstance(value, dict) and "tags" in value)
        if found is None:
            return None
        kind = self.dice.randrange(6)
        if kind == 0:
            # Of another size than what was there: the record is put together anew.
            return ("set", *found, "text", "T" * self.dice.randrange(200))
        if kind == 1:
            return ("append", *found, self.dice.randrange(9))
        if kind == 2:
            return ("set", *found, f"new {self.dice.randrange(20)}", self.dice.randrange(9))
        if kind == 3:
            # From 32 KiB on it is stored apart, and from 128 KiB on at a place of its own.
            size = self.dice.choice([5_000, 5_000, 40_000, 150_000])
            return ("set", *found, "x", self.dice.randbytes(50) * (size // 50))
        return ("set", *found, "x", self.dice.randrange(1 << 30))

    def patch(self) -> Operation:
        change = self.a_patch()
        return Operation("patch", "change", [change]) if change else self.put()

    def some_changes(self, count: int, depth: int) -> list[Change]:
        # What it does is tried on a copy, so that a later change can stand on an earlier one.
        outer, self.model = self.model, self.model.copy()
        changes: list[Change] = []
        for _ in range(count):
            if depth and self.dice.random() < 0.25:
                keeps = self.dice.random() < 0.6
                change: Change = ("savepoint", keeps, self.some_changes(self.dice.randint(1, 4), depth - 1))
            else:
                change = self.a_patch() or self.put().changes[0]
                if self.dice.random() < 0.5:
                    change = self.dice.choice([self.put, self.delete])().changes[0]
            changes.append(change)
            apply_to_model(self.model.tables, [change])
        self.model = outer
        return changes

    def transaction(self) -> Operation:
        changes = self.some_changes(self.dice.randint(1, 8), 2)
        return Operation("transaction", "transaction", changes, keeps=self.dice.random() < 0.8)

    def mark(self) -> Operation:
        """A transaction over what all writers share and what is one's own."""
        own = ("put", f"{self.name} a", "mark", {"n": self.model.count})
        return Operation("transaction", "mark", [own])

    def bulk(self) -> Operation:
        name = self.any_table()
        if name in self.model.tables and self.dice.random() < 0.3:
            return Operation("bulk", "clear", [("clear", name)])
        # More than a small log takes; seldom more than the usual one does.
        count, size = self.dice.choice([(30, 20), (100, 40), (300, 40), (100, 40), (80, 32_000)])
        start = self.dice.randrange(100)
        rows = {start + number: {"x": number, "text": "b" * size, "tags": []} for number in range(count)}
        return Operation("bulk", "update", [("update", name, rows)])

    def sort(self) -> Operation:
        """Put more rows at once than the memory for sorts has room for, in no order."""
        count, size = self.dice.choice([400, 800]), self.dice.choice([20, 150])
        most = ROWS_MAX
        if self.is_wide:
            count, size, most = count * 5, size + 200, ROWS_MAX_WIDE
        numbers = self.dice.sample(range(most), count)
        text = "s" * size
        rows = {f"row {number}": {"x": number, "text": text, "tags": []} for number in numbers}
        return Operation("sorted", "sorted", [("update", self.sorted_table, rows)])

    def thin(self) -> Operation:
        """Delete most rows of the table of sorted ones, here and there: its leaves are nearly empty then."""
        keys = list(self.model.tables.get(self.sorted_table, {}))
        if not keys:
            return self.sort()
        share = self.dice.choice([0.3, 0.7, 0.9])
        gone = [("delete", self.sorted_table, key) for key in keys if self.dice.random() < share]
        return Operation("thin", "transaction", gone)

    @property
    def sorted_table(self) -> str:
        return f"{self.name} sorted"

    def table(self) -> Operation:
        name = self.any_table()
        if name not in self.model.tables:
            return self.put()
        other = f"{self.name} renamed {self.dice.randrange(3)}"
        if self.dice.random() < 0.5 or other in self.model.tables:
            return Operation("table", "change", [("drop", name)])
        return Operation("table", "change", [("rename", name, other)])

    def index(self) -> Operation:
        """Make an index, or drop it where it is there: rows do not show it, and `check()` proves it."""
        name = self.any_table()
        if self.is_wide and self.dice.random() < 0.5:
            name = self.sorted_table
        if name not in self.model.tables:
            return self.put()
        return Operation("index", "change", [("index", name, self.dice.choice(sorted(INDEXES)))])

    def all_indexes(self) -> Operation:
        """Make the indexes of each kind that a table lacks, so that single rows are written with them."""
        name = self.any_table()
        if name not in self.model.tables:
            return self.put()
        return Operation("index", "change", [("indexes", name)])

    def sync(self) -> Operation:
        return Operation("checkpoint", "sync")

    def reopen(self) -> Operation:
        return Operation("close", "reopen")

    def compact(self) -> Operation:
        return Operation("compact", "compact")

    def online(self) -> Operation:
        return Operation("online", "online")

    def rest(self) -> Operation:
        """Commit nothing for a while, in which the file is made shorter without being asked."""
        return Operation("rest", "rest")


def apply_to_model(tables: Tables, changes: list[Change]) -> None:
    """Do changes in dicts."""
    for kind, *rest in changes:
        if kind == "savepoint":
            keeps, inner = rest
            if keeps:
                apply_to_model(tables, inner)
        elif kind == "drop":
            del tables[rest[0]]
        elif kind == "rename":
            tables[rest[1]] = tables.pop(rest[0])
        elif kind in ("index", "indexes"):
            pass
        else:
            rows = tables.setdefault(rest[0], {})
            if kind == "put":
                rows[rest[1]] = rest[2]
            elif kind == "delete":
                del rows[rest[1]]
            elif kind == "set":
                rows[rest[1]] = {**rows[rest[1]], rest[2]: rest[3]}
            elif kind == "append":
                row = rows[rest[1]]
                rows[rest[1]] = {**row, "tags": [*row["tags"], rest[2]]}
            elif kind == "update":
                rows.update(rest[1])
            elif kind == "clear":
                rows.clear()


def apply_to_database(db: Any, changes: list[Change]) -> None:
    """Do changes as a user would."""
    for kind, *rest in changes:
        if kind == "savepoint":
            keeps, inner = rest
            in_transaction(db, inner, keeps=keeps)
        elif kind == "drop":
            db.drop_table(rest[0])
        elif kind == "rename":
            db.rename_table(*rest)
        else:
            table = db.table(rest[0])
            if kind == "put":
                table[rest[1]] = rest[2]
            elif kind == "delete":
                del table[rest[1]]
            elif kind == "set":
                table[rest[1]][rest[2]] = rest[3]
            elif kind == "append":
                table[rest[1]].tags.append(rest[2])
            elif kind == "update":
                table.update(rest[1])
            elif kind == "clear":
                table.clear()
            elif kind == "index":
                if rest[1] in [index.name for index in table.indexes()]:
                    table.drop_index(rest[1])
                else:
                    make_index(table, rest[1])
            elif kind == "indexes":
                for name in sorted(INDEXES.keys() - {index.name for index in table.indexes()}):
                    make_index(table, name)


def make_index(table: Any, name: str) -> None:
    """Make one of the indexes."""
    parts, options = INDEXES[name]
    table.create_index(name, parts, **options)


def sort_in(db: Any, changes: list[Change], enter: Callable[[str], None]) -> None:
    """Put many rows at once, and say when they are merged, and when all of them are."""
    ((_, name, rows),) = changes
    told = [-1]

    def tell(done: int, total: int) -> None:
        if told[0] < 0:
            enter("merged")
        if done == total != told[0]:
            enter("finished")
        told[0] = done

    with db.transaction(progress=tell):
        db.table(name).update(rows)


def in_transaction(db: Any, changes: list[Change], *, keeps: bool) -> None:
    try:
        with db.transaction():
            apply_to_database(db, changes)
            if not keeps:
                raise Undone
    except Undone:
        pass


def mark(db: Any, writer: str, number: int, changes: list[Change]) -> None:
    """Count this operation where all writers count theirs, and say whose it was."""
    with db.transaction():
        shared = db.table("shared")
        total = shared["total"].n if "total" in shared else 0
        shared["total"] = {"n": total + 1}
        db.table("journal")[total] = {"writer": writer, "number": number}
        apply_to_database(db, changes)
