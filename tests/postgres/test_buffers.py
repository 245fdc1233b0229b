"""Do the experiments with a server run, agree with themselves, and write what they promise?"""

from __future__ import annotations

import getpass
import platform
import re
from pathlib import Path

import servers
from pellucid_bench import command
from pellucid_bench.dataset import Dataset, to_json
from pellucid_bench.experiments.postgres import DISTRIBUTED, ONE_SERVER


def measured(name: str, server: str, directory: Path) -> Dataset:
    """The dataset of a quick run on a server."""
    for driver in servers.DRIVERS:
        servers.driver(driver)
    chosen = command.Options([name], quick=True, directory=directory, settings={"dsn": server})
    [made] = command.measured(chosen)
    assert made.code == 0
    found = {result.error for one in made.dataset.measures for result in one.results if result.error}
    assert all(error.startswith(("not installed", "the server has no Citus")) for error in found), found
    assert list(directory.iterdir()) == []
    return made.dataset


def contenders(run: Dataset, measure_id: str) -> set[str]:
    measure = run.measure(measure_id)
    assert measure is not None
    return {result.contender for result in measure.results if result.samples}


def test_all_ways_to_a_buffer_agree(server: str, tmp_path: Path) -> None:
    run = measured("buffers", server, tmp_path)
    assert run.versions["PostgreSQL"]
    assert "jsonb, on the server" in contenders(run, "buffers/server-one/30")
    assert {"pellucid", "pickle"} <= contenders(run, "buffers/client-whole/1")
    # The unpicklers are the collector's.
    assert contenders(run, "buffers/protocol-5/30")
    names = (platform.node(), getpass.getuser())
    text = repr(to_json(run))
    assert "host=" not in text
    assert [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)] == []


def test_all_tables_on_a_server_agree(server: str, tmp_path: Path) -> None:
    run = measured("postgres", server, tmp_path)
    assert {"pellucid", "psycopg, jsonb"} <= contenders(run, "postgres/one-row-by-an-index-of-a-nested-field")
    assert len(run.measures) == 14
    many = contenders(run, "postgres/citus-one-row-by-its-key")
    assert many == ({DISTRIBUTED, ONE_SERVER} if servers.has_citus(server) else set())
