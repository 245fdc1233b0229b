"""What do tests share? A database of either kind, and how hard hypothesis tries."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import faults
import hypothesis
import pellucid
import pytest
import servers

# No deadline: on a busy build server a first call that pages code in says nothing about the code.
hypothesis.settings.register_profile("pellucid", deadline=None, print_blob=True)
hypothesis.settings.load_profile("pellucid")

# What a shell begins in the background ignores Ctrl-C: a test that waits for one would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database may be made; nothing is there yet."""
    return tmp_path / "test.pel"


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library to preload, with which the system fails where a test says so."""
    return faults.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture(params=["file", "memory"])
def db(request: pytest.FixtureRequest, path: Path) -> Iterator[pellucid.Database]:
    """An empty database, once on disk and once in memory: whatever holds for one holds for the other."""
    with pellucid.open(path if request.param == "file" else ":memory:") as database:
        yield database


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], str]]:
    """Starts a PostgreSQL server of a kind, once, and gives its connection string."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda kind: stack.enter_context(servers.running(kind)))


@pytest.fixture(scope="session", params=servers.chosen())
def server(request: pytest.FixtureRequest, started: Callable[[str], str]) -> str:
    """A connection string for a PostgreSQL server, one for all tests."""
    return started(request.param)


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """The URL of a database on that server, which is not there yet."""
    with servers.empty_database(server) as empty:
        yield empty


@pytest.fixture
def dsn(server: str) -> Iterator[str]:
    """A connection string for an empty schema of that server."""
    with servers.schema(server) as empty:
        yield empty
