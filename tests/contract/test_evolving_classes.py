"""Do the classes of tables check what is written, and read the rows of their former selves?"""

from __future__ import annotations

import collections
import dataclasses
import datetime
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pellucid
import pydantic
import pytest
from pellucid import F


@dataclasses.dataclass
class Address:
    city: str
    zip: str | None = None


class Point(TypedDict):
    x: int


@dataclasses.dataclass
class User:
    name: str
    age: int = 0
    rate: float = 1.0
    tags: list[str] = dataclasses.field(default_factory=list)
    home: Address | None = None
    homes: dict[str, Address] = dataclasses.field(default_factory=dict)
    pair: tuple[int, str] | None = None
    two: tuple[Any, Any] | None = None
    kind: Literal["a", "b"] = "a"
    born: datetime.date | None = None
    anything: Any = None
    friends: list[User] = dataclasses.field(default_factory=list)
    point: Point | None = None


class Struct(msgspec.Struct, weakref=True):
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0


@attrs.define
class Thing:
    name: str
    age: int = 0


class Pair(NamedTuple):
    name: str
    age: int = 0


class Model(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(0, ge=0, alias="years")

    model_config = pydantic.ConfigDict(populate_by_name=True)


VALID = [
    {},
    {"age": True, "rate": 2},
    {"tags": ["a"], "home": Address("Bath"), "homes": {"a": Address("York", "1")}, "pair": (1, "b")},
    {"born": datetime.date(2024, 5, 17), "anything": object, "kind": "b", "point": {"x": 1}},
]
VALID = [{name: value for name, value in fields.items() if name != "anything"} for fields in VALID]


@pytest.mark.parametrize("fields", VALID, ids=repr)
def test_a_valid_instance_is_stored(db: pellucid.Database, fields: dict[str, Any]) -> None:
    users = db.table("users", type=User, validate=True)
    users["ann"] = user = User("Ann", **fields)
    assert users["ann"] == user


INVALID = [
    ({"age": "x"}, "at ['age'] is 'x', which is no int"),
    ({"rate": "1"}, "at ['rate'] is '1', which is no float"),
    ({"tags": ["a", 1]}, "at ['tags'][1] is 1, which is no str"),
    ({"tags": "ab"}, "at ['tags'] is 'ab', which is no list"),
    ({"home": Address(5)}, "at ['home']['city'] is 5, which is no str"),  # type: ignore[arg-type]
    ({"homes": {"a": Address("Bath", 1)}}, "at ['homes']['a']['zip'] is 1"),  # type: ignore[arg-type]
    ({"pair": (1, 2)}, "at ['pair'][1] is 2, which is no str"),
    ({"pair": (1,)}, "at ['pair'] has 1 elements"),
    ({"two": (1,)}, "at ['two'] has 1 elements"),
    ({"kind": "c"}, "at ['kind'] is 'c', which is no Literal['a', 'b']"),
    ({"born": "2024-05-17"}, "at ['born'] is '2024-05-17', which is no"),
    ({"friends": [User("Bob", age=None)]}, "at ['friends'][0]['age'] is None"),  # type: ignore[arg-type]
    ({"point": {"x": "1"}}, "at ['point']['x'] is '1', which is no int"),
    ({"point": {}}, "at ['point'] has no field 'x'"),
]


@pytest.mark.parametrize(("fields", "why"), INVALID, ids=repr)
def test_an_invalid_instance_is_refused_with_the_path(
    db: pellucid.Database, fields: dict[str, Any], why: str
) -> None:
    users = db.table("users", type=User, validate=True)
    for write in (
        lambda user: users.__setitem__("ann", user),
        lambda user: users.update({"ann": user}),
        lambda user: users.extend([User("Bob"), user]),
        users.append,
        lambda user: users.setdefault("ann", user),
    ):
        with pytest.raises(pellucid.WrongClass) as raised:
            write(User("Ann", **fields))
        assert why in str(raised.value)
    assert len(users) == 0
    # Without validate=, it is stored as it is.
    db.table("users", type=User)["ann"] = User("Ann", **fields)


def test_changes_of_a_field_are_validated(db: pellucid.Database) -> None:
    users = db.table("users", type=User, validate=True)
    users["ann"] = ann = User("Ann", age=30)
    changes: list[Callable[[], object]] = [
        lambda: users.increment("ann", "age", 0.5),
        lambda: users.where(F.name == "Ann").update(age="old"),
        lambda: users.where(F.name == "Ann").update(tags=[1]),
    ]
    for change in changes:
        with pytest.raises(pellucid.WrongClass, match="which is no"):
            change()
        assert users["ann"] == ann
    assert users.increment("ann", "age") == 31
    assert users.where(F.name == "Ann").update(age=F.age + 1) == 1
    assert users["ann"].age == 32


OTHER_CLASSES = [
    (Struct, lambda age: Struct("Ann", age), "x", "at ['age'] is 'x', which is no int"),
    (Struct, lambda age: Struct("Ann", age), -1, "at ['age'] is not valid: Expected `int` >= 0"),
    (Thing, lambda age: Thing("Ann", age), "x", "at ['age'] is 'x', which is no int"),
    (Pair, lambda age: Pair("Ann", age), "x", "at ['age'] is 'x', which is no int"),
    (
        Model,
        lambda age: Model.model_construct(name="Ann", age=age),
        "x",
        "at ['age'] is not valid: Input should be",
    ),
    (
        Model,
        lambda age: Model.model_construct(name="Ann", age=age),
        -1,
        "at ['age'] is not valid: Input should be",
    ),
]


@pytest.mark.parametrize(("cls", "make", "wrong", "why"), OTHER_CLASSES, ids=lambda part: f"{part!r:.20}")
def test_other_classes_are_checked_as_well(
    db: pellucid.Database, cls: Any, make: Any, wrong: Any, why: str
) -> None:
    table = db.table("rows", type=cls, validate=True)
    table["ann"] = make(30)
    assert table["ann"] == make(30)
    with pytest.raises(pellucid.WrongClass) as raised:
        table["bob"] = make(wrong)
    assert why in str(raised.value)


@dataclasses.dataclass
class Grown:
    full_name: str
    age: int = 7
    home: Address | None = None


Untyped = attrs.make_class("Untyped", ["a"])
Plain = collections.namedtuple("Plain", ["a"])


@dataclasses.dataclass
class Unresolved:
    a: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("cls", [Untyped, Plain, Unresolved])
def test_a_field_whose_annotation_says_nothing_may_be_anything(cls: Any, db: pellucid.Database) -> None:
    table = db.table("t", type=cls, validate=True)
    table[1] = cls(5)
    assert table[1].a == 5
    assert table.conform() == []


def test_old_rows_get_defaults_new_names_and_no_more_than_the_class_has(db: pellucid.Database) -> None:
    old = db.table("users")
    old["ann"] = {"name": "Ann", "left": 1, "home": {"city": "Bath", "gone": 2}}
    old["bob"] = {"full_name": "Bob", "name": "Robert", "age": 3}
    users = db.table("users", type=Grown, ignore_extra=True, renames={"name": "full_name"})
    assert users["ann"] == Grown("Ann", 7, Address("Bath"))
    assert list(users.values()) == [Grown("Ann", 7, Address("Bath")), Grown("Bob", 3)]
    assert [user.full_name for user in users.where()] == ["Ann", "Bob"]
    # A write stores what the class has.
    users["ann"] = users["ann"]
    assert old["ann"] == {"full_name": "Ann", "age": 7, "home": {"city": "Bath", "zip": None}}
    with users.edit("bob") as bob:
        bob.age += 1
    assert old["bob"] == {"full_name": "Bob", "age": 4, "home": None}


def test_a_snapshot_reads_old_rows_as_well(db: pellucid.Database) -> None:
    db.table("users")["ann"] = {"name": "Ann", "left": 1}
    with db.snapshot() as snapshot:
        users = snapshot.table("users", type=Grown, ignore_extra=True, renames={"name": "full_name"})
        assert users["ann"] == Grown("Ann")


def test_without_them_an_old_row_is_refused(db: pellucid.Database) -> None:
    db.table("users")["ann"] = {"full_name": "Ann", "left": 1}
    with pytest.raises(pellucid.WrongClass, match="has a field 'left'"):
        db.table("users", type=Grown)["ann"]
    db.table("users")["bob"] = {"name": "Bob"}
    with pytest.raises(pellucid.WrongClass, match="has no field 'full_name'"):
        db.table("users", type=Grown, ignore_extra=True)["bob"]


def test_conform_lists_the_rows_that_do_not_fit(db: pellucid.Database) -> None:
    rows = db.table("users")
    rows.update(
        {
            "ann": {"full_name": "Ann"},
            "bob": {"full_name": "Bob", "left": 1},
            "cid": {},
            "dan": {"full_name": 5},
        }
    )
    of = lambda **options: [key for key, _ in db.table("users", type=Grown, **options).conform()]  # noqa: E731
    assert of() == ["bob", "cid"]
    assert of(ignore_extra=True) == ["cid"]
    assert of(validate=True) == ["bob", "cid", "dan"]
    [(key, error)] = db.table("users", type=Grown, ignore_extra=True, validate=True).conform()[1:]
    assert key == "dan"
    assert isinstance(error, pellucid.WrongClass)
    assert "at ['full_name'] is 5, which is no str" in str(error)
    with pytest.raises(TypeError, match="without type="):
        rows.conform()


BAD = [
    ({"validate": True}, TypeError, "give type="),
    ({"type": object, "ignore_extra": True}, TypeError, "give type="),
    ({"type": int, "validate": True}, TypeError, "has none"),
    ({"type": Grown, "renames": {"name": "no"}}, ValueError, "no field of Grown"),
    ({"type": Grown, "renames": {"age": "full_name"}}, ValueError, "is a field of Grown still"),
    ({"type": Grown, "renames": 5}, TypeError, "dict of old names"),
    ({"type": Grown, "renames": {1: "age"}}, TypeError, "names of fields"),
    ({"type": Grown, "validate": "yes"}, TypeError, "bool"),
]


@pytest.mark.parametrize(("options", "error", "why"), BAD, ids=repr)
def test_options_that_say_nothing_are_refused(
    db: pellucid.Database, options: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        db.table("users", **options)
