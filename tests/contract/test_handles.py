"""Which table does a handle stand for, when tables are made, renamed, dropped, and taken back?"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest

Database = pellucid.Database


@contextlib.contextmanager
def undone(db: Database) -> Iterator[None]:
    """A transaction that is rolled back."""
    with contextlib.suppress(ZeroDivisionError), db.transaction():
        yield
        raise ZeroDivisionError


def uses(table: pellucid.Table[Any]) -> list[Callable[[], object]]:
    """All that can be done with a table."""
    return [
        lambda: len(table),
        lambda: "a" in table,
        lambda: table["a"],
        lambda: table.get("a"),
        lambda: list(table),
        lambda: list(table.items(start="a")),
        lambda: list(table.range()),
        table.first,
        lambda: table == {},
        lambda: table.sum("n"),
        lambda: table.column("n"),
        lambda: table.count("n"),
        lambda: table.__setitem__("a", {"n": 5}),
        lambda: table.__delitem__("a"),
        lambda: table.update(a=5),
        lambda: table.append(5),
        lambda: table.extend([5]),
        lambda: table.pop("a"),
        lambda: table.pop("a", None),
        table.popitem,
        lambda: table.setdefault("a", 1),
        lambda: table.edit("a").__enter__(),
        table.clear,
    ]


MEETINGS: dict[str, Callable[[Database], pellucid.Table[Any]]] = {}


def meeting(function: Callable[[Database], pellucid.Table[Any]]) -> None:
    MEETINGS[function.__name__] = function


@meeting
def opened(db: Database) -> pellucid.Table[Any]:
    db.table("t")["a"] = {"n": 1}
    return db.table("t")


@meeting
def written(db: Database) -> pellucid.Table[Any]:
    table = db.table("t")
    table["a"] = {"n": 1}
    return table


@meeting
def appended(db: Database) -> pellucid.Table[Any]:
    table = db.table("t")
    table.append(0)
    db.table("t").update({"a": {"n": 1}})
    db.table("t").pop(0)
    return table


@meeting
def updated(db: Database) -> pellucid.Table[Any]:
    table = db.table("t")
    table.update({"a": {"n": 1}})
    return table


@meeting
def written_in_a_transaction(db: Database) -> pellucid.Table[Any]:
    table = db.table("t")
    with db.transaction():
        table["a"] = {"n": 1}
    return table


@meeting
def read_in_a_transaction(db: Database) -> pellucid.Table[Any]:
    table = db.table("t")
    with db.transaction():
        db.table("t")["a"] = {"n": 1}
        assert len(table) == 1
    return table


@meeting
def read(db: Database) -> pellucid.Table[Any]:
    table = db.table("t")
    db.table("t")["a"] = {"n": 1}
    assert len(table) == 1
    return table


@pytest.mark.parametrize("meet", MEETINGS)
def test_a_handle_goes_on_with_a_renamed_table(db: Database, meet: str) -> None:
    table = MEETINGS[meet](db)
    db.rename_table("t", "u")
    db.table("t")["a"] = {"n": "of another table"}
    assert table["a"].n == 1
    table["b"] = 2
    assert table.name == "u"
    assert db.table("u") == table == {"a": {"n": 1}, "b": 2}
    assert db.table("t") == {"a": {"n": "of another table"}}
    assert "'u'" in repr(table).replace('"', "'")


def test_records_views_and_iterators_go_on_with_a_renamed_table(db: Database) -> None:
    table = MEETINGS["written"](db)
    row, keys, rows, edited = table["a"], table.keys(), iter(table.values()), table.edit("a")
    db.rename_table("t", "u")
    db.table("t")["a"] = {"n": "of another table"}
    row.n = 2
    row["l"] = [1]
    assert list(keys) == ["a"]
    assert next(rows) == {"n": 1}
    with edited as same:
        same.n += 1
    assert db.table("u")["a"] == {"n": 3, "l": [1]}
    assert db.table("t") == {"a": {"n": "of another table"}}


def test_a_handle_on_a_dropped_table_says_so_whatever_is_done_with_it(db: Database) -> None:
    for in_its_place in (False, True):
        table = db.table("t")
        table["a"] = {"n": 1, "l": []}
        row = table["a"]
        db.drop_table("t")
        if in_its_place:
            db.table("t")["a"] = {"n": "of another table", "l": []}
        for use in uses(table):
            with pytest.raises(pellucid.StaleTable, match="'t' has been dropped"):
                use()
        with pytest.raises(KeyError):
            row.n = 2
        with pytest.raises(KeyError):
            row.l.append(1)
        assert "dropped" in repr(table)
        assert row.n == 1
        assert db.tables() == (["t"] if in_its_place else [])
        assert dict(db.table("t")) == ({"a": {"n": "of another table", "l": []}} if in_its_place else {})
        if in_its_place:
            db.drop_table("t")


def test_a_handle_goes_on_with_a_table_that_was_made_and_renamed_since(db: Database) -> None:
    handles = [db.table("t") for _ in range(40)]
    db.table("t")["a"] = 1
    db.rename_table("t", "u")
    handles[0]["b"] = 2
    assert [(dict(table), table.name) for table in handles] == [({"a": 1, "b": 2}, "u")] * 40
    assert db.tables() == ["u"]
    table = db.table("t")
    db.table("t")["a"] = 1
    db.drop_table("t")
    db.table("t")["c"] = "of another table"
    with pytest.raises(pellucid.StaleTable):
        len(table)
    assert handles[0] == {"a": 1, "b": 2}


def test_a_handle_that_was_not_used_follows_no_rename_that_is_rolled_back(db: Database) -> None:
    table = db.table("t")
    with undone(db):
        db.table("t")["a"] = 1
        db.rename_table("t", "u")
        assert table == {"a": 1}
    assert table == {}
    db.table("t")["b"] = 2
    with undone(db):
        db.rename_table("t", "u")
    assert table == {"b": 2}
    own = db.table("own")
    with undone(db):
        own["a"] = 1
        db.rename_table("own", "other")
        assert own.name == "other"
    own["b"] = 2
    assert (own.name, dict(db.table("own"))) == ("own", {"b": 2})
    db.drop_table("own")
    late = db.table("v")
    with undone(db):
        db.table("v")["a"] = 1
        db.rename_table("v", "w")
    with db.transaction():
        db.table("v")["b"] = 2
        db.rename_table("v", "w")
    assert (dict(late), late.name, db.tables()) == ({"b": 2}, "w", ["t", "w"])


def test_a_handle_on_a_table_that_is_not_there_yet_waits_for_it(db: Database) -> None:
    table = db.table("t")
    assert (len(table), table.name) == (0, "t")
    db.table("other")["a"] = 1
    db.rename_table("other", "t")
    assert table == {"a": 1}
    db.rename_table("t", "u")
    assert table == {"a": 1}


def test_what_is_taken_back_was_not(db: Database) -> None:
    table = db.table("t")
    with undone(db):
        table["a"] = 1
        db.rename_table("t", "u")
        assert (table["a"], table.name) == (1, "u")
    # Its id may be another's now.
    db.table("other")["b"] = 2
    assert dict(table) == {}
    table.append("mine")
    assert db.table("other") == {"b": 2}
    assert list(table.values()) == ["mine"]
    for change in (lambda: db.rename_table(table.name, "v"), lambda: db.drop_table(table.name)):
        with undone(db):
            change()
        assert list(table.values()) == ["mine"]
        table.append("more")
        table.popitem()


def test_savepoints_take_back_tables_too(db: Database) -> None:
    early, late = db.table("early"), db.table("late")
    with db.transaction():
        early["a"] = 1
        with undone(db):
            late["a"] = 1
            early["b"] = 2
        assert (dict(early), dict(late)) == ({"a": 1}, {})
        db.table("other")["c"] = 3
        late["d"] = 4
    assert (dict(early), dict(late), dict(db.table("other"))) == ({"a": 1}, {"d": 4}, {"c": 3})
    db.rename_table("early", "x")
    db.rename_table("late", "y")
    assert (dict(early), dict(late)) == ({"a": 1}, {"d": 4})


def test_names_may_go_around(db: Database) -> None:
    handles = {name: db.table(name) for name in "abc"}
    for name, table in handles.items():
        table["is"] = name
    for old, new in [("a", "x"), ("b", "a"), ("c", "b"), ("x", "c")]:
        db.rename_table(old, new)
    assert {name: (table["is"], table.name) for name, table in handles.items()} == {
        "a": ("a", "c"),
        "b": ("b", "a"),
        "c": ("c", "b"),
    }


def test_a_database_stays_a_mapping_over_the_table_named_default(db: Database) -> None:
    db["a"] = 1
    default = db.table("default")
    db.rename_table("default", "old")
    assert dict(db) == {}
    assert default == {"a": 1}
    db["b"] = 2
    assert db.table("default") == {"b": 2}
    db.drop_table("default")
    assert dict(db) == {}
    db["c"] = 3
    assert db.tables() == ["default", "old"]


def test_a_database_does_with_a_key_what_its_default_table_does(db: Database) -> None:
    """Short keys with small values go a way of their own, and all others the general one."""
    table = db.table("default")
    rows: dict[Any, Any] = {
        "short": "text",
        "k" * 200: "x" * 500,
        "nul\0": 1,
        "gr\u00f6\u00dfe": 2.5,
        7: None,
        "": True,
    }
    rows |= {("a", 1): [1], "d": {"n": 1}}
    for key, value in rows.items():
        db[key] = value
        assert db[key] == table[key] == value
        table[key] = "other"
        assert db[key] == "other"
        db[key] = value
        assert table[key] == value
    with pytest.raises(KeyError, match="missing"):
        db["missing"]
    with undone(db):
        db["short"], db["new"] = "changed", 1
        assert (table["short"], db["new"]) == ("changed", 1)
    assert db["short"] == "text"
    assert "new" not in db
    del db["short"]
    with pytest.raises(KeyError, match="short"):
        db["short"]
    db.close()
    with pytest.raises(pellucid.Closed):
        db["d"]
    with pytest.raises(pellucid.Closed):
        db["d"] = 1


def test_a_snapshot_knows_the_names_of_its_time(db: Database) -> None:
    db.table("t")["a"] = 1
    with db.snapshot() as before:
        old = before.table("t")
        db.rename_table("t", "u")
        assert (old["a"], before.table("t")["a"], before.tables()) == (1, 1, ["t"])
        db.drop_table("u")
        assert (old["a"], old.name) == (1, "t")


def test_handles_outlive_clear_and_compact(db: Database) -> None:
    table = db.table("t")
    table["a"] = 1
    table.clear()
    db.compact()
    table["b"] = 2
    assert db.table("t") == table == {"b": 2}


def test_what_was_read_in_a_snapshot_outlives_its_handle(db: Database) -> None:
    table = db.table("t")
    table["a"] = {"n": 1}
    before, record = db.snapshot().table("t"), db.snapshot().table("t")["a"]
    table["a"] = {"n": 2}
    gc.collect()
    assert (before["a"].n, record.n, list(before.values()), table["a"].n) == (1, 1, [{"n": 1}], 2)


def test_a_kept_record_does_not_hinder_compact_but_an_open_snapshot_does(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update({"small": {"n": 1}, "large": {"n": list(range(50_000)), "s": "x" * 500_000}})
    with pellucid.open(path, timeout=0) as db:
        kept = [*db.values(), db["small"], db["large"]]
        db.compact()
        assert [len(record) for record in kept] == [2, 1, 1, 2]
        assert (kept[3].n[49_999], len(kept[3].s)) == (49_999, 500_000)
        with db.snapshot() as snapshot:
            record = snapshot["small"]
            with pytest.raises(pellucid.Busy, match="a snapshot or a record read in one"):
                db.compact()
        # Closed, it keeps nothing, whatever is left of it.
        db.compact()
        with pytest.raises(pellucid.StaleRecord):
            print(record.n)


def test_renames_and_drops_of_others_are_noticed(path: Path) -> None:
    with pellucid.open(path) as one, pellucid.open(path) as other:
        table = one.table("t")
        table["a"] = {"n": 1}
        row = table["a"]
        other.rename_table("t", "u")
        row.n = 2
        assert (table["a"].n, table.name, one.tables()) == (2, "u", ["u"])
        other.drop_table("u")
        other.table("u")["a"] = 1
        with pytest.raises(pellucid.StaleTable):
            table["b"] = 1
        assert other.table("u") == {"a": 1}
    with pellucid.open(path) as one:
        table = one.table("u")
        with pellucid.open(path, "n"):
            with pytest.raises(pellucid.StaleTable):
                len(table)
            assert len(one.table("u")) == 0


def test_a_table_made_in_a_transaction_is_not_there_for_others_yet(path: Path) -> None:
    with pellucid.open(path) as one, pellucid.open(path) as other:
        table, seen = one.table("t"), other.table("t")
        with one.transaction():
            table["a"] = 1
            assert len(seen) == 0
        assert seen == table == {"a": 1}


def test_threads_that_share_a_handle_while_its_table_is_made_see_none_or_all(db: Database) -> None:
    stop, seen = threading.Event(), []
    tables = [db.table(f"t{number}") for number in range(30)]

    def look() -> None:
        while not stop.is_set():
            seen.extend(len(table) for table in tables)

    thread = threading.Thread(target=look)
    thread.start()
    for number, table in enumerate(tables):
        if number % 3 == 2:
            with undone(db):
                table.update(a=1, b=2)
        with db.transaction():
            table.update(a=1, b=2)
    stop.set()
    thread.join()
    assert set(seen) <= {0, 2}
    assert [dict(table) for table in tables] == [{"a": 1, "b": 2}] * 30
