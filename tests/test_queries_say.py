"""Does a query say what is wrong, and what is remarkable about it?

What people who come from other libraries write is answered with what to write instead; what finds nothing is
answered by `explain` with why.
"""

from __future__ import annotations

import ast
import copy
import operator
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, ClassVar

import pellucid
import pytest
from pellucid import KEY, F, count


@pytest.fixture
def people() -> Iterator[Any]:
    with pellucid.open(":memory:") as db:
        table = db.table("people")
        table["ann"] = {"name": {"first": "Ann", "last": "Lee"}, "age": 30, "tags": ["a"], "born": None}
        table["bob"] = {"name": {"first": "Bob", "last": "Bell"}, "age": 20.5, "at": [{"city": "Bath"}]}
        yield table


MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda t: t.find({"age": 30}), TypeError, "not a dict; a dict is unpacked, find(**{"),
    (lambda t: t.find(age=F.born), TypeError, "where(F.a == F.b) compares two fields"),
    (lambda t: t.where().find(F.age == 30), TypeError, "conditions go to where("),
    (lambda t: t.where(age=30), TypeError, "as where(F.age == ...); find(age=...) takes fields by name"),
    (lambda t: pellucid.open(":memory:").where(age=30), TypeError, "where() takes conditions"),
    (lambda t: pellucid.open(":memory:").snapshot().find(3), TypeError, "find() takes fields by name"),
    (lambda t: len(t.where()), TypeError, "query.count() is how many rows there are"),
    (lambda t: t.where()[0], TypeError, "first() the first, to_list() all of them"),
    (lambda t: t.where()[:10], TypeError, "offset(10).limit(5) gives some"),
    (lambda t: t.where().values(), AttributeError, 'no attribute "values"; iterate it, or take to_list()'),
    (lambda t: t.where().order("age"), AttributeError, "order_by(F.age.desc()) sorts"),
    (lambda t: t.where().counts(), AttributeError, "did you mean count()?"),
    (lambda t: t.where()._private, AttributeError, 'a query has no attribute "_private"'),
    (lambda t: t.where() == [], TypeError, "compare what it gives: query.to_list() == rows"),
    (lambda t: t.where() == t.where(), TypeError, "compare what it gives"),
    (
        lambda t: t.create_index("i", "-age"),
        ValueError,
        '"-age" is no field path to order by: write F.age.desc()',
    ),
    (lambda t: t.order_by("-age"), ValueError, '"-age" is no field path to order by: write F.age.desc()'),
    (
        lambda t: t.order_by(-F.age.desc()),
        TypeError,
        "an order is turned round by asc() and desc(): F.age.asc()",
    ),
    (lambda t: F.age.desc() == 1, TypeError, "F.age.desc() is an order, and no value to compare with"),
    (
        lambda t: t.where(F.age.desc()),
        TypeError,
        "F.age.desc() is an order, for order_by() and create_index()",
    ),
    (lambda t: F(), TypeError, "F is no function: F.age is the field of a record"),
    (lambda t: F.price.round(), TypeError, "of expressions; .filter(lambda row: ...) computes it"),
    (lambda t: F.name.like("B%"), TypeError, "write matches("),
    (lambda t: F.name.isinn([1]), TypeError, "did you mean isin()?"),
    (lambda t: F.age // 10, TypeError, "and no //; for whole numbers, (age - age % b) / b"),
    (lambda t: F.age**2, TypeError, "and no **; age * age is a square"),
    (lambda t: len(F.tags), TypeError, "write F.tags.length()"),
    (lambda t: F.age == F.age.max(), TypeError, "max of age> is for agg()"),
    (lambda t: F.age.max() == 3, TypeError, "max of age> is what many rows come to"),
    (lambda t: F.age.sum() / count(), TypeError, "take it by agg(), then compute with what that gives"),
    (lambda t: t.agg(n=F.age.max), TypeError, "write F.age.max()"),
    (lambda t: t.agg(n=F.age + 1), TypeError, "write (F.age + 1).max()"),
    (lambda t: list(t.group_by("age")), TypeError, "ask agg(n=count(), oldest=F.age.max())"),
    (lambda t: len(t.group_by("age")), TypeError, "ask agg(n=count()"),
    (lambda t: t.group_by("age")["age"], TypeError, "ask agg(n=count()"),
    (lambda t: t.group_by("age").count(), AttributeError, 'no attribute "count"; ask agg(n=count()'),
    (lambda t: t.extend({"a": 1}), TypeError, "a dict is one: append(row) stores it"),
    (lambda t: t.extend(t["ann"]), TypeError, "a Record is one: append(row) stores it"),
    (lambda t: t.extend("abc"), TypeError, "a str is one: append(row)"),
    (lambda t: t.extend(3), TypeError, "extend() has to be an iterable of rows, or columns"),
    (lambda t: pellucid.set_threads("4"), TypeError, "set_threads() takes a count, an int, or None, not str"),
    (
        lambda t: pellucid.set_threads(2.5),
        TypeError,
        "set_threads() takes a count, an int, or None, not float",
    ),
    (
        lambda t: t.where().update({F.age: 1}),
        TypeError,
        "not the expression F.age; the path of a field is its name",
    ),
    (
        lambda t: t.order_by("age", reverse=True),
        TypeError,
        "no reverse=; what descends says so itself: order_by(F.city",
    ),
    (
        lambda t: t.where().order_by(key="age"),
        TypeError,
        "order_by() takes no key=; it takes expressions or field paths",
    ),
    (lambda t: t.order_by(lambda row: row.age), TypeError, "and no function: order_by(F.city, F.age.desc())"),
    (lambda t: t.order_by(["name", "age"]), TypeError, "takes several arguments, not a list of them"),
    (lambda t: t.agg(F.age.max()), TypeError, "under a name, agg(n=count(), oldest=F.age.max())"),
    (lambda t: t.where().agg(count()), TypeError, "Aggregate count of rows> has none"),
    (lambda t: t.group_by("age").agg(count()), TypeError, "agg() takes each aggregate under a name"),
    (lambda t: pellucid.open(":memory:").agg(count()), TypeError, "agg() takes each aggregate under a name"),
    (lambda t: F.age in (1, 2), TypeError, "in place of `in`, write F.age.isin([...])"),
    (lambda t: round(F.age), TypeError, "expressions have no round()"),
    (lambda t: f"{F.age:>9}", TypeError, "the expression (age) has no value to format"),
    (lambda t: (F.a == 1) ^ (F.b == 2), TypeError, "and no ^; that one of two is true is"),
    (lambda t: F.name.matches("a", re.I), TypeError, 'flags stand in it: "(?i)^b" for re.I'),
    (lambda t: F.name.matches("a", flags=re.I), TypeError, "matches() takes the pattern alone"),
    (
        lambda t: F.name.startswith(("a", "b")),
        TypeError,
        'not a tuple; join several by |: F.name.startswith("a") | F.name.startswith("b")',
    ),
    (lambda t: F.name.endswith(["a"]), TypeError, "endswith() takes one str, or bytes, not a list"),
    (lambda t: F.name.startswith(3), TypeError, "startswith() takes one str, or bytes, not an int"),
    (lambda t: F.name.endswith(None), TypeError, "endswith() takes one str, or bytes, not a NoneType"),
    (lambda t: F.name.startswith("a", "b"), TypeError, "startswith() takes one str, or bytes, not a tuple"),
    (lambda t: F.age.isin(30), TypeError, "30 is one: isin([30]), or == 30"),
    (lambda t: F.age.isin(30, 31), TypeError, "isin() takes its values in one list: isin([30, 31])"),
    (lambda t: KEY(), TypeError, "KEY is no function: KEY is the row's key, KEY[0] an element of it"),
    (lambda t: KEY[0](), TypeError, "KEY[0] is no function"),
    (lambda t: setattr(F, "age", 3), AttributeError, "F.age stands for the field of any record"),
    (lambda t: delattr(F.name, "last"), AttributeError, "F.name.last stands for the field of any record"),
    (lambda t: operator.setitem(F, "two words", 3), TypeError, "F['two words'] stands for the field of any"),
    (lambda t: operator.delitem(F, 0), TypeError, "query.update(age=3) sets a field in the rows of a query"),
    (
        lambda t: t.where().update(age=lambda row: row.age + 1),
        pellucid.UnsupportedValue,
        "calls no function for a row: an expression computes a value, update(age=F.age + 1)",
    ),
    (lambda t: t.where().update({"age": 1}, age=2), TypeError, "given two values for the field 'age'"),
    (lambda t: t.where().update({"age": 1, ("age",): 2}), TypeError, "two values for the field ('age',)"),
    (
        lambda t: t.update(age=F.age + 1),
        pellucid.UnsupportedValue,
        "table.where().update(age=F.age + 1) sets",
    ),
    (lambda t: t.find(F.age), TypeError, "not an Expression; conditions go to where("),
    (lambda t: F.name.matches("(?=a)"), ValueError, "'(?=a)' is no regular expression: look-around,"),
    (
        lambda t: operator.add(F.tags, ["x"]),
        TypeError,
        "+ with a list would be missing in each record; what holds others",
    ),
    (lambda t: None - F.age, TypeError, "- with a NoneType would be missing in each record"),
    (
        lambda t: t.count(F.age > 25),
        TypeError,
        "where(condition).count() counts those of which (age > 25) is true",
    ),
    (lambda t: t.agg(n=(F.age > 25).count()), TypeError, "in agg() so does (condition).sum()"),
    (lambda t: t.agg(n=count(~F.age.exists())), TypeError, "a condition has a value in every row"),
    (lambda t: t.agg(n=count), TypeError, "a function; count() and F.age.max() are called"),
    (
        lambda t: t.select("*"),
        ValueError,
        "there is no sign for all fields: a query without select() has them",
    ),
    (lambda t: t.select(["name", "age"]), TypeError, "not a list; several fields are several arguments"),
    (lambda t: t.order_by("age").desc(), AttributeError, "order_by(F.age.desc()) sorts"),
    (lambda t: (F.age + 1).alias("next"), AttributeError, "select(next=F.age + 1) names what it computes"),
    (lambda t: F.tags.append("x"), TypeError, "for row in query: row.tags.append(...)"),
    (lambda t: F.tags.contains("a", "b"), TypeError, 'F.tags.contains("a") & F.tags.contains("b")'),
    (lambda t: F.at.hour(), TypeError, "no function of expressions; .filter(lambda row: ...) computes it"),
    (lambda t: t.order_by("age", "desc"), ValueError, "write F.age.desc() (a field of that very name is F["),
    (lambda t: t.where().explain(analyze=1), TypeError, "analyze has to be True or False, not int"),
    (lambda t: t.range(reverse=1), TypeError, "reverse has to be True or False, not int"),
    (
        lambda t: t.create_index("i", "age", unique=None),
        TypeError,
        "unique has to be True or False, not NoneType",
    ),
    (lambda t: pellucid.parse("5__0 = a"), pellucid.ParseError, "expected a number like 21, 0x15, 1_000"),
    (lambda t: pellucid.parse("a = 5_"), pellucid.ParseError, "expected a number like"),
    (lambda t: pellucid.parse("a = value 'zz'"), pellucid.ParseError, "that str() of an expression writes"),
    (lambda t: pellucid.parse("a[value 'zz']"), pellucid.ParseError, "that str() of an expression writes"),
]


WORDS = [
    ("age => 3", 5, "greater or equal is `>=`"),
    ("age =< 3", 5, "less or equal is `<=`"),
    ("age === 3", 5, "`==` compares"),
    ("age !== 3", 5, "`!=` compares"),
    ("name =~ 'a'", 6, "a regular expression is found by `matches`"),
    ("name !~ 'a'", 6, "is not found by `not matches`"),
    ("age ** 2 > 3", 5, "there is no power, `x * x` is a square"),
    ("age // 2 > 3", 5, "there is no `//`"),
    ("age ^ 2", 5, "there is no `^`"),
    ("age := 2", 5, "`==` compares"),
    ("age > $1", 7, "a text has no places for values; F.age >= value is an expression with one"),
    ("age > 3;", 8, "without a `;` after it"),
    ("name like 'B%'", 6, 'found "like"; write startswith, endswith, contains, or matches'),
    ("name not like 'B%'", 10, 'found "like"; write startswith'),
    ("age > 3 order by name", 9, 'found "order"; a text is a condition alone'),
    ("tags.each() == 'a'", 10, "there are no methods in a text: tags[*] == 'a'"),
    ("F.age > 3", 1, "a field stands without F in a text: age, name.last"),
    ("born > 2000-01-31", 8, "a date is written date '2000-01-31'"),
    ("age in 3", 8, "expected several values after in: ['Bath', 'York']"),
    ("age is 3", 8, "`==` compares"),
    ("name startswith 3", 17, "expected a string, or bytes, after startswith"),
    ("name matches '('", 14, "this is no regular expression: unclosed group"),
]


@pytest.mark.parametrize(("text", "column", "message"), WORDS)
def test_a_text_of_another_language_is_answered_with_what_to_write(
    text: str, column: int, message: str
) -> None:
    with pytest.raises(pellucid.ParseError) as raised:
        pellucid.parse(text)
    assert message in str(raised.value)
    assert raised.value.column == column


def test_a_field_called_as_python_calls_the_record_stands_in_backticks() -> None:
    for expression, text in [(F.F.age, "`F`.age"), (F.F, "F"), (F.F[0], "F[0]"), (F.a.F.b, "a.F.b")]:
        assert str(expression) == text
        assert pellucid.parse(text).same_as(expression)


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(
    people: Any, mistake: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        mistake(people)
    assert message in str(raised.value)
    assert len(people) == 2


def test_an_index_says_what_gives_its_rows(people: Any) -> None:
    people.create_index("by_age", F.age)
    with pytest.raises(TypeError, match=r"get\(30\) is the first of them, or None, get_all\(30\) all"):
        people.index("by_age")[30]
    with pytest.raises(TypeError, match="reverse has to be True or False, not int"):
        people.index("by_age").range(reverse=1)


def test_a_prefix_or_a_bound_of_one_part_is_no_tuple_of_it(people: Any) -> None:
    people.create_index("by_age", F.age)
    by_age = people.index("by_age")
    message = (
        r"has one part, and no value that is a tuple; get_all\(30\) gives all .*, range\(30\) those from"
    )
    for asked in (
        lambda: by_age.prefix((30,)),
        lambda: by_age.range((30,), (90,)),
        lambda: by_age.range(stop=(30,)),
        lambda: by_age.keys((30,)),
    ):
        with pytest.raises(TypeError, match=message):
            asked()
    people["dan"] = {"age": None}
    with pytest.raises(TypeError, match=r"get_all\(None\) gives all rows that have None$"):
        by_age.range((None,))
    assert list(by_age.prefix((31,))) == list(by_age.range((31,), (32,))) == []
    people["cid"] = {"age": (30, "x")}
    assert list(by_age.prefix((30,))) == list(by_age.range((30,), (31,))) == [{"age": (30, "x")}]


def test_keywords_of_update_are_keys_and_a_field_is_not_meant_in_silence(people: Any) -> None:
    message = r"update\(age=5\) of table .people. sets .*; table.where\(\).update\(age=5\) sets the"
    with pytest.raises(pellucid.errors.DatabaseWarning):  # an error, and nothing is stored
        people.update({"x": 1}, tags=["b"])
    assert sorted(people) == ["ann", "bob"]
    with pytest.warns(pellucid.errors.DatabaseWarning, match=message) as warned:
        people.update(age=5)
    assert warned[0].filename == __file__
    assert people["age"] == 5
    # What can only be meant as keys, or is one already.
    people.update({"born": 5}, age=6, eve={"age": 1}, other=7, name={"first": "Eve"})
    assert people["born"] == 5
    counts = pellucid.open(":memory:")
    counts.update(a=1)
    counts.update(a=2, b=3)
    assert dict(counts) == {"a": 2, "b": 3}


def test_underscores_stand_between_digits() -> None:
    for text in ("1_000", "0x_ff", "0xf_f", "1_0.5_0", "1e1_0"):
        assert pellucid.parse(text).same_as(pellucid.parse(repr(ast.literal_eval(text))))
    for text in ("1__0", "1_", "0x", "0x1_", "1_.5", "1._5", "1e1_"):
        with pytest.raises(pellucid.ParseError):
            pellucid.parse(text)


LONE = "\ud800"

SURROGATES: list[Callable[[Any], Any]] = [
    lambda t: t.order_by(LONE),
    lambda t: t.select(LONE),
    lambda t: t.select(**{LONE: F.age}),
    lambda t: t.find(**{LONE: 1}),
    lambda t: t.group_by(LONE),
    lambda t: t.sum(LONE),
    lambda t: t.where().update(**{LONE: 1}),
    lambda t: t.create_index("i", LONE),
    lambda t: F.name.matches(LONE),
]


@pytest.mark.parametrize("use", SURROGATES)
def test_a_lone_surrogate_where_none_can_be_is_named(people: Any, use: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"'\\ud800' has a lone surrogate, which no") as raised:
        use(people)
    assert type(raised.value) is ValueError


def test_a_lone_surrogate_in_a_text_says_where() -> None:
    with pytest.raises(
        pellucid.ParseError, match=r"line 2, column 6: a lone surrogate.*it is written \\ud800"
    ) as raised:
        pellucid.parse("a = 1\n or '" + LONE + "'")
    assert (raised.value.line, raised.value.column) == (2, 6)
    assert getattr(F, LONE).same_as(F[LONE])
    assert pellucid.parse(str(F.a == LONE)).same_as(F.a == LONE)


def test_what_cannot_be_added_up_names_the_field_and_the_table(people: Any) -> None:
    people["big"] = {"age": 10**400}
    people["odd"] = {"price": Decimal("sNaN")}
    people["one"] = {"price": 1, "large": 10**400}
    what = 'table "people" cannot be'
    for ask in (lambda: people.sum("age"), lambda: people.mean("age"), lambda: people.mean("large")):
        with pytest.raises(OverflowError, match=f"{what} added up, or divided: .*; choose those that can"):
            ask()
    for ask in (lambda: people.agg(n=F.age.sum()), lambda: people.agg(n=F.large.mean())):
        with pytest.raises(
            OverflowError, match=f"of (age|large) in records of {what} computed: int.*; choose"
        ):
            ask()
    with pytest.raises(InvalidOperation, match=f"'price' of {what} added up, or divided: InvalidOperation"):
        people.sum("price")
    with pytest.raises(InvalidOperation, match=f"mean of price in records of {what} computed"):
        people.agg(n=F.price.mean())


def test_a_long_list_of_values_is_shown_in_short(people: Any) -> None:
    condition = F.age.isin(range(100_000))
    assert eval(repr(condition), {"F": F}).same_as(condition)  # noqa: S307 - repr stays what it is
    for shown in (
        repr(people.where(condition)),
        people.where(condition).explain(),
        people.where(KEY.isin(["ann", *map(str, range(100_000))])).explain(),
    ):
        assert re.search(r"in \[(0|'ann'), [^]]*, '?1[89]'?, \.\.\. and 999\d\d more\]", shown)
    assert re.search(r"a\.\.\. \(99\d\d\d characters more\)", repr(people.where(F.name == "a" * 100_000)))
    with pytest.raises(TypeError) as raised:
        bool(condition)
    assert len(str(raised.value)) < 3000


def test_queries_are_values_all_the_same(people: Any) -> None:
    query = people.where(F.age > 1)
    assert copy.copy(query) is query
    assert copy.deepcopy(query) is query
    assert query == query
    assert query != 3
    assert len({query, query, people.where(F.age > 1)}) == 2
    assert list(query) == query.to_list()
    assert not hasattr(query, "values")


def notes(query: Any) -> list[str]:
    return [line for line in query.explain().splitlines() if line.startswith("note: ")]


def test_names_with_dots_are_found_or_named(db: pellucid.Database) -> None:
    table = db.table("logs")
    table.extend([{"log.level": "warn", "at": {"a.b": 1}}])
    told = 'note: no record in "logs" has "log"; there is a name with a dot: F["log.level"]'
    assert notes(table.where(F.log.level == "warn")) == [told]
    told = 'note: no record in "logs" has "at.a"; there is a name with a dot: F.at["a.b"]'
    assert notes(table.where(F.at.a.b == 1)) == [told]
    assert table.select(F["log.level"], F.at["a.b"]).to_list() == [{"log.level": "warn", "at.a.b": 1}]


def test_explain_remarks_on_names(people: Any) -> None:
    assert notes(people.where(F.agee > 1)) == ['note: no record in "people" has "agee"; did you mean "age"?']
    assert notes(people.order_by(F.name.lst)) == [
        'note: no record in "people" has "name.lst"; did you mean "name.last"?'
    ]
    assert notes(people.select(F.names.last)) == [
        'note: no record in "people" has "names"; did you mean "name"?'
    ]
    assert notes(people.where(F.at.each().town == "Bath")) == ['note: no record in "people" has "at[*].town"']
    assert notes(people.where(F.at.each().cty == "Bath")) == [
        'note: no record in "people" has "at[*].cty"; did you mean "at[*].city"?'
    ]
    assert notes(people.where(F.at[0].city == "Bath", F.tags.each() == "a", F.name.last == "Lee")) == []
    assert notes(people.where(F.tags[5] == "a")) == ['note: no record in "people" has "tags[5]"']


def test_explain_remarks_on_a_table_that_is_not_there(people: Any) -> None:
    with pellucid.open(":memory:") as db:
        db.table("people")["ann"] = {}
        assert notes(db.table("peoples").where(F.a == 1)) == [
            'note: there is no table "peoples"; did you mean "people"?'
        ]
        del db.table("people")["ann"]
        assert notes(db.table("people").where(F.a == 1)) == []


def test_explain_remarks_on_types(people: Any) -> None:
    what = 'note: no record in "people" has'
    assert notes(people.where(F.age == "30")) == [
        f'{what} a str in "age", as the condition asks; what they have there is a number'
    ]
    assert notes(people.where(F.name == "Lee")) == [
        f'{what} a str in "name", as the condition asks; what they have there is a dict'
    ]
    assert notes(people.where(~(F.name.last < 5) | F.age.isin(["x", b"y"]))) == [
        f'{what} a number in "name.last", as the condition asks; what they have there is a str',
        f'{what} a bytes or a str in "age", as the condition asks; what they have there is a number',
    ]
    assert notes(people.where(F.age.contains("3"))) == [
        f'{what} a dict or a list or a set or a str or a tuple in "age", as the condition asks; '
        "what they have there is a number"
    ]
    assert notes(people.where(F.tags.matches("a"))) == [
        f'{what} a str in "tags", as the condition asks; what they have there is a list'
    ]
    assert notes(people.order_by(-F.name.last)) == [
        f'{what} a number in "name.last", of which -name.last is made; '
        "name.last descending is F.name.last.desc()"
    ]
    for condition in (
        F.age == 30, F.age > 20.5, F.age.is_none(), F.born == None, F.age == F.name, F.age.isin([None, 3]),  # noqa: E711
        F.tags.contains("a"), F.name.contains("last"), F.name.last.startswith("L"), F.born == "2000",
        F.tags == ["a"],
    ):  # fmt: skip
        assert notes(people.where(condition)) == [], condition
    assert notes(people.order_by(-F.age)) == []
    assert notes(people.where((F.age == "30") | (F.age < "20"))) == [
        f'{what} a str in "age", as the condition asks; what they have there is a number'
    ]


def test_hints_make_no_object_of_a_row_and_are_imported_where_they_are_given() -> None:
    with pellucid.open(":memory:") as db:
        db.table("t").append({"n": 1})
        Counted.made = 0
        assert len(notes(db.table("t", type=Counted, run_init=True).where(F.n == "1", F.m == 2))) == 2
        assert Counted.made == 0
    asked = "import sys, pellucid; sys.exit('pellucid.hints' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


def test_explain_remarks_on_what_other_libraries_mean(people: Any) -> None:
    assert notes(people.find(age=[30, 31])) == [
        'note: no record in "people" has a list in "age", as the condition asks; what they have there '
        "is a number; where(F.age.isin([...])) finds any of several values"
    ]
    assert notes(people.where(F.name__last == "Lee")) == [
        'note: no record in "people" has "name__last"; a field in another is F.name.last in where(), '
        '"name.last" as a path'
    ]


def test_explain_expects_no_negative_number_of_rows(people: Any) -> None:
    people.create_index("by_age", F.age)
    assert "about -0" not in people.where(F.age == "30").explain()


def test_explain_says_behind_which_row(people: Any) -> None:
    lines = people.where(F.age > 1).after(people["ann"]).explain().splitlines()
    assert lines[:2] == [
        "scan table \"people\", of its 2 rows those after row 'ann'",
        "filter natively: age > 1",
    ]
    lines = people.where(KEY < "b").after(people["ann"]).explain().splitlines()
    assert lines[0] == "scan table \"people\", of its 2 rows those after row 'ann' where key() < 'b'"
    lines = people.order_by("age").after(people["ann"]).explain().splitlines()
    assert lines[1:3] == ["leave out those up to row 'ann' in the order of age", "sort all of them by age"]


def counts(query: Any) -> list[str]:
    """What `explain` says that was met and given, without the times."""
    lines = query.explain(analyze=True).splitlines()
    return [line.partition(", in ")[0] for line in lines if line.startswith(("met ", "gave "))]


def test_explain_meets_as_many_rows_as_the_query() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend({"n": number, "m": number % 7} for number in range(1000))
        fives = table.where(F.m == 5)
        assert counts(fives) == ["met 1000 rows: 143 passed"]
        assert counts(fives.limit(2)) == ["met 13 rows: 2 passed", "gave 2 in the end"]
        assert counts(fives.offset(1).limit(2)) == ["met 20 rows: 3 passed", "gave 2 in the end"]
        assert counts(fives.limit(0)) == ["met 0 rows: 0 passed", "gave 0 in the end"]
        assert counts(fives.order_by(F.n.desc()).limit(2)) == [
            "met 1000 rows: 143 passed",
            "gave 2 in the end",
        ]
        assert counts(fives.after(table[990])) == ["met 9 rows: 2 passed"]
        met: list[int] = []
        filtered = fives.filter(lambda row: met.append(row.n) or row.n > 20).limit(1)
        assert filtered.first().n == 26
        assert met == [5, 12, 19, 26]
        assert counts(filtered) == ["met 27 rows: 4 passed", "gave 1 in the end"]

        table.extend({"n": number, "m": number % 7} for number in range(1000, 3000))
        table.create_index("by_n", F.n)
        along = table.order_by(F.n.desc())
        assert counts(along.limit(2)) == ["met 2 entries: 2 passed", "gave 2 in the end"]
        assert counts(along.where(F.m == 5).limit(1)) == ["met 6 entries: 1 passed", "gave 1 in the end"]
        assert counts(table.where(F.n < 3)) == ["met 3 entries: 3 passed"]


@dataclass
class Counted:
    """Counts how many were made."""

    n: int
    made: ClassVar[int] = 0

    def __post_init__(self) -> None:
        type(self).made += 1


def test_explain_takes_the_time_of_iterating_once() -> None:
    with pellucid.open(":memory:") as db:
        db.table("t").extend({"n": number} for number in range(1000))
        table = db.table("t", type=Counted, run_init=True)
        table.create_index("by_n", F.n)
        for query, lines in [
            (table.where(F.n >= 400), ["met 1000 rows: 600 passed"]),
            (table.where(F.n < 30), ["met 30 entries: 30 passed"]),
            (
                table.where(F.n < 30).order_by(F.n.desc()).limit(4),
                ["met 4 entries: 4 passed", "gave 4 in the end"],
            ),
        ]:
            Counted.made = 0
            assert counts(query) == lines
            # An index that counts without reading a row is not what is timed.
            assert len(list(query)) * 2 == Counted.made
        called: list[int] = []
        query = table.where(F.n < 30).filter(lambda row: not called.append(row.n))
        assert counts(query) == [
            "met 30 entries: 30 passed",
            "gave 30 in the end",
        ]
        assert called == list(range(30))
        timed = table.where(F.n < 30).explain(analyze=True)
        assert re.search(r": 30 passed, in [0-9.]+ ms$", timed, re.MULTILINE)


def test_explain_counts_while_the_query_runs() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        for count, met in ((1000, "met 1000 rows"), (2000, "met 3 entries")):
            table.extend({"n": number, "m": number % 7} for number in range(count))
            query = table.where(F.m == 5) if count == 1000 else table.where(F.n < 3)
            passed = query.count()
            # A second walk would find nothing.
            emptying = query.filter(lambda _row: table.clear() or True)
            assert counts(emptying) == [f"{met}: {passed} passed", f"gave {passed} in the end"]
            table.create_index("by_n", F.n)


def test_explain_says_why_an_index_is_not_used(people: Any) -> None:
    people.create_index("by_age", F.age)
    assert notes(people.where(F.age > 25)) == [
        'note: index "by_age" would serve, but to scan fewer than 100 rows takes less'
    ]
    people.extend({"age": number} for number in range(200))
    assert notes(people.where(F.age > 198)) == []
    people.drop_index("by_age")
    people.create_index("adults", F.age, where=F.age >= 18)
    assert notes(people.where(F.age >= 199)) == []
    assert notes(people.where(F.age == 21)) == [
        'note: index "adults" has only the rows where age >= 18, which the conditions do not say; '
        "where(..., F.age >= 18) as well would let it serve; that it equals a value does not say so, for a "
        "complex number may equal one and has no order"
    ]
    assert "adults" in people.where(F.age == 21, F.age >= 18).explain()
    assert notes(people.where(F.age == 21, F.age >= 18)) == []
    for contrary in (F.age < 18, F.age == 17, F.age.is_none(), F.age.isin([3, 4]), (F.age < 5) | (F.age < 9)):
        assert notes(people.where(contrary)) == [], contrary
    people.create_index("of_all", F.age)
    assert notes(people.where(F.age == 21)) == []
    people.drop_index("of_all")
    assert notes(people.where(F.age < 19)) == [
        'note: index "adults" has only the rows where age >= 18, which the conditions do not say; '
        "where(..., F.age >= 18) as well would let it serve"
    ]


def test_explain_says_which_rows_a_compound_index_lacks() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend({"a": number % 500, "c": number} for number in range(2000))
        table.create_index("by_a_c", (F.a, F.c))
        assert notes(table.where(F.a == 5)) == []
        table.extend({"a": number} for number in range(30))
        assert notes(table.where(F.a == 5)) == [
            'note: index "by_a_c" has no entry for 30 of 2030 rows in which F.c is missing or can be no '
            "key, and the conditions say nothing of that; an index over F.a would serve, or a comparison of "
            "F.c as well"
        ]
        assert notes(table.where(F.a == 5, F.c >= 0)) == []
        assert notes(table.where(F.c == 5)) == []
        table.create_index("by_a", F.a)
        assert notes(table.where(F.a == 5)) == []
        table.drop_index("by_a")
        table.drop_index("by_a_c")
        table.create_index("by_a_tag", (F.a, F.tags.each()))
        assert notes(table.where(F.a == 5)) == [
            'note: index "by_a_tag" has no entry for rows in which F.tags.each() is missing or can be no '
            "key, and the conditions say nothing of that; an index over F.a would serve, or a comparison of "
            "F.tags.each() as well"
        ]


def test_explain_says_which_index_is_still_being_built(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "b.pel") as db:
        table = db.table("t")
        table.extend({"n": number, "m": 0} for number in range(20_000))
        said: list[list[str]] = []

        def look(_done: int, _total: int) -> None:
            if table.indexes()[0].state == "building":
                said.append(notes(table.where(F.n == 5)))

        parts: Any
        for parts, condition in [
            (F.n, ""),
            ((F.n, F.m), " if each row has all its parts"),
            ((F.m, F.n), None),
        ]:
            said.clear()
            table.create_index("by_n", parts, progress=look)
            assert said
            expected = f"would serve{condition}, and is still being built; until then no query uses it"
            assert said[0] == ([] if condition is None else [f'note: index "by_n" {expected}'])
            assert notes(table.where(F.n == 5)) == []
            table.drop_index("by_n")


def test_explain_remarks_on_what_no_index_serves(people: Any) -> None:
    people.create_index("by_tag", F.tags.each())
    people.create_index("by_name", (F.name.last, F.age))
    assert notes(people.where(F.tags.contains("a"))) == [
        "note: contains() goes through no index, since it looks into strings, too; F.tags.each() == ... goes "
        'through "by_tag"'
    ]
    for condition, word in [
        (F.name.last.contains("e"), "contains"),
        (F.name.last.endswith("e"), "endswith"),
        (~F.name.last.matches("e"), "matches"),
    ]:
        assert notes(people.where(condition | (F.age > 3))) == [
            f'note: {word}() goes through no index, not through "by_name", which serves '
            "== < <= > >= between isin startswith"
        ]
    assert notes(people.where(F.name.last.startswith("L"), F.name.first.endswith("n"))) == [
        'note: index "by_name" would serve, but to scan fewer than 100 rows takes less'
    ]


def test_explain_remarks_on_more_values_than_an_index_looks_up() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend({"n": number, "m": number} for number in range(300))
        table.create_index("by_n", F.n)
        many = range(16_385)
        said = (
            'note: isin() of 16385 values goes through no index, not through "by_n": 16384 are looked up at '
            "most; several queries of fewer values go through it"
        )
        assert notes(table.where(F.n.isin(many))) == [said]
        assert notes(table.where(F.n.isin(many), F.n == 7)) == [said]
        assert notes(table.where(F.n.isin(many[1:]))) == []
        assert notes(table.where(F.m.isin(many))) == []


def test_explain_remarks_on_what_is_negated() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend({"n": number, "m": number, "tags": [number]} for number in range(300))
        table.create_index("by_n", F.n)
        table.create_index("by_tag", F.tags.each())
        begin = 'goes through no index, not through "by_n": it is true of rows without such a value, too'
        for condition, said in [
            (F.n != 5, f"!= {begin}; (F.n < 5) | (F.n > 5), which is not, goes through it"),
            (~(F.n == 5), f"~ {begin}; (F.n < 5) | (F.n > 5), which is not, goes through it"),
            (~(F.n < 5), f"~ {begin}; F.n >= 5, which is not, goes through it"),
            (F.n != None, f"!= {begin}"),  # noqa: E711
            (~F.n.isin([1, 2]), f"~ {begin}"),
            (
                F.tags.each() != 5,
                '!= goes through no index, not through "by_tag": it is true of rows without any such value, '
                "too",
            ),
        ]:
            assert notes(table.where(condition)) == [f"note: {said}"], condition
            assert notes(table.where(condition, F.n == 7)) == []
        assert notes(table.where(F.m != 5)) == []
        assert 'index "by_n"' in table.where((F.n < 2) | (F.n > 298)).explain()


def test_explain_remarks_on_what_is_computed_otherwise() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend({"a": number, "email": f"A{number}"} for number in range(300))
        table.create_index("by_a", F.a)
        table.create_index("by_email", F.email.lower())
        over_a = 'note: index "by_a" is over F.a, not over'
        assert notes(table.where(F.a + 0 > 5)) == [
            f"{over_a} F.a + 0; a condition on F.a alone would go through it, or this one through an index "
            "over F.a + 0"
        ]
        assert notes(table.where(-F.a > 5)) == [
            f"{over_a} -F.a; a condition on F.a alone would go through it, or this one through an index "
            "over -F.a"
        ]
        assert notes(table.where(F.email == "A5")) == [
            'note: index "by_email" is over F.email.lower(), not over F.email; a condition on '
            "F.email.lower() would go through it"
        ]
        assert notes(table.where(F.email.lower() == "a5")) == []
        assert notes(table.where(F.email == "A5", F.email.lower() == "a5")) == []
        table.create_index("by_that", F.a + 0)
        assert notes(table.where(F.a + 0 > 5)) == []
        table.create_index("by_plain_email", F.email)
        assert notes(table.where(F.email == "A5")) == []
