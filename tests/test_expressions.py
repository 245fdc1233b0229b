"""Is an expression what was typed, in Python and as text, and does each mistake say what to write instead?"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import math
import operator
import pickle
import time
import uuid
import warnings
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy
import pandas
import pellucid
import pytest
import values
from hypothesis import given, settings
from hypothesis import strategies as st
from pellucid import KEY, Expression, F, parse

NAMES = {
    "F": F,
    "KEY": KEY,
    "pellucid": pellucid,
    "datetime": datetime,
    "zoneinfo": zoneinfo,
    "Decimal": decimal.Decimal,
    "UUID": uuid.UUID,
}

NAN = math.nan

COMPARE = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]
ARITHMETIC = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a % b,
]


def one(piece: Any) -> Any:
    """What may begin or end a text: all else is refused."""
    return piece if isinstance(piece, str | bytes | bytearray | Expression) else "no text"


HAS = [
    lambda a, b: a.startswith(one(b)),
    lambda a, b: a.endswith(one(b)),
    lambda a, b: a.contains(b),
]
OF_ONE = [
    lambda a: ~a,
    lambda a: -a,
    abs,
    lambda a: a.exists(),
    lambda a: a.is_none(),
    lambda a: a.length(),
    lambda a: a.lower(),
    lambda a: a.upper(),
    lambda a: a.year(),
    lambda a: a.month(),
    lambda a: a.day(),
    lambda a: a.matches("^a+'\\d"),
]

# Names that are methods, keywords, special or no words; indexes; keys of other types.
steps = st.sampled_from(
    [
        "a",
        "b",
        "year",
        "class",
        "and",
        "__class__",
        "_id",
        "x.y",
        "",
        "\u00e4",
        "\ufb01",
        "\ud800",
        "it's",
        0,
        -1,
        2**70,
    ]
)
keys = steps | values.key_atoms | st.just(float("nan")) | st.tuples(values.key_atoms)


def evaluated(typed: str) -> Any:
    """What a `repr` of ours makes."""
    return eval(typed, dict(NAMES))  # noqa: S307 - that it may be evaluated is what is tested


def at(path: list[Any]) -> Expression:
    place = F
    for step in path:
        place = place.each() if step is None else place[step]
    return place


fields = st.lists(st.none() | keys, max_size=3).map(at) | st.lists(st.integers(-2, 2), max_size=2).map(
    lambda path: KEY[path[0]] if path else KEY
)


def computed(make: Any, a: Any, b: Any) -> Any:
    """What is computed of both: with some values that is refused."""
    refused = list | tuple | set | frozenset | dict | type(None)
    a, b = ("no number" if isinstance(operand, refused) else operand for operand in (a, b))
    return make(a, b)


def compounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Every operator and method, beside expressions and beside values."""
    operands = inner | values.values
    return st.one_of(
        st.builds(lambda make, a, b: make(a, b), st.sampled_from(HAS), inner, operands),
        st.builds(computed, st.sampled_from(ARITHMETIC), inner, operands),
        st.builds(lambda make, a, b: make(a, b), st.sampled_from(COMPARE), inner, inner),
        st.builds(lambda make, a, b: make(a, b), st.sampled_from(COMPARE), fields, values.values),
        st.builds(lambda make, a, b: make(a, b), st.sampled_from(ARITHMETIC), values.ints, inner),
        st.builds(lambda make, a: make(a), st.sampled_from(OF_ONE), inner),
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a, b, c: a.between(b, c), inner, operands, operands),
        st.builds(lambda a, b: a.isin(b), inner, st.lists(values.values, max_size=3)),
    )


expressions = st.recursive(fields, compounds, max_leaves=6)


@settings(max_examples=300)
@given(expressions)
def test_an_expression_comes_back_from_its_text_its_repr_and_its_pickle(expression: Expression) -> None:
    text, typed = str(expression), repr(expression)
    for again in (
        parse(text),
        evaluated(typed),
        pickle.loads(pickle.dumps(expression)),
        copy.deepcopy(expression),
    ):
        assert again.same_as(expression), (text, typed)
        assert hash(again) == hash(expression)
        assert (str(again), repr(again)) == (text, typed)


@pytest.mark.parametrize(
    ("expression", "typed", "text"),
    [
        ((F.a >= 21) & F.b.endswith("B"), "(F.a >= 21) & F.b.endswith('B')", "a >= 21 and b endswith 'B'"),
        (operator.lt(1, F.x), "F.x > 1", "x > 1"),
        (F["year"].year(), "F.year.year()", "year(year)"),
        (F["a.b"]["two words"], "F['a.b']['two words']", "`a.b`.`two words`"),
        (F.people.each().parts[0][1.5], "F.people.each().parts[0][1.5]", "people[*].parts[0][1.5]"),
        (~(F.a == 1) | ~F.b.exists(), "~(F.a == 1) | ~F.b.exists()", "not a == 1 or not b exists"),
        (-(F.a + 1) * (2 - F.b), "-(F.a + 1) * (2 - F.b)", "-(a + 1) * (2 - b)"),
        (F.a - (F.b - F.c), "F.a - (F.b - F.c)", "a - (b - c)"),
        ((F.a + F.b).between(KEY[0], 5), "(F.a + F.b).between(KEY[0], 5)", "a + b between key()[0] and 5"),
        ({"a": {1}} == F, "F == {'a': {1}}", "record() == {'a': {1}}"),
        (F.d < datetime.date(2000, 1, 31), "F.d < datetime.date(2000, 1, 31)", "d < date '2000-01-31'"),
        (F.x.isin({"b", "a"}), "F.x.isin(['a', 'b'])", "x in ['a', 'b']"),
        (F.x == NAN, "F.x == float('nan')", "x == nan"),
        (F.x == 1j, "F.x == pellucid.parse(\"complex '0.0+1.0j'\")", "x == complex '0.0+1.0j'"),
        (parse("1 < x and true"), "(pellucid.parse('1') < F.x) & pellucid.parse('true')", "1 < x and true"),
        (parse("'%s' % x"), 'pellucid.parse("\'%s\'") % F.x', "'%s' % x"),
        (parse("(a and b) == 3"), "F.a & F.b == pellucid.parse('3')", "(a and b) == 3"),
        (abs(F.x) < 1, "F.x.abs() < 1", "abs(x) < 1"),
        (parse("x + [1]"), "F.x + pellucid.parse('[1]')", "x + [1]"),
        (parse("none * x"), "pellucid.parse('none') * F.x", "none * x"),
    ],
)  # fmt: skip
def test_an_expression_is_shown_as_it_is_typed(expression: Expression, typed: str, text: str) -> None:
    assert repr(expression) == typed
    assert str(expression) == text
    assert evaluated(typed).same_as(expression)


MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: bool(F.x), TypeError, "neither true nor false before a record is there"),
    (lambda: 1 < F.x < 5, TypeError, "F.a.between(1, 5) instead of 1 <= F.a <= 5"),
    (lambda: F.a and F.b, TypeError, "join conditions with &, | and ~ instead of `and`"),
    (lambda: F.age >= 21 & F.b, TypeError, "& joins two conditions, and 21 is none; since it binds tighter"),
    (lambda: F.age | 21, TypeError, "| joins two conditions, and 21 is none"),
    (lambda: F.a & F.age >= 21, TypeError, "the condition (a and age) is compared with 21"),
    (lambda: "a" in F.tags, TypeError, "write F.tags.contains('a')"),
    (lambda: list(F.tags), TypeError, "F.tags.each() stands for each element"),
    (lambda: F.x.isin("abc"), TypeError, "isin() takes several values, and 'abc' is one"),
    (lambda: F.x.isin(5), TypeError, "isin() takes several values, an iterable, and 5 is one"),
    (lambda: F.x.isin([F.y]), TypeError, "expected a value, not the expression (y)"),
    (lambda: F.x == print, pellucid.UnsupportedValue, ".filter(callable) takes one"),
    (lambda: F.x == [object()], pellucid.UnsupportedValue, "the value in the expression at [0] is of type"),
    (lambda: F.x.matches("("), ValueError, "'(' is no regular expression: unclosed group at character 1;"),
    (lambda: F.x.matches(5), TypeError, "pattern has to be a str, the regular expression, not int"),
    (lambda: F[[1]], TypeError, "no dict has a list as a key"),
    (lambda: F[1:2], TypeError, "a slice is no step of a path"),
    (lambda: F.x.lower()[0], TypeError, "lower(x) is computed, and has no parts"),
    (lambda: F.x.lower().y, AttributeError, "lower(x) is computed, and has no parts"),
    (lambda: KEY.a, AttributeError, "a row's key has elements, by their index: KEY[0]"),
    (KEY.each, TypeError, "a row's key has elements, by their index: KEY[0]"),
    (lambda: F.__wrapped__, AttributeError, "an expression has no attribute"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
def test_a_mistake_says_what_to_write_instead(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        mistake()
    assert message in str(raised.value)


def test_a_text_that_is_none_says_where() -> None:
    with pytest.raises(pellucid.ParseError) as raised:
        parse("a ==\n  and b")
    assert (raised.value.line, raised.value.column) == (2, 3)
    assert str(raised.value).splitlines()[1:] == ["    and b", "    ^"]
    with pytest.raises(ValueError, match="more than 200 deep"):
        parse("not " * 500 + "a")


def test_depth_is_limited_and_length_is_not() -> None:
    chain = F.a == 0
    for number in range(1000):
        chain &= F.a == number
    assert parse(str(chain)).same_as(chain)
    assert evaluated(repr(chain)).same_as(chain)
    with pytest.raises(ValueError, match="more than 200 deep"):
        sum([F.a] * 300)


def test_a_chain_is_joined_in_a_loop_without_being_copied() -> None:
    chain = F.a == 0
    for number in range(1, 50_000):
        chain |= F.a == number
    assert str(chain).endswith("or a == 49998 or a == 49999")
    left = right = F.b
    for _ in range(10):
        left, right = left & F.a, F.a & right
    assert str(left & right) == " and ".join(["b", *["a"] * 20, "b"])


def test_conditions_that_a_loop_adds_take_no_time_with_their_square() -> None:
    count = 20_000
    table = pellucid.open(":memory:").table("t")
    table.extend({"a": number} for number in range(10))
    begin = time.perf_counter()
    behind, before, both, query = F.a == 0, F.a == 0, F.a == 0, table.where(F.a > 8)
    for number in range(1, count):
        behind = behind | (F.a == number)
        before = (F.a == number) | before
        both = (F.a == number) | both | (F.a == -number)
        query = query.where(F.a != -number)
    longest = behind | before | both
    assert parse(str(longest)).same_as(longest)
    assert repr(longest).count("|") == 4 * count - 4 + 2
    assert hash(behind) == hash(parse(str(behind)))
    for condition in (behind, before, both, longest):
        assert table.where(condition).count() == 10
        assert table.where(~condition).count() == 0
        assert str(copy.deepcopy(condition)) == str(condition)
    assert [row.a for row in query] == [9]
    assert query.count() == 1
    assert "filter natively: a > 8 and a != -1 and" in query.explain()
    table.create_index("a", F.a)
    assert table.where(behind).count() == table.where(before, both).count() == 10
    del behind, before, both, longest, condition, query
    # A second or two: with the square of their number, minutes.
    assert time.perf_counter() - begin < 60


def test_a_path_has_an_end() -> None:
    path = F
    for _ in range(200):
        path = path.a
    assert parse(str(path)).same_as(path)
    with pytest.raises(AttributeError, match="a path has 200 steps at most; records nest no deeper than 64"):
        path.a
    with pytest.raises(TypeError, match="a path has 200 steps at most"):
        path.each()
    with pytest.raises(pellucid.ParseError, match="more than 200 deep"):
        parse(".".join(["a"] * 100_000))
    table = pellucid.open(":memory:").table("t")
    for use in (table.column, table.select, table.create_index):
        with pytest.raises(ValueError, match="a field path has 200 steps at most, not 100000"):
            use(*(["i"] if use == table.create_index else []), ".".join(["a"] * 100_000))


def test_what_is_made_of_expressions_is_copied_and_pickled() -> None:
    for made in (
        F.x.desc(), (F.x + KEY[0]).asc(), F.x.lower().sum(), F.x.count(), pellucid.count(),
        pellucid.count("a.b"), F.x.mean(), F.x.each().min(), F["max"].max(),
    ):  # fmt: skip
        assert repr(pickle.loads(pickle.dumps(made))) == repr(made)
        assert copy.copy(made) is made
        assert copy.deepcopy([made])[0] is made
    table = pellucid.open(":memory:").table("t")
    table.extend([{"x": 1}, {"x": 2}])
    order, total = pickle.loads(pickle.dumps((F.x.desc(), F.x.sum())))
    assert table.order_by(order).column("x") == [2, 1]
    assert table.agg(n=total) == {"n": 3}
    for bound in (table.where(F.x > 1), table.group_by("x")):
        with pytest.raises(TypeError, match=r"cannot be pickled; pickle its expressions, which are values"):
            pickle.dumps(bound)
        assert copy.deepcopy(bound) is bound
    with pytest.raises(TypeError, match="pickle the database, which opens its file again"):
        pickle.dumps(table)


def test_equality_makes_a_condition_and_same_as_compares() -> None:
    assert isinstance(F.a == F.a, Expression)
    assert (F.a == 1).same_as(F.a == 1)
    assert not (F.a == 1).same_as(F.a == 1.0)
    assert not (F.a == 1).same_as("a == 1")
    assert hash(F.a == {1, 2, 3}) == hash(F.a == {3, 2, 1})
    assert len({hash(F.a == number) for number in range(100)}) == 100


def without_unit(value: Any) -> numpy.timedelta64:
    """A duration without a unit, which NumPy 2.5 warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return numpy.timedelta64(value)


def test_a_numpy_scalar_is_the_number_that_it_is() -> None:
    assert str(F.a >= numpy.int64(21)) == "a >= 21"
    assert str(numpy.float32(1.5) < F.a) == "a > 1.5"
    assert str(F.a == numpy.str_("x")) == "a == 'x'"
    assert str(numpy.int64(2) + F.a) == "2 + a"
    assert str(F.a == numpy.datetime64("2000-01-01", "ns")) == "a == datetime '2000-01-01T00:00:00'"
    assert str(F.a == numpy.datetime64("2000-01")) == "a == date '2000-01-01'"
    assert str(F.a == numpy.timedelta64(5000, "ns")) == "a == timedelta '0:00:00.000005'"
    assert str(F.a.isin(numpy.array(["2000-01-01"], "M8[s]"))) == "a in [datetime '2000-01-01T00:00:00']"
    assert str(F.a == (numpy.int64(1), "x")) == "a == (1, 'x')"
    for nothing in (numpy.datetime64("NaT", "s"), without_unit("NaT"), pandas.NaT):
        assert str(F.a == nothing) == "a == nan"


@pytest.mark.parametrize(
    ("scalar", "why"),
    [
        (numpy.datetime64("2000-01-01T00:00:00.000000001"), "has parts of a microsecond"),
        (numpy.timedelta64(1, "ns"), "has parts of a microsecond"),
        (pandas.Timestamp("2000-01-01T00:00:00.000000001"), "has parts of a microsecond"),
        (pandas.Timedelta(1, "ns"), "has parts of a microsecond"),
        (numpy.datetime64("12000-01-01"), "of the years 1 to 9999"),
        (numpy.timedelta64(10**15, "s"), "less than 1,000,000,000 days"),
        (numpy.timedelta64(1, "M"), "not all of one length"),
        (without_unit(1), "has no unit"),
        (numpy.longdouble("0.1"), "no number of Python's equals it"),
    ],
)
def test_a_scalar_that_python_has_not_is_refused(scalar: Any, why: str) -> None:
    with pytest.raises(pellucid.UnsupportedValue, match=why):
        F.a == scalar  # noqa: B015
    with pytest.raises(pellucid.UnsupportedValue, match=why):
        F.a.isin([scalar])


class Word(str): ...


class Level(enum.IntEnum):
    HIGH = 3


class Moment(datetime.datetime): ...


def test_an_instance_of_a_subclass_is_the_value_that_it_equals() -> None:
    assert str(F.a == Word("x")) == "a == 'x'"
    assert str(F.a == Level.HIGH) == "a == 3"
    assert str(F.a == type("Big", (int,), {})(10**30)) == f"a == {10**30}"
    assert str(F.a == Moment(2000, 1, 1)) == "a == datetime '2000-01-01T00:00:00'"
    assert str(F.a == pandas.Timestamp("2000-01-01")) == "a == datetime '2000-01-01T00:00:00'"
    assert str(F.a > pandas.Timedelta(days=1)) == "a > timedelta '1 day, 0:00:00'"
    zoned = pandas.Timestamp("2000-01-01", tz=zoneinfo.ZoneInfo("Europe/Berlin"))
    assert str(F.a == zoned) == "a == datetime '2000-01-01T00:00:00+01:00[Europe/Berlin]'"


# Each of these, as a method of Python's own, would compare as unlike anything, and say so in silence.
USES: list[Callable[[Any], Any]] = [
    lambda it: it == 1999,
    lambda it: it != 1999,
    lambda it: it > 2000,
    lambda it: operator.lt(2000, it),
    lambda it: it + 1,
    lambda it: 1 + it,
    lambda it: it - 1,
    lambda it: 1 - it,
    lambda it: it * 2,
    lambda it: 2 * it,
    lambda it: it / 2,
    lambda it: 2 / it,
    lambda it: it // 10,
    lambda it: 10 // it,
    lambda it: it % 2,
    lambda it: 2 % it,
    lambda it: -it,
    lambda it: +it,
    lambda it: ~it,
    abs,
    bool,
    hash,
    len,
    list,
    lambda it: it[0],
    lambda it: 1 in it,
    lambda it: it & (F.a == 1),
    lambda it: (F.a == 1) & it,
    lambda it: it | (F.a == 1),
    lambda it: (F.a == 1) | it,
    lambda it: F.a == it,
    lambda it: F.a + it,
    F.a.isin,
    lambda it: F.a.isin([it]),
    lambda it: F.a.between(1, it),
    F.a.startswith,
    lambda it: numpy.int64(3) == it,
    lambda it: numpy.float64(3) + it,
]


FUNCTIONS = [name for name in dir(F) if not name.startswith("_")]


@pytest.mark.parametrize("use", USES)
def test_a_method_that_is_not_called_is_no_value(use: Callable[[Any], Any]) -> None:
    with pytest.raises(
        TypeError, match=r"^F\.name\.lower\(\)\.year is the method year\(\), which is called: "
    ):
        use(F.name.lower().year)


def test_an_attribute_of_a_path_is_a_field_whatever_its_name() -> None:
    assert {"year", "count", "min", "lower", "each", "same_as"} <= set(FUNCTIONS)
    for name in [*FUNCTIONS, "age", "values", "_private"]:
        for path in (F, F.deep, F.deep["x"], F.tags.each(), F.parts[0]):
            assert getattr(path, name).same_as(path[name])
            assert getattr(path, name).further.same_as(path[name]["further"])
        assert evaluated(repr(F.deep[name] == 1)).same_as(F.deep[name] == 1)
        assert pellucid.parse(str(F.deep[name] == 1)).same_as(F.deep[name] == 1)
    db = pellucid.open(":memory:")
    db.extend(
        {"day": day, "born": datetime.date(2000, 1, 31 - day), "year": {"min": day}} for day in range(5)
    )
    assert db.where(F.day == 3).count() == db.where(F.born.day() == 28).count() == 1
    assert db.agg(last=F.day.max(), least=F.year.min.min()) == {"last": 4, "least": 0}
    assert db.where(F.born.day > 0).count() == 0
    assert "call it applies the function: F.born.day()" in db.where(F.born.day > 0).explain()


def test_to_call_a_path_applies_its_last_name() -> None:
    given = {"between": (1, 2), "isin": ([1],), "same_as": (F,)}
    given |= dict.fromkeys(["startswith", "endswith", "contains", "matches"], ("a",))
    for name in FUNCTIONS:
        called = getattr(F.deep, name)(*given.get(name, ()))
        assert type(called) is not pellucid.Expression or not called.same_as(F.deep[name])
        with pytest.raises(TypeError, match="a name in brackets is no function"):
            F.deep[name]()
    assert str(F.year.year()) == "year(year)"
    assert str(F.day.contains(part="a")) == "day contains 'a'"
    for called, arguments, told in [
        (F["day"], (), r"F\.day is a field: a name in brackets is no function"),
        (F.count, (), r"pellucid\.count\(\) counts the rows"),
        (F.age.median, (), r"F\.age\.median is a field, and no function of expressions"),
        (F.age.year, (1,), r"takes no arguments"),
        (F.tags[0], (), r"is a field, and no function"),
        (F, (), "F is no function"),
    ]:
        with pytest.raises(TypeError, match=told):
            called(*arguments)


def test_what_is_computed_has_no_fields() -> None:
    with pytest.raises(AttributeError, match="is computed, and has no parts"):
        _ = F.name.lower().age
    assert F.name.lower().startswith.__name__ == "startswith"
    with pytest.raises(TypeError, match=r"KEY\.year is the method year\(\), which is called: KEY\.year\(\)"):
        KEY.year == 1  # noqa: B015
    with pytest.raises(TypeError, match=r"which is called: \(F\.a \+ 1\)\.abs\(\)"):
        (F.a + 1).abs == 1  # noqa: B015


def test_a_literal_may_be_anything_that_a_record_holds() -> None:
    berlin = datetime.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    for value, text in [
        (berlin, "datetime '2020-10-25T02:30:00+01:00[Europe/Berlin] fold=1'"),
        (decimal.Decimal("sNaN12"), "decimal 'sNaN12'"),
        (datetime.time(1, 2, 3, 4, values.ZONES[2]), "time '01:02:03.000004+01:00(MEZ)'"),
        (datetime.timedelta(days=-1, microseconds=5), "timedelta '-1 day, 0:00:00.000005'"),
        (uuid.UUID(int=5), "uuid '00000000-0000-0000-0000-000000000005'"),
        (bytearray(b"a'"), "bytearray b'a\\''"),
        (2**100, str(2**100)),
        (-(2**20000), hex(-(2**20000))),
        (frozenset([(1, "\ud800")]), "frozenset {(1, '\\ud800')}"),
    ]:  # fmt: skip
        assert str(F.x == value) == f"x == {text}"
    with pytest.raises(pellucid.UnsupportedValue):
        F.x.contains(datetime.timezone.utc)


def test_a_misspelt_method_is_told_from_a_field() -> None:
    with pytest.raises(TypeError, match=r"F\.place\.isinn is a field.*did you mean isin\(\)\?"):
        F.place.isinn(["Bath"])
    with pytest.raises(TypeError, match=r"F\.age is a field, and no function of expressions$"):
        F.age(3)
    # The methods that Python itself calls are suggested nowhere.
    with pytest.raises(TypeError, match=r"F\.name\.str is a field, and no function of expressions$"):
        F.name.str()
    with pytest.raises(AttributeError, match=r'a query has no attribute "str"$'):
        pellucid.open(":memory:").where().str
    with pytest.raises(TypeError, match="is no function"):
        (F.age + 1)(3)
