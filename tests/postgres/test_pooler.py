"""A pooler in transaction mode, which gives each transaction a connection that others have used."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import postgres_server
import pytest
import servers
from pellucid import F
from pellucid.errors import DatabaseError

# Connections of the pooler to the server, fewer than there are clients.
POOL_SIZE = 4
# What the pooler is told of the server.
TARGET = ("host", "port", "user", "password")


def test_the_message_names_the_setting_for_a_pooler(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table["a"] = {"n": 1}
        for _ in range(10):
            assert table["a"].n == 1
        # What the server of another connection would know: none of the statements.
        for session in db._connection.pool._idle:
            session.connection.pgconn.exec_(b"DEALLOCATE ALL")
        with pytest.raises(DatabaseError, match="prepare=false"):
            assert table["a"].n == 1


def test_without_prepared_statements_nothing_outlives_a_transaction(url: str) -> None:
    with pellucid.open(url + "&prepare=false", timeout=3) as db:
        table = db.table("t")
        for number in range(30):
            table[number] = {"n": number}
            for session in db._connection.pool._idle:
                session.connection.pgconn.exec_(b"DISCARD ALL")
        with db.transaction():
            assert db._connection.running().rows(b"SHOW lock_timeout") == [("3s",)]
            table[1].n += 1
        # Other clients would have a setting of the connection, or wait for its lock.
        table.create_index("n", F.n)
        with db._connection.pool.session() as session:
            assert session.rows(b"SHOW lock_timeout") == [("0",)]
            assert session.rows(b"SHOW default_transaction_read_only") == [("off",)]
            assert session.rows(b"SELECT count(*) FROM pg_prepared_statements") == [(0,)]
            own = b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert session.rows(own) == [(0,)]
        assert table.index("n").get(5) == {"n": 5}
    with pellucid.open(url + "&prepare=false", mode="r") as db, db._connection.pool.session() as session:
        assert session.rows(b"SHOW default_transaction_read_only") == [("off",)]


@pytest.fixture
def pooled(url: str, server: str) -> Iterator[str]:
    """The URL of the same database through PgBouncer in transaction mode, with few connections to it."""
    program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        servers.pass_over("no PgBouncer here: install Debian's package pgbouncer")
    known = servers.driver("psycopg").conninfo.conninfo_to_dict(server)
    host = str(known.get("host", ""))
    place = Path(tempfile.mkdtemp(prefix="pellucid-pooler-", dir="/tmp"))
    words = [program, place / "pgbouncer.ini"]
    account = postgres_server.account()
    if account is not None:
        # It does not run as root, and a server's socket may be in a directory of its owner alone.
        owner = os.stat(host).st_uid if host.startswith("/") else account.pw_uid
        os.chown(place, owner, -1)
        words += ["-u", pwd.getpwuid(owner).pw_name]
    target = " ".join(f"{name}='{value}'" for name, value in known.items() if name in TARGET)
    (place / "pgbouncer.ini").write_text(
        f"[databases]\n* = {target}\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n"
        f"listen_addr =\nunix_socket_dir = {place}\nlisten_port = 6432\n"
        f"default_pool_size = {POOL_SIZE}\nmax_client_conn = 200\n"
    )
    try:
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as pooler:
            try:
                until = time.monotonic() + 30
                while not (place / ".s.PGSQL.6432").exists():
                    if pooler.poll() is not None or time.monotonic() > until:
                        pytest.fail(f"PgBouncer does not start: {pooler.communicate(timeout=5)[1]}")
                    time.sleep(0.02)
                schema = dict(urllib.parse.parse_qsl(url.partition("?")[2]))["schema"]
                yield servers.url(f"{server} host={place} port=6432", schema, application_name=schema)
            finally:
                pooler.terminate()
                pooler.communicate()
    finally:
        shutil.rmtree(place)


def test_a_pooler_without_the_setting_is_named(pooled: str) -> None:
    def use(db: Any, failures: list[Exception]) -> None:
        try:
            for turn in range(300):
                db["a"] = {"n": turn}
                assert "n" in db["a"]
        except Exception as error:
            failures.append(error)

    failures: list[Exception] = []
    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(pellucid.open(pooled)) for _ in range(2 * POOL_SIZE)]
        together([functools.partial(use, db, failures) for db in databases])
    assert failures
    assert all(isinstance(error, DatabaseError) and "prepare=false" in str(error) for error in failures)


def test_clients_of_a_pooler_share_few_connections(pooled: str, url: str) -> None:
    through = pooled + "&prepare=false"

    def use(db: Any, number: int) -> None:
        table = db.table("t")

        def count(turn: int) -> None:
            table["last", number] = {"n": turn}
            table["all"].n += 1
            with contextlib.suppress(RuntimeError), db.transaction():
                table[number, turn].n = -1
                raise RuntimeError

        for turn in range(20):
            table[number, turn] = {"n": 0}
            table[number, turn].n = turn
            db.run(functools.partial(count, turn))
        more = {(number, "more", turn): {"n": turn} for turn in range(300)}
        db.run(functools.partial(table.update, more))
        assert sum(row.n for row in table.range(prefix=(number, "more"))) == sum(range(300))

    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(pellucid.open(through, timeout=60)) for _ in range(3 * POOL_SIZE)]
        databases[0].table("t")["all"] = {"n": 0}
        building = functools.partial(databases[-1].table("t").create_index, "n", F.n)
        together(
            [functools.partial(use, db, number) for number, db in enumerate(databases[:-1])] + [building]
        )
        with pellucid.open(url) as direct:
            count = len(databases) - 1
            for db in (databases[0], direct):
                table = db.table("t")
                assert table["all"] == {"n": 20 * count}
                assert len(table) == 1 + count * (20 + 1 + 300)
                assert table.where(F.n == 7).count() == 2 * count
                assert {row.n for row in table.range(prefix=("last",))} == {19}
                assert db.check() == []
        with databases[0].snapshot() as before, databases[1].transaction():
            databases[1].table("t").clear()
            assert len(before.table("t")) == 1 + count * 321
        assert len(databases[2].table("t")) == 0


def together(works: list[Callable[[], object]]) -> None:
    """Do all of this at once, and raise what one of them raises."""
    with concurrent.futures.ThreadPoolExecutor(len(works)) as threads:
        for work in [threads.submit(work) for work in works]:
            work.result()
