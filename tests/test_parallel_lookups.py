"""Rows that an index or a list of keys finds are the same on one thread and on several.

The index has many equal values, values of several types, rows without the field, and rows with several
entries, because parts of a range may begin between two entries with the same parts, and each row must be
there once. Keys are long and short: short ones are kept as numbers, and long ones as bytes. The floats have
unlike sizes, so that sums differ if they are not exact.
"""

import random
from pathlib import Path
from typing import Any

import pellucid
import pyarrow
import pytest
from pellucid import F

ROW_COUNT = 400_000
#: Rows with `n` below this: enough to be shared, and so few that the index is the best path.
FOUND_COUNT = 12_000
#: Distinct values of `n` among these.
TIE_COUNT = 300


def rows_by_key() -> dict[Any, dict[str, Any]]:
    choose = random.Random(24)
    rows: dict[Any, dict[str, Any]] = {}
    for number in range(ROW_COUNT):
        is_found = number < FOUND_COUNT
        key = f"{choose.getrandbits(64):016x}" if number % 3 else number
        row = {
            "n": choose.randrange(TIE_COUNT) if is_found else 1000 + number,
            "x": choose.uniform(-1, 1) * 10 ** choose.randint(-12, 12),
        }
        if is_found:
            row["n"] = float(row["n"]) if number % 5 == 0 else row["n"]
            row["tags"] = sorted({choose.randrange(40) for _ in range(3)})
            row["name"] = f"name {choose.randrange(7)}"
            if number % 11 == 0:
                del row["x"]
        rows[key] = row
    return rows


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Any, dict[str, Any]]]:
    path, rows = tmp_path_factory.mktemp("parallel") / "rows.pel", rows_by_key()
    with pellucid.open(path) as db:
        db.table("t").update(rows)
        db.table("t").create_index("by_n", F.n)
        db.table("t").create_index("by_tag", F.tags.each())
        db.table("t").create_index("by_name", (F.name, F.n, F.x))
        # Some rows wait in the log, beside those in the tree.
        for key in list(rows)[:FOUND_COUNT:100]:
            rows[key]["name"] = "changed"
            db.table("t")[key] = rows[key]
    return path, rows


def answers(table: Any) -> dict[str, Any]:
    found = table.where(F.n < TIE_COUNT)
    tagged = table.where(F.tags.each() < 30)
    return {
        "count": found.count(),
        "sum": found.sum("x"),
        "agg": found.agg(s=F.x.sum(), m=F.x.mean(), least=F.n.min(), most=F.n.max()),
        "groups": found.group_by("name").agg(count=F.n.count(), s=F.x.sum(), least=F.n.min()),
        "keys": list(found.keys()),
        "column": found.column("x"),
        "numpy": found.to_numpy("n").tolist(),
        "arrow": found.select("n", "name").to_arrow(),
        "ordered": found.order_by("n").column("name"),
        "descending": found.order_by(F.n.desc()).column("name"),
        "sorted": found.order_by("name", "x").column("n"),
        "tagged": (tagged.count(), tagged.sum("x"), list(tagged.keys())),
        "covered": table.where(F.name > "").agg(s=F.x.sum(), n=F.n.sum(), c=F.n.count()),
        "covered keys": list(table.where(F.name > "a").keys()),
        "listed": table.where(F.n.isin(range(TIE_COUNT))).sum("x"),
    }


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_several_threads_find_the_rows_of_one(
    filled: tuple[Path, dict[Any, dict[str, Any]]], is_in_memory: bool
) -> None:
    path, rows = filled
    expected: dict[str, Any] = {}
    with pellucid.open(":memory:" if is_in_memory else path) as db:
        table = db.table("t")
        if is_in_memory:
            table.update(rows)
            table.create_index("by_n", F.n)
            table.create_index("by_tag", F.tags.each())
            table.create_index("by_name", (F.name, F.n, F.x))
        for threads in (1, 2, 5):
            pellucid.set_threads(threads)
            try:
                more = f", on {threads} where rows are counted, summed or grouped" if threads > 1 else ""
                assert f"\non 1 thread{more}\n" in table.where(F.n < TIE_COUNT).explain()
                found = answers(table)
            finally:
                pellucid.set_threads(None)
            found["arrow"] = pyarrow.table(found["arrow"]).to_pylist()
            expected = expected or found
            for name, answer in found.items():
                # By their texts: 1 and 1.0 are equal, and the first of them is wanted.
                assert repr(answer) == repr(expected[name]), (name, threads)
    in_order = [rows[key] for key in expected["keys"]]
    assert sorted(map(str, expected["keys"])) == sorted(
        str(key) for key, row in rows.items() if row["n"] < TIE_COUNT
    )
    assert expected["column"] == [row.get("x") for row in in_order]
    assert expected["ordered"] == [row["name"] for row in sorted(in_order, key=lambda row: row["n"])]
    assert repr(expected["agg"]["least"]) == repr(min(row["n"] for row in in_order))


def test_what_a_transaction_has_changed_is_found_as_well(
    filled: tuple[Path, dict[Any, dict[str, Any]]],
) -> None:
    path, rows = filled
    key, row = next((key, row) for key, row in rows.items() if row["n"] >= TIE_COUNT)
    with pellucid.open(path) as db:
        table = db.table("t")
        before = table.where(F.n < TIE_COUNT).count()
        with db.transaction():
            table[key] = {**row, "n": 0}
            assert table.where(F.n < TIE_COUNT).count() == before + 1
            assert table.where(F.n < TIE_COUNT).agg(c=F.n.count())["c"] == before + 1
            table[key] = row
        assert table.where(F.n < TIE_COUNT).count() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_many_ranges_of_a_covering_index_are_read_without_the_rows(tmp_path: Path, threads: int) -> None:
    # The memory for rows of 750 ranges is counted once for each row, and not again for each later range.
    with pellucid.open(tmp_path / "rows.pel") as db:
        table = db.table("t")
        table.extend({"n": number % 1500} for number in range(300_000))
        table.create_index("by_n", F.n)
        pellucid.set_threads(threads)
        try:
            query = table.where(F.n.isin(range(750)))
            assert "met 150000 entries" in query.select("n").explain(analyze=True)
            assert query.sum("n") == 200 * sum(range(750))
        finally:
            pellucid.set_threads(None)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_row_that_an_index_finds_is_named(tmp_path: Path, threads: int) -> None:
    path, marker, damaged = tmp_path / "damaged.pel", "the text of the row that is damaged", 33 * 5000
    with pellucid.open(path) as db:
        # Every 33rd row is found by the index, 12,122 of them.
        db.table("t").extend(
            {"n": number if number % 33 else 0, "text": marker if number == damaged else "plain"}
            for number in range(ROW_COUNT)
        )
        db.table("t").create_index("by_n", F.n)
    data = bytearray(path.read_bytes())
    place = data.index(marker.encode())
    data[place - 24 : place] = b"\xff" * 24
    path.write_bytes(data)
    pellucid.set_threads(threads)
    try:
        with pellucid.open(path) as db:
            found = db.table("t").where(F.n == 0)
            more = f", on {threads} where rows are counted, summed or grouped" if threads > 1 else ""
            assert 'read keys from index "by_n"' in found.explain()
            assert f"\non 1 thread{more}\n" in found.explain()
            with pytest.raises(pellucid.CorruptRecord, match=str(damaged)):
                found.agg(longest=F.text.length().max())
    finally:
        pellucid.set_threads(None)
