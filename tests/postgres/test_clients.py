"""What do several clients of one server see of each other, and what does a hostile one reach?"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pellucid
import pytest
from pellucid import F
from servers import driver
from servers import url as url_of

Connect = Callable[[], Any]


@pytest.fixture
def connect(url: str, server: str) -> Iterator[Connect]:
    """Makes a plain connection, whose search path is the database's schema."""
    psycopg = driver("psycopg")
    schema = url.partition("schema=")[2].partition("&")[0]
    with contextlib.ExitStack() as stack:

        def connect() -> Any:
            connection = stack.enter_context(psycopg.connect(server, autocommit=True))
            connection.execute(f"SET search_path = {schema}")
            return connection

        yield connect


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run work in threads that begin together."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def test_clients_create_one_schema_one_table_and_one_shape_at_once(url: str) -> None:
    def work(number: int) -> None:
        with pellucid.open(url) as db:
            for turn in range(5):
                table = db.table(f"t{turn}")
                table[number] = {"client": number, f"field{turn}": turn, "in": {f"inner{turn}": number}}
                table[number + 100] = {f"field{turn}": number}

    at_once(6, work)
    with pellucid.open(url) as db:
        assert db.tables() == [f"t{turn}" for turn in range(5)]
        for turn in range(5):
            rows = db.table(f"t{turn}")
            assert [row.client for row in rows.values(stop=100)] == list(range(6))
            assert [row[f"field{turn}"] for row in rows.values(start=100)] == list(range(6))
        assert db.check() == []


def test_a_transaction_creates_a_table_beside_those_that_it_does_not_see(url: str) -> None:
    with pellucid.open(url) as one, pellucid.open(url) as other:
        one["row"] = {"n": 1}
        with one.transaction():
            assert one["row"].n == 1
            for turn in range(3):
                other.table(f"other{turn}")[turn] = {"n": turn}
            one["row"].n = 2
            one.table("own").extend([{"n": 5}])
        assert other.tables() == ["default", "other0", "other1", "other2", "own"]
        assert (other.table("own")[0], other["row"].n, other.check()) == ({"n": 5}, 2, [])


def test_clients_fill_and_index_tables_of_their_own_at_once(url: str) -> None:
    def work(number: int) -> None:
        with pellucid.open(url) as db:
            for turn in range(4):
                table = db.table(f"t{number}_{turn}")
                table.extend([{"n": number}])
                table.create_index("by_n", F.n)

    at_once(5, work)
    with pellucid.open(url) as db:
        assert len(db.tables()) == 20
        for name in db.tables():
            assert [row.n for row in db.table(name).index("by_n").values()] == [int(name[1])]
        assert db.check() == []


def test_a_shape_is_admitted_once(url: str, connect: Connect) -> None:
    def work(number: int) -> None:
        with pellucid.open(url) as db:
            db[number] = {"a": 1, "b": 2}

    at_once(6, work)
    rows = connect().execute("SELECT id, hash FROM shapes ORDER BY id").fetchall()
    assert [number for number, _ in rows] == list(range(len(rows)))
    assert len({digest for _, digest in rows}) == len(rows) == 1


def test_a_client_reads_shapes_that_another_has_just_made(url: str) -> None:
    with pellucid.open(url) as one, pellucid.open(url) as other:
        for number in range(20):
            one["row"] = {f"field{number}": {"x": number}, "y": number}
            assert other["row"] == {f"field{number}": {"x": number}, "y": number}
            assert list(other.values()) == [{f"field{number}": {"x": number}, "y": number}]
        kept = other["row"]
        one["row"][f"added{number}"] = [1]
        kept.y = 99
        assert kept == one["row"] == {"field19": {"x": 19}, "y": 99, "added19": [1]}


def test_no_change_of_a_field_is_lost(url: str) -> None:
    with pellucid.open(url) as db:
        db["row"] = {"n": 0, "list": []} | {f"own{number}": 0 for number in range(5)}

    def work(number: int) -> None:
        with pellucid.open(url) as db:
            row = db["row"]
            for turn in range(20):
                row[f"own{number}"] = turn + 1
                row.list.append(number)

    at_once(5, work)
    with pellucid.open(url) as db:
        row = db["row"]
        assert [row[f"own{number}"] for number in range(5)] == [20] * 5
        assert sorted(row.list) == sorted(list(range(5)) * 20)


def test_run_repeats_what_met_another_client(url: str) -> None:
    with pellucid.open(url) as db:
        db.update({"a": {"n": 100}, "b": {"n": 0}})

    def work(number: int) -> int:
        calls = 0
        with pellucid.open(url) as db:

            def move() -> None:
                nonlocal calls
                calls += 1
                db["a"].n -= 1
                db["b"].n += 1

            for _ in range(10):
                db.run(move)
        return calls

    calls = at_once(4, work)
    assert sum(calls) > 40
    with pellucid.open(url) as db:
        assert (db["a"].n, db["b"].n) == (60, 40)


def test_edits_of_one_row_wait_for_each_other(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = {"n": 0}

        def count(_number: int) -> None:
            for _ in range(10):
                with db.edit("a") as row:
                    number = row.n
                    time.sleep(0.001)
                    row.n = number + 1

        at_once(4, count)
        assert db["a"].n == 40


def test_a_transaction_whose_rows_another_client_changes_raises_and_stores_nothing(url: str) -> None:
    with pellucid.open(url) as one, pellucid.open(url) as other:
        one["a"] = {"n": 1}

        def work() -> None:
            with one.transaction():
                one["b"] = 1
                assert one["a"].n == 1
                other["a"].n = 2
                assert one["a"].n == 1
                one["a"].n = 3

        with pytest.raises(pellucid.Busy, match="run"):
            work()
        assert one == {"a": {"n": 2}}


def test_a_lock_is_waited_for_as_long_as_the_timeout_says(url: str) -> None:
    with pellucid.open(url) as one, pellucid.open(url, timeout=0.3) as other:
        one["a"] = 1
        with one.transaction():
            one["a"] = 2
            began = time.monotonic()
            with pytest.raises(pellucid.Busy, match="timeout"):
                other["a"] = 3
            assert 0.2 < time.monotonic() - began < 5
        other["a"] = 4
        assert one["a"] == 4


def test_threads_and_tasks_have_transactions_of_their_own(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = 0

        async def count() -> None:
            with db.transaction():
                db[asyncio.current_task().get_name()] = 1  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
                assert len(db) == 2

        async def main() -> None:
            with db.transaction():
                db["main"] = 1
                await asyncio.gather(*(asyncio.create_task(count(), name=f"task{n}") for n in range(3)))
                assert len(db) == 2

        asyncio.run(main())
        assert sorted(db) == ["a", "main", "task0", "task1", "task2"]
        with db.transaction():
            db["in"] = 1
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(lambda: "in" in db).result() is False


def test_transactions_in_all_connections_do_not_wait_for_more(url: str) -> None:
    count = 3
    ready, is_done = threading.Barrier(count), threading.Event()
    with pellucid.open(url + f"&max_connections={count}", timeout=2) as db, pellucid.open(url) as other:
        db.table("t").append({"n": -1})
        other.table("u").extend({f"field{number}": number} for number in range(20))

        def work(number: int) -> None:
            with db.transaction():
                first = db.table("t")[0]
                ready.wait()
                assert len(first) == 1
                if number:
                    assert is_done.wait(60)
                    return
                # New numbers, new shapes, and rows with shapes that this client does not know yet.
                other.table("u").append({"late": 1})
                db.table("t").extend({"n": number, f"own{number}": number} for number in range(5))
                assert db.table("t").append({"n": 5}) > 5
                assert [len(row) for row in db.table("u").values()] == [1] * 20

        with ThreadPoolExecutor(count) as threads:
            works = [threads.submit(work, number) for number in range(count)]
            try:
                works[0].result()
            finally:
                is_done.set()
            for one in works:
                one.result()
        assert [row.n for row in db.table("t").values()] == [-1, *range(6)]


def test_values_that_are_read_and_written_while_they_are_loaded(url: str) -> None:
    count = 9_000
    with pellucid.open(url) as db:
        source, target = db.table("source"), db.table("target")
        source.extend({"n": number} for number in range(count))

        def values() -> Iterator[Any]:
            # The same transaction reads, writes and asks between the parts that are loaded.
            for record in source.values():
                if record.n % 1000 == 999:
                    source[record.n].seen = len(target)
                yield {"n": record.n, f"shape{record.n % 3000}": 1}

        assert target.extend(values()) == count
        assert [row.n for row in target.values()] == list(range(count))
        assert source[count - 1].seen > count // 2
        with db.transaction():
            with pytest.raises(ZeroDivisionError), db.transaction():
                target.extend({"n": 1 if number < 8_500 else 1 // 0} for number in range(count))
            assert len(target) == count
            target.extend([{"n": -1}] * 5_000)
        assert len(target) == count + 5_000
        assert all(session.is_idle for session in db._connection.pool._idle)


def test_a_load_that_fails_behind_the_caller_raises_and_stores_nothing(url: str, connect: Connect) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table[0] = {"n": 0}
        # The server refuses a row that comes late.
        rows = table._binding.statements().rows.decode()
        connect().execute(f"ALTER TABLE {rows} ADD CHECK (length(v) < 9000)")
        values = [{"n": number} for number in range(7_000)]
        for place in (0, 3_000, 6_999):
            some = [*values[:place], {"text": "x" * 10_000}, *values[place:]]
            with pytest.raises(pellucid.DatabaseError, match="violates check"):
                table.extend(some)
            with db.transaction():
                with pytest.raises(pellucid.DatabaseError, match="violates check"), db.transaction():
                    table.extend(some)
                table["a"] = {"n": 1}
            assert len(table) == 2
            del table["a"]


def test_what_a_killed_client_left_open_is_rolled_back(url: str) -> None:
    program = (
        "import pellucid, sys, time\n"
        f"db = pellucid.open({url!r})\n"
        "db.transaction().__enter__()\n"
        "db['a'] = 2\n"
        "print('there', flush=True)\n"
        "time.sleep(60)\n"
    )
    with pellucid.open(url) as db:
        db["a"] = 1
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        db["a"] = 3
        assert db["a"] == 3


def test_a_forked_child_uses_connections_of_its_own(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = 1
        child = os.fork()
        if child == 0:
            try:
                db["child"] = db["a"] + 1
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert db == {"a": 1, "child": 2}


def test_iterators_that_are_dropped_give_their_connections_back(url: str) -> None:
    with pellucid.open(url + "&max_connections=3", timeout=1) as db:
        db.update({number: {"n": number, "text": "x" * 100} for number in range(2000)})
        for _ in range(10):
            rows = iter(db.values())
            next(rows)
            del rows
            gc.collect()
        iterators = [iter(db.values()) for _ in range(3)]
        with pytest.raises(pellucid.Busy, match="max_connections"):
            db["a"] = 1
        assert [sum(row.n for row in rows) for rows in iterators] == [sum(range(2000))] * 3
        db["a"] = 1


def test_keys_beyond_the_limit_of_an_index_are_in_order(url: str) -> None:
    keys = [("x" * 3000 + f"{number:04}") for number in range(700)] + [
        "x" * size for size in range(1990, 2010)
    ]
    keys += [(5, "y" * 5000, number) for number in range(50)] + ["a", "z", 7]
    with pellucid.open(url) as db:
        db.update({key: {"n": number} for number, key in enumerate(keys)})
        with pellucid.open(":memory:") as model:
            model.update({key: {"n": number} for number, key in enumerate(keys)})
            assert list(db) == list(model)
            assert list(reversed(db)) == list(reversed(model))
            for start, stop in [
                (keys[100], keys[300]),
                (keys[3], None),
                (None, keys[705]),
                ("x" * 2000, "z"),
            ]:
                assert list(db.keys(start=start, stop=stop)) == list(model.keys(start=start, stop=stop))
                assert len(db.keys(start=start, stop=stop)) == len(model.keys(start=start, stop=stop))
            assert (db.first(), db.last()) == (model.first(), model.last())
            while model:
                assert db.popitem() == model.popitem()
                if len(model) > 20:
                    for key in list(model.keys())[:60]:
                        assert db.pop(key) == model.pop(key)


def test_large_values_are_stored_in_pieces_and_leave_with_their_row(url: str, connect: Connect) -> None:
    large = os.urandom(9 << 20)
    with pellucid.open(url) as db:
        db["a"] = {"data": large, "n": 1}
        assert db["a"].data == large
        pieces = connect().execute("SELECT count(*), max(length(bytes)) FROM large1").fetchone()
        assert pieces == (3, 4 << 20)
        db["a"].n = 2
        assert db["a"] == {"data": large, "n": 2}
        db["a"] = {"data": large[:50_000], "n": 3}
        assert connect().execute("SELECT count(*) FROM large1").fetchone() == (1,)
        db["b"] = {"data": large[:60_000]}
        kept = db["a"]
        db["a"] = "small"
        with pytest.raises(pellucid.StaleRecord):
            kept.data
        assert connect().execute("SELECT count(*) FROM large1").fetchone() == (1,)
        assert db.pop("b") == {"data": large[:60_000]}
        assert connect().execute("SELECT count(*) FROM large1").fetchone() == (0,)
        db.extend([{"data": large[:40_000]}, {"data": "s"}])
        assert [len(row.data) for row in db.values(start=0, stop=9)] == [40_000, 1]
        db.clear()
        assert connect().execute("SELECT count(*) FROM large1").fetchone() == (0,)


def test_a_hostile_row_raises_and_never_more(url: str, connect: Connect) -> None:
    with pellucid.open(url) as db:
        db["row"] = {"a": 1, "b": {"c": [1, 2, {"d": 3}]}, "text": "x" * 50}
        connection = connect()
        good = connection.execute("SELECT v FROM t1_1").fetchone()[0]
        for value in damaged(bytes(good)):
            connection.execute("UPDATE t1_1 SET v = %s, ver = ver + 1", [value])
            with contextlib.suppress(pellucid.Error, LookupError, ValueError):
                row = db["row"]
                row.to_dict()
            with contextlib.suppress(pellucid.Error, LookupError, ValueError, TypeError, AttributeError):
                list(db.items())
                db["row"].b.c[2].d = 5
            db.check()
        connection.execute("UPDATE t1_1 SET v = %s, ver = ver + 1", [good])
        assert db["row"].b.c[2].d == 3
        connection.execute("UPDATE t1_1 SET k = %s", [b"\xff\xff"])
        with pytest.raises(pellucid.CorruptRecord):
            list(db)
        assert len(db.check()) == 1


def damaged(good: bytes) -> Iterator[bytes]:
    """Yield what another client might have written."""
    for size in range(0, len(good), 3):
        yield good[:size]
    for place in range(len(good)):
        for bits in (0xFF, 0x80, 0x01):
            yield good[:place] + bytes([good[place] ^ bits]) + good[place + 1 :]


def test_a_schema_of_another_program_is_left_alone(url: str, connect: Connect, server: str) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    connection = connect()
    connection.execute(f"CREATE SCHEMA {schema}")
    connection.execute("CREATE TABLE orders (id int)")
    with pytest.raises(pellucid.NotADatabase, match="another program"):
        pellucid.open(url)
    connection.execute("CREATE TABLE about (what text)")
    with pytest.raises(pellucid.NotADatabase, match="another program"):
        pellucid.open(url)
    assert connection.execute(
        "SELECT count(*) FROM pg_tables WHERE schemaname = %s", [schema]
    ).fetchone() == (2,)


def test_a_relation_of_another_program_is_named(url: str, connect: Connect) -> None:
    with pellucid.open(url) as db:
        connection = connect()
        table = db.table("t")
        works = {
            "t1_1": lambda: table.__setitem__("a", {"n": 1, "tags": ["x"]}),
            "t1_2": lambda: table.create_index("n", F.n),
            "e2": lambda: table.create_index("tags", F.tags.each()),
        }
        if not db._connection.catalog.has_citus:
            works["changes"] = lambda: db.watch(timeout=0)
        for name, work in works.items():
            connection.execute(f"CREATE TABLE {name} (x int)")
            with pytest.raises(pellucid.DatabaseError, match="another program has"):
                work()
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)
            connection.execute(f"DROP TABLE {name}")
            work()
        assert table.where(F.n == 1).first() == {"n": 1, "tags": ["x"]}
        assert table.index("tags").get("x").n == 1


def test_a_damaged_catalog_is_said(url: str, connect: Connect) -> None:
    with pellucid.open(url) as db:
        db.table("t")["a"] = {"n": 1}
        db.table("t").create_index("n", F.n)
        connection = connect()
        connection.execute("UPDATE indexes SET definition = %s", [b"\xff"])
        with pellucid.open(url) as other, pytest.raises(pellucid.DatabaseCorrupt, match="definition"):
            other.table("t")
        connection.execute("UPDATE catalog SET name = %s", [b"\xff"])
        with pytest.raises(pellucid.DatabaseCorrupt, match="name of a table"):
            db.tables()


def test_a_schema_that_is_dropped_meanwhile_is_an_error(url: str, connect: Connect) -> None:
    with pellucid.open(url) as db:
        db["a"] = {"n": 1}
        schema = url.partition("schema=")[2].partition("&")[0]
        connect().execute(f"DROP SCHEMA {schema} CASCADE")
        for work in (lambda: db["a"], db.tables, lambda: db.table("other")):
            with pytest.raises(pellucid.DatabaseError, match="another program has dropped"):
                work()


def test_a_database_of_a_newer_release_is_refused(url: str, connect: Connect) -> None:
    with pytest.raises(pellucid.NotADatabase, match="mode='c'"):
        pellucid.open(url, "w")
    pellucid.open(url).close()
    connect().execute("UPDATE about SET oldest_reader = 99")
    with pytest.raises(pellucid.NewerFormat, match="upgrade"):
        pellucid.open(url)


def test_a_reader_writes_nothing(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = {"n": 1}
    with pellucid.open(url, "r") as db:
        for change in (
            lambda: db.__setitem__("a", 1),
            lambda: setattr(db["a"], "n", 2),
            lambda: db.drop_table("default"),
            db.clear,
            db.popitem,
            lambda: db.append(1),
        ):
            with pytest.raises(pellucid.ReadOnly):
                change()
        assert db == {"a": {"n": 1}}
    with pellucid.open(url, "n") as db:
        assert db == {}
        assert db.tables() == []


def test_names_are_data(url: str) -> None:
    names = ['"; DROP SCHEMA public; --', "a'b", "{0}", "%s", "$1", "\u00e9\0", "t1_1"]
    with pellucid.open(url) as db:
        for name in names:
            db.table(name)["k"] = {name: name}
        assert db.tables() == sorted(names, key=str.encode)
        for name in names:
            assert db.table(name)["k"] == {name: name}
            db.rename_table(name, name + "!")
            db.drop_table(name + "!")
        assert db.tables() == []


def test_a_schema_may_have_any_name(server: str) -> None:
    psycopg = driver("psycopg")
    name = f'it"s {{odd}} %s $1 {os.getpid()}'
    try:
        with pellucid.open(url_of(server, name)) as db:
            db["a"] = {"n": 1}
            db["a"].n += 1
            assert db == {"a": {"n": 2}}
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("SET client_min_messages = error")
            drop = psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(psycopg.sql.Identifier(name))
            connection.execute(drop)


def test_a_role_without_rights_is_told_which(url: str, server: str, connect: Connect) -> None:
    role = f"pellucid_reader_{os.getpid()}"
    schema = url.partition("schema=")[2].partition("&")[0]
    with pellucid.open(url) as db:
        db["a"] = {"n": 1}
    connection = connect()
    connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        theirs = url.replace("user=postgres", f"user={role}")
        if theirs == url:
            pytest.fail("the server of the tests has another superuser")
        with pytest.raises(pellucid.ReadOnly, match=f'GRANT USAGE, CREATE ON SCHEMA "{schema}" TO "{role}"'):
            pellucid.open(theirs, "r")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        with pellucid.open(theirs) as db:
            assert db["a"].n == 1
            for change in (lambda: setattr(db["a"], "n", 2), lambda: db.__setitem__("b", {"other": 1})):
                with pytest.raises(pellucid.ReadOnly, match="GRANT SELECT, INSERT, UPDATE, DELETE"):
                    change()
            assert db == {"a": {"n": 1}}
    finally:
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")


def test_a_role_that_may_not_create_an_index_claims(url: str, server: str, connect: Connect) -> None:
    role = f"pellucid_worker_{os.getpid()}"
    schema = url.partition("schema=")[2].partition("&")[0]
    with pellucid.open(url) as db:
        db.table("jobs").extend([{"state": "new"}, {"state": "new"}])
    connection = connect()
    connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        every = f"ALL TABLES IN SCHEMA {schema}"
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {every} TO {role}")
        with pellucid.open(url.replace("user=postgres", f"user={role}")) as db:
            claimed = [db.table("jobs").claim(F.state == "new", {"state": "taken"}) for _ in range(3)]
            assert [claim and claim.key for claim in claimed] == [0, 1, None]
    finally:
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")


def test_no_password_is_shown(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    secret = "geheim%40nis"
    for url in (
        f"postgresql://me:{secret}@localhost:1/db",
        f"postgresql://me:{secret}@localhost:port/db",
        f"postgresql://me:{secret}%ZZ@localhost/db",
        f"postgresql://me@localhost:1/db?password={secret}",
        f"postgresql://me:{secret}@localhost/db?nonsense=1",
    ):
        with pytest.raises((pellucid.DatabaseError, ValueError)) as raised:
            pellucid.open(url, timeout=1)
        shown = f"{raised.value} {raised.value!r} {raised.value.__cause__} {caplog.text}"
        assert "geheim" not in shown


def test_arguments_are_checked(url: str) -> None:
    for more in ("&max_connections=0", "&max_connections=x", "&prepare=maybe"):
        with pytest.raises(ValueError, match="in the URL"):
            pellucid.open(url + more)
    with pytest.raises(ValueError, match="untrusted"):
        pellucid.open(url, "r", untrusted=True)
    with pytest.raises(ValueError, match="mode"):
        pellucid.open(url, "x")
    with pellucid.open(url + "&prepare=false", durability="full") as db:
        for number in range(10):
            db[number] = number
        assert len(db) == 10


def test_a_missing_driver_says_how_to_install_it() -> None:
    program = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "import pellucid\n"
        "try:\n"
        "    pellucid.open('postgresql://localhost/x')\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'pellucid[postgres]'" in done.stdout
