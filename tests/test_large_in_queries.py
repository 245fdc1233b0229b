"""Do conditions, expressions, changes and indexes meet a value that lies apart as any other?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pellucid
import pytest
from pellucid import Database, Expression, F
from pellucid.errors import UniqueError

TEXT = "hello " * 6_000
DATA = b"\0\1" * 20_000

Rows = list[dict[str, Any]]


def rows() -> Rows:
    return [
        {"n": 0, "text": "hello", "data": b"\0", "tags": ["x"]},
        {"n": 1, "text": TEXT, "data": DATA, "tags": ["x", TEXT]},
        {"n": 2, "text": TEXT + "!", "data": DATA[:-1], "tags": [TEXT + "!"], "within": {"text": TEXT}},
        {"n": 3},
    ]


CONDITIONS: list[tuple[Expression, Callable[[dict[str, Any]], bool]]] = [
    (F.text == TEXT, lambda row: row.get("text") == TEXT),
    (F.text != TEXT, lambda row: row.get("text") != TEXT),
    (F.text > TEXT, lambda row: row.get("text", "") > TEXT),
    (F.text.between("hello ", TEXT), lambda row: "hello " <= row.get("text", "") <= TEXT),
    (F.text.isin(["a", TEXT]), lambda row: row.get("text") in ["a", TEXT]),
    (F.text.startswith("hello h"), lambda row: row.get("text", "").startswith("hello h")),
    (F.text.endswith("!"), lambda row: row.get("text", "").endswith("!")),
    (F.text.contains("o h"), lambda row: "o h" in row.get("text", "")),
    (F.text.matches("!$"), lambda row: row.get("text", "").endswith("!")),
    (F.text.length() > 10, lambda row: len(row.get("text", "")) > 10),
    (F.text.upper() == TEXT.upper(), lambda row: row.get("text") == TEXT),
    (F.text + "!" == TEXT + "!", lambda row: row.get("text") == TEXT),
    (F.text.exists(), lambda row: "text" in row),
    (F.text.is_none(), lambda row: False),
    (F.text.upper().exists(), lambda row: "text" in row),
    (~(F.text + "!").exists(), lambda row: "text" not in row),
    (F.data.length().exists() & ~F.text.length().is_none(), lambda row: "data" in row),
    (F.tags[-1].lower().exists(), lambda row: "tags" in row),
    (F.tags.each().lower().exists() == F.tags.exists(), lambda row: True),
    (F.data == DATA, lambda row: row.get("data") == DATA),
    (F.data.length() == len(DATA) - 1, lambda row: len(row.get("data", b"")) == len(DATA) - 1),
    (F.tags.each() == TEXT, lambda row: TEXT in row.get("tags", [])),
    (F.tags.contains(TEXT), lambda row: TEXT in row.get("tags", [])),
    (F.tags == ["x", TEXT], lambda row: row.get("tags") == ["x", TEXT]),
    (F.within == {"text": TEXT}, lambda row: "within" in row),
    (F.within.text == TEXT, lambda row: "within" in row),
]


def check_all(table: pellucid.Table[Any], model: Rows) -> None:
    for condition, is_true in CONDITIONS:
        expected = [row["n"] for row in model if is_true(row)]
        shown = str(condition)[:60]
        assert table.where(condition).column("n") == expected, shown
        assert [row.n for row in table.where(condition)] == expected, shown
        assert table.where(condition).count() == len(expected), shown
        assert table.where(condition).order_by(F.n.desc()).column("n") == expected[::-1], shown


@pytest.mark.parametrize("indexes", [0, 1])
def test_conditions_see_them(db: Database, indexes: int) -> None:
    table = db.table("t")
    table.extend(rows())
    if indexes:
        table.create_index("text", F.text)
        table.create_index("tags", (F.tags.each(), F.n))
        table.create_index("length", F.text.length())
        table.create_index("partial", F.n, where=F.text == TEXT)
        table.create_index("computed", F.n, where=F.text.lower().exists())
        assert len(table.index("computed")) == 3
    check_all(table, rows())
    with db.transaction():
        check_all(table, rows())
        table.append({"n": 4, "text": TEXT, "data": DATA, "tags": [TEXT]})
        check_all(table, [*rows(), {"n": 4, "text": TEXT, "data": DATA, "tags": [TEXT]}])
    assert db.check() == []


def test_an_order_a_group_and_what_is_computed(db: Database) -> None:
    table = db.table("t")
    table.extend(rows())
    assert table.order_by(F.text.desc()).column("n") == [2, 1, 0, 3]
    assert [group["n"] for group in table.group_by(F.text).agg(n=pellucid.count())] == [1, 1, 1, 1]
    assert table.where(F.n == 1).column(F.text.upper()) == [TEXT.upper()]
    assert len(table.where(F.n == 1).to_arrow()) == 1
    assert table.where(F.n == 1).column(F.text.length()) == [len(TEXT)]


def test_what_is_deleted_is_what_the_condition_says(db: Database) -> None:
    table = db.table("t")
    table.extend(rows())
    assert table.where(F.text != TEXT).delete() == 3
    assert table.column("n") == [1]
    assert db.check() == []


def test_a_changed_field_is_a_value_of_its_own(db: Database) -> None:
    table = db.table("t")
    table.extend(rows())
    large = db.stats()["blobs"]
    assert table.where(F.n == 1).update(same=F.text, more=F.text + "?", all=F.tags) == 1
    # A copy, what is computed and the one in the copied list.
    assert db.stats()["blobs"] == large + 3
    row = table.find(n=1).one()
    assert row is not None
    assert (row.same, row.more, list(row.all)) == (TEXT, TEXT + "?", ["x", TEXT])
    assert table.where(F.n == 1).update(text="short") == 1
    assert row.same == TEXT
    assert db.check() == []
    del table[next(iter(table.where(F.n == 1).keys()))]
    assert db.check() == []


def test_an_index_keeps_in_step_with_them(db: Database) -> None:
    table = db.table("t")
    table.create_index("text", F.text, unique=True)
    table.extend(rows())
    index = table.index("text")
    assert (index.count(TEXT), index.get(TEXT).n, len(index)) == (1, 1, 3)
    with pytest.raises(UniqueError, match=r"would have 'hello hello .* in the unique index"):
        table.append({"text": TEXT})
    with db.transaction():
        index.get(TEXT).text = "now short"
        assert (index.count(TEXT), index.count("now short")) == (0, 1)
        table.append({"n": 5, "text": TEXT})
        assert index.get(TEXT).n == 5
    assert db.check() == []
    table.rebuild_index("text")
    assert db.check() == []
    table.where(F.n == 5).delete()
    assert index.count(TEXT) == 0
    assert db.check() == []


@pytest.mark.parametrize("has_index", [False, True])
@pytest.mark.parametrize(
    "order", [F.doc.asc(), F.doc.desc(), F.doc.lower().asc(), F.within.doc.asc(), F.data.desc()], ids=repr
)
def test_pages_go_on_behind_a_large_value(db: Database, order: Any, has_index: bool) -> None:
    table = db.table("t")
    for number in range(10):
        text = chr(ord("a") + number) * 40_000
        table[number] = {"doc": text, "within": {"doc": text}, "data": text.encode(), "n": number}
    if has_index:
        table.create_index("doc", F.doc)
    query = table.order_by(order).limit(3)
    met, page = [], query.to_list()
    while page and len(met) < 10:
        met += [row.n for row in page]
        page = query.after(page[-1]).to_list()
    assert met == [row.n for row in table.order_by(order)]
    with db.transaction():
        table[3].n = -3
        assert [row.n for row in table.order_by(F.doc).after(table[2])] == [-3, *range(4, 10)]


def test_a_page_behind_a_large_value_that_is_gone_is_refused(db: Database) -> None:
    table = db.table("t")
    table.extend({"doc": TEXT + str(number)} for number in range(3))
    (key, *_) = table.keys()
    first = table[key]
    table[key] = {"doc": "another"}
    with pytest.raises(pellucid.errors.StaleRecord, match="was given was replaced or deleted"):
        table.order_by(F.doc).after(first).to_list()
