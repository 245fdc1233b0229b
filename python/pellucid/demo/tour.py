"""This module has the parts of the demo: lines of Python that run as they are shown, and what they come to.

Each part of `PARTS` has a line in the short demo: a line of its code, and what that came to. `--more` shows
all lines that it runs, and goes on with those of `MORE`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle  # noqa: TID251 - a rival, and what it loads was dumped a line before
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F, count

TABLE = "code"
"""The table with the lines of the library, which the file keeps."""
TABLES = {TABLE, "default", "puts", "people"}
"""What the file may have at the start of another run."""
WRITING_SECONDS = 0.2
"""How long the other process may write before it is killed."""
WRITER = """\
import itertools, pellucid
puts = pellucid.open({path!r}).table("puts")
for n in itertools.count():
    puts[n] = {{"n": n, "square": n * n}}
    print(n, flush=True)    # acknowledged"""


class Tour:
    """Runs lines of Python over one file, and keeps them to show them."""

    def __init__(self, db: pellucid.Database, path: Path) -> None:
        self.path = str(path)
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"db": db, "code": db.table(TABLE), "puts": db.table("puts")}
        self.names |= {"F": F, "count": count, "json": json, "pickle": pickle}

    def run(self, line: str) -> tuple[Any, float]:
        """Run a line; return its value and the seconds that it took."""
        self.lines += [f"{'...' if number else '>>>'} {text}" for number, text in enumerate(line.split("\n"))]
        call: Callable[[Any, dict[str, Any]], Any]
        try:
            code, call = compile(line, "<demo>", "eval"), eval
        except SyntaxError:
            code, call = compile(line, "<demo>", "exec"), exec
        started = time.perf_counter()
        value = call(code, self.names)
        return value, time.perf_counter() - started

    def start(self, program: str) -> subprocess.Popen[str]:
        """Start another process with a program, apart from the Ctrl-C of this one."""
        self.lines += ["# another process:", *program.splitlines()]
        command = [sys.executable, "-c", program]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


Part = Callable[[Tour], tuple[str, str]]
"""Gives a line of its code, and what it came to."""


def a_dict(tour: Tour) -> tuple[str, str]:
    """Your dict, but on disk."""
    tour.run('db["me"] = {"name": "Ada", "age": 36, "langs": ["Python"]}')
    tour.run('db["me"].langs.append("Rust")')
    tour.run(code := 'db["me"].age += 1')
    age, _ = tour.run('db["me"].age')
    return code, f"{age}: a dict on disk, changed in place"


def a_second_process(tour: Tour) -> tuple[str, str]:
    """A second process sees it."""
    code = f'pellucid.open({tour.path!r})["me"]'
    with tour.start(f"import pellucid\nprint({code}.name)") as child:
        name = child.communicate()[0].strip()
    return code, f"a second process sees it: {name}"


def kill_a_writer(tour: Tour) -> tuple[str, str]:
    """Another one is killed in the middle of writing, and nothing that it acknowledged is missing."""
    acknowledged = 0
    with tour.start(WRITER.format(path=tour.path)) as child:
        try:
            assert child.stdout is not None
            started = 0.0
            for line in child.stdout:
                acknowledged += line.endswith("\n")  # the last one may be cut
                started = started or time.perf_counter()
                if time.perf_counter() - started > WRITING_SECONDS:
                    child.kill()
        finally:
            child.kill()
    if child.returncode != -9:
        raise RuntimeError(f"the writing process ended by itself, with {child.returncode}")
    tour.lines.append(f"# kill -9 {child.pid}")
    tour.names["acknowledged"] = acknowledged
    missing, _ = tour.run('[n for n in range(acknowledged) if puts.get(n) != {"n": n, "square": n * n}]')
    if missing:
        raise AssertionError(f"{len(missing):,} of {acknowledged:,} acknowledged puts are missing")
    return 'puts[n] = {"n": n, "square": n * n}', f"kill -9 after {acknowledged:,} puts: none lost"


def one_field(tour: Tour) -> tuple[str, str]:
    """One field of all records, beside JSON and pickle."""
    total, ours = tour.run(code := "sum(row.line for row in code.values())")
    tour.names["rows"] = [row.to_dict() for row in tour.names["code"].values()]
    tour.run("as_json, as_pickle = json.dumps(rows), pickle.dumps(rows)")
    tour.names["rows"] = None  # it is no part of what a program has that loads them
    total_json, by_json = tour.run('sum(row["line"] for row in json.loads(as_json))')
    total_pickle, by_pickle = tour.run('sum(row["line"] for row in pickle.loads(as_pickle))')
    if not total == total_json == total_pickle:
        raise AssertionError(f"the sums are {total}, {total_json} and {total_pickle}")
    return code, f"{shown(ours)}; json {shown(by_json)}, pickle {shown(by_pickle)}"


def an_index(tour: Tour) -> tuple[str, str]:
    """An index finds rows without a scan."""
    _, scan = tour.run('code.where(F.names.each() == "deepcopy").to_list()')
    tour.run('code.create_index("by_name", F.names.each())')
    tour.run('code.index("by_name").count("deepcopy")')
    code = 'code.index("by_name").get_all("deepcopy")'
    found, seconds = tour.run(f"list({code})")
    return code, f"{len(found)} rows in {shown(seconds)}, {shown(scan)} before"


def a_frame(tour: Tour) -> tuple[str, str]:
    """Columns for polars, if it is there."""
    if importlib.util.find_spec("polars") is None:
        return "code.to_polars()", f"needs polars: {near(sys.executable)} -m pip install polars"
    tour.run("import polars")
    frame, seconds = tour.run(code := 'code.select("module", "kind").to_polars()')
    return code, f"a frame of {len(frame):,} rows in {shown(seconds)}"


def groups(tour: Tour) -> tuple[str, str]:
    """Groups are counted in Rust, on the packed bytes."""
    found, seconds = tour.run(code := 'code.group_by("kind").agg(n=count())')
    best = sorted(found, key=lambda group: -group["n"])[:4]
    return code, ", ".join(f"{group['kind']} {group['n']:,}" for group in best) + f" in {shown(seconds)}"


def an_explained_query(tour: Tour) -> tuple[str, str]:
    """A query chooses its index, and explains how it finds its rows."""
    tour.run('query = code.where(F.names.each() == "deepcopy", F.kind == "=").order_by("module")')
    return "query", tour.run("query.explain(analyze=True)")[0]


def a_transaction(tour: Tour) -> tuple[str, str]:
    """A transaction commits all of its writes or none."""
    tour.run(
        "try:\n"
        "    with db.transaction():\n"
        '        code.where(F.module == "json").delete()\n'
        '        raise ValueError("changed my mind")\n'
        "except ValueError: pass"
    )
    left, _ = tour.run(code := 'code.find(module="json").count()')
    return code, f"{left}: all rows are there again"


def a_snapshot(tour: Tour) -> tuple[str, str]:
    """A snapshot shows one state, whatever is written meanwhile."""
    tour.run("before = db.snapshot()")
    tour.run('db["me"].age = 99')
    ages, _ = tour.run(code := '(before["me"].age, db["me"].age)')
    tour.run("before.close()")
    return code, str(ages)


def a_watch(tour: Tour) -> tuple[str, str]:
    """A watch follows the commits of all processes."""
    tour.run("changes = db.watch(timeout=0)")
    tour.run('db["you"] = {"name": "Bob"}')
    found, _ = tour.run(code := "[(change.kind, change.key) for change in changes]")
    return code, str(found)


def a_unique_index(tour: Tour) -> tuple[str, str]:
    """A unique index refuses a second row with the same value."""
    tour.run('db.table("people").create_index("by_email", F.email, unique=True)')
    tour.run('db.table("people")["ann"] = {"email": "ann@example.org"}')
    try:
        tour.run(code := 'db.table("people")["eve"] = {"email": "ann@example.org"}')
    except pellucid.UniqueError as error:
        return code, f"UniqueError: {error}"
    raise AssertionError("the unique index accepted a second row")


PARTS: list[Part] = [a_dict, a_second_process, kill_a_writer, one_field, an_index, a_frame]
MORE: list[Part] = [groups, an_explained_query, a_transaction, a_snapshot, a_watch, a_unique_index]


def shown(seconds: float) -> str:
    """Return a time with two digits that count."""
    value, unit = (seconds, "s") if seconds >= 1 else (seconds * 1e3, "ms")
    return f"{value:.{1 if value < 10 else 0}f} {unit}" if value >= 0.1 else f"{value:.2g} {unit}"


def near(path: str | Path) -> str:
    """Return how to name a file from here: the shorter way to what is below this folder."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)
