"""Do rows get the keys that the caller names, and are rows under the same key treated as the caller says?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid.transfer.outgoing import plain

ROWS = [{"a": 1, "u": {"n": "x", "v.w": 5}, "p.q": 7}, {"a": 2, "u": {"n": "y"}, "p.q": 8, "p": {"q": 9}}]


def written(folder: Path, rows: list[Any]) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("a", [1, 2]),
        ("u.n", ["x", "y"]),
        # A field of that very name comes before a path.
        ("p.q", [7, 8]),
        (["a"], [1, 2]),
        (["u.n", "a"], [("x", 1), ("y", 2)]),
        (("a", "u.n"), [(1, "x"), (2, "y")]),
        (lambda row: f"{row['u']['n']}!", ["x!", "y!"]),
    ],
)
def test_a_key_is_a_field_a_path_a_list_or_a_function(
    key: Any, keys: list[Any], tmp_path: Path, db: pellucid.Database
) -> None:
    report = pellucid.import_from(written(tmp_path, ROWS), db, key=key, verify=True)
    assert (list(db), report.skipped_count) == (keys, 0)
    assert list(map(plain, db.values())) == ROWS


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [
        (
            "A",
            ValueError,
            "key='A' fits no row of rows.jsonl; line 1: it has no field 'A' for its key; it has 'a'",
        ),
        ("u.z", ValueError, "key='u.z' fits no row"),
        (["a", "z"], ValueError, "it has no field 'z'"),
        (lambda row: row["z"], ValueError, "line 1: key= raised KeyError: 'z'"),
        (5, TypeError, "key= is the name of a field, a list of names or a function, and not 5"),
        ([], TypeError, "a list of names or a function, and not []"),
        ([1], TypeError, "a list of names or a function, and not [1]"),
    ],
)
@pytest.mark.parametrize("batch", [None, 1])
def test_a_wrong_key_is_one_error(
    batch: int | None, key: Any, error: type[Exception], said: str, tmp_path: Path, db: pellucid.Database
) -> None:
    with pytest.raises(error) as raised:
        pellucid.import_from(written(tmp_path, ROWS), db, table="t", key=key, batch=batch)
    assert said in str(raised.value)
    assert len(db.table("t")) == 0


def test_a_key_that_some_rows_lack_skips_these(tmp_path: Path, db: pellucid.Database) -> None:
    report = pellucid.import_from(written(tmp_path, [{"b": 1}] * 600 + ROWS), db, key="a", batch=50)
    assert (list(db), report.skipped_count) == ([1, 2], 600)


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(
    ("on_conflict", "expected", "counts"),
    [
        ("replace", [{"k": 1, "b": 5}, {"k": 2, "a": 2}, {"k": 3}, {"k": 4, "b": 7}], (2, 2, 1, 0)),
        (
            "merge",
            [{"k": 1, "a": 1, "b": 5}, {"k": 2, "a": 2}, {"k": 3}, {"k": 4, "a": 6, "b": 7}],
            (2, 2, 1, 0),
        ),
        ("ignore", [{"k": 1, "a": 1}, {"k": 2, "a": 2}, {"k": 3}, {"k": 4, "a": 6}], (2, 0, 1, 2)),
    ],
)
def test_rows_under_the_same_key(
    on_conflict: Any,
    expected: list[Any],
    counts: tuple[int, ...],
    batch: int | None,
    tmp_path: Path,
    db: pellucid.Database,
) -> None:
    db.update({1: {"k": 1, "a": 1}, 2: {"k": 2, "a": 2}})
    rows = [{"k": 1, "b": 5}, {"k": 2, "a": 2}, {"k": 3}, {"k": 4, "a": 6}, {"k": 4, "b": 7}, {"k": [0]}]
    report = pellucid.import_from(written(tmp_path, rows), db, key="k", on_conflict=on_conflict, batch=batch)
    assert list(map(plain, db.values())) == expected
    assert (report.new, report.changed, report.same, report.ignored) == counts
    assert (report.rows, report.replaced, report.skipped_count) == (sum(counts[:3]), counts[1], 1)
    shown = ", ".join(
        f"{count} {what}"
        for what, count in zip(("new", "changed", "same", "ignored"), counts, strict=True)
        if count
    )
    assert repr(report).endswith(f"1 skipped, {shown}>")


def test_values_that_are_equal_and_not_the_same_are_changed(tmp_path: Path, db: pellucid.Database) -> None:
    db.update({1: {"k": 1, "a": True}})
    report = pellucid.import_from(written(tmp_path, [{"k": 1, "a": 1}]), db, key="k", on_conflict="replace")
    assert (report.changed, db[1].a) == (1, 1)
    assert type(db[1].a) is int


def test_a_key_that_is_there_may_be_an_error(tmp_path: Path, db: pellucid.Database) -> None:
    db.update({"y": {"old": 1}})
    with pytest.raises(
        pellucid.SourceError, match=r"rows\.jsonl, line 2: the table has a row with the key 'y'"
    ):
        pellucid.import_from(written(tmp_path, ROWS), db, key="u.n", on_conflict="error")
    assert dict(db.items()) == {"y": {"old": 1}}
    assert pellucid.import_from(written(tmp_path, ROWS), db, key="a", on_conflict="error").new == 2


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"on_conflict": "keep", "key": "a"}, "on_conflict= has no 'keep'; those are replace, merge"),
        ({"on_conflict": "merge"}, "have none; pass key="),
        ({"on_conflict": "merge", "key": "a", "verify": True}, 'on_conflict="merge" keeps more'),
    ],
)
def test_a_choice_that_does_not_fit(
    choices: dict[str, Any], said: str, tmp_path: Path, db: pellucid.Database
) -> None:
    with pytest.raises(ValueError, match=said):
        pellucid.import_from(written(tmp_path, ROWS), db, **choices)
