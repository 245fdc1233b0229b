"""Is an index whole that is built while others write, also when its builder is killed?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pellucid
import pytest
from pellucid import F

ROW_COUNT = 4_000
# Each of an own column, several of one row, unique, and of a part of the rows.
DEFINITIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "n": (F.n, {}),
    "tags": (F.tags.each(), {}),
    "m": (F.m, {"unique": True}),
    "few": (F.n, {"where": F.n > 40}),
}


def record(number: int, turn: int = 0) -> dict[str, Any]:
    return {
        "n": (number + turn) % 50,
        "m": number,
        "tags": [number % 5, (number + turn) % 7],
        "pad": "x" * 100,
    }


def check(table: Any, name: str) -> None:
    """Compare the entries of an index with what its rows come to."""
    rows = [(key, row.to_dict()) for key, row in table.items()]
    values = {
        "n": lambda row: [row["n"]],
        "tags": lambda row: sorted(set(row["tags"])),
        "m": lambda row: [row["m"]],
        "few": lambda row: [row["n"]] if row["n"] > 40 else [],
    }[name]
    expected = sorted((value, key) for key, row in rows for value in values(row))
    assert list(table.index(name).keys()) == expected
    assert [info.state for info in table.indexes()] == ["ready"]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_index_is_built_while_others_write(url: str, name: str) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def write(which: int) -> None:
        try:
            with pellucid.open(url) as db:
                table = db.table("t")
                turn = 0
                while not stop.is_set():
                    turn += 1
                    key = (turn * 37 + which) % ROW_COUNT
                    if key % 2 != which:
                        continue
                    kind = turn % 5
                    if kind == 0:
                        table.pop(key, None)
                    elif kind == 1:
                        table[key] = record(key, turn)
                    elif kind == 2 and key in table:
                        table[key].n = turn % 50
                    elif kind == 3:
                        some = {key: record(key, turn), key + 2: record(key + 2, turn)}
                        # A transaction that reads an earlier state than that of the index is refused.
                        db.run(lambda some=some: table.update(some))
                    elif key in table:
                        table[key].tags = [turn % 5]
        except KeyError:
            # The row was deleted by this thread's own turn before.
            failed.append(AssertionError("a row of this thread went away"))
        except BaseException as error:
            failed.append(error)

    with pellucid.open(url) as db:
        table = db.table("t")
        table.update((number, record(number)) for number in range(ROW_COUNT))
        threads = [threading.Thread(target=write, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.2)
            parts, options = DEFINITIONS[name]
            table.create_index(name, parts, **options)
            time.sleep(0.2)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failed == []
        check(table, name)


BUILDER = """
import sys, pellucid
from pellucid import F
sys.path[:0] = {path!r}
from test_index_builds_on_server import DEFINITIONS
parts, options = DEFINITIONS[sys.argv[2]]
with pellucid.open(sys.argv[1]) as db:
    def told(done, rows):
        print(done, flush=True)
        sys.stdin.readline()
    db.table("t").create_index(sys.argv[2], parts, **options, progress=told)
"""


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_killed_builder_is_resumed(url: str, name: str) -> None:
    parts, options = DEFINITIONS[name]
    with pellucid.open(url) as db:
        table = db.table("t")
        table.update((number, record(number)) for number in range(ROW_COUNT))
        code = BUILDER.format(path=sys.path)
        child = subprocess.Popen(
            [sys.executable, "-c", code, url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdin is not None
        assert child.stdout is not None
        reached = int(child.stdout.readline())
        assert 0 < reached < ROW_COUNT
        # A client that reads and writes meanwhile sees an index that is not ready, and keeps it.
        assert [info.state for info in table.indexes()] == ["building"]
        with pytest.raises(pellucid.errors.IndexNotReady):
            table.index(name).get(1)
        with pytest.raises(pellucid.Busy, match="is being built by another client"):
            table.create_index(name, parts, **options)
        table[1], table[ROW_COUNT - 1] = record(1, 3), record(ROW_COUNT - 1, 3)
        del table[2]
        assert table.where(F.n == 7).count() == sum(row.n == 7 for row in table.values())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdin.close()
        child.stdout.close()
        told: list[tuple[int, int]] = []
        until = time.monotonic() + 20
        while True:
            try:
                table.create_index(
                    name, parts, **options, progress=lambda done, rows: told.append((done, rows))
                )
                break
            except pellucid.Busy:
                # The server has not seen yet that the builder is gone.
                assert time.monotonic() < until
                time.sleep(0.05)
        assert told[-1][0] <= ROW_COUNT - reached
        check(table, name)


def test_two_clients_create_one_index_at_once(url: str) -> None:
    with pellucid.open(url) as one, pellucid.open(url) as other:
        tables = [one.table("t"), other.table("t")]
        tables[0].update((number, record(number)) for number in range(ROW_COUNT))
        outcomes: list[Any] = []

        def build(table: Any) -> None:
            try:
                outcomes.append(table.create_index("n", F.n))
            except pellucid.Busy as error:
                outcomes.append(error)

        threads = [threading.Thread(target=build, args=(table,)) for table in tables]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert None in outcomes
        for table in tables:
            check(table, "n")


def test_a_client_learns_of_an_index_before_it_writes(url: str) -> None:
    with pellucid.open(url) as one, pellucid.open(url) as other:
        mine, others = one.table("t"), other.table("t")
        mine[1] = record(1)
        assert others[1].n == 1
        mine.create_index("n", F.n)
        mine.create_index("m", F.m, unique=True)
        others[2] = record(2)
        others[1].n = 30
        with pytest.raises(pellucid.UniqueError, match="which row 1 has"):
            others[3] = record(1)
        assert list(mine.index("n").keys()) == [(2, 2), (30, 1)]
        mine.drop_index("n")
        others[4] = record(4)
        with pytest.raises(pellucid.errors.NoSuchIndex):
            others.index("n")
        assert others.where(F.n == 4).count() == 1


def test_duplicates_that_a_build_finds_are_named(url: str) -> None:
    with pellucid.open(url) as db:
        table = db.table("t")
        table.extend({"n": number, "tags": [number, number + 1]} for number in range(10))
        table["twin"] = {"n": 4}
        with pytest.raises(pellucid.UniqueError, match=r"row 4 .* would have 4 .* which row 'twin' has"):
            table.create_index("n", F.n, unique=True)
        with pytest.raises(pellucid.UniqueError, match=r"which row 0 has"):
            table.create_index("tags", F.tags.each(), unique=True)
        assert table.indexes() == []


def test_long_values_are_found_and_in_order(url: str) -> None:
    texts = ["y" * 2_500 + str(number) for number in range(8)] + ["y" * 2_000, "y" * 1_999, "y", "z"]
    with pellucid.open(url) as db:
        table = db.table("t")
        table.extend({"s": text} for text in reversed(texts[:6]))
        table.create_index("s", F.s)
        table.extend({"s": text} for text in texts[6:])
        assert [row.s for row in table.where(F.s > "y" * 2_400).order_by(F.s)] == [*sorted(texts[:8]), "z"]
        assert [row.s for row in table.order_by(F.s.desc()).limit(3)] == sorted(texts)[:-4:-1]
        for text in texts:
            assert table.where(F.s == text).count() == table.index("s").count(text) == 1
            assert table.where(F.s >= text).count() == sum(one >= text for one in texts)
        # Another client wrote the first long value.
        with pellucid.open(url) as other:
            fresh = db.table("fresh")
            fresh.extend({"s": f"x{number}"} for number in range(5))
            fresh.create_index("s", F.s)
            assert [row.s for row in fresh.order_by(F.s).limit(2)] == ["x0", "x1"]
            for text in sorted(texts[:8], reverse=True):
                other.table("fresh").append({"s": text})
            assert [row.s for row in fresh.where(F.s >= "y").order_by(F.s).limit(2)] == sorted(texts[:8])[:2]


def test_a_dropped_table_leaves_no_relation(url: str) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    query = (
        f"SELECT relname::text FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'"
    )
    with pellucid.open(url) as db:
        relations: Any = db

        def found() -> set[str]:
            with relations._connection.pool.session() as session:
                return {name for (name,) in session.rows(query.encode())}

        db.table("other")["key"] = {"n": 1}
        before = found()
        for name, (by, options) in DEFINITIONS.items():
            db.table("t").create_index(name, by, **options)
        db.table("t").extend(record(number) for number in range(10))
        assert len(found()) > len(before) + 2
        db.drop_table("t")
        assert found() == before
