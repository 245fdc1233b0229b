"""Fields that change inside of a transaction are sent together: does it show, other than in the time?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pellucid
import pytest
from pellucid import F
from pellucid.errors import Busy, TransactionError
from pellucid.postgres import transaction
from pellucid.postgres.table import write_behind

MANY = 300


@pytest.fixture
def db(url: str) -> Iterator[Any]:
    """A database with one table of rows."""
    with pellucid.open(url) as database:
        rows = {number: {"n": number, "other": 0, "list": [1, 2, 3]} for number in range(MANY)}
        database.table("t").update(rows)
        yield database


@pytest.fixture
def others(url: str, db: Any) -> Iterator[Any]:
    """The same table, for another client."""
    with pellucid.open(url) as database:
        assert len(database.table("t")) == len(db.table("t"))
        yield database.table("t")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The statements that transactions have run."""
    statements: list[bytes] = []
    rows = transaction.Running.rows

    def noted(self: Any, statement: bytes, parameters: Any = ()) -> Any:
        statements.append(statement)
        return rows(self, statement, parameters)

    monkeypatch.setattr(transaction.Running, "rows", noted)
    return statements


def test_many_changes_are_one_statement(db: Any, sent: list[bytes]) -> None:
    table = db.table("t")
    records = list(table.values())
    with db.transaction():
        for record in records:
            record.n += 1
            record.other = record.n
            assert record.other == record.n
        assert sent == []
    assert [statement.split()[0] for statement in sent] == [b"UPDATE"]
    assert [(row.n, row.other) for row in table.values()] == [(n + 1, n + 1) for n in range(MANY)]
    # The records go on from the versions that were stored.
    for record in records:
        record.n = 0
    assert table.sum("n") == 0


def test_a_full_backlog_is_sent_before_the_end(
    db: Any, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "COUNT_MAX", 100)
    table = db.table("t")
    with db.transaction():
        for record in table.values():
            record.n = -1
        assert len([one for one in sent if one.startswith(b"UPDATE")]) == MANY // 100
        table[0].list.append(4)
        sent.clear()
        monkeypatch.setattr(write_behind, "SIZE_MAX", 2000)
        table[1].list.extend(["x" * 1000, "y" * 1000])
        assert any(one.startswith(b"UPDATE") for one in sent)
    assert table.sum("n") == -MANY
    assert table[0].list == [1, 2, 3, 4]


def test_what_reads_in_the_transaction_sees_the_changes(db: Any) -> None:
    table = db.table("t")
    with db.transaction():
        table[5].n = 1000
        assert table[5].n == 1000
        table[5].n = 2000
        assert table.sum("n") == sum(range(MANY)) - 5 + 2000
        table[5].n = 3000
        assert [row.n for row in table.where(F.n >= 1000)] == [3000]
        table[5].n = 4000
        assert next(table.range(5)).n == 4000
        table[5].n = 5000
        assert table.pop(5) == {"n": 5000, "other": 0, "list": [1, 2, 3]}
        table[6].n = 5000
        table[6] = {"n": 7}
    assert 5 not in table
    assert table[6] == {"n": 7}


def test_rows_that_a_loop_reads_in_the_order_of_keys_are_read_together(db: Any, sent: list[bytes]) -> None:
    table = db.table("t")
    with db.transaction():
        for key in range(MANY):
            table[key].n = -key
    assert len(sent) < MANY // 10
    assert [(key, row.n) for key, row in table.items()] == [(key, -key) for key in range(MANY)]


def test_rows_that_were_read_ahead_are_not_older_than_their_changes(db: Any, sent: list[bytes]) -> None:
    table = db.table("t")
    with db.transaction():
        held = table[200]
        for key in range(100):
            assert table[key].n == key
        before = len(sent)
        held.n = -1
        held.other = -2
        assert len(sent) == before, "that row was read ahead, and is changed before it is asked for"
        for key in range(100, 201):
            assert table[key].n == (-1 if key == 200 else key)
        del table[203]
        table[204] = {"n": -4}
        found = [None if (row := table.get(key)) is None else row.n for key in range(201, 206)]
    assert found == [201, 202, None, -4, 205]
    assert table[200] == {"n": -1, "other": -2, "list": [1, 2, 3]}


def test_rows_that_are_asked_for_here_and_there_are_not_read_ahead(db: Any, sent: list[bytes]) -> None:
    table = db.table("t")
    table.update({number: {"n": number} for number in range(MANY, 10_000)})
    sent.clear()
    with db.transaction():
        for key in range(0, 10_000, 40):
            assert table[key].n == key
    many = [one for one in sent if b"LIMIT" in one]
    assert len(many) <= 3, "each time nearly all rows were read for nothing"
    assert len(sent) == 250


def test_rows_that_are_read_ahead_are_those_of_the_transactions_state(db: Any, others: Any) -> None:
    table = db.table("t")
    with db.transaction():
        for key in range(20):
            assert table[key].n == key
        others[30].n = -30
        del others[31]
        assert [table[key].n for key in range(20, 40)] == list(range(20, 40))
    assert table[30].n == -30
    assert 31 not in table


def test_two_records_of_one_row_change_it_in_turn(db: Any) -> None:
    table = db.table("t")
    one, other = table[7], table[7]
    with db.transaction():
        one.n = -1
        other.other = -2
        one.list.append(4)
        other.list.append(5)
    expected = {"n": -1, "other": -2, "list": [1, 2, 3, 4, 5]}
    assert table[7] == expected


def test_a_savepoint_takes_back_its_own_changes(db: Any) -> None:
    table = db.table("t")
    one, other = table[1], table[2]
    with db.transaction():
        one.n = 10

        def change_both() -> None:
            with db.transaction():
                one.n = 20
                other.n = 20
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            change_both()
        assert (one.n, other.n) == (10, 2)
        one.other = 1
        with db.transaction():
            other.other = 1
    assert (table[1], table[2]) == (one, other)
    assert (one.n, one.other, other.n, other.other) == (10, 1, 2, 1)

    def change_one() -> None:
        with db.transaction():
            one.n = 30
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_one()
    assert one.n == table[1].n == 10


@pytest.mark.parametrize("count", [1, MANY])
def test_changes_of_other_clients_since_the_read_are_kept(db: Any, others: Any, count: int) -> None:
    table = db.table("t")
    records = [table[number] for number in range(count)]
    others[0].other = "theirs"
    with db.transaction():
        for record in records:
            record.n = "mine"
        records[0].list.append("mine")
    expected = {"n": "mine", "other": "theirs", "list": [1, 2, 3, "mine"]}
    assert table[0] == records[0] == expected
    assert all(row.n == "mine" for row in table.range(0, count))
    records[0].n = "later"
    assert others[0] == {**expected, "n": "later"}


@pytest.mark.parametrize("count", [1, MANY])
def test_a_row_that_is_gone_ends_the_transaction(db: Any, others: Any, count: int) -> None:
    table = db.table("t")
    records = [table[number] for number in range(count)]
    del others[0]

    def change_all() -> None:
        with db.transaction():
            for record in records:
                record.n = "mine"

    with pytest.raises(KeyError, match="0"):
        change_all()
    assert 0 not in table
    assert all(table[number].n == number for number in range(1, count))


def test_an_error_that_comes_late_is_not_taken_for_another_one(db: Any, others: Any) -> None:
    table = db.table("t")
    record, after = table[0], table[1]
    del others[0]

    def go_on_after_it() -> None:
        with db.transaction():
            record.n = "mine"
            # It is about the row 0, and not about the row 1.
            with pytest.raises(KeyError, match="0"):
                table[1]
            for use in (lambda: table[1], lambda: setattr(after, "n", 2), lambda: len(table)):
                with pytest.raises(TransactionError, match="an earlier error"):
                    use()

    with pytest.raises(TransactionError, match="an earlier error"):
        go_on_after_it()
    assert table[1].n == 1
    with db.transaction():

        def change_the_row_that_is_gone() -> None:
            with db.transaction():
                record.n = "mine"

        with pytest.raises(KeyError):
            change_the_row_that_is_gone()
        after.n = "kept"
    assert table[1].n == "kept"


def test_a_change_that_means_something_else_by_now_is_refused(db: Any, others: Any) -> None:
    table = db.table("t")
    for number in (0, 1):
        numbers = table[number].list
        del others[number].list[0]

        def change_the_list(number: int, numbers: Any) -> None:
            with db.transaction():
                numbers[2] = 9
                if number:
                    table[5].n = "mine"

        with pytest.raises(KeyError, match="other elements"):
            change_the_list(number, numbers)
        assert table[number].list == [2, 3]
    assert table[5].n == 5


def test_run_repeats_what_met_another_client(db: Any, others: Any) -> None:
    table = db.table("t")
    turns = []

    def change() -> None:
        turns.append(1)
        record, second = table[0], table[1]
        if len(turns) == 1:
            others[0].other += 5
        record.other += 1
        second.n = 100

    db.run(change)
    assert len(turns) == 2
    assert (table[0].other, table[1].n) == (6, 100)

    def be_late() -> None:
        with db.transaction():
            table[0].n = len(table)
            table[0]
            others[1].n = 7
            table[1].n = 8

    with pytest.raises(Busy):
        be_late()
    assert (table[0].n, table[1].n) == (0, 7)


def test_indexes_follow(db: Any, sent: list[bytes]) -> None:
    table = db.table("t")
    table.create_index("n", F.n)
    table.create_index("each", F.list.each())
    with db.transaction():
        for record in table.values():
            record.n += 1000
            record.list = [record.n]
    assert [row.n for row in table.where(F.n >= 1290).order_by(F.n)] == list(range(1290, 1300))
    assert [row.n for row in table.index("each").range(1298)] == [1298, 1299]
    assert list(table.index("each").range(None, 1000)) == []
    assert db.check() == []


def test_a_unique_index_is_asked_at_once(db: Any) -> None:
    table = db.table("t")
    table.create_index("n", F.n, unique=True)
    with db.transaction():
        one, other = table[1], table[2]
        with pytest.raises(pellucid.UniqueError):
            one.n = 2
        one.n, other.n = -1, 1
        one.n = 2
    assert (table[1].n, table[2].n) == (2, 1)


def test_large_values_come_and_go(db: Any) -> None:
    table = db.table("t")
    with db.transaction():
        for number in range(10):
            table[number].text = "x" * 100_000
    large = [table[number] for number in range(10)]
    with db.transaction():
        for record in large:
            record.n = "small"
            record.text = record.text[:50_000]
    with db.transaction():
        for record in large[1:]:
            record.text = "short"
            record.n = "gone"
    assert len(table[0].text) == 50_000
    assert {row.text for row in table.range(1, 10)} == {"short"}
    assert db.check() == []
    layout = db._tables.layout_named("t")
    with db._connection.pool.session() as session:
        kept = session.rows(b"SELECT DISTINCT k FROM " + db._tables.statements(layout).overflow)
    assert len(kept) == 1


def test_the_driver_writes_no_warning(db: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = db._connection.pool.take()
    with caplog.at_level(logging.DEBUG, logger="psycopg"):
        for statements in (
            [b"SELECT 1 / 0", b"SELECT 2"],
            [b"SELECT 1"] * 20 + [b"SELECT 1 1"] + [b"SELECT 1"] * 20,
        ):
            with pytest.raises(pellucid.DatabaseError, match=r"division|syntax"):
                session.batch([(statement, ()) for statement in statements])
        with db._connection.pool.session() as other:
            number = session.connection.info.backend_pid
            other.rows(b"SELECT pg_terminate_backend($1::int)", [number])
        for work in (
            lambda: session.batch([(b"SELECT 1", ())] * 3),
            lambda: session.copy(db._tables.statements(db._tables.layout_named("t")).copy, b"x" * 10_000_000),
        ):
            with pytest.raises(Exception, match=r"."):
                work()
    db._connection.pool.give(session)
    assert caplog.records == []
