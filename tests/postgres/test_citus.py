"""Tables that Citus distributes over several servers: what they do, what they refuse, and where.

These tests need a Citus: `PELLUCID_TEST_DSN` names one, with the role that may create distributed tables.
"""

from __future__ import annotations

from typing import Any

import pellucid
import pytest
import servers
from pellucid import F
from pellucid.errors import TransactionError


@pytest.fixture
def cluster(url: str, server: str) -> Any:
    """A database on a server that has Citus."""
    servers.needs_citus(server)
    with pellucid.open(url) as db:
        yield db


def test_a_server_without_citus_says_so(url: str) -> None:
    with pellucid.open(url) as db:
        db._catalog.has_citus = False
        with pytest.raises(ValueError, match="CREATE EXTENSION citus"):
            db.table("t", distributed=True)
        assert db.tables() == []
        with pytest.raises(TypeError, match="True or False"):
            db.table("t", distributed="yes")


def test_rows_are_on_several_servers(cluster: Any) -> None:
    table = cluster.table("t", distributed=True)
    table.update({number: {"n": number} for number in range(200)})
    rows = cluster._catalog.statements(cluster._layout_named("t")).rows.decode()
    with cluster._connections.lent() as session:
        found = session.rows(
            b"SELECT count(DISTINCT nodename || nodeport::text) FROM citus_shards "
            b"WHERE table_name = $1::text::regclass",
            [rows],
        )
    assert found[0][0] > 1
    assert [row.n for row in table.values()] == list(range(200))
    assert [row.n for row in table.range(50, 60, reverse=True)] == list(range(59, 49, -1))
    assert table.sum("n") == sum(range(200))


def test_a_distributed_table_is_recognised(cluster: Any, url: str) -> None:
    cluster.table("t", distributed=True)[1] = {"n": 1}
    cluster.table("plain")[1] = {"n": 1}
    with pellucid.open(url) as other:
        assert other.table("t")[1] == {"n": 1}
        assert other.table("t", distributed=True)[1] == {"n": 1}
        with pytest.raises(ValueError, match="is there and is distributed"):
            other.table("t", distributed=False)
        with pytest.raises(ValueError, match="is there and is not distributed"):
            other.table("plain", distributed=True)


def test_a_table_that_its_owner_distributed_is_recognised(cluster: Any, url: str) -> None:
    table = cluster.table("t")
    table[1] = {"n": 1}
    rows = cluster._catalog.statements(cluster._layout_named("t")).rows.decode()
    with cluster._connections.lent() as session:
        session.rows(b"SELECT create_distributed_table($1::text::regclass, 'k')", [rows])
    with pellucid.open(url) as other:
        table = other.table("t", distributed=True)
        assert list(table.values()) == [{"n": 1}]
        with pytest.raises(ValueError, match="cannot be unique"):
            table.create_index("n", F.n, unique=True)


def test_no_snapshot_and_no_unique_index(cluster: Any) -> None:
    table = cluster.table("t", distributed=True)
    table["a"] = {"n": 1}
    cluster.table("plain")["a"] = {"n": 1}
    with pytest.raises(ValueError, match="Make the value the key"):
        table.create_index("n", F.n, unique=True)
    assert table.indexes() == []
    with cluster.snapshot() as snapshot:
        assert snapshot.table("plain")["a"] == {"n": 1}
        with pytest.raises(TransactionError, match="no common snapshot"):
            list(snapshot.table("t").values())


def test_transactions_over_servers_are_whole(cluster: Any) -> None:
    table = cluster.table("t", distributed=True)
    table.update({number: {"n": 0} for number in range(20)})

    def change() -> None:
        for number in range(20):
            table[number].n = 1
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        cluster.run(change)
    assert table.sum("n") == 0
    with cluster.transaction():
        for number in range(20):
            table[number].n = 1
    assert table.sum("n") == 20


def test_append_within_a_transaction_that_creates_the_table(cluster: Any) -> None:
    table = cluster.table("t", distributed=True)
    with cluster.transaction():
        first = table.append({"n": 1})
        table.extend({"n": number} for number in range(2, 50))
    assert [row.n for row in table.values()] == list(range(1, 50))
    assert table.append({"n": 50}) > first


def test_a_scan_pages_by_key(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pellucid.postgres import scan

    monkeypatch.setattr(scan, "FIRST_COUNT", 7)
    monkeypatch.setattr(scan, "PAGE_COUNT_MAX", 7)
    table = cluster.table("t", distributed=True)
    table.update({number: {"n": number} for number in range(100)})
    rows = iter(table.values())
    assert next(rows).n == 0
    # Another layout meanwhile: the next page is asked for in that one.
    table.create_index("n", F.n)
    assert [row.n for row in rows] == list(range(1, 100))
    assert list(table.keys(start=10, stop=40, reverse=True)) == list(range(39, 9, -1))


def test_an_index_of_many_entries_lies_beside_the_rows(cluster: Any) -> None:
    table = cluster.table("t", distributed=True)
    table.update({number: {"tags": [f"a{number % 3}", "all"]} for number in range(30)})
    table.create_index("tags", F.tags.each())
    assert sorted(row.tags[0] for row in table.index("tags").get_all("a1")) == ["a1"] * 10
    table[1].tags = ["other"]
    del table[4]
    assert table.index("tags").count("a1") == 8
    assert table.index("tags").count("all") == 28
    assert cluster.check() == []
    cluster.compact()
