"""Do rows know their keys, and does a page begin where the one before it ended?"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import gc
import weakref
from typing import Any, NamedTuple

import pellucid
import pytest
from pellucid import KEY, F

KEYS = ["a", 1, 2.5, True, None, b"x", (1, "b"), datetime.date(2024, 5, 17)]


@dataclasses.dataclass
class User:
    name: str
    age: int = 0


class Point(NamedTuple):
    x: int


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_record_knows_its_key_and_its_table(db: pellucid.Database, key: Any) -> None:
    table = db.table("rows")
    table[key] = {"a": {"b": [{"c": 1}]}}
    for row in (table[key], table[key].a, table[key].a.b, table[key].a.b[0], table.where().one()):
        assert pellucid.key_of(row) == key
        assert type(pellucid.key_of(row)) is type(key)
        assert pellucid.table_of(row).name == "rows"
        assert pellucid.table_of(row)[key] == table[key]


def test_a_row_keeps_a_table_that_no_variable_has(db: pellucid.Database) -> None:
    db.table("rows")["a"] = {"n": 1}
    row = db.table("rows")["a"]
    gc.collect()
    assert pellucid.table_of(row).name == "rows"


def test_a_record_of_no_table_has_no_key(db: pellucid.Database) -> None:
    db["a"] = {"n": 1}
    for row in (db["a"].copy(), pellucid.view(pellucid.dumps({"n": 1}))):
        for function in (pellucid.key_of, pellucid.table_of):
            with pytest.raises(ValueError, match="read from a table"):
                function(row)
    for other in (5, {"n": 1}, "a"):
        with pytest.raises(TypeError, match="key_of"):
            pellucid.key_of(other)


def test_an_instance_of_a_typed_table_knows_its_row_as_long_as_it_lives(db: pellucid.Database) -> None:
    users = db.table("users", type=User)
    users.update({"ann": User("Ann", 30), "bob": User("Bob", 20)})
    ann, others = users["ann"], list(users.where(F.age < 25))
    assert (pellucid.key_of(ann), [pellucid.key_of(user) for user in others]) == ("ann", ["bob"])
    assert pellucid.table_of(ann)["bob"] == User("Bob", 20)
    with pytest.raises(TypeError, match="not read from a table"):
        pellucid.key_of(User("Ann", 30))
    gone = weakref.ref(ann)
    del ann
    assert gone() is None


@dataclasses.dataclass
class Flyweight:
    n: int

    def __new__(cls, *_args: Any, **_fields: Any) -> Flyweight:
        made: Flyweight = FLYWEIGHTS.setdefault(cls, object.__new__(cls))
        return made


FLYWEIGHTS: dict[type, Any] = {}


def test_an_instance_that_a_class_gives_again_is_remembered_once(db: pellucid.Database) -> None:
    table = db.table("t", type=Flyweight, run_init=True)
    db.table("t").update({"a": {"n": 1}, "b": {"n": 2}})
    for key in "ab" * 50:
        assert pellucid.key_of(table[key]) == key
    assert table["a"] is table["b"]
    assert weakref.getweakrefcount(table["a"]) == 1


def test_an_instance_without_weak_references_says_so(db: pellucid.Database) -> None:
    points = db.table("points", type=Point)
    points["a"] = Point(1)
    with pytest.raises(TypeError, match="without weak references"):
        pellucid.key_of(points["a"])
    for plain in (5, "a", None, {"n": 1}):
        with pytest.raises(TypeError, match="is neither: it may be a key or a plain value"):
            pellucid.key_of(plain)
    assert list(points.where().items()) == [("a", Point(1))]


def test_the_first_and_the_only_row_come_with_their_keys(db: pellucid.Database) -> None:
    table = db.table("people")
    table.update({"ann": {"age": 30}, "bob": {"age": 20}})
    assert table.order_by(F.age).first_item() == ("bob", {"age": 20})
    assert table.where(F.age > 90).first_item() is None
    assert table.where(F.age > 25).one_item() == ("ann", {"age": 30})
    for query, what in ((table.where(F.age > 90), "no row"), (table.where(), "more than one row")):
        with pytest.raises(pellucid.NotOneRow, match=what):
            query.one_item()
    users = db.table("people", type=dataclasses.make_dataclass("Person", [("age", int)]))
    assert users.order_by(F.age).first_item()[1].age == 20


ORDERS = [(), (F.n,), (F.n.desc(), F.text), (F.missing, F.n), (KEY,)]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_pages_by_cursors_have_every_row_once(db: pellucid.Database, order: tuple[Any, ...]) -> None:
    table = db.table("numbers")
    table.update({key: {"n": key % 3, "text": "x" * (key % 2)} for key in range(11)})
    query = table.order_by(*order) if order else table.where()
    expected = list(query.keys())
    seen: list[Any] = []
    page = query.limit(4)
    while True:
        rows = page.to_list()
        seen += [pellucid.key_of(row) for row in rows]
        if len(rows) < 4:
            break
        page = query.limit(4).after(query.cursor(rows[-1]))
    assert seen == expected


def test_a_cursor_goes_on_where_its_row_was_deleted_or_changed(db: pellucid.Database) -> None:
    table = db.table("numbers")
    table.update({key: {"n": key} for key in range(6)})
    query = table.order_by(F.n)
    second = query.limit(2).to_list()[-1]
    cursor = query.cursor(second)
    del table[1]
    table[0] = {"n": 100}
    assert [row.n for row in query.after(cursor)] == [2, 3, 4, 5, 100]
    # Another condition is a part of the same order.
    assert [row.n for row in query.where(F.n < 5).after(cursor)] == [2, 3, 4]
    assert query.after(cursor).where(F.n > 90).count() == 1


def test_a_cursor_of_a_typed_row_goes_on(db: pellucid.Database) -> None:
    users = db.table("users", type=User)
    users.update({key: User(key, age) for key, age in {"ann": 3, "bob": 1, "cid": 2}.items()})
    query = users.order_by(F.age)
    first = query.first()
    assert first is not None
    for begin in (query.cursor(first), first):
        assert [user.name for user in query.after(begin)] == ["cid", "ann"]
    cursor = query.cursor(first)
    del users["bob"]
    assert [user.name for user in query.after(cursor)] == ["cid", "ann"]


def test_a_cursor_is_a_text_for_a_url(db: pellucid.Database) -> None:
    table = db.table("numbers")
    table[("key", "\u00fc/?&=")] = {"n": 1}
    cursor = table.where().cursor(table.where().one())
    assert type(cursor) is str
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()


def test_a_cursor_of_another_query_is_refused(db: pellucid.Database) -> None:
    table, other = db.table("numbers"), db.table("others")
    for rows in (table, other):
        rows.update({key: {"n": key} for key in range(3)})
    cursor = table.order_by(F.n).cursor(table[0])
    for query in (table.where(), table.order_by(F.n.desc()), table.order_by(F.m), other.order_by(F.n)):
        with pytest.raises(ValueError, match="the cursor of another query"):
            query.after(cursor).to_list()
        with pytest.raises(ValueError, match="the cursor of another query"):
            list(query.after(cursor).keys())


def test_a_text_that_is_no_cursor_is_refused(db: pellucid.Database) -> None:
    table = db.table("numbers")
    table.update({key: {"n": key} for key in range(3)})
    query = table.order_by(F.n)
    cursor = query.cursor(table[1])
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    made_up = base64.urlsafe_b64encode(b"\x01" + bytes(40)).decode()
    for text in ("", "x", "!!", "\u00e9", cursor[:-4], cursor + "AAAA", changed, made_up, cursor * 2):
        with pytest.raises(ValueError, match="no cursor"):
            query.after(text)
    assert [row.n for row in query.after(cursor)] == [2]
