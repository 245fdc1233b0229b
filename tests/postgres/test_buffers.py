"""Does the buffer experiment run, agree with itself, and write what it promises?"""

from __future__ import annotations

import getpass
import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import servers

BENCH = Path(__file__).parent.parent.parent / "python/pellucid_bench"
QUICK = ("--quick", "--rounds", "1", "--entries", "3")


def run(program: str, path: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The dataset of a short run, and what it printed."""
    command = [
        sys.executable,
        "-m",
        f"pellucid_bench.experiments.{program}",
        "--json",
        path,
        *QUICK,
        *options,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(path.read_text()), done.stdout


def check(dataset: dict[str, Any]) -> None:
    """Each result has its samples, by each of its clocks, and no name of this machine or its user."""
    for result in dataset["results"]:
        assert result["loops"] >= 1
        for clock in {"seconds", "processor", "backend"} & set(result):
            assert [seconds for seconds in result[clock] if not seconds >= 0] == []
            assert len(result[clock]) == dataset["rounds"] == 1
    names = (platform.node(), getpass.getuser())
    assert [name for name in names if re.search(rf"\b{re.escape(name)}\b", json.dumps(dataset))] == []
    assert {"machine", "python", "date", "unit"} <= set(dataset)


def test_the_part_for_other_interpreters_needs_the_standard_library_alone(tmp_path: Path) -> None:
    # Isolated and without site: no module but the standard library's can be imported.
    command = [sys.executable, "-I", "-S", BENCH / "buffers_collect.py", *QUICK]
    subprocess.run([*command, "--json", tmp_path / "out.json"], check=True, capture_output=True)
    dataset = json.loads((tmp_path / "out.json").read_text())
    check(dataset)
    ways = {(result["protocol"], result["way"]) for result in dataset["results"]}
    assert {(protocol, "loads, the buffer") for protocol in range(6)} <= ways
    assert {result["unpickler"] for result in dataset["results"]} == {"C", "Python"}


def test_all_ways_agree_with_and_without_a_server(server: str, tmp_path: Path) -> None:
    for driver in servers.DRIVERS:
        servers.driver(driver)
    dataset, printed = run("buffers", tmp_path / "out.json", "--dsn", server)
    check(dataset)
    assert dataset["server"].startswith("PostgreSQL ")
    ways = {(result.get("place"), result.get("task"), result["way"]) for result in dataset["results"]}
    assert ("server", "one", "jsonb, on the server") in ways
    assert ("client", "whole", "pellucid") in ways
    assert "server, 3 entries, each" in printed


def test_it_runs_without_a_server(tmp_path: Path) -> None:
    dataset, _ = run("buffers", tmp_path / "out.json", "--no-server", "--no-pickles")
    check(dataset)
    assert dataset["server"] is None
    assert {result["place"] for result in dataset["results"]} == {"client"}
