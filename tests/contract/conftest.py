"""The databases that the contract holds for: a file, memory, and a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import differences
import pellucid
import pytest
import servers
from pellucid._native import _testing

ON_SERVER = "server"


@pytest.fixture
def compressed_path(path: Path) -> Iterator[Path]:
    """A path at which every table is compressed, and commits soon leave the log, where rows are plain."""
    _testing.compress_all(True)
    _testing.limit_log(1 << 12)
    try:
        yield path
    finally:
        _testing.limit_log(0)
        _testing.compress_all(False)


@pytest.fixture(params=["file", "compressed", "memory", ON_SERVER])
def db(
    request: pytest.FixtureRequest, path: Path, started: Callable[[str], str]
) -> Iterator[pellucid.Database]:
    """An empty database of each kind: whatever holds for one holds for the others."""
    if request.param == ON_SERVER:
        # Each snapshot has a connection, and a test makes many.
        empty = servers.empty_database(started(servers.chosen()[0]), max_connections="60")
        with empty as url, pellucid.open(url) as database:
            if servers.are_distributed():
                # As a program does that makes its handles before its transactions.
                database.table("first", distributed=True)
                distribute_all(request.getfixturevalue("monkeypatch"))
            yield database
        return
    if request.param == "compressed":
        request.getfixturevalue("compressed_path")
    with pellucid.open(":memory:" if request.param == "memory" else path) as database:
        yield database


def distribute_all(patch: pytest.MonkeyPatch) -> None:
    """Make each table that a test creates a distributed one."""
    from pellucid.postgres.schema.layout import CreateOptions, Layout
    from pellucid.postgres.schema.tables import DatabaseTables

    create = DatabaseTables.create

    def distributed(self: DatabaseTables, name: str, options: CreateOptions) -> Layout:
        return create(self, name, dataclasses.replace(options, is_distributed=True))

    patch.setattr(DatabaseTables, "create", distributed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of what a server does otherwise, or not."""
    many = servers.are_distributed()
    left = [
        item for item in items if is_on_server(item) and differences.reason(item.nodeid, is_distributed=many)
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def is_on_server(item: pytest.Item) -> bool:
    """Whether the test is about a database on a server."""
    call = getattr(item, "callspec", None)
    # Parameters of other tests may have a comparison of their own.
    return call is not None and any(
        type(value) is str and value == ON_SERVER for value in call.params.values()
    )
