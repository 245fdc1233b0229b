"""Does a watch on a server give each change once, in an order in which it may have happened?"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pellucid
import pytest
import servers
from pellucid import F


@pytest.fixture(autouse=True)
def _without_citus(server: str) -> None:
    if servers.has_citus(server):
        servers.pass_over("on Citus a watch is refused: see test_citus.py")


def seen(watch: Any) -> list[tuple[Any, ...]]:
    return [(c.table, c.kind, c.key, c.value) for c in watch]


def test_a_watch_gives_every_kind_of_change(url: str) -> None:
    with pellucid.open(url) as db:
        before = db.table("before")
        before["old"] = 1
        watch = db.watch(timeout=0)
        assert seen(watch) == []
        watch = db.watch(timeout=0)
        t = db.table("t")
        t["a"] = {"n": 1}
        t["a"].n += 1
        before["b"] = "k"
        t.update({n: {"n": n} for n in range(3)})
        t.extend([{"n": 5}])
        del t[1]
        t.pop(2)
        t.where(F.n == 5).update(n=6)
        t.where(F.n == 6).delete()
        with db.transaction():
            t["twice"] = 1
            t["twice"] = 2
            t["gone"] = 1
            del t["gone"]
        t.clear()
        db.rename_table("t", "u")
        db.drop_table("u")
        assert seen(watch) == [
            ("t", "create", None, None),
            ("t", "put", "a", {"n": 1}),
            ("t", "put", "a", {"n": 2}),
            ("before", "put", "b", "k"),
            *(("t", "put", n, {"n": n}) for n in range(3)),
            ("t", "put", 3, {"n": 5}),
            ("t", "delete", 1, None),
            ("t", "delete", 2, None),
            ("t", "put", 3, {"n": 6}),
            ("t", "delete", 3, None),
            ("t", "put", "twice", 2),
            ("t", "delete", "gone", None),
            ("t", "delete", "a", None),
            ("t", "delete", 0, None),
            ("t", "delete", "twice", None),
            ("t", "rename", None, "u"),
            ("u", "drop", None, None),
        ]


def test_a_table_and_a_range_are_watched_alone(url: str) -> None:
    with pellucid.open(url) as db:
        table, other = db.table("t"), db.table("other")
        table[("a", 0)] = 0
        watch = table.watch(prefix=("a",), timeout=0)
        whole = table.watch(timeout=0)
        other[("a", 1)] = 1
        table[("a", 2)] = 2
        table[("b", 3)] = 3
        table["k" * 3000] = 4
        assert [c.key for c in watch] == [("a", 2)]
        db.drop_table("t")
        assert [(c.kind, c.key) for c in whole] == [
            ("put", ("a", 2)),
            ("put", ("b", 3)),
            ("put", "k" * 3000),
            ("drop", None),
        ]


def test_values_of_changes_cannot_be_changed(url: str) -> None:
    with pellucid.open(url) as db:
        watch = db.watch(timeout=0)
        db["a"] = {"n": 1, "large": "x" * 100_000}
        changes = list(watch)
        assert changes[-1].value.large == "x" * 100_000
        with pytest.raises(pellucid.ReadOnly):
            changes[-1].value.n = 2
        assert db["a"].n == 1


def test_a_watch_goes_on_at_a_version(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = 0
        watch = db.watch(timeout=0)
        for n in range(1, 4):
            db["a"] = n
        first = next(watch)
        assert first.value == 1
        rest = [c.value for c in db.watch(since=watch.version, timeout=0)]
        assert rest[-3:] == [1, 2, 3]
        assert [c.value for c in watch] == [2, 3]
        again = db.watch(since=watch.version, timeout=0)
        db["a"] = 4
        assert [(c.value, c.is_last) for c in again] == [(4, True)]
        with pytest.raises(pellucid.HistoryGone):
            db.watch(since=1)


def test_what_is_rolled_back_or_still_open_is_not_given(url: str) -> None:
    with pellucid.open(url) as db, pellucid.open(url) as other:
        db["a"] = 0
        watch = db.watch(timeout=0)
        with contextlib.suppress(RuntimeError), db.transaction():
            db["a"] = 1
            raise RuntimeError
        with db.transaction():
            db["open"] = 1
            with contextlib.suppress(RuntimeError), db.transaction():
                db["inner"] = 1
                raise RuntimeError
            other["later"] = 2
            assert seen(db.watch(since=watch.version, timeout=0)) == []
        assert [c.key for c in watch] == ["open", "later"]


def test_a_long_transaction_is_given_whole_though_the_connection_ends(url: str) -> None:
    with pellucid.open(url) as db:
        watch = db.watch(timeout=0)
        db.update({n: n for n in range(2000)})
        given = []
        for change in watch:
            given.append(change)
            if len(given) in (300, 500, 1200):
                session = db._connection.pool.take()
                session.execute(
                    b"SELECT pg_terminate_backend($1)", [watch._session.connection.info.backend_pid]
                )
                db._connection.pool.give(session)
        assert [c.key for c in given[1:]] == list(range(2000))
        assert [c.is_last for c in given] == [False] * 2000 + [True]


def test_a_role_that_only_writes_is_watched_too(url: str, server: str) -> None:
    psycopg = servers.driver("psycopg")
    schema = url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(server, autocommit=True) as connection, pellucid.open(url) as db:
        db["a"] = 0
        watch = db.watch(timeout=0)
        connection.execute("DROP ROLE IF EXISTS pellucid_writer")
        connection.execute("CREATE ROLE pellucid_writer LOGIN")
        try:
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO pellucid_writer")
            names = ", ".join(
                f'{schema}."{name}"'
                for (name,) in connection.execute(
                    "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename NOT IN "
                    "('changes', 'watched')",
                    [schema],
                )
            )
            connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {names} TO pellucid_writer")
            with pellucid.open(url.replace("user=postgres", "user=pellucid_writer")) as own:
                own["a"] = 1
                with pytest.raises(pellucid.ReadOnly, match=r"changes|watched"):
                    own.watch(timeout=0)
            assert [c.value for c in watch] == [1]
        finally:
            connection.execute("DROP OWNED BY pellucid_writer; DROP ROLE pellucid_writer")


def test_a_damaged_change_is_said_each_time_and_can_be_left_out(url: str, server: str) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    with servers.driver("psycopg").connect(server, autocommit=True) as connection, pellucid.open(url) as db:
        db["a"] = 0
        watch = db.watch(timeout=0)
        for name, value in [(b"\xff", None), (b"default", b"\0\0\0\0\xff")]:
            connection.execute(
                f"INSERT INTO {schema}.changes (tbl, name, kind, k, v) VALUES (1, %s, 'put', %s, %s)",
                [name, b"\xff", value or b""],
            )
            for _ in range(2):
                with pytest.raises(pellucid.CorruptRecord):
                    next(watch)
            watch = db.watch(timeout=0)
        db["a"] = 1
        assert [c.value for c in watch] == [1]


def test_a_waiting_watch_is_woken(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = 0
        watch = db.watch(timeout=20)
        timer = threading.Timer(0.3, lambda: db.__setitem__("a", 1))
        begun = time.monotonic()
        timer.start()
        assert next(watch).value == 1
        assert time.monotonic() - begun < 10
        watch.close()


WRITER = """
import sys, pellucid
db = pellucid.open(sys.argv[1])
print("ready", flush=True)
n = 0
while True:
    n += 1
    def move():
        db["killed"] = n
        db[n % 10] -= 1
        db[(n + 1) % 10] += 1
    db.run(move)
"""


def test_no_change_is_lost_or_repeated_among_concurrent_writers(url: str) -> None:
    accounts, transfers = 10, 40
    with pellucid.open(url) as db:
        db.update(dict.fromkeys(range(accounts), 100) | {"killed": 0})
        watch = db.watch(timeout=5)
        log: list[Any] = []
        done = threading.Event()

        def follow() -> None:
            for change in watch:
                log.append(change)
                if change.key == "end":
                    break
            done.set()

        def work(number: int) -> None:
            chance = random.Random(number)
            with pellucid.open(url) as own:
                for turn in range(transfers):
                    a, b = chance.sample(range(accounts), 2)

                    def move(a: int = a, b: int = b, turn: int = turn) -> None:
                        own[a] -= 1
                        if chance.random() < 0.2:
                            time.sleep(0.005)
                        own[b] += 1
                        own["by", number, turn] = a, b

                    own.run(move)
                    if chance.random() < 0.2:
                        with contextlib.suppress(ZeroDivisionError), own.transaction():
                            own["never", number] = turn
                            raise ZeroDivisionError

        def hold() -> None:
            with pellucid.open(url) as own, own.transaction():
                own["held"] = 1
                time.sleep(1.5)

        follower = threading.Thread(target=follow)
        follower.start()
        killed = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
        assert killed.stdout is not None
        killed.stdout.readline()
        with ThreadPoolExecutor(5) as threads:
            held = threads.submit(hold)
            for future in [threads.submit(work, number) for number in range(4)]:
                future.result()
            held.result()
        killed.kill()
        killed.communicate()
        time.sleep(0.3)
        db["end"] = 1
        assert done.wait(60)
        follower.join()
        state: dict[Any, Any] = dict.fromkeys(range(accounts), 100) | {"killed": 0}
        keys = [change.key for change in log]
        for place, change in enumerate(log):
            if change.key in range(accounts):
                # Each transfer changes a balance by one: a change that is lost, repeated or in another
                # order than it happened makes another step.
                assert abs(change.value - state[change.key]) == 1, (place, change, state[change.key])
            elif change.key == "killed":
                assert change.value == state["killed"] + 1
            state[change.key] = change.value
        assert state == dict(db)
        moves = [key for key in keys if isinstance(key, tuple) and key[0] == "by"]
        assert len(moves) == len(set(moves)) == 4 * transfers
        assert not any(isinstance(key, tuple) and key[0] == "never" for key in keys)
        assert sum(state[n] for n in range(accounts)) == 100 * accounts


def test_clients_ask_for_the_first_watch_at_once_while_others_create_tables(url: str) -> None:
    pellucid.open(url).close()

    def work(number: int) -> int:
        with pellucid.open(url) as db:
            if number % 2:
                for turn in range(5):
                    db.table(f"t{number}-{turn}")["a"] = turn
                return 0
            db.watch(timeout=0).close()
            return 1

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(work, range(6))) == 3
    with pellucid.open(url) as db:
        watch = db.watch(timeout=0)
        for name in db.tables():
            db.table(name)["b"] = 1
        assert [c.table for c in watch] == db.tables()


def test_indexes_may_be_built_while_a_table_is_watched(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.update({n: {"n": n} for n in range(100)})
        watch = table.watch(timeout=0)
        table.create_index("n", F.n)
        table[5].n = 500
        assert [(c.key, c.value) for c in watch] == [(5, {"n": 500})]


def test_a_watch_costs_nothing_before_it_was_asked_for(url: str, server: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = 1
    schema = url.partition("schema=")[2].partition("&")[0]
    with servers.driver("psycopg").connect(server) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s",
            [schema],
        )
        assert found.fetchone() == (0,)
