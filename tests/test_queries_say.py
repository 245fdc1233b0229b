"""Does a query say what is wrong, and what is remarkable about it?

What people who come from other libraries write is answered with what to write instead; what finds nothing is
answered by `explain` with why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pellucid
import pytest
from pellucid import F, count


@pytest.fixture
def people() -> Iterator[Any]:
    with pellucid.open(":memory:") as db:
        table = db.table("people")
        table["ann"] = {"name": {"first": "Ann", "last": "Lee"}, "age": 30, "tags": ["a"], "born": None}
        table["bob"] = {"name": {"first": "Bob", "last": "Bell"}, "age": 20.5, "at": [{"city": "Bath"}]}
        yield table


MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda t: t.find({"age": 30}), TypeError, "a dict is unpacked, find(**{"),
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
    (lambda t: F.price.round(), TypeError, "no such function; .filter(lambda row: ...) computes it"),
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
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(
    people: Any, mistake: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        mistake(people)
    assert message in str(raised.value)
    assert len(people) == 2


def test_queries_are_values_all_the_same(people: Any) -> None:
    query = people.where(F.age > 1)
    assert query == query
    assert query != 3
    assert len({query, query, people.where(F.age > 1)}) == 2
    assert list(query) == query.to_list()
    assert not hasattr(query, "values")


def notes(query: Any) -> list[str]:
    return [line for line in query.explain().splitlines() if line.startswith("note: ")]


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
    assert notes(people.where(F.name.last.startswith("L"), F.name.first.endswith("n"))) == []
