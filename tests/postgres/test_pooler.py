"""A pooler in transaction mode, which gives each transaction a connection that others have used."""

from __future__ import annotations

import pellucid
import pytest
from pellucid import F
from pellucid.errors import DatabaseError


def test_the_message_names_the_setting_for_a_pooler(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table["a"] = {"n": 1}
        for _ in range(10):
            assert table["a"].n == 1
        # What the server of another connection would know: none of the statements.
        for session in db._connections._idle:
            session.connection.pgconn.exec_(b"DEALLOCATE ALL")
        with pytest.raises(DatabaseError, match="prepare=false"):
            assert table["a"].n == 1


def test_without_prepared_statements_nothing_outlives_a_transaction(url: str) -> None:
    with pellucid.open(url + "&prepare=false", timeout=3) as db:
        table = db.table("t")
        for number in range(30):
            table[number] = {"n": number}
            for session in db._connections._idle:
                session.connection.pgconn.exec_(b"DISCARD ALL")
        with db.transaction():
            assert db._running().rows(b"SHOW lock_timeout") == [("3s",)]
            table[1].n += 1
        # Other clients would have a setting of the connection, or wait for its lock.
        table.create_index("n", F.n)
        with db._connections.lent() as session:
            assert session.rows(b"SHOW lock_timeout") == [("0",)]
            assert session.rows(b"SHOW default_transaction_read_only") == [("off",)]
            assert session.rows(b"SELECT count(*) FROM pg_prepared_statements") == [(0,)]
            own = b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert session.rows(own) == [(0,)]
        assert table.index("n").get(5) == {"n": 5}
    with pellucid.open(url + "&prepare=false", mode="r") as db, db._connections.lent() as session:
        assert session.rows(b"SHOW default_transaction_read_only") == [("off",)]
