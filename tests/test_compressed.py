"""Is a compressed table a table, only smaller?"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pellucid
import pytest
from pellucid import F
from pellucid._native import _testing
from processes import Child

CITIES = ["Amsterdam", "Bratislava", "Copenhagen", "Dubrovnik"]


def row(number: int) -> dict[str, Any]:
    return {
        "name": f"Person {number}",
        "email": f"person{number}@mail.example.org",
        "city": CITIES[number % 4],
        "age": number % 90,
        "joined": datetime.date(2020, 1, 1) + datetime.timedelta(days=number % 700),
        "tags": ["customer", f"group-{number % 12}"],
    }


ROWS = {number: row(number) for number in range(4_000)}
ZSTD_DICTIONARY = bytes.fromhex("37a430ec")
"""What a dictionary begins with."""


@pytest.fixture
def filled(path: Path) -> Iterator[pellucid.Database]:
    """A database with a compressed table, whose rows have left the log."""
    with pellucid.open(path) as db:
        db.table("people", compress=True).update(ROWS)
    with pellucid.open(path) as db:
        yield db


def test_a_compressed_table_has_the_same_rows_in_less_room(filled: pellucid.Database) -> None:
    plain = filled.table("plain")
    plain.update(ROWS)
    people = filled.table("people")
    assert people.to_dicts() == plain.to_dicts() == list(ROWS.values())
    assert dict(people.items()) == ROWS
    assert list(people) == list(ROWS)
    assert [people[number] for number in ROWS] == list(ROWS.values())
    stats, plain_stats = people.stats(), plain.stats()
    assert (stats["compress"], plain_stats["compress"]) == (1, 0)
    assert stats["rows"] == len(ROWS) > stats["compressed_rows"] > 3_500
    assert stats["plain_size"] == plain_stats["plain_size"] == plain_stats["size"]
    assert stats["size"] < 0.5 * stats["plain_size"]
    assert 1 <= stats["dictionaries"] <= 3
    assert stats["dictionary_size"] < 200_000
    assert plain_stats["dictionaries"] == plain_stats["dictionary_size"] == 0
    assert filled.check() == []


def test_kept_records_and_iterators_of_a_compressed_table_stay_right(filled: pellucid.Database) -> None:
    people: Any = filled.table("people")
    kept = list(people.values())
    some = people[17]
    rows = iter(people.values())
    first = next(rows)
    with filled.snapshot() as snap:
        people.clear()
        assert snap.table("people")[17] == ROWS[17]
        assert list(snap.table("people").values()) == list(ROWS.values())
    assert kept == list(ROWS.values())
    assert some == ROWS[17]
    assert first == ROWS[0]
    assert list(rows) == list(ROWS.values())[1:]


def test_queries_and_indexes_answer_as_for_any_table(filled: pellucid.Database) -> None:
    people: Any = filled.table("people")
    plain: Any = filled.table("plain")
    plain.update(ROWS)
    for table in (people, plain):
        table.create_index("by_age", "age")
        table.create_index("by_email", "email", unique=True)
    answers = []
    for table in (people, plain):
        answers.append(
            [
                table.where(F.age > 80, F.city == "Dubrovnik").to_dicts(),
                table.where(F.name.startswith("Person 12")).order_by(F.age.desc()).to_dicts(),
                table.where(F.tags.contains("group-3")).sum("age"),
                table.group_by("city").agg(ages=F.age.sum(), oldest=F.age.max()),
                table.where().column("age"),
                table.where().select("age").to_dicts(),
                list(table.index("by_age").range(20, 22)),
                table.index("by_email").get("person77@mail.example.org"),
                [dict(found) for found in table.where(F.age == 33)],
                [key for key, _ in table.where(F.age == 34).items()],
            ]
        )
    assert answers[0] == answers[1]
    with pytest.raises(pellucid.UniqueError):
        people.append(ROWS[5])
    assert people.where(F.age == 50).update(age=51) == plain.where(F.age == 50).update(age=51)
    assert people.where(F.city == "Bratislava").delete() == plain.where(F.city == "Bratislava").delete()
    assert people.to_dicts() == plain.to_dicts()
    assert filled.check() == []


def test_fields_are_changed_in_place_and_kept(filled: pellucid.Database, path: Path) -> None:
    people: Any = filled.table("people")
    people[7].age += 1
    people[8].city = "a place with a much longer name"
    people[9].tags.append("new")
    with people.edit(10) as person:
        person.name = "Other"
        person.more = {"deep": [1, 2, 3]}
    with filled.transaction():
        people[11].age = 500
        people[12] = {"replaced": True}
        del people[13]
        assert people[11].age == 500
    expected = dict(ROWS)
    expected[7] = {**ROWS[7], "age": ROWS[7]["age"] + 1}
    expected[8] = {**ROWS[8], "city": "a place with a much longer name"}
    expected[9] = {**ROWS[9], "tags": [*ROWS[9]["tags"], "new"]}
    expected[10] = {**ROWS[10], "name": "Other", "more": {"deep": [1, 2, 3]}}
    expected[11] = {**ROWS[11], "age": 500}
    expected[12] = {"replaced": True}
    del expected[13]
    assert dict(people.items()) == expected
    filled.close()
    with pellucid.open(path) as db:
        assert dict(db.table("people").items()) == expected
        assert db.check() == []


@dataclass
class Person:
    name: str
    email: str
    city: str
    age: int
    joined: datetime.date
    tags: list[str]


def test_instances_and_any_objects_come_back(filled: pellucid.Database, path: Path) -> None:
    assert filled.table("people", type=Person)[5] == Person(**ROWS[5])
    objects = filled.table("objects", type=object, compress=True)
    array = np.arange(2_000, dtype="<i4")
    stored = {
        number: ({"n": number, "text": "the same text in each row"}, [array, {number}])
        for number in range(600)
    }
    items = list(stored.items())
    objects.update(items[:300])
    # A checkpoint trains the dictionary, and those after it pack rows with it.
    filled.sync()
    objects.update(items[300:])
    filled.close()
    with pellucid.open(path) as db:
        objects = db.table("objects", type=object)
        for number in (0, 300, 599):
            (first, (found, numbers)) = objects[number]
            assert (first, numbers) == (stored[number][0], {number})
            assert np.array_equal(found, array)
        assert objects.stats()["compressed_rows"] > 0


def test_buffers_and_large_values_of_a_compressed_table_are_read(path: Path) -> None:
    large = bytes(range(256)) * 2_000
    with pellucid.open(path) as db:
        files = db.table("files", compress=True)
        for number in range(700):
            files[number] = {
                "name": f"file number {number}",
                "kind": "a text of some words",
                "data": b"word " * 40,
            }
        files["large"] = {"name": "the large one, with words", "data": large}
    with pellucid.open(path) as db:
        files = db.table("files")
        assert files.stats()["compressed_rows"] > 300
        with files.buffer(650, "data") as view:
            assert bytes(view) == b"word " * 40
        kept = files.buffer(651, "data")
        files[651] = None
        assert bytes(kept) == b"word " * 40
        assert files["large"].data == large
        assert files.open("large", path="data").read(10) == large[:10]
        files["large"].name = "renamed"
        assert files["large"] == {"name": "renamed", "data": large}
        assert db.check() == []


def test_a_table_keeps_the_setting_that_it_was_created_with(filled: pellucid.Database, path: Path) -> None:
    assert len(filled.table("people")) == len(filled.table("people", compress=True)) == len(ROWS)
    with pytest.raises(ValueError, match="table 'people' is compressed: leave out compress=False"):
        filled.table("people", compress=False)
    filled.table("plain")["a"] = 1
    with pytest.raises(ValueError, match="table 'plain' is not compressed: leave out compress=True, or copy"):
        filled.table("plain", compress=True)
    late = filled.table("late", compress=True)
    filled.table("late")["a"] = 1
    with pytest.raises(ValueError, match="table 'late' is not compressed"):
        late["b"] = 2
    with pytest.raises(ValueError, match="table 'late' is not compressed"):
        late["a"]
    inside = filled.table("inside", compress=True)
    transaction = filled.transaction()
    transaction.__enter__()
    inside["a"] = 1
    transaction.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    with filled.transaction():
        inside["a"] = 2
    assert inside.stats() == filled.table("inside").stats()
    assert inside.stats()["compress"] == 1
    filled.rename_table("people", "persons")
    filled.drop_table("plain")
    filled.table("plain", compress=True)["a"] = 1
    filled.close()
    with pellucid.open(path, "r") as db:
        assert {name: db.table(name).stats()["compress"] for name in db.tables()} == {
            "persons": 1,
            "late": 0,
            "inside": 1,
            "plain": 1,
        }


def test_rows_of_a_damaged_dictionary_are_named_and_all_keys_can_be_walked(path: Path) -> None:
    with pellucid.open(path) as db:
        db.table("people", compress=True).update(ROWS)
        db.table("plain").update(ROWS)
    data = bytearray(path.read_bytes())
    begin = ZSTD_DICTIONARY
    place = data.find(begin)
    assert place > 0
    while place > 0:
        data[place + 100] ^= 1
        place = data.find(begin, place + 1)
    path.write_bytes(data)
    with pellucid.open(path, "r") as db:
        people = db.table("people")
        assert list(people) == list(people.keys()) == list(ROWS)
        assert list(reversed(people)) == list(reversed(ROWS))
        bad = people.unreadable()
        assert len(bad) == people.stats()["compressed_rows"] > 3_500
        assert all(isinstance(error, pellucid.DatabaseCorrupt) for _, error in bad)
        assert re.search("row 0x[0-9a-f]+ of table 'people': it is packed with dictionary 0", str(bad[0][1]))
        with pytest.raises(pellucid.DatabaseCorrupt, match="dictionary"):
            people[bad[0][0]]
        named = {key for key, _ in bad}
        for key in ROWS.keys() - named:
            assert people[key] == ROWS[key]
        assert db.check()[0].startswith("dictionary 0 of table 'people': its check or form is wrong")
        assert sum("dictionary 0, with which it is packed" in found for found in db.check()) > 100
        assert dict(db.table("plain").items()) == ROWS
        assert db.table("plain").unreadable() == []


def test_copies_have_compressed_rows(filled: pellucid.Database, path: Path, tmp_path: Path) -> None:
    before = filled.table("people").stats()
    filled.backup(tmp_path / "copy.pel")
    filled.compact()
    assert filled.table("people").stats() == before
    with pellucid.open(tmp_path / "copy.pel", "r", untrusted=True) as db:
        assert db.table("people").stats() == before
        assert dict(db.table("people").items()) == ROWS
        assert db.check() == []


def test_a_watch_shows_rows_of_compressed_tables(filled: pellucid.Database) -> None:
    people: Any = filled.table("people")
    since = filled.snapshot().version
    people[5].age = 99
    del people[6]
    people.update({number: row(number + 1) for number in range(100, 3_000)})
    changes = list(filled.watch(since=since, timeout=0))
    assert (changes[0].key, changes[0].value) == (5, {**ROWS[5], "age": 99})
    assert (changes[1].key, changes[1].kind) == (6, "delete")
    assert {change.key: change.value for change in changes[2:]} == {
        number: row(number + 1) for number in range(100, 3_000)
    }


def test_memory_accepts_compressed_tables_and_keeps_rows_plain() -> None:
    with pellucid.open(":memory:") as db:
        people = db.table("people", compress=True)
        people.update(ROWS)
        assert dict(people.items()) == ROWS
        stats = people.stats()
        assert (stats["compress"], stats["compressed_rows"]) == (1, 0)
        with pytest.raises(ValueError, match="is compressed"):
            db.table("people", compress=False)


def test_processes_share_compressed_tables(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as child:
        db.table("t", compress=True).update(ROWS)
        child(
            "[db.table('t').update({i: {'name': f'Person {i}', 'city': 'Rome'}}) for i in range(4000, 4500)]"
        )
        _checkpoint(db)
        assert child("db.table('t')[17].to_dict()['email']") == ROWS[17]["email"]
        assert child("sum(row.age for row in db.table('t').where(pellucid.F.age >= 0))") == sum(
            each["age"] for each in ROWS.values()
        )
        assert db.table("t")[4_250] == {"name": "Person 4250", "city": "Rome"}


def _checkpoint(db: pellucid.Database) -> None:
    """Move all rows into the file: a transaction that is too large for the log does."""
    with db.transaction():
        db.table("other").update({number: bytes(1_000) for number in range(20_000)})


def test_rows_of_all_sizes_come_back_from_the_file(path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "a longer word", "another one that is longer"]
    dice = random.Random(5)
    rows = {}
    for number in range(1_500):
        count = dice.choice([0, 1, 3, 10, 100, 1_000, 10_000])
        rows[f"{number:05}" * dice.choice([1, 1, 1, 40])] = {
            "words": dice.choices(words, k=count),
            "n": number,
        }
    with pellucid.open(path) as db:
        db.table("t", compress=True).update(rows)
    with pellucid.open(path) as db:
        assert dict(db.table("t").items()) == dict(sorted(rows.items()))
        for key in dice.sample(sorted(rows), 200):
            assert db.table("t")[key] == rows[key]
        assert db.check() == []


def test_a_table_that_is_dropped_just_before_a_kill_leaves_nothing_in_the_catalog(path: Path) -> None:
    # Few enough that the log has their deletes.
    some = dict(list(ROWS.items())[:400])
    with pellucid.open(path) as db:
        db.table("people", compress=True).update(some)
        db.table("kept", compress=True).update(some)
    with Child(path) as child:
        assert child("db.table('people').stats()['dictionaries']") > 0
        child("db.drop_table('people')")
        assert child("db.stats()['log_pending']") > 0
        child.kill()
    # A file that is only read has the log over it, and what is below is as it was.
    with pellucid.open(path, "r") as db:
        assert db.tables() == ["kept"]
        assert db.check() == []
    with pellucid.open(path) as db:
        # Else it names the table that does not exist.
        assert db.check() == []
        assert dict(db.table("kept").items()) == some
        db.table("people", compress=True).update(some)
        assert db.check() == []


def test_an_online_compaction_keeps_dictionaries_where_the_catalog_has_half_empty_leaves(path: Path) -> None:
    names = [f"a table with a long name, number {number:04}" for number in range(600)]
    with pellucid.open(path) as db:
        people = db.table("people", compress=True)
        with db.transaction():
            for name in names[:300]:
                db.table(name, compress=True)[1] = row(1)
        people.update(ROWS)
        with db.transaction():
            for name in names[300:]:
                db.table(name, compress=True)[1] = row(1)
        db.sync()
        for name in random.Random(2).sample(names, 360):
            db.drop_table(name)
        # Half-empty leaves of rows, too: only where there are many does the compaction begin.
        db.table("plain").update({random.Random(n).random(): row(n) for n in range(20_000)})
        for number, key in enumerate(list(db.table("plain"))):
            if number % 4:
                del db.table("plain")[key]
        db.sync()
        before = people.stats()
        assert before["dictionaries"] >= 1
        assert before["compressed_rows"] > 3_000
        db.compact(online=True)
        assert people.stats()["dictionaries"] == before["dictionaries"]
        assert db.check() == []
        assert dict(people.items()) == ROWS
    with pellucid.open(path) as db:
        assert dict(db.table("people").items()) == ROWS
        assert len(db.tables()) == 242


def test_what_tests_switch_on_is_off() -> None:
    with pellucid.open(":memory:") as db:
        db.table("t")["a"] = 1
        assert db.table("t").stats()["compress"] == 0
        _testing.compress_all(True)
        try:
            db.table("u")["a"] = 1
        finally:
            _testing.compress_all(False)
        assert db.table("u").stats()["compress"] == 1


def test_one_commit_trains_few_dictionaries_however_many_tables_it_fills(path: Path) -> None:
    numbers = range(120)
    rows = {key: {"i": key, "s": f"some text {key % 7} " * 3} for key in range(300)}
    with pellucid.open(path) as db:

        def trained() -> int:
            return sum(db.table(f"t{number}").stats()["dictionaries"] for number in numbers)

        with db.transaction():
            for number in numbers:
                db.table(f"t{number}", compress=True).update(rows)
        db.sync()
        assert 20 < trained() < 60
        # The others have theirs when they are written to again.
        for turn in range(6):
            with db.transaction():
                for number in numbers:
                    db.table(f"t{number}")[f"more {turn}"] = rows[turn]
            db.sync()
        assert trained() >= len(numbers)
        assert all(dict(db.table(f"t{number}").items())[7] == rows[7] for number in numbers)
