"""What a database on a server says of itself, and how it is backed up."""

from __future__ import annotations

from typing import Any

import pellucid
import pytest
from pellucid import F


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
        sql: Any = table._statements()
        with db._connections.lent() as session:
            for number, data in ((1, b""), (2, b"\x01\0\0\0\xff\xff"), (3, b"\x01\0\0\0")):
                session.execute(
                    b"UPDATE " + sql.rows + b" SET v = $2 WHERE k = $1", (table._key(number)[0], data)
                )
        found = table.unreadable()
        assert [key for key, _ in found] == [1, 2, 3]
        assert all(isinstance(error, pellucid.CorruptRecord) for _, error in found)
        assert db.unreadable() == []
