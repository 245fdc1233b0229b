"""Does a table of a class give instances of it, to any depth, and take nothing else?"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import fractions
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, NamedTuple, NewType, TypedDict, TypeVar

import attrs
import msgspec
import pellucid
import pydantic
import pytest
from pellucid import F

if TYPE_CHECKING:
    from decimal import Decimal as NotThere

Database = pellucid.Database
T = TypeVar("T")
Name = NewType("Name", str)


class Color(enum.Enum):
    RED = "red"
    BLUE = ("b", 1)


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclasses.dataclass(frozen=True)
class Pet:
    name: str
    color: Color = Color.RED


@attrs.define
class Tag:
    _label: str
    weight: int = attrs.field(default=1, init=False)
    pet: Pet | None = None


class Card(msgspec.Struct):
    number: int
    pet: Pet | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET


class Form(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    title: str = pydantic.Field(alias="Title")
    pets: list[Pet] = []


class Rest(TypedDict, total=False):
    pet: Pet
    n: int


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)
    parent: Node | None = None


@dataclasses.dataclass
class Dog:
    name: str
    barks: bool


@dataclasses.dataclass
class Cat:
    name: str
    lives: int = 9


@dataclasses.dataclass
class Everything:
    by_name: dict[str, Pet]
    row: tuple[Pet, ...]
    pair: tuple[int, Pet]
    listed: list[Pet] | None
    maybe: Pet | None
    deep: dict[str, list[dict[int, tuple[Pet, ...]]]]
    color: Color
    colors: frozenset[Color]
    keyed: Mapping[Color, Point]
    level: Level
    sequence: Sequence[Point]
    noted: Annotated[Pet, "best"]
    final: Final[Pet]
    named: Name
    box: Box[Pet]
    boxes: list[Box[list[Pet]]]
    either: Dog | Cat
    eithers: list[Dog | Cat | str | None]
    rest: Rest
    tag: Tag
    card: Card
    form: Form
    anything: Any
    on: datetime.date
    bare: list[Any]
    plain: list[int]
    own: str = dataclasses.field(default="made", init=False)


PET, CAT = Pet("Rex", Color.BLUE), Cat("Tom")


def everything() -> Everything:
    made = Everything(
        by_name={"a": PET, "b": Pet("Bo")},
        row=(PET, Pet("Bo")),
        pair=(1, PET),
        listed=[PET],
        maybe=PET,
        deep={"x": [{1: (PET, PET)}, {}], "y": []},
        color=Color.BLUE,
        colors=frozenset([Color.RED]),
        keyed={Color.RED: Point(1, 2.5)},
        level=Level.LOW | Level.HIGH,
        sequence=[Point(1), Point(2)],
        noted=PET,
        final=PET,
        named=Name("n"),
        box=Box(PET),
        boxes=[Box([PET])],
        either=CAT,
        eithers=[Dog("Rex", True), CAT, "text", None],
        rest={"pet": PET, "n": 1},
        tag=Tag("t", PET),
        card=Card(5, PET),
        form=Form(Title="t", pets=[PET], more=1),
        anything={"name": "a dict"},
        on=datetime.date(2024, 5, 17),
        bare=[{"name": "a dict"}],
        plain=[1, 2],
    )
    made.own, made.tag.weight = "changed", 7
    return made


def test_every_annotated_field_comes_back_as_its_class(db: Database) -> None:
    table = db.table("t", type=Everything)
    table[1] = everything()
    read = table[1]
    assert read == everything()
    assert type(read.form) is Form
    assert read.form.model_extra == {"more": 1}
    assert (type(read.card), read.card.note) == (Card, msgspec.UNSET)
    assert (type(read.sequence[0]), type(read.eithers[0]), type(read.eithers[1])) == (Point, Dog, Cat)
    nothing = dataclasses.replace(everything(), listed=None, maybe=None, row=(), by_name={})
    table[2] = nothing
    assert table[2] == nothing
    assert db.table("t")[1].deep.x[0][1][0].name == "Rex"
    assert db.table("t").column("card.number") == [5, 5]


@pytest.mark.parametrize(
    ("cls", "instance"),
    [
        (Pet, PET),
        (Point, Point(1)),
        (Color, Color.BLUE),
        (Level, Level.LOW | Level.HIGH),
        (Tag, Tag("t", PET)),
        (Card, Card(1, PET)),
        (Form, Form(Title="t", pets=[PET])),
        (Node, Node(1, [Node(2, [Node(3)])], Node(0))),
        (int, 5),
        (dict, {"a": [1]}),
        (list, [{"a": 1}]),
        (set, {1}),
        (object, "anything"),
    ],
)
def test_each_way_to_read_a_table_of_a_class_gives_instances(
    db: Database, cls: type, instance: object
) -> None:
    table = db.table("t", type=cls)
    table["a"] = instance
    table.update({"b": instance}, c=instance)
    table.setdefault("d", instance)
    assert table.append(instance) == 0
    assert table.extend([instance, instance]) == 2
    with db.snapshot() as before:
        frozen = before.table("t", type=cls)
        ways: list[Callable[[], object]] = [
            lambda: table["a"],
            lambda: table.get("b"),
            lambda: next(iter(table.values())),
            lambda: next(iter(table.items()))[1],
            lambda: next(table.range("c")),
            lambda: table.first()[1],  # type: ignore[index]
            lambda: table.last()[1],  # type: ignore[index]
            lambda: table.setdefault("a", instance),
            lambda: frozen["a"],
            lambda: table.pop("c"),
            lambda: table.popitem()[1],
        ]
        for way in ways:
            read = way()
            assert read == instance
            assert type(read) is type(instance)
        with db.transaction():
            table["z"] = instance
            assert [type(value) for value in table.values()] == [type(instance)] * len(table)


WRONG: list[tuple[type, object]] = [
    (Pet, Dog("Rex", True)),
    (Pet, {"name": "Rex"}),
    (Pet, None),
    (Pet, Pet),
    (Color, "red"),
    (Color, Level.LOW),
    (int, "5"),
    (Point, (1, 2.0)),
    (list, (1,)),
]


@pytest.mark.parametrize(("cls", "value"), WRONG)
def test_a_write_of_another_class_is_refused_and_says_which_was_wanted(
    db: Database, cls: type, value: Any
) -> None:
    table = db.table("t", type=cls)
    writes: list[tuple[str, Callable[[], object]]] = [
        ("key 'a'", lambda: table.__setitem__("a", value)),
        ("key 'a'", lambda: table.update({"a": value})),
        ("key 'a'", lambda: table.update(a=value)),
        ("key 'a'", lambda: table.setdefault("a", value)),
        ("appended", lambda: table.append(value)),
        ("value 0 given to extend", lambda: table.extend([value])),
    ]
    for place, write in writes:
        with pytest.raises(pellucid.WrongClass) as refused:
            write()
        message = str(refused.value)
        assert place in message
        assert f"type={cls.__module__.replace('builtins', '')}".rstrip(".") in message
        assert cls.__qualname__ in message
        assert type(value).__qualname__ in message
        assert "without type=" in message
    assert len(table) == 0
    db.table("t")["a"] = {"any": "thing"}
    assert len(table) == 1


def test_an_instance_of_a_subclass_is_refused_since_it_would_not_come_back(db: Database) -> None:
    @dataclasses.dataclass(frozen=True)
    class Puppy(Pet):
        weeks: int = 8

    table = db.table("t", type=Pet)
    with pytest.raises(pellucid.WrongClass, match="Puppy"):
        table[1] = Puppy("Rex")
    db.table("numbers", type=int)[1] = True
    assert db.table("numbers", type=int)[1] is True


@dataclasses.dataclass(frozen=True)
class Cub(Pet):
    """Has the fields of its base class alone."""


@dataclasses.dataclass(frozen=True)
class Older(Pet):
    years: int = 8


class Tuple(NamedTuple):
    pet: Pet


@attrs.define
class Plain:
    pet: Pet


class Cards(msgspec.Struct):
    pets: list[Pet]


class Model(pydantic.BaseModel):
    pet: Pet


@dataclasses.dataclass
class Nested:
    pairs: dict[str, list[tuple[int, Dog | Pet | None]]]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (Tuple(Cub("Rex")), "['pet']"),
        (Tuple(Older("Rex")), "['pet']"),
        (Plain(Cub("Rex")), "['pet']"),
        (Plain(None), "['pet']"),  # type: ignore[arg-type]
        (Plain({"name": "Rex", "years": 5}), "['pet']"),  # type: ignore[arg-type]
        (Cards([Pet("Bo"), Cub("Rex")]), "['pets'][1]"),
        (Model(pet=Older("Rex")), "['pet']"),
        (Nested({"a": [(1, Pet("Bo")), (2, None), (3, Older("Rex"))]}), "['pairs']['a'][2][1]"),
        (Nested({"a": [(1, Cub("Rex"))]}), "['pairs']['a'][0][1]"),
    ],
    ids=repr,
)
def test_a_part_that_would_not_come_back_is_refused(db: Database, value: Any, place: str) -> None:
    table = db.table("t", type=type(value))
    writes: list[Callable[[], object]] = [
        lambda: table.__setitem__(1, value),
        lambda: table.update({1: value}),
        lambda: table.setdefault(1, value),
        lambda: table.append(value),
        lambda: table.extend([value]),
    ]
    for write in writes:
        with pytest.raises(pellucid.WrongClass) as refused:
            write()
        assert f"at {place} h" in str(refused.value)
    assert len(table) == 0
    db.table("t")[1] = value
    assert len(table) == 1


class CardOrUnset(msgspec.Struct):
    pet: Pet = msgspec.UNSET  # type: ignore[assignment]


def test_parts_that_are_stored_as_dicts_or_not_at_all_are_taken(db: Database) -> None:
    db["rex"] = {"name": "Rex"}
    table = db.table("t", type=Plain)
    table[1] = Plain(db["rex"])
    table[2] = Plain({"name": "Rex"})  # type: ignore[arg-type]
    assert table[1] == table[2] == Plain(Pet("Rex"))
    db["rex"].age = 5
    with pytest.raises(pellucid.WrongClass, match="has a field 'age'"):
        table[3] = Plain(db["rex"])
    cards = db.table("cards", type=CardOrUnset)
    cards[1] = CardOrUnset()
    assert cards[1] == CardOrUnset()


class TupleOrNone(NamedTuple):
    pet: Pet = None  # type: ignore[assignment]
    color: Color = "none"  # type: ignore[assignment]


@attrs.define
class PlainOrNone:
    pet: Pet = None  # type: ignore[assignment]
    color: Color = Level.HIGH  # type: ignore[assignment]


@dataclasses.dataclass
class DataOrNone:
    pet: Pet = None  # type: ignore[assignment]
    made: Pet = dataclasses.field(default_factory=lambda: None)  # type: ignore[assignment, return-value]


class CardOrNone(msgspec.Struct):
    pet: Pet = None  # type: ignore[assignment]


class ModelOrNone(pydantic.BaseModel):
    pet: Pet = None  # type: ignore[assignment]


@pytest.mark.parametrize("cls", [TupleOrNone, PlainOrNone, DataOrNone, CardOrNone, ModelOrNone])
def test_a_field_may_hold_its_own_default(db: Database, cls: Any) -> None:
    for run_init in (False, True):
        table = db.table("t", type=cls, run_init=run_init)
        table[1] = cls()
        assert table[1] == cls()
        assert repr(table[1]) == repr(cls())
        table[2] = cls(pet=PET)
        assert table[2] == cls(pet=PET)
        with pytest.raises(pellucid.WrongClass):
            table[3] = cls.model_construct(pet=5) if cls is ModelOrNone else cls(pet=5)


@dataclasses.dataclass
class Grown:
    name: str
    new: int
    pets: list[Pet] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize(
    ("cls", "stored", "message"),
    [
        (Pet, {"name": "Rex", "age": 3}, "has a field 'age', which Pet does not have"),
        (Grown, {"name": "Rex"}, "has no field 'new', and Grown has no default for it"),
        (Grown, {"name": "a", "new": 1, "pets": [{"nom": "x"}]}, r"at \['pets'\]\[0\] has a field 'nom'"),
        (Grown, {"name": "a", "new": 1, "pets": [5]}, r"at \['pets'\]\[0\] holds a value of type int"),
        (Pet, {"name": "Rex", "color": "green"}, r"at \['color'\] holds 'green', which is no Color"),
        (Pet, [1, 2], "holds a value of type list, but Pet is expected"),
        (Pet, 5, "holds a value of type int"),
        (Color, "green", "no Color"),
        (int, {"a": 1}, "holds a value of type dict, but int is expected"),
    ],
)
def test_a_record_that_makes_no_instance_says_why_and_stays_readable(
    db: Database, cls: type, stored: Any, message: str
) -> None:
    db.table("t")["k"] = stored
    table = db.table("t", type=cls)
    for read in (lambda: table["k"], lambda: list(table.values()), lambda: table.pop("k")):
        with pytest.raises(pellucid.WrongClass, match=message) as refused:
            read()
        assert str(refused.value).startswith("record 'k' of table \"t\" ")
    assert db.table("t")["k"] == stored
    assert list(table) == ["k"]


def test_a_class_that_has_grown_a_default_reads_older_records(db: Database) -> None:
    db.table("t")["k"] = {"name": "Rex", "new": 1}
    assert db.table("t", type=Grown)["k"] == Grown("Rex", 1)


@dataclasses.dataclass
class Checked:
    low: int

    def __post_init__(self) -> None:
        if self.low < 0:
            raise ZeroDivisionError(self.low)
        if self.low > 9:
            raise TypeError("too much")


def test_what_a_constructor_raises_comes_through_or_is_explained(db: Database) -> None:
    db.table("t").update(a={"low": -1}, b={"low": 10})
    table = db.table("t", type=Checked, run_init=True)
    with pytest.raises(ZeroDivisionError):
        table["a"]
    with pytest.raises(pellucid.WrongClass, match="does not make a Checked: too much") as refused:
        table["b"]
    assert isinstance(refused.value.__cause__, TypeError)


@dataclasses.dataclass
class Early:
    amount: NotThere | None
    names: list[str]


def test_an_annotation_that_is_nowhere_matters_only_where_it_is_needed(db: Database) -> None:
    table = db.table("t", type=Early)
    table[1] = Early(None, ["a"])
    assert table[1] == Early(None, ["a"])
    table[2] = Early({"an": "amount"}, [])  # type: ignore[arg-type]
    with pytest.raises(pellucid.WrongClass, match=r"at \['amount'\] is annotated 'NotThere | None', which"):
        table[2]


@dataclasses.dataclass
class Left:
    n: int


@dataclasses.dataclass
class Right:
    n: int


@dataclasses.dataclass
class Either:
    side: Left | Right


def test_classes_that_cannot_be_told_apart_are_not_guessed(db: Database) -> None:
    table = db.table("t", type=Either)
    with pytest.raises(pellucid.WrongClass, match="more than one class of"):
        table[1] = Either(Left(1))
    db.table("t")[1] = Either(Left(1))
    with pytest.raises(pellucid.WrongClass, match="more than one class of"):
        table[1]
    db.table("t")[2] = {"side": {"m": 1}}
    with pytest.raises(pellucid.WrongClass, match="no class of"):
        table[2]
    db.table("t")[3] = {"side": 5}
    assert table[3] == Either(5)  # type: ignore[arg-type]


@dataclasses.dataclass
class PetBox(Box[Pet]):
    """Says in its base class what is inside."""


@dataclasses.dataclass
class Row(Box[list[T]], Generic[T]):
    """Uses the same type parameter for something else than its base class does."""

    first: T


class Shelf(Row[Pet]):
    """Has the fields of its base classes."""


class Crate(pydantic.BaseModel, Generic[T]):
    inside: T
    more: list[T] = []


class PetCrate(Crate[Pet]):
    """As PetBox."""


class Slot(msgspec.Struct, Generic[T]):
    inside: T


class PetSlot(Slot[Pet]):
    """As PetBox."""


@dataclasses.dataclass
class Stack(Generic[T]):
    crate: Crate[T]


@dataclasses.dataclass
class Store:
    box: PetBox
    shelf: Shelf
    crate: Crate[Pet]
    boxed: PetCrate
    stack: Stack[Pet]


@pytest.mark.parametrize(
    "stored",
    [
        PetBox(PET),
        Shelf([PET], PET),
        Crate[Pet](inside=PET, more=[PET]),
        PetCrate(inside=PET),
        PetSlot(PET),
        Store(
            PetBox(PET),
            Shelf([PET], PET),
            Crate[Pet](inside=PET),
            PetCrate(inside=PET),
            Stack(Crate[Pet](inside=PET)),
        ),
    ],
    ids=lambda stored: type(stored).__name__,
)
def test_a_class_may_say_in_its_bases_what_is_in_a_generic_one(db: Database, stored: Any) -> None:
    table = db.table("t", type=type(stored))
    table[1] = stored
    assert table[1] == stored
    assert repr(table[1]) == repr(stored)


def test_a_registered_class_may_be_that_of_a_table_and_of_a_field(db: Database) -> None:
    pellucid.register(fractions.Fraction, str, fractions.Fraction)
    third = fractions.Fraction(1, 3)
    table = db.table("t", type=fractions.Fraction)
    table[1] = third
    assert table[1] == third
    with pytest.raises(pellucid.WrongClass):
        table[2] = 5  # type: ignore[assignment]
    boxes = db.table("boxes", type=Box)
    boxes[1] = Box(third)
    assert boxes[1] == Box(third)


def test_an_instance_is_detached_and_edit_saves_it(db: Database) -> None:
    table = db.table("t", type=Node)
    table["a"] = Node(1)
    table["a"].value = 2
    assert table["a"].value == 1
    with table.edit("a") as node:
        node.value = 3
        node.children.append(Node(4))
    assert table["a"] == Node(3, [Node(4)])
    with pytest.raises(ZeroDivisionError), table.edit("a") as node:
        node.value = 1 // 0
    with pytest.raises(pellucid.UnsupportedValue), table.edit("a") as node:
        node.value = object()
    assert table["a"] == Node(3, [Node(4)])
    with pytest.raises(KeyError), table.edit("missing"):
        pass
    with db.transaction():
        with table.edit("a") as node:
            node.value = 5
        assert table["a"].value == 5
    assert table["a"].value == 5


def test_an_update_changes_the_rows_of_a_table_of_a_class(db: Database) -> None:
    table = db.table("t", type=Point)
    table.update({number: Point(number, 0.5) for number in range(30)})
    assert table.where(F.x < 20).update(y=F.x + 0.25) == 20
    with db.transaction():
        assert table.where(F.x >= 10).order_by(F.x.desc()).update(x=F.x + 100, y=1.5) == 20
        assert table[29] == Point(129, 1.5)
    for number in range(30):
        small = Point(number, number + 0.25)
        assert table[number] == (small if number < 10 else Point(number + 100, 1.5))


def test_edit_saves_what_is_no_record_and_leaves_scalars_alone(db: Database) -> None:
    db.update({"s": {1}, "n": 1, "b": bytearray(b"x"), "l": [1]})
    with db.edit("s") as members:
        members.add(2)
    with db.edit("b") as data:
        data += b"y"
    with db.edit("l") as listed:
        listed.append(2)
    with db.edit("n") as number:
        db["n"] = number + 1
    assert db == {"s": {1, 2}, "n": 2, "b": bytearray(b"xy"), "l": [1, 2]}


@pytest.mark.parametrize("wrong", ["Pet", list[int], Pet("Rex"), 5])
def test_only_a_class_can_be_the_class_of_a_table(db: Database, wrong: Any) -> None:
    for owner in (db, db.snapshot()):
        with pytest.raises(TypeError, match="type= is the class"):
            owner.table("t", type=wrong)


def test_threads_that_read_a_class_first_at_once_all_get_instances(db: Database) -> None:
    for _ in range(20):
        made = dataclasses.make_dataclass("Made", [(f"f{n}", list[Node]) for n in range(30)])
        db.table("t")[1] = {f"f{n}": [{"value": n}] for n in range(30)}
        seen: list[bool] = []

        def read(made: type = made, seen: list[bool] = seen) -> None:
            row: Any = db.table("t", type=made)[1]
            seen.append(all(isinstance(getattr(row, f"f{n}")[0], Node) for n in range(30)))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [True] * 4
