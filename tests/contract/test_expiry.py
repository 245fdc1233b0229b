"""Do rows that are put for some time go away, and does a watch report that?"""

from __future__ import annotations

import dataclasses
import datetime
import threading
import time
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from processes import Child


@pytest.fixture
def people(db: Any) -> Any:
    return db.table("people")


def test_a_row_is_stored_for_some_time(people: Any) -> None:
    begin = time.time()
    people.put("ann", {"age": 30}, expire=100)
    people.put("bob", {"age": 40}, expire=datetime.timedelta(seconds=200))
    people.put("cid", {"age": 50})
    people.put("dan", [1, 2])
    until = people["ann"]["_expires"]
    assert begin + 99 < until <= time.time() + 100
    assert people["bob"]["_expires"] > until + 99
    assert (people["cid"], people["dan"]) == ({"age": 50}, [1, 2])
    assert people.expire() == 0
    assert list(people) == ["ann", "bob", "cid", "dan"]
    assert [index.name for index in people.indexes()] == ["_expirations"]


def test_what_is_over_goes_away_with_the_next_put_or_expire(people: Any) -> None:
    for name in ("ann", "bob", "eve", "fay"):
        people.put(name, {"age": 30}, expire=100)
    # A later value has its own time, or none; a changed field leaves the time as it is.
    with people.edit("ann") as ann:
        ann["_expires"] = 1.5
    people["bob"]["_expires"] = 1
    people["bob"].age += 1
    people["eve"]["_expires"] = 1.5
    people.put("eve", {"age": 31}, expire=200)
    people["fay"] = {"age": 31}
    assert list(people) == ["eve", "fay"]
    people["eve"]["_expires"] = 1.5
    assert people.expire() == 1
    assert people.expire() == 0
    people.put("ann", {"age": 30}, expire=100)
    people["ann"]["_expires"] = 1.5
    # Without the expired ones, and with those that never expire.
    assert list(people.where(~(F["_expires"] <= time.time())).keys()) == ["fay"]
    people.put("ida", {"age": 30}, expire=100)
    assert list(people) == ["fay", "ida"]


def test_a_put_deletes_some_expired_rows_and_expire_all(people: Any) -> None:
    people.put("first", {"age": 30}, expire=100)
    people.update({number: {"_expires": 1.5} for number in range(250)})
    people.put("second", {"age": 30}, expire=100)
    assert len(people) == 152
    assert people.expire() == 150
    assert list(people) == ["first", "second"]


def test_a_record_can_be_put_for_some_time(people: Any) -> None:
    people["ann"] = {"age": 30, "tags": ["a"]}
    people.put("copy", people["ann"], expire=100)
    copied = people["copy"].to_dict()
    del copied["_expires"]
    assert copied == {"age": 30, "tags": ["a"]} == people["ann"]


def test_rows_expire_in_a_transaction_that_ends_well(db: Any, people: Any) -> None:
    def fail() -> None:
        people.put("ann", {"age": 30}, expire=100)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.run(fail)
    assert "ann" not in people
    with db.transaction():
        people.put("ann", {"age": 30}, expire=0)
        people.put("bob", {"age": 30}, expire=100)
        assert "ann" not in people
    assert list(people) == ["bob"]


@pytest.mark.parametrize(
    ("value", "expire", "error", "says"),
    [
        ({}, "soon", TypeError, "expire has to be a number of seconds or a timedelta, not str"),
        ({}, True, TypeError, "expire has to be a number of seconds"),
        ({}, -1, ValueError, "expire=-1 is no time from 0 seconds on"),
        ({}, float("nan"), ValueError, "expire has to be a number of seconds or a timedelta, not NaN"),
        ({}, 10**400, ValueError, "is no time"),
        ({}, float("inf"), ValueError, "expire=inf is no time"),
        ([1], 10, TypeError, "the value for key 'ann' of table 'people' is of type list: put it into a dict"),
    ],
)
def test_what_cannot_expire_is_refused(
    people: Any, value: Any, expire: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        people.put("ann", value, expire=expire)
    assert "ann" not in people


@dataclasses.dataclass
class Person:
    """A class whose instances have no field for the time."""

    age: int


def test_an_instance_expires(db: Any, people: Any) -> None:
    typed = db.table("people", type=Person)
    typed.put("ann", Person(30), expire=100)
    people["bob"] = {"age": 40, "_expires": 1.0}
    assert typed.to_dicts() == [Person(30), Person(40)]
    assert typed.conform() == []
    assert 90 < people["ann"]["_expires"] - time.time() <= 100
    assert typed.expire() == 1
    with pytest.raises(pellucid.WrongClass):
        typed.put("ann", {"age": 31}, expire=100)
    typed.put("ann", Person(31))
    assert people.to_dicts() == [{"age": 31}]
    numbers = db.table("numbers", type=int)
    with pytest.raises(TypeError, match="of table 'numbers' is of type int: put it into a dict"):
        numbers.put("one", 1, expire=100)
    assert len(numbers) == 0


def test_a_watch_of_instances_reports_what_has_expired(db: Any) -> None:
    typed = db.table("people", type=Person)
    typed["ann"] = Person(30)
    watch = typed.watch(timeout=30)
    typed.put("ann", Person(30), expire=0.2)
    changes = [next(watch), next(watch)]
    assert [(change.kind, change.key) for change in changes] == [("put", "ann"), ("delete", "ann")]


def test_a_snapshot_is_refused(db: Any, people: Any) -> None:
    with (
        db.snapshot() as before,
        pytest.raises((AttributeError, pellucid.ReadOnly), match="write through the database"),
    ):
        before.put("bob", {}, expire=1)
    with db.snapshot() as before, pytest.raises(pellucid.ReadOnly):
        before.table("people").put("bob", {}, expire=1)


def test_the_verbs_of_a_database_are_about_its_default_table(db: Any, people: Any) -> None:
    db.put("a", {"n": 1}, expire=100)
    people.put("b", {"n": 1}, expire=100)
    db["a"]["_expires"] = people["b"]["_expires"] = 1.5
    assert db.expire() == 1
    assert list(people) == ["b"]


@pytest.mark.parametrize("of_all", [False, True])
def test_a_watch_deletes_expired_rows_and_reports_that(db: Any, people: Any, of_all: bool) -> None:
    def watch(**how: Any) -> Any:
        return (db if of_all else people).watch(**how)

    people.update({"bob": {"age": 40, "_expires": time.time() + 100}, "cid": {"age": 50}})
    people.create_index("_expirations", F["_expires"])
    waiting = watch(timeout=20)
    people["ann"] = {"age": 30, "_expires": 1.5}
    changes = [next(waiting), next(waiting)]
    assert [(change.table, change.kind, change.key) for change in changes] == [
        ("people", "put", "ann"),
        ("people", "delete", "ann"),
    ]
    assert list(people) == ["bob", "cid"]
    # In a transaction of the caller it deletes nothing.
    people["ann"] = {"age": 30, "_expires": 1.5}
    with db.transaction():
        assert list(watch(timeout=0)) == []
        assert "ann" in people
    assert [(change.kind, change.key) for change in watch(timeout=0)] == [("delete", "ann")]


def test_a_watch_deletes_a_row_that_is_put_while_it_waits(people: Any) -> None:
    people.put("bob", {"age": 40}, expire=100)
    found = []
    watch = people.watch(timeout=30)

    def look() -> None:
        found.extend([(change.kind, change.key) for change in (next(watch), next(watch))])

    thread = threading.Thread(target=look)
    thread.start()
    people.put("ann", {"age": 30}, expire=0.1)
    thread.join(30)
    assert found == [("put", "ann"), ("delete", "ann")]


def test_rows_expire_for_every_process(tmp_path: Path) -> None:
    path = tmp_path / "test.pel"
    with pellucid.open(path) as db, Child() as child:
        people = db.table("people")
        people["cid"] = {"age": 50}
        watch = people.watch(timeout=20)
        child(f"import pellucid; people = pellucid.open({str(path)!r}).table('people')")
        child("people.put('ann', {'age': 30}, expire=0.1); people.put('bob', {'age': 30}, expire=100)")
        changes = [next(watch) for _ in range(3)]
        assert sorted((change.kind, change.key) for change in changes) == [
            ("delete", "ann"),
            ("put", "ann"),
            ("put", "bob"),
        ]
        assert child("list(people)") == ["bob", "cid"]
        people["bob"]["_expires"] = 1.5
    with pellucid.open(path, mode="r") as db:
        people = db.table("people")
        assert list(people.watch(timeout=0)) == []
        with pytest.raises(pellucid.ReadOnly):
            people.expire()
        assert list(people) == ["bob", "cid"]


def test_a_process_that_has_written_nothing_deletes_expired_rows(tmp_path: Path) -> None:
    path = tmp_path / "test.pel"
    with Child() as child:
        child(f"import pellucid; people = pellucid.open({str(path)!r}).table('people')")
        child("people.put('ann', {'age': 30}, expire=0.1)")
        with pellucid.open(path) as db:
            change = next(db.table("people").watch(timeout=20))
            assert (change.kind, change.key) == ("delete", "ann")


def test_a_watch_does_not_wait_for_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "test.pel"
    with pellucid.open(path, timeout=600) as db, Child() as child:
        people = db.table("people")
        people.put("ann", {"age": 30}, expire=100)
        people["ann"]["_expires"] = 1.5
        watch = people.watch(since=db.watch(timeout=0).version - 1, timeout=600)
        child(f"import pellucid; db = pellucid.open({str(path)!r}); block = db.transaction()")
        child("block.__enter__() and None; db['z'] = 1")
        # What was committed comes, and a watch ends in time.
        assert (next(watch).kind, list(people.watch(timeout=0)), "ann" in people) == ("put", [], True)
        child("block.__exit__(None, None, None)")
        assert (next(watch).kind, "ann" in people) == ("delete", False)
