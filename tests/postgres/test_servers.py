"""Does the tests' own PostgreSQL server go away, however the tests end?"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import postgres_server
import pytest
import servers

# Gives the process id of the keeper, and a connection string.
OWNER = """
import os, subprocess, sys, time
keeper = subprocess.Popen(
    [sys.executable, sys.argv[1], sys.argv[2]],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
)
dsn = keeper.stdout.readline()
if "child" in sys.argv and os.fork() == 0:
    time.sleep(60)  # holds the pipe to the keeper
    os._exit(0)
print(keeper.pid, dsn, flush=True)
sys.stdin.read()
"""


class Owner:
    """A process that has a server, as pytest has one."""

    def __init__(self, kind: str, *more: str) -> None:
        command = [sys.executable, "-c", OWNER, servers.KEEPER, kind, *more]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        keeper, _, dsn = self.process.stdout.readline().partition(" ")
        assert dsn, "the server did not start"
        self.keeper, self.directory = int(keeper), Path(dsn.split("'")[1])
        self.server = int((self.directory / "data/postmaster.pid").read_text().split()[0])

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def is_there(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        # It may go between two of these steps.
        return False


def goes(pid: int) -> bool:
    until = time.monotonic() + 60
    while is_there(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_there(pid)


@pytest.fixture(params=postgres_server.kinds() or [servers.NONE])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == servers.NONE:
        with servers.running(servers.NONE):
            pass
    return str(request.param)


def test_it_answers_and_goes_with_its_directory(kind: str) -> None:
    with servers.running(kind) as dsn:
        directory = Path(dsn.split("'")[1])
        server = int((directory / "data/postmaster.pid").read_text().split()[0])
        with servers.driver("psycopg").connect(dsn) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert is_there(server)
    assert (is_there(server), directory.exists()) == (False, False)


def test_it_goes_when_its_owner_is_killed(kind: str) -> None:
    owner = Owner(kind)
    assert is_there(owner.server)
    owner.process.kill()
    owner.process.communicate()
    assert goes(owner.server)
    assert goes(owner.keeper)
    assert not owner.directory.exists()


def test_it_goes_when_its_owner_is_killed_and_leaves_a_child(kind: str) -> None:
    owner = Owner(kind, "child")
    owner.process.kill()
    assert goes(owner.server)
    assert goes(owner.keeper)
    assert not owner.directory.exists()
    owner.end()


if sys.platform == "linux":  # which alone tells a process of its parent's death

    def test_it_goes_when_its_keeper_is_killed(kind: str) -> None:
        owner = Owner(kind)
        os.kill(owner.keeper, signal.SIGKILL)
        assert goes(owner.server)
        owner.end()
        shutil.rmtree(owner.directory)


def test_a_server_that_is_not_there_is_refused_by_name() -> None:
    command = [sys.executable, servers.KEEPER, "other"]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert "'other' is no kind of PostgreSQL server; it is one of system, wheel" in done.stderr
