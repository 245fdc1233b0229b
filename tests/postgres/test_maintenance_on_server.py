"""What a database on a server says of itself, and how it is backed up."""

from __future__ import annotations

from typing import Any

import pellucid
import pytest
from pellucid import F
from pellucid.postgres.schema import keys


class Unknown:
    """A class that is stored as a pickle."""


def test_stats_have_the_figures_of_a_file(url: str) -> None:
    with pellucid.open(url, pickle="allow") as db, pellucid.open(":memory:", pickle="allow") as memory:
        for database in (db, memory):
            table = database.table("t")
            table.update({number: {"n": number, "tags": ["a", "b"]} for number in range(10)})
            table.create_index("n", F.n)
            table.create_index("tags", F.tags.each())
            table["large"] = {"text": "x" * 100_000}
            table["odd"] = {"object": Unknown(), "list": [Unknown()]}
            database["a"] = 1
        found, expected = db.stats(pickles=True), memory.stats(pickles=True)
        assert set(found) == set(expected)
        for name in ("tables", "rows", "indexes", "index_entries", "blobs", "pickles", "page_size"):
            assert found[name] == expected[name], name
        assert found["shapes"] > 0
        assert found["file_size"] > 100_000
        assert "pickles" not in db.stats()
        before = db.stats()["version"]
        db["a"] = 2
        assert db.stats()["version"] > before


def test_backup_names_pg_dump(url: str) -> None:
    with pellucid.open(url) as db, pytest.raises(TypeError, match=r"pg_dump --schema=.*pellucid\.copy"):
        db.backup("there.pel")


def test_rows_that_cannot_be_read_are_listed(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.update({number: {"n": number, "text": "some text"} for number in range(5)})
        sql: Any = table._binding.statements()
        with db._connection.pool.session() as session:
            for number, data in ((1, b""), (2, b"\x01\0\0\0\xff\xff"), (3, b"\x01\0\0\0")):
                session.execute(
                    b"UPDATE " + sql.rows + b" SET v = $2 WHERE k = $1",
                    (table._records.encode_key(number)[0], data),
                )
        found = table.unreadable()
        assert [key for key, _ in found] == [1, 2, 3]
        assert all(isinstance(error, pellucid.CorruptRecord) for _, error in found)
        assert db.unreadable() == []


def test_a_damaged_long_key_stops_neither_check_nor_other_rows(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        long = "x" * 3000
        table.update({long + "1": 1, long + "2": 2, "short": 3})
        rows = table._binding.statements().rows
        whole = table._records.encode_key(long + "1")[0]
        for spelling in (None, b"", b"\x01", b"\xff\xff\xff\xff", len(whole).to_bytes(4, "little")):
            with db._connection.pool.session() as session:
                stored = keys.stored(whole)
                session.execute(b"UPDATE " + rows + b" SET s = $2 WHERE k = $1", [stored, spelling])
            (fault,) = db.check()
            assert "a long key is damaged" in fault
            assert len(table.unreadable()) == 1
            with pytest.raises(pellucid.CorruptRecord, match="a long key is damaged"):
                list(table)
            assert (table["short"], table[long + "2"]) == (3, 2)
        other = keys.stored_with(table._records.encode_key(long + "3")[0], None)[1]
        with db._connection.pool.session() as session:
            session.execute(b"UPDATE " + rows + b" SET s = $2 WHERE k = $1", [stored, other])
        (fault,) = db.check()
        assert fault.endswith("so it is not found by it")


def test_check_finds_what_indexes_and_json_have_and_records_have_not(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t", queryable=True)
        table.update({number: {"n": number, "tags": ["a", str(number)]} for number in range(300)})
        table["long"] = {"n": "x" * 3000, "tags": ["y" * 3000, "large" * 10_000]}
        table["odd" * 1000] = {"n": 1 + 2j, "tags": 5}
        table.create_index("n", F.n)
        table.create_index("tags", F.tags.each())
        table.create_index("both", [F.n, F.tags])
        table["after"] = {"n": 1, "tags": ["z"]}
        assert db.check() == []
        sql: Any = table._binding.statements()
        rows, entries = sql.rows.decode(), sql.entries(sql.layout.indexes[1]).decode()
        code = {number: table._records.encode_key(number)[0] for number in range(10)}
        with db._connection.pool.session() as session:
            for statement, number in (
                (f"UPDATE {rows} SET i1 = NULL WHERE k = $1", 1),
                (f"UPDATE {rows} SET i3 = '\\x00' WHERE k = $1", 2),
                (f"DELETE FROM {entries} WHERE k = $1", 3),
                (f"UPDATE {rows} SET value = '{{\"n\": 4.0}}' WHERE k = $1", 4),
                (f"DELETE FROM {rows} WHERE k = $1", 5),
            ):
                session.execute(statement.encode(), [code[number]])
        assert db.check() == [
            "table 't', key 1: index 'n' has another entry; rebuild_index mends it",
            "table 't', key 2: index 'both' has another entry; rebuild_index mends it",
            "table 't', key 3: index 'tags' has other entries; rebuild_index mends it",
            "table 't', key 4: its JSON is another value; store the row again",
            "table 't': index 'tags' has 2 entries without rows; rebuild_index mends it",
        ]
        for name in ("n", "both", "tags"):
            table.rebuild_index(name)
        table[4] = table[4].copy()
        assert db.check() == []
