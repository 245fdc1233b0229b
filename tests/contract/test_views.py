"""Are the views of tables and records what a dict's views are?"""

from __future__ import annotations

import collections.abc
import operator
from collections.abc import Callable
from typing import Any

import pellucid
import pytest

Database = pellucid.Database
NAMES = ("KeysView", "ValuesView", "ItemsView", "Set", "MappingView", "Collection", "Reversible")


def mappings(db: Database) -> list[Any]:
    """One of each kind that has views, with the same content."""
    content = {"a": 1, "b": 2, "c": 3}
    db.update(content)
    table = db.table("t")
    table.update(content)
    db.table("records")["r"] = content
    record = db.table("records")["r"]
    return [db, table, record, record.copy(), pellucid.view(pellucid.dumps(content)), db.snapshot()]


@pytest.mark.parametrize("verb", ["keys", "values", "items"])
def test_the_abstract_classes_know_each_view_for_what_it_is(db: Database, verb: str) -> None:
    expected = getattr({"a": 1}, verb)()
    for mapping in mappings(db):
        view = getattr(mapping, verb)()
        for name in NAMES:
            kind = getattr(collections.abc, name)
            assert isinstance(view, kind) == isinstance(expected, kind), (verb, name)


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    *(operator.and_, operator.or_, operator.sub, operator.xor),
    *(operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne),
    lambda one, other: one.isdisjoint(other),
]
OTHERS: list[Any] = [set(), {"a"}, {"a", "b", "c"}, {"a", "b", "c", "d"}, {("a", 1)}, {"x"}, frozenset("ab")]


@pytest.mark.parametrize("verb", ["keys", "items"])
@pytest.mark.parametrize("operate", OPERATIONS)
def test_key_and_item_views_are_sets(db: Database, verb: str, operate: Callable[[Any, Any], Any]) -> None:
    for mapping in mappings(db):
        view, expected = getattr(mapping, verb)(), getattr({"a": 1, "b": 2, "c": 3}, verb)()
        for other in [*OTHERS, {"a": 1}.keys(), {"a": 1, "z": 2}.items(), expected]:
            assert operate(view, other) == operate(expected, other)
            assert operate(other, view) == operate(other, expected)
        assert operate(view, view) == operate(expected, expected)
        assert list(reversed(view)) == list(reversed(expected))


def test_views_of_two_mappings_are_compared_as_sets(db: Database) -> None:
    made = mappings(db)
    for one in made:
        for other in made:
            assert one.keys() == other.keys()
            assert one.items() <= other.items()
            assert one.values() != other.values()


def test_a_view_of_values_is_no_set(db: Database) -> None:
    for mapping in mappings(db):
        values = mapping.values()
        assert sorted(values) == [1, 2, 3]
        assert 2 in values
        assert 5 not in values
        for operate in (operator.and_, operator.or_, operator.le):
            with pytest.raises(TypeError):
                operate(values, {1})
