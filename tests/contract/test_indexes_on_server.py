"""Do the indexes of a server's table have what its rows come to, whatever is done in whichever order?"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import on_server
import pellucid
import test_indexes_model
from hypothesis import strategies as st
from hypothesis.stateful import rule
from pellucid import KEY, F


class Machine(test_indexes_model.IndexMachine):
    """As the model, but a server's numbers may have gaps, so that the keys are read back."""

    @rule(record=test_indexes_model.records)
    def append(self, record: dict[str, Any]) -> None:
        self.add([record], lambda: self.table.append(record))

    @rule(values=st.lists(test_indexes_model.records, max_size=5))
    def extend(self, values: list[dict[str, Any]]) -> None:
        self.add(values, lambda: self.table.extend(values))

    def add(self, values: list[dict[str, Any]], work: Callable[[], object]) -> None:
        before = self.rows
        taken = {key for key in self.table if type(key) is int}
        numbers = [key for key, _ in before.values() if isinstance(key, (int, float))]
        if any(number >= 2**60 for number in numbers):
            return
        expected = before
        for number, record in enumerate(values):
            expected = self.with_row(expected, 2**61 + number, record)
        self.attempt(expected, work)
        if self.rows is expected:
            self.rows = before
            new = sorted({key for key in self.table if type(key) is int} - taken)
            for key, record in zip(new, values, strict=True):
                self.rows = self.with_row(self.rows, key, record)


def test_indexes_on_a_server_are_as_the_model(server: str) -> None:
    on_server.run(Machine, server)


def test_an_index_gives_values_that_the_server_stores_shortened(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.create_index("text", F.text)
        table.create_index("keyed", (F.number, KEY))
        table["k" * 5_000] = {"text": "x" * 5_000 + "a", "number": 1}
        table["short"] = {"text": "x" * 5_000 + "b", "number": 1}
        assert sorted(table.index("text").keys()) == [
            ("x" * 5_000 + "a", "k" * 5_000),
            ("x" * 5_000 + "b", "short"),
        ]
        keyed = [((1, "k" * 5_000), "k" * 5_000), ((1, "short"), "short")]
        assert sorted(table.index("keyed").keys()) == keyed


def test_long_values_are_in_order_and_within_bounds(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.create_index("text", F.text)
        table.create_index("each", F.tags.each())
        long = "x" * 5_000
        texts = [long + end for end in random.Random(7).sample("abcdefghijklmnopqrstuvwxyz", 26)]
        table.extend([{"text": text, "tags": [text, "short"]} for text in texts])
        table[5_000] = {"text": "x" * 1_990}
        ordered = sorted(["x" * 1_990, *texts])
        index = table.index("text")
        assert [value for value, _ in index] == ordered
        assert [value for value, _ in index.keys(reverse=True)] == ordered[::-1]
        assert [row.text for row in index.values()] == ordered
        assert index.first().text == ordered[0]
        assert index.last().text == ordered[-1]
        start, stop = long + "d", long + "m"
        between = [text for text in ordered if start <= text < stop]
        assert [row.text for row in index.range(start, stop)] == between
        assert [value for value, _ in index.keys(start, stop, reverse=True)] == between[::-1]
        assert [row.text for row in index.prefix(long + "q")] == [long + "q"]
        assert [value for value, _ in table.index("each").keys(start, stop)] == between
        assert [row.tags[0] for row in table.index("each").range(start, stop)] == between
        assert table.where(F.text >= start, F.text < stop).count() == len(between)


def test_an_index_over_keys_has_the_spelling_of_the_row(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.create_index("keyed", (F.number, KEY))
        table.update({1: {"number": 0}, 2.0: {"number": 0}, 3: {"number": 0}})
        table[1.0] = {"number": 5}
        table.update({2: {"number": 5}, 3.0: {"number": 5}, 4.0: {"number": 5}})
        assert repr(list(table.index("keyed"))) == repr([((5, n), n) for n in (1, 2.0, 3, 4.0)])


def test_an_index_with_each_follows_rows_with_long_keys(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.create_index("tags", F.tags.each())
        table["k" * 5_000] = {"n": 1, "tags": [1, 2]}
        table["short"] = {"n": 1, "tags": [3]}
        assert table.where(F.n == 1).update(tags=[2, 4]) == 2
        found = sorted((value, len(key)) for value, key in table.index("tags"))
        assert found == [(2, 5), (2, 5_000), (4, 5), (4, 5_000)]
        assert len(table.index("tags")) == 4
        table.update({"k" * 5_000: {"tags": [5]}, "k" * 5_001: {"tags": [5]}})
        assert table.index("tags").count(5) == 2
        assert len(table.index("tags")) == 4
        assert db.check() == []
