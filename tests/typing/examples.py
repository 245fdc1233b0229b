"""What does a type checker say of our names? Read by mypy in test_examples.py and never run.

A line with `reveal_type` ends in the type that must be revealed, one with `# error:` in what must be said.
"""

from dataclasses import dataclass

import pellucid
from pellucid import KEY, F
from pellucid.typing import Key, Value
from typing_extensions import reveal_type


@dataclass
class Person:
    name: str
    age: int


def databases(db: pellucid.Database) -> None:
    reveal_type(pellucid.open("people.pel"))  # pellucid._native.Database
    with pellucid.open(":memory:", durability="full", pickle=["decimal.Decimal"]) as opened:
        reveal_type(opened)  # pellucid._native.Database
    reveal_type(db["fred"])  # Any
    reveal_type(db["fred"].age)  # Any
    reveal_type(db.get(("bath", 1)))  # Any
    reveal_type([key.upper() for key in db])  # list[Any]
    reveal_type(db.path)  # str | None
    reveal_type(db.tables())  # list[str]
    reveal_type(db.pop("fred", 0))  # Any
    reveal_type({"a": 1} | db)  # dict[Any, Any]
    reveal_type(db.append({"name": "Ann"}))  # int
    reveal_type(db.range(1, prefix=None))  # pellucid._native.RowIterator[Any]
    reveal_type(db.mean("age"))  # float | None
    reveal_type(db.stats())  # dict[str, int]
    with db.snapshot() as before:
        reveal_type(before.count("age"))  # int
        reveal_type(before.table("people", type=Person)[1])  # examples.Person
        reveal_type(before)  # pellucid._native.Snapshot
        reveal_type(before.table("people"))  # pellucid._native.Table[Any]
    with db.transaction() as transaction:
        reveal_type(transaction)  # pellucid._native.TransactionContext
    with db.edit("fred") as fred:
        reveal_type(fred)  # Any


def what_is_refused(db: pellucid.Database, snap: pellucid.Snapshot) -> None:
    db[["a list"]] = 1  # error: Invalid index type "list[str]" for "Database"
    pellucid.open("people.pel", "a")  # error: Argument 2 to "open" has incompatible type "Literal['a']"
    pellucid.open("people.pel", "w", "full")  # error: Too many positional arguments for "open"
    snap["fred"] = 1  # error: Unsupported target for indexed assignment ("Snapshot")
    db.table("people", Person)  # error: No overload variant of "table" of "Database" matches
    pellucid.view("text")  # error: Argument 1 to "view" has incompatible type "str"; expected "Buffer"


def tables(db: pellucid.Database) -> None:
    table = db.table("people")
    reveal_type(table)  # pellucid._native.Table[Any]
    reveal_type(table[1].name)  # Any
    reveal_type(table.append({"name": "Ann"}))  # int
    reveal_type(table.sum("age"))  # Any
    reveal_type(table.mean(("address", "city")))  # float | None
    reveal_type(table.count())  # int
    reveal_type(table.column("age"))  # list[Any]
    reveal_type(table.range(1, 5, reverse=True))  # pellucid._native.RowIterator[Any]
    for key, value in table.items(prefix=("bath",)):
        reveal_type(key)  # Any
        reveal_type(value)  # Any
    reveal_type(list(reversed(table.keys())))  # list[Any]
    reveal_type(next(db.watch()).value)  # Any
    reveal_type(db.watch().version)  # int


def typed_tables(db: pellucid.Database) -> None:
    people = db.table("people", type=Person)
    reveal_type(people)  # pellucid._native.Table[examples.Person]
    reveal_type(people["ann"].age)  # int
    reveal_type(people.get("ann"))  # examples.Person | None
    reveal_type(people.get("ann", Person("Ann", 1)))  # examples.Person
    reveal_type(people.pop("ann", 0))  # examples.Person | int
    reveal_type(people.first())  # tuple[Any, examples.Person] | None
    reveal_type([person.name for person in people.values()])  # list[str]
    reveal_type([person.age for person in people.range("a", "b")])  # list[int]
    reveal_type({"ann": 1} | people)  # dict[Any, examples.Person | int]
    for change in people.watch(prefix="a", since=1, timeout=0.5):
        reveal_type(change)  # pellucid._native.Change[examples.Person]
        reveal_type(change.value.age)  # int
    people["ann"] = 1  # error: Incompatible types in assignment (expression has type "int"


def records(record: pellucid.Record, numbers: pellucid.RecordList) -> None:
    reveal_type(record.age)  # Any
    reveal_type(record["age"])  # Any
    reveal_type(record.path("address.city"))  # Any
    reveal_type(record.to_dict())  # dict[Any, Any]
    reveal_type(record.copy())  # pellucid._native.Record
    reveal_type(record | {"age": 1})  # dict[Any, Any]
    reveal_type(bytes(record))  # bytes
    reveal_type(numbers[0])  # Any
    reveal_type(numbers[1:])  # list[Any]
    reveal_type(numbers + numbers)  # list[Any]
    record.tags.append("x")
    record.age = 22
    del record.age
    match record:
        case {"name": str(name)}:
            reveal_type(name)  # str


def the_bytes(packed: bytes) -> None:
    reveal_type(pellucid.dumps({"a": 1}))  # bytes
    reveal_type(pellucid.view(packed).a)  # Any
    reveal_type(pellucid.loads(memoryview(packed)))  # Any
    reveal_type(pellucid.counters())  # dict[str, int]


def names_for_annotations(key: Key, value: Value, db: pellucid.Database) -> None:
    db[key] = value
    db[1, "a", (2.5, None)] = value
    reveal_type(value)  # Any


def expressions() -> None:
    reveal_type(F.age >= 21)  # pellucid._native.Expression
    reveal_type((F.x > 1) & ~F["two words"][0].each().exists())  # pellucid._native.Expression
    reveal_type(2 * F.price - KEY[0])  # pellucid._native.Expression
    reveal_type(F.name.matches("^B").same_as(None))  # bool
    reveal_type(pellucid.parse("age == 1"))  # pellucid._native.Expression
    F.age & 1  # error: Unsupported operand types for & ("Expression" and "int")
    F.name.matches(1)  # error: Argument 1 to "matches" of "Expression" has incompatible type "int"


def drop_ins() -> None:
    from pellucid import dbm, shelve

    with dbm.open("cache", "c", 0o600) as cache:
        reveal_type(cache["city"])  # bytes
        reveal_type(cache.keys())  # list[bytes]
        cache["city"] = "Bath"
        cache["city"] = 5  # error: Incompatible types in assignment
    reveal_type(dbm.whichdb("cache"))  # str | None
    with shelve.open("people", writeback=True) as shelf:
        reveal_type(shelf)  # pellucid.shelve.DbfilenameShelf
        reveal_type(shelf.table)  # pellucid._native.Table[Any]
        shelf["fred"] = [1]


def what_has_no_truth_value_and_no_length(db: pellucid.Database) -> None:
    query = db.table("people").where(F.age > 1)
    len(query)  # error: Argument 1 to "len" has incompatible type "Query[Any]"; expected "Sized"
    query[0]  # error: Invalid index type "int" for "Query[Any]"; expected type "Never"
    len(query.group_by("age"))  # error: Argument 1 to "len" has incompatible type "Groups"; expected "Sized"
    print("a" in F.tags)  # error: Unsupported operand types for in ("str" and "Expression")
    for tag in F.tags:  # error: "UseEach" has no attribute "__next__"
        print(tag)
    print(F.age // 2)  # error: Unsupported operand types for // ("Expression" and "int")
    # mypy has no error for these, as pyright has. The code after them is not unreachable to it.
    if query:
        reveal_type(query)  # pellucid._native.Query[Any]
    if F.age and F.name:
        reveal_type(query)  # pellucid._native.Query[Any]
    if 1 < F.age < 5:
        reveal_type(query)  # pellucid._native.Query[Any]
    reveal_type(query)  # pellucid._native.Query[Any]
