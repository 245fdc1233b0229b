"""Tables that Citus distributes over several servers: what they do, what they refuse, and where.

These tests need a Citus: `PELLUCID_TEST_DSN` names one, with the role that may create distributed tables.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pellucid
import pytest
import servers
from pellucid import F
from pellucid.errors import Busy, TransactionError
from pellucid.postgres.schema import citus


@pytest.fixture
def cluster(url: str, server: str) -> Any:
    """A database on a server that has Citus."""
    servers.needs_citus(server)
    with pellucid.open(url) as db:
        yield db


def test_a_server_without_citus_says_so(url: str) -> None:
    with pellucid.open(url) as db:
        db._connection.catalog.has_citus = False
        with pytest.raises(ValueError, match="CREATE EXTENSION citus"):
            db.table("t", distributed=True)
        assert db.tables() == []
        with pytest.raises(TypeError, match="True or False"):
            db.table("t", distributed="yes")


def test_rows_are_on_several_servers(cluster: Any) -> None:
    table = cluster.table("t", distributed=True)
    table.update({number: {"n": number} for number in range(200)})
    rows = cluster._tables.statements(cluster._tables.layout_named("t")).rows.decode()
    with cluster._connection.pool.session() as session:
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
    rows = cluster._tables.statements(cluster._tables.layout_named("t")).rows.decode()
    with cluster._connection.pool.session() as session:
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


def test_the_first_distributed_table_is_made_beside_others(cluster: Any, url: str) -> None:
    plain = cluster.table("plain")
    plain.create_index("n", F.n)
    plain[1] = {"n": 1}
    with pellucid.open(url) as other, other.snapshot() as before:
        with other.transaction():
            assert other.table("plain")[1] == {"n": 1}
            table = cluster.table("t", distributed=True)
            assert cluster.tables() == ["plain"]
            assert table.extend([{"n": 1}, {"n": 2}]) == 2
            for name in ("plain", "t"):
                with pytest.raises(Busy, match="run the transaction again"):
                    other.table(name)
        with contextlib.suppress(Busy):
            assert before.table("plain")[1] == {"n": 1}
        assert other.run(lambda: len(other.table("t"))) == 2
        assert [row.n for row in plain.index("n").range()] == [1]
        assert cluster.check() == []


def test_the_first_distributed_table_is_not_made_in_a_transaction(cluster: Any) -> None:
    def make() -> None:
        cluster.table("plain")[1] = 1
        cluster.table("t", distributed=True)[1] = 1

    with pytest.raises(TransactionError, match="make it before, with"):
        cluster.run(make)
    assert cluster.tables() == []
    cluster.table("t", distributed=True)
    cluster.run(make)
    assert cluster.tables() == ["plain", "t"]


def test_a_watch_is_refused(cluster: Any) -> None:
    for source in (cluster, cluster.table("t")):
        with pytest.raises(pellucid.DatabaseError, match="no order holds for all"):
            source.watch()
    assert "changes" not in relations(cluster)


def relations(db: Any) -> set[str]:
    """The relations in the schema of a database."""
    asked = b"SELECT relname::text FROM pg_class WHERE relnamespace = $1::text::regnamespace"
    with db._connection.pool.session() as session:
        return {name for (name,) in session.rows(asked, [db._place.schema])}


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
    from pellucid.postgres.query import scan

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
    table = cluster.table("t", distributed=True, queryable=True)
    table.update({number: {"tags": [f"a{number % 3}", "all"]} for number in range(30)})
    table.create_index("tags", F.tags.each())
    assert sorted(row.tags[0] for row in table.index("tags").get_all("a1")) == ["a1"] * 10
    table[1].tags = ["other"]
    del table[4]
    assert table.index("tags").count("a1") == 8
    assert table.index("tags").count("all") == 28
    assert cluster.check() == []
    cluster.compact()


def task_count(db: Any, statement: bytes, given: Any) -> int:
    """On how many shards a statement runs."""
    with db._connection.pool.session() as session:
        plan = session.rows(b"EXPLAIN (COSTS off) " + statement, given)
    lines = [line if isinstance(line, str) else bytes(line).decode() for (line,) in plan]
    return next(int(line.partition("Task Count: ")[2]) for line in lines if "Task Count: " in line)


def test_rows_are_distributed_by_the_first_parts_of_their_keys(cluster: Any, url: str) -> None:
    table = cluster.table("t", distributed=True, distribute_by=1)
    table.update({(name, number): {"n": number} for name in "abcdefghij" for number in range(30)})
    table["k", 1] = {"n": 1}
    table["k", 1].n += 1
    table["long" * 200, "x" * 3000] = {"n": 3}
    assert table.setdefault(("k", 2), {"n": 5}) == {"n": 5}
    assert table["long" * 200, "x" * 3000] == {"n": 3}
    assert table.pop(("k", 2)) == {"n": 5}
    assert (len(table), table.sum("n")) == (302, 10 * sum(range(30)) + 2 + 3)
    with cluster.transaction():
        for record in table.range(prefix=("c",)):
            record.n += 100
        del table["d", 0]
        table["d", 1].text = "x" * 100_000
    assert [row.n for row in table.range(("c", 28), ("d", 3))] == [128, 129, 1, 2]
    assert table["d", 1].text == "x" * 100_000
    assert list(table.keys(prefix=("d",), reverse=True))[-1] == ("d", 1)
    assert len(table.keys(prefix=("d",))) == 29
    assert cluster.check() == []
    cluster.compact()
    # All rows of a name are on one server, and all servers have some.
    sql = table._binding.statements()
    with cluster._connection.pool.session() as session:
        shards = session.rows(
            b"SELECT count(DISTINCT get_shard_id_for_distribution_column($1::text::regclass, d)), "
            b"count(DISTINCT d) FROM " + sql.rows,
            [sql.rows.decode()],
        )
    assert shards[0][0] > 2
    assert shards[0][1] == 12
    for asked in (
        sql.scan(*edges(table, ("c",)), reverse=False),
        sql.count_range(*edges(table, ("c",))),
        citus.bound(sql, [(sql.get, (table._records.encode_key(("c", 1))[0],))])[0],
    ):
        assert task_count(cluster, *asked) == 1
    with pellucid.open(url) as other:
        again = other.table("t")
        again["m", 1] = {"n": 1}
        assert again["c", 3].n == 103
        other.table("t", distributed=True, distribute_by=1)
        for wanted in (2, 3):
            with pytest.raises(ValueError, match="by the first 1 part of its keys"):
                other.table("t", distributed=True, distribute_by=wanted)
        other.table("whole", distributed=True)["a"] = 1
        with pytest.raises(ValueError, match="by its whole keys"):
            other.table("whole", distributed=True, distribute_by=1)


def edges(table: Any, prefix: Any) -> tuple[Any, Any, Any]:
    """The first key of a prefix, what follows it, and what its rows are distributed by."""
    low, high = table._records.bounds(None, None, prefix)
    place = citus.common_place(table._binding.statements().layout, low, high)
    assert place is not None
    return low, high, place


def test_a_key_with_too_few_parts_is_refused(cluster: Any) -> None:
    table = cluster.table("t", distributed=True, distribute_by=2)
    table["a", "b"] = 1
    table["a", ("b", 1), 5] = 2
    for key in ("a", ("a",), 5, (("a", "b"),), None):
        for use in (
            lambda key=key: table.__setitem__(key, 1),
            lambda key=key: table[key],
            lambda key=key: table.update({("x", "y"): 1, key: 1}),
            lambda key=key: table.pop(key, None),
        ):
            with pytest.raises(ValueError, match="2 parts or more"):
                use()
    with pytest.raises(ValueError, match="2 parts or more"):
        table.append(1)
    with pytest.raises(ValueError, match="2 parts or more"):
        table.extend([1])
    assert list(table.items()) == [(("a", "b"), 1), (("a", ("b", 1), 5), 2)]
    for wrong in (0, -1, 1000):
        with pytest.raises(ValueError, match="distribute_by"):
            cluster.table("u", distributed=True, distribute_by=wrong)
    for wrong in (True, "1", 1.0):
        with pytest.raises(TypeError, match="distribute_by"):
            cluster.table("u", distributed=True, distribute_by=wrong)
    with pytest.raises(ValueError, match="distributed=True"):
        cluster.table("u", distribute_by=1)


def test_indexes_of_a_table_that_is_distributed_by_a_part(cluster: Any) -> None:
    table = cluster.table("t", distributed=True, distribute_by=1, queryable=True)
    table.update({(name, number): {"n": number, "tags": ["a"]} for name in "abc" for number in range(9)})
    table.create_index("n", F.n)
    table["d", 0] = {"n": 100}
    table["a", 0].n = 200
    with cluster.transaction():
        for record in table.range(prefix=("b",)):
            record.n += 1000
    assert sorted(row.n for row in table.where(F.n >= 100)) == [100, 200, *range(1000, 1009)]
    assert cluster.check() == []
    assert table.sum("n") == 100 + 200 + sum(range(1, 9)) + 2 * sum(range(9)) + 9000
    with pytest.raises(ValueError, match="Make the value the key"):
        table.create_index("unique", F.n, unique=True)
    with pytest.raises(ValueError, match="each"):
        table.create_index("tags", F.tags.each())


def test_a_snapshot_has_the_rows_of_a_prefix(cluster: Any) -> None:
    table = cluster.table("t", distributed=True, distribute_by=1)
    table.update({("a", number): {"n": number} for number in range(300)})
    with cluster.snapshot() as before:
        old = before.table("t")
        assert len(old.keys(prefix=("a",))) == 300
        table["a", 1].n = -1
        del table["a", 2]
        assert old["a", 1].n == 1
        assert [row.n for row in old.range(prefix=("a",))] == list(range(300))
        for use in (
            lambda: len(old),
            lambda: list(old),
            lambda: bool(old),
            old.first,
            lambda: old.sum("n"),
            lambda: list(old.range(("a",), ("c",))),
        ):
            with pytest.raises(TransactionError, match="prefix"):
                use()
