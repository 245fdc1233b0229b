"""Is a table a dict? Each verb, on every backend."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
from typing import Any

import pellucid
import pytest
from values import plain

Database = pellucid.Database


@pytest.fixture(params=["database", "table"])
def table(request: pytest.FixtureRequest, db: Database) -> Any:
    """The same mapping twice: a database is one over its default table."""
    return db if request.param == "database" else db.table("people")


def test_a_database_and_its_tables_are_mutable_mappings(table: Any) -> None:
    assert isinstance(table, collections.abc.MutableMapping)


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_a_database_and_its_snapshots_have_the_verbs_of_a_table(db: Database) -> None:
    # The default table has no name of its own, and no class to conform to.
    verbs = public(db.table("t")) - {"name", "conform"}
    writing = {"append", "clear", "edit", "extend", "pop", "popitem", "setdefault", "update"}
    writing |= {"create_index", "drop_index", "rebuild_index"}
    writing |= {"increment", "compare_and_set", "put_if_absent", "get_or_create", "claim", "put", "expire"}
    assert verbs - public(db) == set()
    assert verbs - public(db.snapshot()) == writing | {"watch", "stats"}
    for number, city in enumerate(["Bath", "York", "Bath"]):
        db[number] = {"n": number, "at": {"city": city}}
    with db.snapshot() as before:
        for mapping in (db, before, db.table("default")):
            assert [row.n for row in mapping.range(1)] == [1, 2]
            assert [row.n for row in mapping.range(None, 2, reverse=True)] == [1, 0]
            assert mapping.first() == (0, {"n": 0, "at": {"city": "Bath"}})
            assert mapping.last() == (2, {"n": 2, "at": {"city": "Bath"}})
            assert (mapping.sum("n"), mapping.mean("n"), mapping.max("n"), mapping.min("n")) == (3, 1.0, 2, 0)
            assert (mapping.count(), mapping.count("at.city"), mapping.count("x")) == (3, 3, 0)
            assert mapping.column(("at", "city")) == ["Bath", "York", "Bath"]
        assert before == db
        assert db.append({"n": 3}) == 3
        assert db.extend([{"n": 4}, {"n": 5}]) == 2
        assert (before.count(), db.count(), db.sum("n")) == (3, 6, 15)
        assert before != db
        assert before == {number: db[number] for number in range(3)}


def test_an_empty_table_is_an_empty_dict(table: Any) -> None:
    assert not table
    assert len(table) == 0
    assert list(table) == list(table.keys()) == list(table.values()) == list(table.items()) == []
    assert table == {}
    assert "a" not in table
    assert table.get("a") is None
    with pytest.raises(KeyError) as missing:
        table["a"]
    assert missing.value.args == ("a",)
    with pytest.raises(KeyError):
        del table["a"]
    with pytest.raises(KeyError):
        table.popitem()


def test_a_value_is_set_read_replaced_and_deleted(table: Any) -> None:
    table["a"] = {"x": 1}
    table["b"] = [1, 2]
    table["c"] = "text"
    assert (table["a"], table["b"], table["c"]) == ({"x": 1}, [1, 2], "text")
    assert (type(table["a"]), type(table["b"]), type(table["c"])) == (
        pellucid.Record,
        pellucid.RecordList,
        str,
    )
    table["a"] = None
    assert table["a"] is None
    assert "a" in table
    assert len(table) == 3
    del table["a"]
    assert "a" not in table
    assert len(table) == 2


def test_get_pop_and_setdefault_are_those_of_a_dict(table: Any) -> None:
    table["a"] = 1
    assert (table.get("a"), table.get("b"), table.get("b", 5)) == (1, None, 5)
    assert table.setdefault("a", 9) == 1
    assert table.setdefault("d", [9]) == [9]
    assert table.setdefault("n") is None
    assert table.pop("d") == [9]
    assert type(table.setdefault("r", {"x": 1})) is pellucid.Record
    assert type(table.pop("r")) is dict
    assert table.pop("d", 7) == 7
    assert table.pop("d", None) is None
    with pytest.raises(KeyError) as missing:
        table.pop("d")
    assert missing.value.args == ("d",)
    with pytest.raises(TypeError):
        table.pop("d", 1, 2)
    assert table == {"a": 1, "n": None}


def test_popitem_takes_the_last_key(table: Any) -> None:
    table.update({"b": 2, "a": 1, "c": {"x": [3]}})
    assert table.popitem() == ("c", {"x": [3]})
    assert table.popitem() == ("b", 2)
    assert table == {"a": 1}


def test_update_takes_what_dict_update_takes(table: Any) -> None:
    table.update({"a": 1})
    table.update([("b", 2), ["c", 3]])
    table.update((pair for pair in [("d", 4)]), e=5)
    table.update(f=6)
    table.update(pellucid.loads(pellucid.dumps({"g": 7})))
    table.update(pellucid.view(pellucid.dumps({"h": 8})))
    table.update()
    assert list(table.items()) == list(zip("abcdefgh", range(1, 9), strict=True))
    table |= {"i": 9}
    assert table["i"] == 9
    for wrong in (5, [1], [(1, 2, 3)], "ab"):
        with pytest.raises((TypeError, ValueError)):
            table.update(wrong)


def test_update_is_one_transaction(table: Any) -> None:
    table["a"] = 1

    def pairs() -> Any:
        yield "a", 2
        yield "b", 3
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.update(pairs())
    assert table == {"a": 1}
    with pytest.raises(pellucid.UnsupportedValue):
        table.update({"a": 2, "b": object()})
    assert table == {"a": 1}


def test_clear_empties_a_table_and_no_other(db: Database) -> None:
    db["a"] = 1
    db.table("other")["a"] = 2
    db.clear()
    assert db == {}
    assert db.table("other") == {"a": 2}


def test_a_table_equals_every_mapping_with_the_same_items(db: Database) -> None:
    table = db.table("one")
    table.update({"b": {"x": 1}, "a": [1, {"y": 2}]})
    assert table == {"a": [1, {"y": 2}], "b": {"x": 1}}
    plain_dict = {"a": [1, {"y": 2}], "b": {"x": 1}}
    assert plain_dict == table
    assert table != {"a": [1], "b": {"x": 1}}
    assert table != {"a": [1, {"y": 2}]}
    assert table != [("a", 1)]
    assert table == db.table("one")
    db.table("two").update(table)
    assert db.table("two") == table
    assert table | {"c": 1} == {"a": [1, {"y": 2}], "b": {"x": 1}, "c": 1}


def test_views_are_live_and_sets(table: Any) -> None:
    keys, values, items = table.keys(), table.values(), table.items()
    table.update({"a": 1, "b": 2})
    assert list(keys) == ["a", "b"]
    assert list(values) == [1, 2]
    assert list(items) == [("a", 1), ("b", 2)]
    assert (len(keys), len(values), len(items)) == (2, 2, 2)
    assert list(reversed(keys)) == list(reversed(table)) == ["b", "a"]
    assert list(reversed(values)) == [2, 1]
    assert list(reversed(items)) == [("b", 2), ("a", 1)]
    assert keys == {"a", "b"} == table.keys()
    assert keys & {"a", "z"} == {"a"} == {"a", "z"} & keys
    assert keys | ["z"] == {"a", "b", "z"}
    assert keys - {"a"} == {"b"}
    assert {"a", "z"} - keys == {"z"}
    assert keys ^ {"a", "z"} == {"b", "z"}
    assert keys <= {"a", "b", "c"}
    assert keys < {"a", "b", "c"}
    assert keys >= {"a"}
    assert not keys > {"a", "b"}
    assert keys.isdisjoint({"z"})
    assert items == {("a", 1), ("b", 2)}
    assert items & {("a", 1), ("a", 2)} == {("a", 1)}
    assert "a" in keys
    assert "z" not in keys
    assert [1] not in keys
    assert 2 in values
    assert 3 not in values
    assert ("a", 1) in items
    assert ("a", 2) not in items
    assert "ab" not in items
    assert keys.mapping == table
    assert repr(keys) == "keys(['a', 'b'])"


def test_an_iteration_sees_the_state_at_its_start(table: Any) -> None:
    for number in range(300):
        table[number] = {"n": number}
    seen = []
    for key, row in table.items():
        seen.append((key, row.n))
        if key % 2 == 0:
            del table[key]
        else:
            row.n += 5
        table[key + 1000] = {"n": -1}
    assert seen == [(number, number) for number in range(300)]
    assert table[1].n == 6
    assert len(table) == 150 + 300


def test_a_change_of_a_deleted_row_raises_and_brings_nothing_back(table: Any) -> None:
    table["a"] = {"x": 1, "l": [1]}
    row = table["a"]
    del table["a"]
    for change in (
        lambda: setattr(row, "x", 2),
        lambda: setattr(row, "y", 2),
        lambda: row.l.append(2),
        lambda: row.pop("x"),
    ):
        with pytest.raises(KeyError):
            change()
    assert table == {}


def test_an_iteration_inside_a_transaction_sees_the_state_at_its_start(db: Database) -> None:
    for number in range(300):
        db[number] = number
    with db.transaction():
        db[300] = 300
        seen = []
        for key in db:
            seen.append(key)
            del db[key]
            db[key + 1000] = 0
        assert seen == list(range(301))
        assert list(db) == list(range(1000, 1301))


def test_a_key_that_cannot_be_stored_is_in_no_table(table: Any) -> None:
    for key in ([1], {}, object(), float("nan"), (1, [2])):
        assert key not in table
        assert table.get(key, 5) == 5
        assert table.pop(key, 6) == 6
        with pytest.raises(KeyError):
            table[key]
        with pytest.raises(KeyError):
            del table[key]
        with pytest.raises(pellucid.UnsupportedKey):
            table[key] = 1
        with pytest.raises(pellucid.UnsupportedKey):
            table.setdefault(key, 1)
    assert table == {}


def test_tables_are_made_listed_renamed_and_dropped(db: Database) -> None:
    assert db.tables() == []
    db.table("empty")
    assert db.tables() == []
    db.table("b")["k"] = 1
    db.table("a")["k"] = {"x": 2}
    db["k"] = 3
    assert db.tables() == ["a", "b", "default"]
    assert (db.table("a")["k"], db.table("b")["k"], db["k"]) == ({"x": 2}, 1, 3)
    db.rename_table("a", "z")
    assert db.tables() == ["b", "default", "z"]
    assert db.table("z")["k"].x == 2
    assert len(db.table("a")) == 0
    with pytest.raises(ValueError, match="exists"):
        db.rename_table("z", "b")
    with pytest.raises(KeyError, match="has no table 'nowhere'; it has 'b', 'default', 'z'"):
        db.rename_table("nowhere", "c")
    db.drop_table("b")
    assert "b" not in db.tables()
    assert len(db.table("b")) == 0
    with pytest.raises(KeyError, match="has no table 'b'; it has 'default', 'z'"):
        db.drop_table("b")
    db.table("b")["k2"] = 1
    assert db.table("b") == {"k2": 1}


@pytest.mark.parametrize("name", ["", "x" * 600, "a\x00b", "\u00e9\U0001f600", "default"])
def test_a_table_may_have_any_name_that_has_room(db: Database, name: str) -> None:
    table = db.table(name)
    if name and len(name) < 500:
        table[1] = 2
        assert db.tables() == [name]
        assert db.table(name)[1] == 2
    else:
        with pytest.raises(ValueError, match="name"):
            table[1] = 2
        assert db.tables() == []


def test_many_tables_do_not_mix(db: Database) -> None:
    for number in range(300):
        db.table(f"t{number}")["k"] = number
    assert [db.table(f"t{number}")["k"] for number in range(300)] == list(range(300))
    assert all(len(db.table(f"t{number}")) == 1 for number in range(300))


def test_reprs_say_what_it_is(db: Database) -> None:
    db["a"] = 1
    assert "Table 'default'" in repr(db.table("default")).replace('"', "'")
    assert "1 row" in repr(db.table("default"))
    assert repr(db).startswith("<pellucid.Database ")


def test_a_long_value_is_shortened_where_a_record_is_shown(db: Database) -> None:
    row = {
        "name": "x" * 1000,
        "text": "\u00e9'" * 501,
        "bytes": bytes(1001),
        "array": bytearray(b"ab" * 501),
        "deep": [{"t": ("y" * 5000, {"z" * 2000})}],
        "short": "\u00fc" * 900,
        "photo": b"\1" * 5_000_000,
        "book": "w" * 40_000,
    }
    db["k"] = row
    text = repr(db["k"])
    begin = "\u00e9'" * 30
    expected = {
        "name": repr("x" * 1000),
        "text": f'<str, 1002 characters: "{begin}"...>',
        "bytes": f"<bytes, 1001 bytes: {bytes(60)!r}...>",
        "array": f"<bytearray, 1002 bytes: {b'ab' * 30!r}...>",
        "deep": f"[{{'t': (<str, 5000 characters: '{'y' * 60}'...>, "
        f"{{<str, 2000 characters: '{'z' * 60}'...>}})}}]",
        "short": repr("\u00fc" * 900),
        "photo": "<bytes, 5000000 bytes, stored apart>",
        "book": "<str, 40000 bytes, stored apart>",
    }
    assert text == "{" + ", ".join(f"{name!r}: {shown}" for name, shown in expected.items()) + "}"
    assert repr(db["k"].deep) == expected["deep"]
    assert str(db["k"]) == text
    # What is shown is all that changes.
    assert db["k"] == row
    assert db["k"].to_dict() == row


def test_what_pellucid_stores_is_not_appended_by_columns(db: Database) -> None:
    # By columns, a set would become a list.
    other = pellucid.open(":memory:")
    other["k"] = {"tags": {"a"}}
    sources = [db, db.table("t"), other, other.table("default"), other.snapshot()]
    if hasattr(db, "snapshot"):
        sources.append(db.snapshot())
    for source in sources:
        with pytest.raises(TypeError, match=r"extend\(other.values\(\)\) appends its rows"):
            db.table("copy").extend(source)
    db.table("copy").extend(other.values())
    assert db.table("copy")[0].to_dict() == {"tags": {"a"}}
    with (
        contextlib.closing(pellucid.open(":memory:")) as third,
        pytest.raises(TypeError, match="gives its keys"),
    ):
        third.extend(db)


def test_a_table_is_copied_by_making_a_dict_of_it(table: Any) -> None:
    table.update({"a": {"x": [1]}, "b": 2})
    taken = {key: plain(value) for key, value in table.items()}
    assert taken == {"a": {"x": [1]}, "b": 2}
    assert {**table} == dict(table) == taken
    assert copy.deepcopy(dict(table)) == taken


def test_append_numbers_rows_after_the_greatest_number(table: Any) -> None:
    assert table.append("a") == 0
    assert table.append({"x": 1}) == 1
    assert table.extend(iter(["c", "d"])) == 2
    assert table.extend([]) == 0
    assert list(table.items()) == [(0, "a"), (1, {"x": 1}), (2, "c"), (3, "d")]
    table["text"] = 1
    table[10.5] = "e"
    assert table.append("f") == 11
    table[-5] = 0
    assert table.append("g") == 12
    table[2**63 - 1] = "last"
    with pytest.raises(ValueError, match="append"):
        table.append("h")
    assert table[2**63 - 1] == "last"


def test_extend_is_one_transaction(db: Database) -> None:
    table = db.table("log")
    with pytest.raises(pellucid.UnsupportedValue, match="value 1 given to extend"):
        table.extend([{"a": 1}, {"a": object()}])
    assert len(table) == 0
    assert table.extend({"a": number, "b": str(number)} for number in range(1000)) == 1000
    assert [row.a for row in table.values()] == list(range(1000))


def test_a_table_keeps_what_it_was_created_with(db: pellucid.Database) -> None:
    with pytest.raises(TypeError, match="compress"):
        db.table("t", compress="yes")  # type: ignore[call-overload]
    db.table("plain", compress=False)["a"] = 1
    db.table("plain", compress=False)["b"] = 2
    assert db.table("plain") == {"a": 1, "b": 2}
