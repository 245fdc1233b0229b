"""Do indexes find rows, refuse what they must, and say what is wrong?"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import math
import pickle
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pellucid
import pyarrow
import pytest
import servers
from pellucid import KEY, Database, F
from pellucid.errors import IndexNotReady, NoSuchIndex, UniqueError, UnsupportedKey
from processes import Child


def filled(db: Database) -> pellucid.Table[Any]:
    table = db.table("people")
    table.update(
        ann={"age": 30, "name": {"last": "Lee", "first": "Ann"}, "tags": ["x", "y", "x"]},
        bob={"age": 20.5, "name": {"last": "Lee", "first": "Bob"}, "tags": ["y"]},
        eve={"age": None, "name": {"last": "Abe", "first": "Eve"}},
        joe={"name": {"last": "Zoe"}, "tags": "no list"},
    )
    return table


def keys(index: pellucid.Index[Any], *bounds: Any, **options: Any) -> list[Any]:
    return [key for _, key in index.keys(*bounds, **options)]


def test_rows_are_found_by_a_field(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    index = table.index("by_age")
    assert list(index.keys()) == [(None, "eve"), (20.5, "bob"), (30, "ann")]
    assert index.get(30)["name"].first == index.get(30.0).name.first == "Ann"
    assert (index.get(31), index.get(31, "none"), index.get([1]), index.get(math.nan, 7)) == (
        None,
        "none",
        None,
        7,
    )
    assert [row.age for row in index.range(20)] == [20.5, 30]
    assert [row.age for row in index.range(None, 30, reverse=True)] == [20.5, None]
    assert keys(index, 21, reverse=True) == ["ann"]
    assert index.first() == table["eve"]
    assert index.last() == table["ann"]
    assert (len(index), index.count(30), index.count(7), index.count({}), bool(index)) == (3, 1, 0, 0, True)
    assert 20.5 in index
    assert 21 not in index
    assert {} not in index
    assert (index.name, index.table == table) == ("by_age", True)
    assert repr(index) == '<pellucid.Index "by_age" of table "people", over age>'


def test_the_rows_that_are_found_are_attached(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    row = table.index("by_age").get(30)
    row.age += 1
    assert table.index("by_age").get(30) is None
    assert table["ann"].age == 31
    for row in table.index("by_age").range(20):
        row["seen"] = True
    assert table.count("seen") == 2


def test_all_rows_of_a_value_are_found(db: Database) -> None:
    table = filled(db)
    table.update(kim={"age": 30.0, "tags": ["y"]}, lee={"age": True}, mia={"age": 1})
    for name, part in [("age", F.age), ("down", F.age.desc()), ("tag", F.tags.each())]:
        table.create_index(name, part)
    for name in ("age", "down"):
        index = table.index(name)
        assert list(index.get_all(30)) == [table["ann"], table["kim"]]
        assert list(index.get_all(30, reverse=True)) == [table["kim"], table["ann"]]
        assert list(index.get_all(1)) == [table["lee"], table["mia"]]
        # None is a value here, and no bound; what no row can have is nowhere.
        assert list(index.get_all(None)) == [table["eve"]]
        assert [list(index.get_all(value)) for value in (7, math.nan, {}, [1])] == [[]] * 4
    assert list(table.index("tag").get_all("y")) == [table["ann"], table["bob"], table["kim"]]
    table.create_index("name", (F.name.last, F.name.first))
    assert list(table.index("name").get_all(("Lee", "Bob"))) == [table["bob"]]
    with pytest.raises(TypeError, match="has 2 parts"):
        table.index("name").get_all("Lee")
    with db.transaction():
        table["new"] = {"age": 30}
        assert list(table.index("age").get_all(30)) == [table["ann"], table["kim"], table["new"]]


def test_several_parts_each_in_its_direction(db: Database) -> None:
    table = filled(db)
    table.create_index("by_name", (F.name.last, F.name.first.desc()))
    index = table.index("by_name")
    assert keys(index) == ["eve", "bob", "ann"]
    assert index.get(("Lee", "Bob")) == table["bob"]
    assert keys(index, ("Lee",)) == ["bob", "ann"]
    assert keys(index, None, ("Lee",)) == ["eve"]
    assert keys(index, ("Lee", "Az"), ("Lee", "A")) == ["ann"]
    assert [row.name.first for row in index.prefix(("Lee",))] == ["Bob", "Ann"]
    assert [row.name.first for row in index.prefix("L", reverse=True)] == ["Ann", "Bob"]
    table.create_index("turned", "name.last", unique=False)
    table.create_index("down", F.name.last.desc())
    down = table.index("down")
    assert keys(down) == ["joe", "ann", "bob", "eve"]
    assert keys(down, "M", "B") == ["ann", "bob"]
    assert [row.name.last for row in down.prefix("L")] == ["Lee", "Lee"]
    for wrong in ("Lee", ("Lee",), ("Lee", "Bob", 1)):
        with pytest.raises(TypeError, match="has 2 parts"):
            index.get(wrong)


def test_tuples_are_values_and_begin_as_keys_do(db: Database) -> None:
    table = db.table("t")
    places = [("a", 1), ("a", 1.5), ("a",), ("a", None), ("ab", 1), "a", 2, 2.5]
    table.extend([{"at": place} for place in places])
    for name, part in [("up", F.at), ("down", F.at.desc())]:
        table.create_index(name, part)
        index = table.index(name)
        found = [row["at"] for row in index.prefix(("a",))]
        wanted = [("a",), ("a", None), ("a", 1), ("a", 1.5)]
        assert found == (wanted if name == "up" else wanted[::-1])
        assert [row["at"] for row in index.prefix(("a", 1))] == [("a", 1)]
        assert (index.count(2), index.count(("a",)), index.count("a")) == (1, 1, 1)
    with pytest.raises(TypeError, match="prefix"):
        table.index("up").prefix(1)  # type: ignore[arg-type]


def test_a_complex_number_without_an_imaginary_part_is_shown_as_it_was_stored(db: Database) -> None:
    table = db.table("t")
    table.create_index("by_x", F.x, unique=True)
    table["a"] = {"x": 1 + 0j}
    assert repr(list(table.index("by_x").keys())) == "[((1+0j), 'a')]"
    with pytest.raises(UniqueError, match=r"row 'b' .* would have \(1\+0j\) in the unique index") as refused:
        table["b"] = {"x": 1 + 0j}
    assert repr(refused.value.value) == "(1+0j)"


def test_a_batch_says_which_of_its_rows_was_refused(db: Database) -> None:
    table = db.table("t")
    table.create_index("by_x", F.x, unique=True)
    table.create_index("by_y", F.y)
    table[2] = {"x": 7}

    def rows(what: Callable[[], object]) -> Iterator[dict[str, Any]]:
        yield {"y": 1}
        yield {"x": 1}
        # What is read of an index or written meanwhile is no row of it; what came before is written then.
        what()
        yield {"x": 2, "y": 1}
        yield {"x": 1}

    def store_others() -> None:
        db.table("u")["u"] = 1
        table["u"] = {"x": 2.5}
        table.where(F.x == 7).update(y=3)

    batch = list(rows(dict))
    columns = pyarrow.table({"x": [None, 3, 4, 3]}).slice(1)
    batches: list[tuple[Callable[[], object], int]] = [
        (lambda: table.extend(rows(dict)), 3),
        (lambda: table.extend(rows(lambda: table.index("by_x").get(1))), 3),
        (lambda: table.extend(rows(lambda: list(table.index("by_y")))), 3),
        (lambda: table.extend(rows(store_others)), 3),
        (lambda: table.extend(columns), 2),
        (lambda: table.update(enumerate(batch, 10)), 3),
        (lambda: table.update(enumerate(rows(lambda: table.index("by_x").get(1)), 10)), 3),
        (lambda: table.update({10: {"x": 3}}, a=batch[1], b=batch[3]), 2),
    ]
    for attempt, position in batches:
        for around in (contextlib.nullcontext, db.transaction):
            with around(), pytest.raises(UniqueError, match=f"number {position} of the batch") as refused:
                attempt()
            error = refused.value
            assert (error.in_batch, error.position) == (True, position)
            assert "would have, too, in the same batch" in str(error)
            assert error.existing_key not in table
            assert dict(table) == {2: {"x": 7}}
    # The row that has it had it before.
    with pytest.raises(UniqueError, match="which row 2 has;") as refused:
        table.extend([{"x": 1}, {"x": 7}])
    assert (refused.value.in_batch, refused.value.position) == (False, 1)
    with db.transaction():
        table[3] = {"x": 1}
        with pytest.raises(UniqueError, match="which row 3 has;") as refused:
            table.extend(rows(lambda: table.index("by_x").get(1)))
        assert (refused.value.in_batch, refused.value.position) == (False, 1)
        with pytest.raises(UniqueError) as refused:
            table[4] = {"x": 1}
        assert (refused.value.in_batch, refused.value.position) == (False, None)
    with pytest.raises(UniqueError, match="number 1 of the batch") as refused:
        table.where(F.x.exists()).update(x=9)
    assert (refused.value.in_batch, refused.value.position) == (True, 1)


def test_an_entry_for_each_distinct_element(db: Database) -> None:
    table = filled(db)
    table.create_index("by_tag", F.tags.each())
    index = table.index("by_tag")
    assert list(index.keys()) == [("x", "ann"), ("y", "ann"), ("y", "bob")]
    table["ann"].tags.append("z")
    assert (index.count("y"), index.get("z")) == (2, table["ann"])
    del table["ann"]["tags"][0]
    del table["ann"]["tags"][1]
    assert keys(index) == ["ann", "bob", "ann"]


def test_what_is_computed_and_what_a_condition_leaves(db: Database) -> None:
    table = filled(db)
    table.create_index("lower", F.name.last.lower())
    table.create_index("adults", F.name.last, where=F.age >= 18)
    table.create_index("keyed", (F.name.last, KEY))
    assert keys(table.index("lower"), "lee") == ["ann", "bob", "joe"]
    assert keys(table.index("adults")) == ["ann", "bob"]
    table["eve"].age = 18
    table["ann"].age = 3
    assert keys(table.index("adults")) == ["eve", "bob"]
    assert table.index("keyed").get(("Zoe", "joe")) == table["joe"]


def test_values_come_back_as_they_were_spelled(db: Database) -> None:
    table = db.table("t")
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "here"))
    values = [1, True, 1.0, -0.0, Decimal("1.10"), moment, 2**70, b"x", dt.date(2020, 1, 1), "\xfc", None]
    table.update((spelled, {"v": value}) for spelled, value in enumerate(values))
    table.update({2.5: {"v": True}, True: {"v": 1.0}})
    table.create_index("v", F.v)
    found = {(type(key), key): value for value, key in table.index("v")}
    for spelled, row in table.items():
        value = found[type(spelled), spelled]
        assert (type(value), str(value)) == (type(row.v), str(row.v))
    table[0] = {"v": True}
    assert (True, 0) in [(value, key) for value, key in table.index("v") if value is True]


def test_what_cannot_be_a_key_has_no_entry(db: Database) -> None:
    table = db.table("t")
    table.create_index("v", F.v)
    table.extend([{"v": value} for value in [{}, [1], {1}, math.nan, 1j, dt.time(1), Decimal("NaN")]])
    table.extend([{}, 7, [1], None])
    assert list(table.index("v").keys()) == []
    table.append({"v": bytearray(b"x")})
    assert table.index("v").get(b"x") == {"v": bytearray(b"x")}
    assert db.check() == []


def test_a_unique_value_is_refused_and_nothing_is_written(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age, unique=True)
    before = dict(table)
    with pytest.raises(UniqueError, match="row 'new' of table \"people\" would have 30 in") as refused:
        table["new"] = {"age": 30}
    error = refused.value
    assert (error.index, error.value, error.key, error.existing_key) == ("by_age", 30, "new", "ann")
    assert not error.in_batch
    # A row that is there, and then one that is not there either.
    with pytest.raises(
        UniqueError, match="which row 'bob' has; nothing was written: give it another"
    ) as refused:
        table.extend([{"age": 1}, {"age": 20.5}])
    assert not refused.value.in_batch
    with pytest.raises(
        UniqueError, match=r"row \d+ .* would have, too, in the same batch; .* give one of"
    ) as refused:
        table.extend([{"age": 7}, {"age": 7}])
    assert refused.value.in_batch
    attempts: list[Callable[[], object]] = [
        lambda: table["bob"].__setattr__("age", 30),
        lambda: table["eve"].update(age=20.5, more=1),
        lambda: table.append({"age": None}),
        lambda: table.extend([{"age": 1}, {"age": 2}, {"age": 1}]),
        lambda: table.update(x={"age": 5}, y={"age": 20.5}),
        lambda: table.where(F.age > 0).update(age=7),
        lambda: table.setdefault("z", {"age": 30}),
    ]
    for attempt in attempts:
        with pytest.raises(UniqueError):
            attempt()
        assert dict(table) == before
        assert db.check() == []
    with db.transaction():
        table["kim"] = {"age": 1}
        for attempt in attempts:
            with pytest.raises(UniqueError):
                attempt()
        table["lee"] = {"age": 2}
    assert dict(table) == {**before, "kim": {"age": 1}, "lee": {"age": 2}}
    # What one row gives up another one may have.
    with db.transaction():
        del table["ann"]
        table["new"] = {"age": 30}
    assert table.index("by_age").get(30) == table["new"]


def test_an_index_over_rows_that_share_a_value_cannot_be_unique(db: Database) -> None:
    table = filled(db)
    with pytest.raises(UniqueError) as refused:
        table.create_index("by_last", F.name.last, unique=True)
    assert (refused.value.value, refused.value.existing_key, refused.value.key) == ("Lee", "ann", "bob")
    assert table.indexes() == []
    assert db.check() == []


def test_indexes_are_described(db: Database) -> None:
    table = filled(db)
    assert table.indexes() == []
    table.create_index("by_name", (F.name.last, F.name.first.desc()), unique=True, where=F.age.exists())
    [info] = table.indexes()
    shown = "name.last, name.first desc where age exists, unique, ready, 3 entries"
    assert repr(info) == f"<pellucid.IndexInfo 'by_name': {shown}>"
    assert (info.name, info.unique, info.state, info.entries) == ("by_name", True, "ready", 3)
    assert repr(info.parts) == "(F.name.last, F.name.first.desc())"
    assert info.where is not None
    assert info.where.same_as(F.age.exists())
    table.create_index("again", info.parts, where=info.where)
    assert [len(table.index(name)) for name in ("by_name", "again")] == [3, 3]
    stats = db.stats()
    assert (stats["indexes"], stats["index_entries"]) == (2, 6)


def test_the_same_index_again_is_nothing_and_another_one_is_refused(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    table.create_index("by_age", "age")
    for parts, options in [
        (F.name, {}),
        (F.age, {"unique": True}),
        (F.age.desc(), {}),
        (F.age, {"where": F.age > 1}),
    ]:
        with pytest.raises(ValueError, match="has an index 'by_age' already"):
            table.create_index("by_age", parts, **options)
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        (("", F.age), ValueError, "0 bytes"),
        (("n" * 256, F.age), ValueError, "256 bytes"),
        (("x", ()), ValueError, "needs a part"),
        (("x", (F.a.each(), F.b.each())), ValueError, "two of its parts have each"),
        (("x", pellucid.parse("1 + 1")), ValueError, "is a constant"),
        (("x", 1), TypeError, "path"),
        ((1, F.age), TypeError, "name has to be"),
    ]
    for arguments, error, words in wrong:
        with pytest.raises(error, match=words):
            table.create_index(*arguments)
    with pytest.raises(TypeError, match="progress has to be"):
        table.create_index("x", F.age, progress=1)  # type: ignore[arg-type]
    for use in (table.drop_index, table.rebuild_index, table.index):
        with pytest.raises(NoSuchIndex, match="no index 'none'; those it has are 'by_age'"):
            use("none")
        with pytest.raises(NoSuchIndex, match=r"did you mean 'by_age'\?"):
            use("by_aeg")
    with pytest.raises(NoSuchIndex, match="has none"):
        db.table("empty").index("by_age")
    with pytest.raises(
        ValueError, match=r"over age, and not unique over age desc; .*drop_index\(\"by_age\"\)"
    ):
        table.create_index("by_age", F.age.desc(), unique=True)


def test_a_bound_that_is_no_key_is_refused_as_a_value_of_the_index(db: Database) -> None:
    table = db.table("t")
    table.append({"age": 1})
    table.create_index("by_age", F.age)
    index = table.index("by_age")
    for ask in (lambda: index.range({}, 5), lambda: index.keys({}), lambda: index.prefix({})):
        with pytest.raises(UnsupportedKey, match=r'^value \{\} for index "by_age" is of type dict; '):
            list(ask())
    with pytest.raises(UnsupportedKey, match=r'^value \(1, nan\) for index "by_age" at position 1 is NaN'):
        list(index.range((1, float("nan"))))


def test_names_are_shown_without_their_control_characters(db: Database) -> None:
    table = db.table("t")
    table.create_index("a\x1b[1m\n", F.age)
    assert repr(table.indexes()[0]).startswith(r"<pellucid.IndexInfo 'a\u{1b}[1m\n': age, ")
    with pytest.raises(NoSuchIndex) as error:
        table.index("a\x1b[1m")
    shown = r"no index 'a\u{1b}[1m'; those it has are 'a\u{1b}[1m\n'; did you mean 'a\u{1b}[1m\n'?"
    assert shown in str(error.value)


def test_progress_is_told_and_may_break_it_off(db: Database) -> None:
    table = db.table("t")
    table.extend([{"n": number} for number in range(40_000)])
    told: list[tuple[int, int]] = []
    table.create_index("n", F.n, progress=lambda done, rows: told.append((done, rows)))
    assert told[-1] == (40_000, 40_000)
    assert told == sorted(told)
    assert len(told) > 1

    def fails(done: int, rows: int) -> None:
        raise ZeroDivisionError

    for make in (
        lambda: table.create_index("m", F.n, progress=fails),
        lambda: table.rebuild_index("n", progress=fails),
    ):
        with pytest.raises(ZeroDivisionError):
            make()
    assert [(info.name, info.state) for info in table.indexes()] == [("m", "building"), ("n", "ready")]
    assert len(table.index("n")) == 40_000
    table.create_index("m", F.n)
    assert len(table.index("m")) == 40_000


def test_a_handle_goes_on_with_what_has_its_name(db: Database) -> None:
    table = filled(db)
    table.create_index("one", F.age)
    index = table.index("one")
    running = index.keys()
    assert next(running) == (None, "eve")
    rows = index.range(20)
    table.drop_index("one")
    with pytest.raises(NoSuchIndex, match="index 'one'"):
        index.get(1)
    assert "NoSuchIndex" in repr(index)
    # What began before sees the state at its start.
    assert list(running) == [(20.5, "bob"), (30, "ann")]
    assert [row.age for row in rows] == [20.5, 30]
    table.create_index("one", F.name.last)
    assert index.count("Lee") == 2
    table.rebuild_index("one")
    assert index.count("Lee") == 2
    with db.transaction():
        table.drop_index("one")
        with pytest.raises(NoSuchIndex):
            index.first()
        table.create_index("one", F.age)
        assert index.count(30) == 1
        nested = db.transaction()
        nested.__enter__()
        table.drop_index("one")
        nested.__exit__(KeyError, KeyError(), None)
        assert index.count(30) == 1
    db.rename_table("people", "folk")
    assert (index.count(30), index.table.name) == (1, "folk")
    db.drop_table("folk")
    with pytest.raises(pellucid.StaleTable):
        index.get(1)


def test_an_index_in_a_transaction_shows_what_that_has(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    index = table.index("by_age")
    seen: list[Any] = []
    with db.transaction():
        table["new"] = {"age": 25}
        assert keys(index) == ["eve", "bob", "new", "ann"]
        assert [row.age for row in index.range(21, reverse=True)] == [30, 25]
        assert (index.get(25), len(index), index.first(), index.last()) == (
            {"age": 25},
            4,
            table["eve"],
            table["ann"],
        )
        running = index.keys()
        values = index.values()
        thread = threading.Thread(target=lambda: seen.extend(keys(index)))
        thread.start()
        thread.join()
        assert [key for _, key in running] == ["eve", "bob", "new", "ann"]
    assert seen == ["eve", "bob", "ann"], "another thread sees what is committed"
    with pytest.raises(pellucid.TransactionError):
        next(values)


def test_a_snapshot_has_its_indexes(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    with db.snapshot() as before:
        table["new"] = {"age": 25}
        table.drop_index("by_age")
        old = before.table("people")
        assert [info.name for info in old.indexes()] == ["by_age"]
        index = old.index("by_age")
        assert keys(index) == ["eve", "bob", "ann"]
        row = index.get(30)
        with pytest.raises(pellucid.ReadOnly):
            row.age = 1
        with pytest.raises(pellucid.ReadOnly):
            old.create_index("x", F.age)
        running = index.keys()
    for use in (lambda: next(running), lambda: index.get(1), lambda: row.age):
        with pytest.raises((pellucid.Closed, pellucid.StaleRecord)):
            use()
    db["a"] = {"n": 1}
    db.create_index("n", F.n)
    assert db.index("n").get(1) == db.snapshot().index("n").get(1) == {"n": 1}
    assert [info.name for info in db.indexes()] == [info.name for info in db.snapshot().indexes()] == ["n"]
    db.rebuild_index("n")
    db.drop_index("n")


def test_a_write_that_leaves_the_indexed_fields_writes_no_entry(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    table.create_index("by_tag", F.tags.each())
    before = db.stats()["entry_writes"]
    table["ann"].more = 1
    table["ann"].name.first = "Anna"
    table["ann"] = {**table["ann"].to_dict(), "more": 2}
    table.where(F.age > 1).update(more=3)
    assert db.stats()["entry_writes"] == before
    table["ann"].age = 31
    assert db.stats()["entry_writes"] == before + 2


def test_rows_of_a_table_with_a_class_are_instances(db: Database) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Person:
        age: int

    table = db.table("classes", type=Person)
    table["a"] = Person(3)
    table.create_index("by_age", F.age)
    index = table.index("by_age")
    assert index.get(3) == index.first() == next(index.range(1)) == Person(3)


def test_indexes_come_along(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        table = filled(db)
        table.create_index("by_age", F.age)
        db.backup(tmp_path / "b.pel")
        handle = pickle.loads(pickle.dumps(db))
        handle.table("people")["new"] = {"age": 1}
        handle.close()
        assert table.index("by_age").get(1) == {"age": 1}
        db.compact()
        assert table.index("by_age").get(1) == {"age": 1}
        table["newer"] = {"age": 2}
        assert table.index("by_age").get(2) == {"age": 2}
        assert db.check() == []
    with pellucid.open(tmp_path / "b.pel", "r", untrusted=True) as db:
        assert db.table("people").index("by_age").count(30) == 1
        assert db.check() == []
        with pytest.raises(pellucid.ReadOnly):
            db.table("people").drop_index("by_age")
    with pellucid.open(path, "n") as db:
        assert db.check() == []
        assert db.table("people").indexes() == []


def test_who_watches_sees_no_entries(db: Database) -> None:
    if servers.are_many(db):
        servers.pass_over("on Citus a watch is refused")
    table = filled(db)
    watch = db.watch(timeout=0)
    table.create_index("by_age", F.age)
    table["new"] = {"age": 1}
    del table["new"]
    table.drop_index("by_age")
    assert [(change.kind, change.key) for change in watch] == [("put", "new"), ("delete", "new")]


CLASHING = """
def put_all():
    count = 0
    for n in range(400):
        try:
            db["theirs", n] = {"n": n}
            count += 1
        except pellucid.UniqueError as error:
            assert error.existing_key == ("ours", n), error
    return count
"""


def test_two_processes_never_have_one_value(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db.create_index("n", F.n, unique=True)
        with Child(path) as other:
            other(CLASHING)
            other.send("put_all()")
            own, refused = 0, []
            for n in range(399, -1, -1):
                try:
                    db["ours", n] = {"n": n}
                    own += 1
                except UniqueError as error:
                    refused.append((error.existing_key, n))
            assert all(key == ("theirs", n) for key, n in refused)
            assert own + other.answer() == len(db) == len(db.index("n")) == 400
        assert db.check() == []


def test_a_file_with_indexes_has_a_newer_format_and_one_without_has_not(tmp_path: Path) -> None:
    def formats(path: Path) -> set[bytes]:
        # Behind the key "h" of the header: format and oldest reader's format.
        data = path.read_bytes()
        found = {data[place + 1 : place + 5] for place in range(len(data)) if data[place : place + 1] == b"h"}
        return found & {b"\1\0\1\0", b"\2\0\2\0"}

    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db["a"] = {"n": 1}
    assert formats(path) == {b"\1\0\1\0"}
    with pellucid.open(path) as db:
        db.create_index("n", F.n)
    assert b"\2\0\2\0" in formats(path)


def test_an_index_that_is_not_ready_is_told() -> None:
    assert issubclass(IndexNotReady, RuntimeError)
    assert issubclass(NoSuchIndex, LookupError)


class Word(str): ...


class Level(enum.IntEnum):
    ONE = 1
    FIVE = 5


# Equal ones of several types, and neighbours that are not equal.
STORED: list[Any] = [
    1,
    2.5,
    complex(2.5, 0),
    Decimal(3),
    5,
    Decimal("5.0"),
    5.0,
    True,
    Decimal("2.5"),
    "x",
    "xy",
    10**30,
    Decimal("1E+30"),
    2**53 + 1,
    Decimal(2**53 + 1),
    Decimal("0.1"),
    0.1,
    b"b",
    (1, "z"),
    dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1),
    None,
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
    math.inf,
    Decimal("Infinity"),
    Decimal("-0"),
    0,
]
ASKED: list[Any] = [
    *STORED,
    np.int64(1),
    np.float32(2.5),
    np.uint8(5),
    np.bool_(True),
    np.str_("x"),
    np.bytes_(b"b"),
    Word("x"),
    Level.FIVE,
    np.datetime64("2020-01-01"),
    np.datetime64("2020-01-01", "ns"),
    pandas.Timestamp("2020-01-01"),
    np.datetime64("NaT", "s"),
    pandas.Timestamp("2020-01-01", tz="UTC"),
    bytearray(b"b"),
    (np.int64(1), Word("z")),
    2**53,
    Decimal(2**53),
    Decimal("0.10"),
    Decimal.from_float(0.1),
    Decimal("1e-400"),
    Decimal("1e400"),
    10**400,
    Decimal("NaN"),
    math.nan,
    Decimal("1.5e1"),
    0.0,
    3,
    3.0,
]


@pytest.mark.parametrize("is_inside", [False, True])
def test_an_index_finds_what_a_comparison_finds(db: Database, is_inside: bool) -> None:
    table = db.table("t")
    table.extend({"x": value, "s": "one"} for value in STORED)
    table.create_index("x", F.x)
    table.create_index("back", (F.s, F.x.desc()))
    one, two = table.index("x"), table.index("back")
    with db.transaction() if is_inside else contextlib.nullcontext():
        if is_inside:
            table.append({"x": 5, "s": "one"})
        for value in ASKED:
            expected = [row.to_dict() for row in table.where(F.x == value)]
            assert (value in one) is (("one", value) in two) is bool(expected), value
            assert one.count(value) == two.count(("one", value)) == len(expected), value
            assert [row.to_dict() for row in one.get_all(value)] == expected, value
            assert [row.to_dict() for row in two.get_all(("one", value))] == expected, value
            assert [row.to_dict() for row in one.get_all(value, reverse=True)] == expected[::-1], value
            found = one.get(value)
            assert (found is None) is (not expected)
            assert found is None or found in expected
        assert [row.x for row in one.prefix(Word("x"))] == ["x", "xy"]
        found_between = [row.x for row in one.range(np.int64(1), Level.FIVE)]
        assert [x for x in found_between if not isinstance(x, complex)] == [1, True, 2.5]
        assert [row.x for row in two.range(("one", np.int64(2)), (Word("one"), 1))] == []


def test_an_index_refuses_what_is_no_value(db: Database) -> None:
    table = filled(db)
    table.create_index("by_age", F.age)
    index = table.index("by_age")
    for ask in (
        index.get,
        index.count,
        index.get_all,
        index.range,
        index.prefix,
        lambda value: value in index,
    ):
        with pytest.raises(pellucid.UnsupportedValue, match="parts of a microsecond"):
            ask(np.datetime64(1, "ns"))
        with pytest.raises(TypeError, match=r"lower\(\)\.year is the method"):
            ask(F.name.lower().year)
        with pytest.raises(TypeError, match=r"F\.age is an expression|not the expression \(age\)"):
            ask(F.age)
