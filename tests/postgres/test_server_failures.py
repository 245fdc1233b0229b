"""What does a caller learn of a server that stops and starts, or whose disk is full, and is anything lost?"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest
import servers
from pellucid.errors import Busy, CommitUnknown, DatabaseError, DiskFull
from pellucid.postgres import transaction

STOPS = 3
WRITERS = 4


@pytest.fixture(scope="module", params=servers.chosen())
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A connection string for a server of these tests alone, which has little to recover."""
    with servers.running(request.param) as dsn:
        yield dsn


def checkpoint(server: str) -> None:
    """Shorten the recovery, which begins at the last checkpoint."""
    with servers.driver("psycopg").connect(server, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def wait_until_it_answers(server: str) -> None:
    """Return when a server takes connections again."""
    until = time.monotonic() + 90
    while True:
        try:
            servers.driver("psycopg").connect(server, connect_timeout=5).close()
        except servers.driver("psycopg").OperationalError:
            assert time.monotonic() < until
            time.sleep(0.1)
        else:
            return


@pytest.fixture
def crash(server: str) -> Iterator[Callable[[], None]]:
    """Kills a process of the server, if it is on this machine and ours: the server ends all others then."""
    checkpoint(server)
    found = servers.driver("psycopg").conninfo.conninfo_to_dict(server)
    if not str(found.get("host", "")).startswith("/"):
        servers.pass_over("the server of PELLUCID_TEST_DSN has processes that are not ours to kill")

    def kill() -> None:
        connect = servers.driver("psycopg").connect
        with connect(server, autocommit=True) as witness, connect(server, autocommit=True) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            # The server ends all connections as soon as it has seen that.
            select.select([witness.fileno()], [], [])

    yield kill
    wait_until_it_answers(server)


class Writer:
    """What one client has written, by what it was told of it."""

    def __init__(self, db: Any, number: int, *, is_distributed: bool = False) -> None:
        self.db = db
        self.table = db.table("t", distributed=True) if is_distributed else db.table("t")
        self.number = number
        self.ends = False
        self.stored: set[int] = set()
        self.unknown: set[int] = set()
        self.not_stored: set[int] = set()
        self.others: list[BaseException] = []

    def write(self) -> None:
        """Store pairs of rows and single rows until it has to end."""
        turn = 0
        while not self.ends:
            turn += 1
            try:
                self.store(turn)
                self.stored.add(turn)
            except CommitUnknown:
                self.unknown.add(turn)
            except (DatabaseError, Busy):
                self.not_stored.add(turn)
                time.sleep(0.05)
            except BaseException as error:
                self.others.append(error)
                return

    def store(self, turn: int) -> None:
        """Store one row, or two in a transaction, or two by changes of fields."""
        table = self.table
        if turn % 3 == 0:
            table[self.number, turn, 0] = {"n": turn}
            return
        with self.db.transaction():
            for part in (0, 1):
                table[self.number, turn, part] = {"n": 0}
                table[self.number, turn, part].n = turn

    def check(self, rows: dict[Any, Any]) -> None:
        """Compare the rows with what was said of them."""
        assert self.others == []
        for turn in self.stored | self.unknown | self.not_stored:
            count = 1 if turn % 3 == 0 else 2
            found = [rows[key] for part in (0, 1) if (key := (self.number, turn, part)) in rows]
            assert len(found) in (
                {count} if turn in self.stored else {0} if turn in self.not_stored else {0, count}
            )
            assert all(row == {"n": turn} for row in found)


def begun(writers: list[Writer]) -> list[threading.Thread]:
    """Have each writer write in a thread of its own."""
    threads = [threading.Thread(target=writer.write, daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    return threads


def end(writers: list[Writer], threads: list[threading.Thread]) -> None:
    """Have the writers end, and wait for it."""
    for writer in writers:
        writer.ends = True
    for thread in threads:
        thread.join()


def wait_for(writers: list[Writer], count: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Return when each writer has stored so many times more, or cannot go on."""
    wanted = [len(writer.stored) + count for writer in writers]
    while any(
        len(writer.stored) < least and not writer.others
        for writer, least in zip(writers, wanted, strict=True)
    ):
        meanwhile()
        time.sleep(0.02)


def test_a_restart_under_load_loses_nothing_that_was_acknowledged(
    url: str, crash: Callable[[], None]
) -> None:
    with contextlib.ExitStack() as stack:
        writers = [
            Writer(stack.enter_context(pellucid.open(url, timeout=20)), number) for number in range(WRITERS)
        ]
        table = writers[0].db.table("t")
        table["first"] = {"n": 0}
        reads: list[int] = []

        def read() -> None:
            with contextlib.suppress(DatabaseError):
                reads.append(len(table))

        threads = begun(writers)
        for _ in range(STOPS):
            wait_for(writers, 20, read)
            # It recovers from its log, and takes connections again.
            crash()
        wait_for(writers, 20, read)
        end(writers, threads)
        assert reads == sorted(reads)
        rows = dict(table.items())
        for writer in writers:
            writer.check(rows)
        assert any(writer.not_stored or writer.unknown for writer in writers)
        assert writers[0].db.check() == []


def test_a_worker_that_waits_for_a_job_learns_of_a_restart_and_goes_on(
    url: str, server: str, crash: Callable[[], None]
) -> None:
    with pellucid.open(url) as db:
        jobs, claimed = db.table("jobs"), list[Any]()
        raised: list[DatabaseError] = []
        jobs["done"] = {"state": "done"}

        def work() -> None:
            until = time.monotonic() + 120
            while not claimed and time.monotonic() < until:
                try:
                    job = jobs.claim(pellucid.F.state == "new", {"state": "running"}, timeout=1)
                except DatabaseError as error:
                    raised.append(error)
                    time.sleep(0.1)
                else:
                    claimed.extend([] if job is None else [job])

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(0.3)
        crash()
        wait_until_it_answers(server)
        with pellucid.open(url) as other:
            other.table("jobs")["a"] = {"state": "new"}
        worker.join(150)
        assert [job.key for job in claimed] == ["a"]
        assert all("connect" in str(error) for error in raised), raised
        claimed[0].finish(state="done")
        assert jobs["a"].state == "done"


class Worker:
    """A server of a Citus cluster that has rows, on this machine."""

    def __init__(self, connection: Any, host: str, port: int) -> None:
        self.server = servers.driver("psycopg").conninfo.make_conninfo(
            connection.info.dsn, host=host, port=port
        )
        checkpoint(self.server)
        with servers.driver("psycopg").connect(self.server) as own:
            data = Path(own.execute("SHOW data_directory").fetchone()[0])
        self.process = int((data / "postmaster.pid").read_text().split()[0])
        self.command = Path(f"/proc/{self.process}/cmdline").read_bytes().split(b"\0")[:-1]
        self.data = data

    def stop(self) -> None:
        """End it at once, as if its machine had failed, and return when it is gone."""
        os.kill(self.process, signal.SIGQUIT)
        while (self.data / "postmaster.pid").exists():
            time.sleep(0.01)

    def start(self) -> None:
        """Start it again. It outlives the tests, as it did before."""
        owner = self.data.stat()
        started = subprocess.Popen(
            self.command,
            cwd=self.data,
            user=owner.st_uid if os.geteuid() == 0 else None,
            group=owner.st_gid if os.geteuid() == 0 else None,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.process = started.pid
        # The tests do not wait for its end.
        started.returncode = 0


@pytest.fixture
def worker(server: str, crash: Callable[[], None]) -> Iterator[Worker]:
    """A worker of the Citus cluster, which may be stopped and started."""
    servers.needs_citus(server)
    with servers.driver("psycopg").connect(server) as connection:
        nodes = connection.execute(
            "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 ORDER BY groupid"
        ).fetchall()
        if not nodes or nodes[0][0] not in ("localhost", "127.0.0.1", "::1"):
            servers.pass_over("the workers of this Citus are on other machines")
        made = Worker(connection, *nodes[0])
    yield made
    wait_until_it_answers(made.server)


def test_a_worker_of_citus_that_stops_and_starts_loses_nothing(url: str, worker: Worker, server: str) -> None:
    with contextlib.ExitStack() as stack:
        with pellucid.open(url) as db:
            db.table("t", distributed=True)["first"] = {"n": 0}
        writers = [
            Writer(stack.enter_context(pellucid.open(url, timeout=20)), number, is_distributed=True)
            for number in range(WRITERS)
        ]
        threads = begun(writers)
        for _ in range(STOPS):
            wait_for(writers, 10)
            worker.stop()
            time.sleep(0.5)
            worker.start()
        wait_for(writers, 10)
        end(writers, threads)
        # What a worker has prepared for a commit waits for this, or for the server's own look once a minute.
        with servers.driver("psycopg").connect(server, autocommit=True) as connection:
            connection.execute("SELECT recover_prepared_transactions()")
        rows = dict(writers[0].table.items())
        for writer in writers:
            writer.check(rows)
        assert any(writer.not_stored or writer.unknown for writer in writers)
        assert writers[0].db.check() == []


def test_a_number_that_a_crashed_server_gave_again_is_not_taken_for_a_commit(
    url: str, crash: Callable[[], None], server: str
) -> None:
    with pellucid.open(url) as db:
        # What another client has committed stands for what it commits under the same number later.
        with servers.driver("psycopg").connect(server) as other:
            other.execute("CREATE TEMP TABLE x (n int)")
            number = other.execute("SELECT pg_current_xact_id()::text").fetchone()[0]
        with db._connection.pool.session() as session:
            run = session.server_run
        transaction.find_out(number, run, RuntimeError("lost"), db._connection)
        crash()
        wait_until_it_answers(server)
        with pytest.raises(CommitUnknown, match="given the number again"):
            transaction.find_out(number, run, RuntimeError("lost"), db._connection)
        if not db._connection.catalog.has_citus:
            with pytest.raises(DatabaseError, match="nothing of the transaction was stored"):
                transaction.find_out(str(int(number) + 10_000), run, RuntimeError("lost"), db._connection)


@pytest.fixture
def small_disk(server: str, tmp_path: Path) -> Iterator[Callable[[int], None]]:
    """A tablespace named `pellucid_small` on a file system of 24 MB; the function makes it larger."""
    if os.geteuid() != 0 or not servers.driver("psycopg").conninfo.conninfo_to_dict(server)[
        "host"
    ].startswith("/"):
        servers.pass_over("a small file system is mounted by root alone, on the machine of the server")
    place = Path(f"/tmp/pellucid-small-{os.getpid()}")
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        place.rmdir()
        servers.pass_over(f"no file system can be mounted here: {mounted.stderr.strip()}")
    connection = servers.driver("psycopg").connect(server, autocommit=True)
    try:
        data = Path(connection.execute("SHOW data_directory").fetchone()[0])
        os.chown(place, data.stat().st_uid, data.stat().st_gid)
        connection.execute(f"CREATE TABLESPACE pellucid_small LOCATION '{place}'")
        try:
            yield (
                lambda size: (
                    subprocess.run(
                        ["mount", "-o", f"remount,size={size}m", place], check=True, capture_output=True
                    )
                    and None
                )
            )
        finally:
            connection.execute("CHECKPOINT")
            connection.execute("DROP TABLESPACE pellucid_small")
    finally:
        connection.close()
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def test_a_full_disk_refuses_writes_and_keeps_what_is_there(
    small_disk: Callable[[int], None], server: str
) -> None:
    where = "&options=-cdefault_tablespace%3Dpellucid_small"
    with servers.empty_database(server) as url, pellucid.open(url + where) as db:
        table = db.table("t")
        table.create_index("n", pellucid.F.n)
        stored = 0

        def fill() -> None:
            nonlocal stored
            while stored < 2000:
                with db.transaction():
                    for number in range(stored, stored + 20):
                        table[number] = {"n": number, "text": "x" * 20_000}
                stored += 20

        with pytest.raises(DiskFull, match=r"no space left.*nothing was stored"):
            fill()
        assert stored > 100
        assert len(table) == stored
        for write in (
            lambda: table.extend([{"n": 0, "text": "y" * 30_000}] * 100),
            lambda: table.update({number: {"n": 0, "text": "y" * 30_000} for number in range(100)}),
            lambda: table.__setitem__("large", {"text": "z" * 30_000_000}),
            lambda: db.table("other").extend([{"n": 0, "text": "y" * 30_000}] * 200),
        ):
            with pytest.raises(DiskFull):
                write()
        assert len(table) == stored
        assert table.sum("n") == sum(range(stored))
        assert "large" not in table
        assert [row.n for row in table.where(pellucid.F.n < 3)] == [0, 1, 2]
        assert db.check() == []
        small_disk(200)
        table["large"] = {"text": "z" * 30_000_000, "n": 0}
        table.extend([{"n": 0, "text": "y" * 30_000}] * 10)
        assert len(table) == stored + 11
        assert db.check() == []
