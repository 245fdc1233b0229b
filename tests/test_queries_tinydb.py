"""Does a query find what TinyDB finds, where both mean the same?

TinyDB was written by others for documents like ours, and filters them in Python. A condition is built for
both at once. What they are known to disagree about is left out by how documents and conditions are made:

- What is missing makes every comparison of TinyDB's false, `!=` too; ours is exactly not `==`. So ours is
  asked here whether the field exists as well.
- An order among unlike values raises with TinyDB, and is false with us: only fields of one kind are ordered.
- `any` of a condition asks one element after the other for all of it, and `!=` there means that some element
  is another; ours asks each comparison for any element, and `each() != x` means that none is. So what stands
  in `any` is one comparison, none of them `!=`.
- For `any` and `all` a string is a list of its characters, a dict one of its names; what they are asked about
  is a list here.
- `matches` begins at the start of the string, ours anywhere, as TinyDB's `search` does: ours has a `^` here.
- NaN is found in a list by identity: there is none here. Patterns are those that all engines read alike, and
  no string has a line break, before which Python's `$` matches.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

import pellucid
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pellucid import F
from tinydb import Query, TinyDB
from tinydb.storages import MemoryStorage


class Both(NamedTuple):
    """A field, or a condition, as we say it and as TinyDB does."""

    ours: Any
    theirs: Any


def both(path: str, parent: Both | None = None) -> Both:
    """The field at a path with dots, inside of another one or of the whole document."""
    ours, theirs = parent or (F, Query())
    for name in path.split("."):
        ours, theirs = ours[name], theirs[name]
    return Both(ours, theirs)


# ---- Documents -----------------------------------------------------------------------------------

# A comparison that makes a float of an int takes these for the same.
neighbours = st.sampled_from([2**53 + 1, 2.0**53])
# Numbers that are equal though their types differ, and that 64 bits do not hold.
numbers = st.sampled_from([0, 1, True, 1.0, 1.5, -0.0, math.inf, 2**70]) | neighbours
# Strings that begin and end alike, and whose order by UTF-16 would be another one.
texts = st.sampled_from(["", "a", "ab", "abc", "b", "A", "\u00e9", "a.b", "\uffff", "\U0001f600"])
parts = st.sampled_from(["", "a", "b", "bc", "."])
MISSING = object()
scalars = numbers | texts | st.none() | st.sampled_from([date(2020, 2, 29), b"a"])
lists = st.lists(scalars, max_size=3)
anything = scalars | lists | st.dictionaries(st.sampled_from("ns"), scalars, max_size=2)


def document(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A dict that lacks some of its fields."""
    fields = {"n": numbers, "s": texts, "v": anything, **more}
    drawn = {name: field | field | field | st.just(MISSING) for name, field in fields.items()}
    return st.fixed_dictionaries(drawn).map(
        lambda made: {name: value for name, value in made.items() if value is not MISSING}
    )


# Where a dict is expected there may be none, and where a dict is expected in a list.
documents = document(
    sub=document(deep=document() | scalars) | scalars | lists,
    tags=lists,
    people=st.lists(document() | scalars, max_size=3),
)


# ---- Conditions ----------------------------------------------------------------------------------

# What most documents have comes up more often.
number_fields = [both(path) for path in ("n", "n", "n", "sub.n", "sub.deep.n")]
text_fields = [both(path) for path in ("s", "s", "s", "sub.s", "sub.deep.s")]
all_fields = [
    both(path)
    for path in ("n", "s", "v", "v", "sub", "sub.v", "sub.deep", "sub.deep.n", "tags", "people", "no.such")
]
ORDERS = [operator.lt, operator.le, operator.gt, operator.ge]
PATTERNS = ["a", "b", "^a", "b$", "^ab?$", "a.b", r"a\.b", "[a-c]{2}", "(a|b)c?", "", "^$", "\u00e9"]

Question = Callable[[Both], Both]
"""What is asked of a field, on both sides."""


def same_call(work: Callable[[Any, Any], Any], value: Any) -> Question:
    return lambda field: Both(work(field.ours, value), work(field.theirs, value))


def unequal(value: Any) -> Question:
    return lambda field: Both(field.ours.exists() & (field.ours != value), field.theirs != value)


def one_of(values: list[Any]) -> Question:
    return lambda field: Both(field.ours.isin(values), field.theirs.one_of(values))


def matches(pattern: str) -> Question:
    return lambda field: Both(field.ours.matches(f"^(?:{pattern})"), field.theirs.matches(pattern))


def search(pattern: str) -> Question:
    return lambda field: Both(field.ours.matches(pattern), field.theirs.search(pattern))


def starts(prefix: str) -> Question:
    return lambda field: Both(field.ours.startswith(prefix), field.theirs.matches(re.escape(prefix)))


def ends(suffix: str) -> Question:
    return lambda field: Both(field.ours.endswith(suffix), field.theirs.search(re.escape(suffix) + "$"))


def exists(field: Both) -> Both:
    return Both(field.ours.exists(), field.theirs.exists())


def questions(values: st.SearchStrategy[Any], works: list[Any]) -> st.SearchStrategy[Question]:
    """Questions that may also be asked about each element of a list."""
    return st.builds(same_call, st.sampled_from([operator.eq, *works]), values) | st.builds(
        one_of, st.lists(values, min_size=1, max_size=4)
    )


about_strings = st.one_of(
    st.builds(matches, st.sampled_from(PATTERNS)),
    st.builds(search, st.sampled_from(PATTERNS)),
    st.builds(starts, parts),
    st.builds(ends, parts),
)
about_numbers = questions(numbers, ORDERS)
about_texts = questions(texts, ORDERS) | about_strings
about_anything = questions(anything, []) | about_strings | st.just(exists)


def ask(question: Question, field: Both) -> Both:
    return question(field)


def any_element(question: Question, path: str) -> Both:
    """A question to each of the dicts in a list."""
    theirs = question(both(path)).theirs
    return Both(question(both(path, Both(F.people.each(), Query()))).ours, Query().people.any(theirs))


def any_of(values: list[Any]) -> Both:
    return Both(F.tags.each().isin(values), Query().tags.any(values))


def all_of(values: list[Any]) -> Both:
    ours = F.tags.contains(values[0])
    for value in values[1:]:
        ours &= F.tags.contains(value)
    return Both(ours, Query().tags.all(values))


def fragment(fields: dict[str, Any]) -> Both:
    pairs = [F[name] == value for name, value in fields.items()]
    ours = pairs[0]
    for pair in pairs[1:]:
        ours &= pair
    return Both(ours, Query().fragment(fields))


leaves = st.one_of(
    st.builds(ask, about_numbers | st.builds(unequal, numbers), st.sampled_from(number_fields)),
    st.builds(ask, questions(neighbours, ORDERS), st.sampled_from(number_fields)),
    st.builds(ask, about_texts | st.builds(unequal, texts), st.sampled_from(text_fields)),
    st.builds(ask, about_anything | st.builds(unequal, anything), st.sampled_from(all_fields)),
    st.builds(any_element, about_numbers, st.just("n")),
    st.builds(any_element, about_texts, st.just("s")),
    st.builds(any_element, about_anything, st.sampled_from("nsv")),
    st.builds(any_of, st.lists(scalars, max_size=3)),
    st.builds(all_of, st.lists(scalars, min_size=1, max_size=2)),
    st.builds(fragment, st.fixed_dictionaries({"n": numbers}, optional={"s": texts, "v": anything})),
)


def combined(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    def two(one: Both, other: Both, work: Callable[[Any, Any], Any]) -> Both:
        return Both(work(one.ours, other.ours), work(one.theirs, other.theirs))

    return st.builds(two, inner, inner, st.sampled_from([operator.and_, operator.or_])) | st.builds(
        lambda one: Both(~one.ours, ~one.theirs), inner
    )


conditions = leaves | leaves | combined(leaves) | combined(combined(leaves))


@settings(max_examples=250, deadline=None)
@given(
    stored=st.lists(documents, min_size=3, max_size=15), asked=st.lists(conditions, min_size=5, max_size=20)
)
def test_a_query_finds_what_tinydb_finds(stored: list[dict[str, Any]], asked: list[Both]) -> None:
    theirs = TinyDB(storage=MemoryStorage)
    theirs.insert_multiple(stored)
    table = pellucid.open(":memory:").table("t")
    table.extend(stored)
    for condition in asked:
        # It numbers from 1.
        expected = [found.doc_id - 1 for found in theirs.search(condition.theirs)]
        event(
            "nothing is found" if not expected else "some are" if len(expected) < len(stored) else "all are"
        )
        query = table.where(condition.ours)
        assert list(query.keys()) == expected
        assert query.count() == len(expected)
