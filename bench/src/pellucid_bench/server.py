"""This module starts a PostgreSQL server for the experiments that need one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid_bench.run import Unavailable

KEEPER = Path(__file__).parents[3] / "tools/postgres_server.py"


@contextmanager
def running(dsn: str | None) -> Iterator[str]:
    """Give a connection string: the one that was given, or that of a server which runs for this block."""
    if dsn:
        yield dsn
        return
    if not KEEPER.exists():
        raise Unavailable("only `./dev bench` in a clone can start a PostgreSQL server; name one with --dsn")
    command = [sys.executable, str(KEEPER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        try:
            found = keeper.stdout.readline().strip()
            if not found:
                raise Unavailable("no PostgreSQL server here: install one, or name one with --dsn")
            yield found
        finally:
            keeper.communicate("stop\n")
