"""Does an instance come back as it was stored, without being initialised a second time?"""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar, Union

import attrs
import msgspec
import pellucid
import pydantic
import pytest

Database = pellucid.Database
T = TypeVar("T")

# What has run since the test began.
CALLED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    CALLED.clear()


def times_100(value: int) -> int:
    CALLED.append("converter")
    return value * 100


@dataclasses.dataclass
class Price:
    cents: int
    notes: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        CALLED.append("post_init")
        self.cents *= 100


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    cents: int
    twice: int = dataclasses.field(init=False)
    factor: dataclasses.InitVar[int] = 2

    def __post_init__(self, factor: int) -> None:
        CALLED.append("post_init")
        object.__setattr__(self, "twice", self.cents * factor)


@dataclasses.dataclass(kw_only=True)
class NeedsMore:
    cents: int
    factor: dataclasses.InitVar[int]
    made: ClassVar[int] = 0

    def __post_init__(self, factor: int) -> None:
        self.cents *= factor


@dataclasses.dataclass(init=False)
class OwnInit:
    cents: int

    def __new__(cls, *_arguments: object) -> OwnInit:
        CALLED.append("new")
        return super().__new__(cls)

    def __init__(self, dollars: int) -> None:
        CALLED.append("init")
        self.cents = dollars * 100

    def __setattr__(self, name: str, value: object) -> None:
        CALLED.append("setattr")
        super().__setattr__(name, value)


class Turned:
    """A descriptor, as the default of a field has one in the documentation of dataclasses."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, _owner: type) -> Any:
        return 7 if instance is None else getattr(instance, self.name)

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance, self.name, value)


@dataclasses.dataclass
class Described:
    cents: Turned = Turned()


class Cents(Turned):
    """A descriptor that changes what it is given."""

    def __set__(self, instance: Any, value: Any) -> None:
        super().__set__(instance, value * 100)


class Checked(Cents):
    """A descriptor that keeps the value under its own name."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, _owner: type) -> Any:
        return 7 if instance is None else vars(instance)[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self.name] = value * 100


class Dollars(Turned):
    """A descriptor that shows something else than it keeps."""

    def __get__(self, instance: Any, _owner: type) -> Any:
        return 7 if instance is None else getattr(instance, self.name) / 100

    def __set__(self, instance: Any, value: Any) -> None:
        super().__set__(instance, value * 100)


@dataclasses.dataclass
class Changed:
    cents: Cents = Cents()
    checked: Checked = Checked()
    dollars: Dollars = Dollars()
    same: int = 100


@dataclasses.dataclass
class ChangedInSlots:
    __slots__ = ("_cents", "other")
    cents: Cents
    other: int


# A class with slots cannot say the default of a field in its body.
CENTS = Cents()
CENTS.__set_name__(ChangedInSlots, "cents")
ChangedInSlots.cents = CENTS


@dataclasses.dataclass
class Refused(Exception):
    code: int
    why: str = "?"

    def __post_init__(self) -> None:
        CALLED.append("post_init")


@attrs.define
class Converted:
    _cents: int = attrs.field(converter=times_100)
    other: int = attrs.field(default=5, alias="another")
    late: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        CALLED.append("post_init")
        self.late = self.other


@attrs.frozen(slots=False, cache_hash=True)
class Cached:
    cents: int = attrs.field(converter=times_100, validator=attrs.validators.ge(0))


@attrs.frozen(cache_hash=True)
class CachedInSlots:
    cents: int = attrs.field(converter=times_100)


@attrs.define
class Failed(Exception):
    cents: int = attrs.field(converter=times_100)


class Pair(NamedTuple("Pair", [("a", int), ("b", int)])):
    __slots__ = ()

    def __new__(cls, a: int, b: int = 1) -> Pair:
        CALLED.append("new")
        return super().__new__(cls, a * 100, b)


class Card(msgspec.Struct):
    cents: int
    tags: list[str] = []

    def __post_init__(self) -> None:
        CALLED.append("post_init")
        self.cents *= 100


class FrozenCard(msgspec.Struct, frozen=True, tag=True, array_like=True, cache_hash=True, kw_only=True):
    a: int = 3
    cents: int

    def __post_init__(self) -> None:
        CALLED.append("post_init")


class OtherCard(Card, weakref=True, dict=True):
    note: str = "n"

    def __init_subclass__(cls, **_keywords: object) -> None:
        CALLED.append("subclass")


class Form(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    cents: int = pydantic.Field(alias="Cents")
    pets: list[str] = pydantic.Field(default_factory=list)
    _hidden: int = 5

    def model_post_init(self, _context: object) -> None:
        CALLED.append("post_init")
        self.cents *= 100


class WithPrivate(pydantic.BaseModel):
    cents: int
    _seen: list[int] = pydantic.PrivateAttr(default_factory=list)
    _shared: list[int] = pydantic.PrivateAttr(default=[5])
    _later: int = pydantic.PrivateAttr()

    def model_post_init(self, _context: object) -> None:
        CALLED.append("post_init")


INSTANCES: list[Callable[[], Any]] = [
    lambda: Price(5),
    lambda: Frozen(5, 3),
    lambda: NeedsMore(cents=5, factor=10),
    lambda: OwnInit(5),
    lambda: Described(3),  # type: ignore[arg-type]
    lambda: Changed(1, 2, 3),  # type: ignore[arg-type]
    lambda: ChangedInSlots(3, 300),  # type: ignore[arg-type]
    lambda: Refused(5, "no"),
    lambda: Converted(5),
    lambda: Cached(5),
    lambda: CachedInSlots(5),
    lambda: Failed(5),
    lambda: Pair(5),
    lambda: Card(5, ["a"]),
    lambda: FrozenCard(cents=5),
    lambda: OtherCard(5),
    lambda: Form(Cents=5, more=[1]),  # type: ignore[call-arg]
    lambda: WithPrivate(cents=5),
]


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, Failed) and isinstance(b, Failed):
        # Exceptions of attrs are compared as objects.
        return (a.cents, a.args) == (b.cents, b.args)
    return type(a) is type(b) and bool(a == b) and repr(a) == repr(b)


@pytest.mark.parametrize("make", INSTANCES)
def test_what_is_read_is_what_was_stored_however_often_it_is_stored_again(
    db: Database, make: Callable[[], Any]
) -> None:
    instance = make()
    table = db.table("t", type=type(instance))
    CALLED.clear()
    table[1] = instance
    for _ in range(3):
        table[1] = table[1]
    with table.edit(1):
        pass
    assert is_same(table[1], instance)
    assert is_same(next(iter(table.values())), instance)
    assert CALLED == []
    # What a Struct is made with is a subclass for a moment.
    gc.collect()
    assert type(instance).__subclasses__() == ([OtherCard] if type(instance) is Card else [])


@pytest.mark.parametrize("make", INSTANCES)
def test_what_is_read_is_as_good_as_what_was_made(db: Database, make: Callable[[], Any]) -> None:
    instance = make()
    table = db.table("t", type=type(instance))
    table[1] = instance
    read = table[1]
    if isinstance(instance, (Frozen, Cached, CachedInSlots, Pair, FrozenCard)):
        assert hash(read) == hash(instance)
    if isinstance(instance, (Refused, Failed)):
        assert (str(read), read.args) == (str(instance), instance.args)
    if isinstance(instance, Form):
        assert read._hidden == 5
        assert read.model_dump() == instance.model_dump()
        assert read.model_extra == {"more": [1]}
    if isinstance(instance, msgspec.Struct):
        assert msgspec.json.encode(read) == msgspec.json.encode(instance)
    if isinstance(instance, OtherCard):
        read.own = 1
        assert read.__dict__ == {"own": 1}
    if isinstance(instance, Card):
        assert read.tags is not table[1].tags


def test_instances_inside_others_are_not_initialised_again_either(db: Database) -> None:
    @dataclasses.dataclass
    class Order:
        prices: list[Price]
        card: Card | None
        pair: Pair

    order = Order([Price(1), Price(2)], Card(3), Pair(4))
    CALLED.clear()
    table = db.table("t", type=Order)
    table[1] = order
    # The annotations of a class in a function name what only the function has.
    Order.__annotations__ = {"prices": list[Price], "card": Card | None, "pair": Pair}
    table[2] = table[1]
    assert table[2] == order
    assert CALLED == []


def test_fields_that_a_record_lacks_get_their_defaults(db: Database) -> None:
    plain = db.table("t")
    plain.update({"p": {"cents": 5}, "c": {"_cents": 5, "late": 1}, "f": {"code": 1}, "n": {"a": 1}})
    assert db.table("t", type=Price)["p"].notes == []
    assert db.table("t", type=Price)["p"].notes is not db.table("t", type=Price)["p"].notes
    assert db.table("t", type=Converted)["c"].other == 5
    assert db.table("t", type=Refused)["f"].args == (1, "?")
    assert db.table("t", type=Card)["p"].tags == []
    assert db.table("t", type=Card)["p"].tags is not db.table("t", type=Card)["p"].tags
    assert db.table("t", type=FrozenCard)["p"].a == 3
    assert db.table("t", type=Form)["p"].pets == []
    # One that no constructor takes and that has no default may be missing, as it was in what was stored.
    plain["late"] = {"cents": 5}
    assert not hasattr(db.table("t", type=Frozen)["late"], "twice")
    assert CALLED == []


@attrs.define
class Defaults:
    a: int = 2
    converted: int = attrs.field(default=3, converter=times_100)
    of_self: int = attrs.field(default=attrs.Factory(lambda self: self.a + 1, takes_self=True))
    made: list[int] = attrs.field(factory=list)
    with_self: int = attrs.field(
        default=1,
        converter=attrs.Converter(
            lambda value, self, field: value + self.a + len(field.name), takes_self=True, takes_field=True
        ),
    )


def test_defaults_of_attrs_are_converted_and_may_need_the_fields_before(db: Database) -> None:
    db.table("t")[1] = {"a": 10}
    assert db.table("t", type=Defaults)[1] == Defaults(10)


def test_with_run_init_each_read_calls_the_class(db: Database) -> None:
    db.table("t")[1] = {"cents": 5}
    expected: list[tuple[type, int, list[str]]] = [
        (Price, 500, ["post_init"]),
        (Card, 500, ["post_init"]),
        (Form, 500, ["post_init"]),
        (Cached, 500, ["converter"]),
    ]
    for owner in (db, db.snapshot()):
        for cls, cents, called in expected:
            CALLED.clear()
            assert owner.table("t", type=cls, run_init=True)[1].cents == cents
            assert called == CALLED
            assert owner.table("t", type=cls)[1].cents == 5
    db.table("t")[2] = {"a": 5, "b": 1}
    assert db.table("t", type=Pair, run_init=True)[2] == (500, 1)
    db.table("t")[3] = {"card": {"cents": 5}}
    assert db.table("t", type=Holder, run_init=True)[3].card.cents == 500
    assert db.table("t", type=Holder)[3].card.cents == 5
    # What the constructor wants and no record has.
    with pytest.raises(pellucid.WrongClass, match=r"does not make a NeedsMore: .*'factor'"):
        db.table("t", type=NeedsMore, run_init=True)[1]
    for owner in (db, db.snapshot()):
        with pytest.raises(TypeError, match=r"run_init=True is about the class that type= names"):
            owner.table("t", run_init=True)  # type: ignore[call-overload]


@dataclasses.dataclass
class Holder:
    card: Card


# Annotations that name themselves.


@dataclasses.dataclass
class Linked(Generic[T]):
    value: T
    following: Linked[T] | None = None
    wrapped: Linked[list[T]] | None = None


@dataclasses.dataclass
class OfPrices:
    prices: Linked[Price]


class Branch(TypedDict, total=False):
    price: Price
    branches: list[Branch]


if sys.version_info >= (3, 11):

    class OfMany(TypedDict, Generic[T], total=False):
        one: T
        more: OfMany[T]

    ManyPrices = OfMany[Price]
else:  # where no TypedDict is generic

    class ManyPrices(TypedDict, total=False):
        one: Price
        more: ManyPrices


@dataclasses.dataclass
class Trees:
    branch: Branch
    many: ManyPrices | None = None


def test_a_generic_class_may_hold_itself(db: Database) -> None:
    table = db.table("t", type=Linked)
    linked = Linked(1, Linked(2, Linked(3)), Linked([4], None, Linked([[5]])))
    table[1] = linked
    assert table[1] == linked
    prices = db.table("prices", type=OfPrices)
    inner = OfPrices(Linked(Price(1), Linked(Price(2)), Linked([Price(3)], None, Linked([[Price(4)]]))))
    prices[1] = inner
    assert prices[1] == inner


def test_a_typed_dict_may_hold_itself(db: Database) -> None:
    table = db.table("t", type=Trees)
    trees = Trees({"price": Price(1), "branches": [{"price": Price(2)}, {}]}, {"more": {"one": Price(3)}})
    table[1] = trees
    assert table[1] == trees


class Alias:
    """As what `type Tree = ...` makes, a statement of Python 3.12 on."""

    __value__: Any = None

    def __call__(self) -> None:
        """Makes it pass for an annotation in older Pythons."""


def test_an_alias_may_hold_itself(db: Database) -> None:
    names: dict[str, Any] = {"Price": Price}
    if sys.version_info >= (3, 12):
        exec("type Tree = Price | list[Tree]\ntype Of[T] = T | dict[str, Of[T]]\nof = Of[Price]", names)  # noqa: S102
    else:
        tree, of = Alias(), Alias()
        tree.__value__ = Union[Price, list.__class_getitem__(tree)]  # noqa: UP007
        of.__value__ = Union[Price, dict.__class_getitem__((str, of))]  # noqa: UP007
        names |= {"Tree": tree, "of": of}
    cls = dataclasses.make_dataclass("Aliased", [("tree", names["Tree"]), ("of", names["of"])])
    table = db.table("t", type=cls)
    aliased = cls([Price(1), [Price(2), []]], {"a": Price(3), "b": {"c": Price(4)}})
    table[1] = aliased
    assert table[1] == aliased


class Unresolved(msgspec.Struct):
    at: Missing = None  # type: ignore[name-defined]  # noqa: F821  what is tested
    n: int = 5


def test_a_struct_with_an_annotation_that_is_nowhere_can_be_read(db: Database) -> None:
    table = db.table("t", type=Unresolved)
    table[1] = Unresolved(5)
    assert table[1] == Unresolved(5)


def test_an_instance_may_have_fields_of_its_own() -> None:
    class Duck:
        __dataclass_fields__: Any = {}  # noqa: RUF012  what is tested

        def __getattr__(self, name: str) -> int:
            return {"cents": 1, "notes": 2}[name]

    duck = Duck()
    duck.__dataclass_fields__ = Price.__dataclass_fields__
    assert pellucid.loads(pellucid.dumps(duck)) == {"cents": 1, "notes": 2}


# What an instance holds that is in none of its fields


@dataclasses.dataclass
class AsList(list):  # type: ignore[type-arg]
    name: str = ""


@dataclasses.dataclass
class AsDict(dict):  # type: ignore[type-arg]
    name: str = ""


@dataclasses.dataclass
class AsText(str):
    name: str = ""


@dataclasses.dataclass
class AsNumber(int):
    name: str = ""


@dataclasses.dataclass
class Simple:
    a: int

    @functools.cached_property
    def twice(self) -> int:
        return self.a * 2


class Initialised:
    n: int

    def __init__(self) -> None:
        self.n = 1


@dataclasses.dataclass
class Derived(Initialised):
    a: int

    def __post_init__(self) -> None:
        Initialised.__init__(self)


class WithSlot:
    __slots__ = ("later",)


@dataclasses.dataclass
class OfSlots(WithSlot):
    a: int


@attrs.define(slots=False)
class Open:
    a: int


class Several(NamedTuple("Several", [("a", int)])):
    pass


class OpenCard(msgspec.Struct, dict=True):
    a: int


@dataclasses.dataclass
class Boxed(Generic[T]):
    a: T


def with_later(instance: Any) -> Any:
    instance.later = "set later"
    return instance


def with_items(instance: Any) -> Any:
    instance.extend([1, 2])
    return instance


def with_key(instance: Any) -> Any:
    instance["k"] = "v"
    return instance


def with_text() -> Any:
    instance = AsText.__new__(AsText, "the text")
    instance.name = "n"
    return instance


def with_private(name: str, value: object) -> Any:
    instance = WithPrivate(cents=1)
    setattr(instance, name, value)
    return instance


def with_arguments() -> Any:
    instance = Refused(3)
    instance.args = ("a message",)
    return instance


HOLD_MORE: list[tuple[Callable[[], Any], str]] = [
    (lambda: with_items(AsList("n")), "what it holds as a list of length 2"),
    (lambda: with_key(AsDict("n")), "what it holds as a dict of length 1"),
    (with_text, "what it holds as a str of length 8"),
    (lambda: AsNumber.__new__(AsNumber, 5), "its value as int"),
    (lambda: with_later(Simple(1)), "its attribute 'later'"),
    (lambda: Derived(1), "its attribute 'n'"),
    (lambda: with_later(OfSlots(1)), "its attribute 'later'"),
    (lambda: with_later(Open(1)), "its attribute 'later'"),
    (lambda: with_later(Several(1)), "its attribute 'later'"),
    (lambda: with_later(OpenCard(1)), "its attribute 'later'"),
    (lambda: with_private("_seen", [1]), "its private attribute '_seen'"),
    (lambda: with_private("_later", 1), "its private attribute '_later'"),
    (with_arguments, "its args"),
]


@pytest.mark.parametrize(("make", "what"), HOLD_MORE, ids=[what for _, what in HOLD_MORE])
@pytest.mark.parametrize("pickle", ["deny", "allow"])
def test_an_instance_that_holds_more_than_its_fields_is_refused(
    make: Callable[[], Any], what: str, pickle: Any
) -> None:
    db, instance = pellucid.open(":memory:", pickle=pickle), make()
    writes: list[Callable[[], object]] = [
        lambda: db.__setitem__("k", instance),
        lambda: db.__setitem__("k", {"part": [instance]}),
        lambda: db.table("t", type=type(instance)).__setitem__("k", instance),
        lambda: pellucid.dumps(instance, pickle=pickle),
    ]
    for write in writes:
        with pytest.raises(pellucid.UnsupportedValue) as refused:
            write()
        assert f"only its fields would be stored, without {what}; make that a field" in str(refused.value)
    assert len(db) == 0


def test_what_is_made_again_of_the_fields_is_no_content() -> None:
    db = pellucid.open(":memory:")
    computed = Simple(1)
    assert computed.twice == 2
    equal = with_private("_seen", [])
    for instance in (computed, Boxed[int](1), equal, Refused(5, "no"), AsList("n")):
        db["k"] = instance
        table = db.table("t", type=type(instance))
        table["k"] = instance
        assert table["k"] == instance
        table.clear()


def test_a_constructor_that_runs_again_makes_the_attributes_that_are_no_fields() -> None:
    db = pellucid.open(":memory:")
    table = db.table("t", type=Derived, run_init=True)
    table["k"] = Derived(5)
    assert (table["k"].a, table["k"].n) == (5, 1)
    lists = db.table("lists", type=AsList, run_init=True)
    with pytest.raises(pellucid.UnsupportedValue, match="as a list of length 2"):
        lists["k"] = with_items(AsList("n"))


def test_a_table_of_objects_keeps_what_is_no_field() -> None:
    table = pellucid.open(":memory:", pickle="allow").table("t", type=object)
    table["k"] = with_later(Simple(1))
    assert table["k"].later == "set later"
    table["l"] = with_items(AsList("n"))
    assert [*table["l"]] == [1, 2]
