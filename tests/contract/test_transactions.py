"""Are transactions all or nothing, snapshots frozen, and savepoints inside of both?"""

from __future__ import annotations

import contextlib

import pellucid
import pytest
from undone import Undo, undone

Database = pellucid.Database


def test_all_writes_of_a_transaction_become_lasting_together(db: Database) -> None:
    with db.transaction():
        db["a"] = 1
        db.table("t")["b"] = {"x": 2}
        with db.snapshot() as before:
            assert dict(before) == {}
        assert db["a"] == 1
        assert db.table("t")["b"].x == 2
        assert db.tables() == ["default", "t"]
    assert db["a"] == 1
    assert db.table("t") == {"b": {"x": 2}}


def test_an_exception_drops_all_writes(db: Database) -> None:
    db["a"] = {"x": 1}
    with undone(db):
        db["a"].x = 2
        db["a"]["y"] = 3
        db["b"] = 1
        db.table("t")["k"] = 1
        del db["a"]
        assert db == {"b": 1}
    assert db == {"a": {"x": 1}}
    assert db.tables() == ["default"]


def test_table_verbs_are_part_of_the_transaction(db: Database) -> None:
    db.table("t")["k"] = 1
    db.table("u")["k"] = 2
    with undone(db):
        db.drop_table("t")
        db.rename_table("u", "v")
        db.table("v").clear()
        assert db.tables() == ["v"]
    assert db.tables() == ["t", "u"]
    assert (dict(db.table("t")), dict(db.table("u"))) == ({"k": 1}, {"k": 2})


def test_a_transaction_inside_another_is_a_savepoint(db: Database) -> None:
    with db.transaction():
        db["a"] = 1
        with undone(db):
            db["a"] = 2
            db["b"] = {"new": 2}
            with db.transaction():
                db["c"] = 3
        assert db == {"a": 1}
        with db.transaction():
            db["d"] = 4
            with undone(db):
                db.clear()
        assert db == {"a": 1, "d": 4}
    assert db == {"a": 1, "d": 4}


def test_a_savepoint_goes_with_the_transaction_around_it(db: Database) -> None:
    with undone(db), db.transaction():
        db["a"] = 1
    assert db == {}


def test_shapes_of_a_dropped_transaction_are_forgotten(db: Database) -> None:
    db["first"] = {"known": 1}
    kept = db["first"]
    with undone(db):
        db["x"] = {"p": 1, "q": {"r": 2}}
        kept["added"] = 5
    # The ids that the dropped transaction gave are given again, to other names.
    db["y"] = {"s": 7, "t": {"u": 8}}
    db["z"] = {"known": 1, "other": 9}
    assert db == {"first": {"known": 1}, "y": {"s": 7, "t": {"u": 8}}, "z": {"known": 1, "other": 9}}
    assert kept.to_dict() == {"known": 1}


def test_a_record_read_in_a_dropped_transaction_shows_what_is_stored(db: Database) -> None:
    db["a"] = {"x": 1}
    with undone(db):
        changed, nested = db["a"], db.setdefault("n", {"in": {"p": 1}})["in"]
        changed["y"] = 2
        made = db.setdefault("b", {"z": 3})
    assert changed == {"x": 1}
    assert "y" not in changed
    for gone in (made, nested):
        with pytest.raises(KeyError):
            gone.to_dict()
        with pytest.raises(KeyError):
            gone["z"] = 4
    changed.x = 5
    assert db == {"a": {"x": 5}}


def test_a_record_changed_under_a_savepoint_that_is_dropped_shows_the_rest(db: Database) -> None:
    db["a"] = {"x": 1, "l": [1]}
    with db.transaction():
        record = db["a"]
        numbers = record.l
        record.x = 2
        with undone(db):
            record.x = 3
            numbers.append(2)
            assert (record.x, numbers) == (3, [1, 2])
        assert (record.x, numbers) == (2, [1])
        numbers.append(7)
    assert record == {"x": 2, "l": [1, 7]} == db["a"]


def test_a_record_read_in_a_kept_transaction_stays(db: Database) -> None:
    with db.transaction():
        db["a"] = {"x": 1}
        record = db["a"]
        record["y"] = 2
    assert record == {"x": 1, "y": 2} == db["a"]
    record.x = 9
    assert db["a"].x == 9
    with undone(db):
        db["a"].x = 1
    assert record.x == 9


def test_an_iterator_does_not_outlive_its_transaction(db: Database) -> None:
    db["a"] = 1
    with db.transaction():
        db["b"] = 2
        rows = iter(db.items())
        assert next(rows) == ("a", 1)
    with pytest.raises(pellucid.TransactionError):
        next(rows)
    with db.transaction():
        db["c"] = 3
        with pytest.raises(pellucid.TransactionError):
            next(rows)


def test_a_snapshot_is_frozen(db: Database) -> None:
    db["a"] = {"x": 1}
    db.table("t")["k"] = 1
    with db.snapshot() as snap:
        db["a"].x = 2
        db["b"] = 3
        db.drop_table("t")
        assert dict(snap) == {"a": {"x": 1}}
        assert list(snap) == ["a"]
        assert len(snap) == 1
        assert "b" not in snap
        assert snap.get("b", 9) == 9
        assert snap["a"].x == 1
        assert list(snap.values()) == [{"x": 1}]
        assert list(snap.items()) == [("a", {"x": 1})]
        assert list(reversed(snap)) == ["a"]
        assert snap.tables() == ["default", "t"]
        assert dict(snap.table("t")) == {"k": 1}
        with pytest.raises(KeyError):
            snap["b"]
    assert dict(db) == {"a": {"x": 2}, "b": 3}


def test_a_snapshot_refuses_changes(db: Database) -> None:
    db["a"] = {"x": 1, "l": [1]}
    with db.snapshot() as snap:
        record = snap["a"]
        table = snap.table("default")
        for change in (
            lambda: setattr(record, "x", 2),
            lambda: record.l.append(2),
            lambda: record.update(x=3, y=4),
            lambda: table.__setitem__("b", 1),
            lambda: table.__delitem__("a"),
            lambda: table.pop("a"),
            table.popitem,
            table.clear,
            lambda: table.setdefault("z", 1),
            lambda: table.append(1),
            lambda: table.extend([1]),
            lambda: table.update(a=1),
            lambda: table.edit("a").__enter__(),
            lambda: snap.__setitem__("b", 1),
            lambda: snap.__delitem__("a"),
        ):
            with pytest.raises(pellucid.ReadOnly, match="write through the database"):
                change()
        copied = record.copy()
        copied.x = 7
        assert (copied.x, record.x) == (7, 1)
    assert db == {"a": {"x": 1, "l": [1]}}


def test_a_closed_snapshot_and_its_records_say_so(db: Database) -> None:
    db["a"] = {"x": 1, "l": [1]}
    with db.snapshot() as snap:
        record, numbers, table = snap["a"], snap["a"].l, snap.table("default")
        rows, snap_view = iter(snap.values()), snap.keys()
        next(rows)
    for use in (
        lambda: record.x,
        lambda: record["x"],
        record.to_dict,
        lambda: len(numbers),
        lambda: numbers[0],
        lambda: bytes(record),
    ):
        with pytest.raises(pellucid.StaleRecord):
            use()
    for use in (
        lambda: snap["a"],
        lambda: len(snap),
        lambda: list(snap),
        lambda: table["a"],
        lambda: list(rows),
    ):
        with pytest.raises(pellucid.Closed):
            use()
    for use in (lambda: snap["a"], lambda: len(snap), snap.tables, lambda: table["a"]):
        with pytest.raises(
            pellucid.Closed, match=r"this snapshot is closed; take another one with db\.snapshot\(\)"
        ):
            use()
    for handle in (record, numbers, record.items()):
        assert "stale: " in repr(handle)
    assert repr(snap).endswith(", closed>")
    assert "closed" in repr(snap_view)
    snap.close()
    assert db["a"].x == 1


def test_snapshots_of_many_versions_stand_side_by_side(db: Database) -> None:
    with contextlib.ExitStack() as stack:
        snaps = []
        for version in range(40):
            db["n"] = {"version": version}
            db[version] = "x" * 500
            snaps.append(stack.enter_context(db.snapshot()))
        for version, snap in enumerate(snaps):
            assert snap["n"].version == version
            assert len(snap) == version + 2


def test_edit_gathers_changes_into_one_commit(db: Database) -> None:
    db["a"] = {"x": 1, "l": [1]}
    with db.edit("a") as record:
        record.x += 1
        record.l.append(2)
        with db.snapshot() as before:
            assert before["a"] == {"x": 1, "l": [1]}
    assert db["a"] == {"x": 2, "l": [1, 2]}
    with contextlib.suppress(Undo), db.edit("a") as record:
        record.x = 100
        raise Undo
    assert db["a"].x == 2
    assert record.x == 2
    with pytest.raises(KeyError), db.edit("missing"):
        pass
    with db.transaction():
        db["free"] = "for writing again"


def test_a_transaction_is_entered_once(db: Database) -> None:
    transaction = db.transaction()
    with transaction, pytest.raises(pellucid.TransactionError), transaction:
        pass
    with pytest.raises(pellucid.TransactionError):
        transaction.__exit__(None, None, None)


def test_close_drops_a_running_transaction(path_or_memory: str) -> None:
    db = pellucid.open(path_or_memory)
    db["a"] = 1
    transaction = db.transaction()
    transaction.__enter__()
    db["a"] = 2
    db.close()
    with pytest.raises(pellucid.Error):
        transaction.__exit__(None, None, None)
    if path_or_memory != ":memory:":
        with pellucid.open(path_or_memory) as db:
            assert db == {"a": 1}


@pytest.fixture(params=["file", "memory"])
def path_or_memory(request: pytest.FixtureRequest, path: object) -> str:
    """Where the test opens a database itself."""
    return str(path) if request.param == "file" else ":memory:"


def test_a_reader_sees_only_what_is_committed_while_a_transaction_runs(db: Database) -> None:
    db["a"] = {"x": 1}
    outside = db["a"]
    with db.transaction():
        db["a"].x = 2
        assert outside.x == 1
        assert db["a"].x == 2
    assert db["a"].x == 2


def test_large_values_are_rolled_back_and_replaced(db: Database) -> None:
    large = "x" * 200_000
    db["a"] = {"text": large, "n": 1}
    with undone(db):
        db["a"].text = "y" * 300_000
        db["b"] = {"text": "z" * 100_000}
    assert db == {"a": {"text": large, "n": 1}}
    with db.snapshot() as snap:
        db["a"].text = "short"
        db["c"] = {"text": "w" * 200_000}
        assert snap["a"].text == large
    assert db["a"] == {"text": "short", "n": 1}
    assert db["c"].text == "w" * 200_000
