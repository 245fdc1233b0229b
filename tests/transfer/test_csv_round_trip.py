"""Does a CSV that was exported come back as it was, and does any reader take it?"""

from __future__ import annotations

import base64
import csv
import decimal
import io
from pathlib import Path
from typing import Any

import pandas
import pellucid
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pellucid.transfer.sources import csv_types

# Texts that have broken readers of CSV: those that look like other values, what dialects have between cells
# and rows, quotes of both kinds, blanks at the ends, and line ends that only some programs know.
AWKWARD = [
    "",
    "1",
    "007",
    "1e5",
    "true",
    "nan",
    " 1",
    "a,b",
    "a;b",
    "\t",
    "|",
    '"',
    "'",
    "a\rb",
    "\r\n",
    "\n",
]
AWKWARD += [
    "\x00",
    "\x0b",
    "\x85",
    "\u2028",
    "\\",
    "#",
    "sep=;",
    " x ",
    "'a,b'",
    '""',
    "=1",
    "\u0663",
    "-",
    "1_0",
]
texts = st.sampled_from(AWKWARD) | st.lists(st.sampled_from([*AWKWARD, "x"]), max_size=4).map("".join)
texts = texts | st.text(st.characters(exclude_categories=["Cs"]))
# Floats of words alone are texts when they are read.
finite = st.floats(allow_nan=False, allow_infinity=False)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "text": texts,
    "int": st.integers() | st.integers(-(10**40), 10**40),
    "float": finite | st.sampled_from([1e16, 1e22, 5e-324, -0.0, float("inf"), float("-inf")]),
    "bool": st.booleans(),
}
# A name has more than blanks. A text that begins with a mark or with NUL may have another encoding.
names = texts.filter(
    lambda name: (
        name.strip() != "" and "\0" not in name and name[0] != "\ufeff" and not name.startswith("sep=")
    )
)


@st.composite
def tables(draw: Any) -> list[dict[str, Any]]:
    """Rows with one type in each column, and fields that are missing here and there."""
    columns = draw(st.lists(names, min_size=2, max_size=4, unique=True))
    kinds = {name: draw(st.sampled_from(list(KINDS))) for name in columns}
    first = {name: draw(finite if kinds[name] == "float" else KINDS[kinds[name]]) for name in columns}
    rows = draw(
        st.lists(st.fixed_dictionaries({}, optional={n: KINDS[kinds[n]] for n in columns}), max_size=5)
    )
    return [first, *({name: row[name] for name in columns if name in row} for row in rows)]


def there_and_back(rows: list[dict[str, Any]]) -> tuple[bytes, list[dict[str, Any]]]:
    file = io.BytesIO()
    with pellucid.open(":memory:") as db:
        db.extend(rows)
        assert pellucid.export_to(db, file, format="csv").rows == len(rows)
        report = pellucid.import_from(io.BytesIO(file.getvalue()), db, table="t", format="csv")
        assert report.skipped == []
        return file.getvalue(), [row.to_dict() for row in db.table("t").values()]


@given(tables())
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    data, back = there_and_back(rows)
    assert repr(back) == repr(rows)
    # Before Python 3.11, `csv` takes no NUL.
    lines = io.StringIO(data.decode().replace("\0", "0"), newline="")
    assert len(list(csv.reader(lines))) == len(rows) + 1


@given(st.lists(texts, min_size=1))
def test_a_column_of_texts_comes_back(cells: list[str]) -> None:
    assert there_and_back([{"a": cell} for cell in cells])[1] == [{"a": cell} for cell in cells]


def test_text_that_looks_like_another_value_has_quotes() -> None:
    looks_typed = base64.b64decode("1234")
    values = ["1.10", "true", "x", 5, True, decimal.Decimal("1.10"), looks_typed, 1.5, None, ""]
    data, _ = there_and_back([{"n": 0, "a": value} for value in values])
    cells = [line.partition(",")[2] for line in data.decode().split("\n")[1:-1]]
    assert cells == ['"1.10"', '"true"', "x", "5", "true", "1.10", '"1234"', "1.5", "", '""']


def test_an_apostrophe_at_the_beginning_is_not_taken_for_a_quote() -> None:
    rows = [{"1": 0, "'0": 0, "'": "y'"}, {"1": 0, "'0": 1, "'": "'x"}]
    assert there_and_back(rows)[1] == rows
    # Quotes that are needed for that do not say that all cells have them.
    rows = [{"'": "", "0": "1"}]
    assert there_and_back(rows)[1] == rows


def test_half_of_a_surrogate_pair_is_replaced_and_reported() -> None:
    file = io.BytesIO()
    rows = [{"s": "x"}] * 150 + [{"s": "cut \ud83d"}, {"s": "\udc00,\udc01"}]
    with pellucid.open(":memory:") as db:
        db.extend(rows)
        report = pellucid.export_to(db, file, format="csv")
    assert file.getvalue().decode().split("\n")[-3:] == ["cut \ufffd", '"\ufffd,\ufffd"', ""]
    assert report.notes == ["row 150 and 1 more: half of a surrogate pair is written as U+FFFD"]


@pytest.mark.parametrize("cell", ["a\rb", "a\nb", 'a"b', "a;b", " "])
def test_other_readers_take_what_was_written(cell: str) -> None:
    data, _ = there_and_back([{"a": cell, "b": 1}, {"a": "x", "b": 2}])
    assert pandas.read_csv(io.BytesIO(data))["a"].tolist() == [cell, "x"]
    assert next(csv.DictReader(io.StringIO(data.decode(), newline="")))["a"] == cell


VERIFIED = """a,b,c,d,e,f,g
1.10,007,True,+5,2026-01-31 10:00,nan,01.50
2,x,,9,2026-01-31T10:00:00.5Z,0.12345678901234567890,12345678901234567890.1
"""


def test_verification_compares_with_the_text_of_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(VERIFIED)
    with pellucid.open(":memory:") as db:
        choices: dict[str, Any] = {"dates": True, "types": {"g": "decimal"}, "verify": True}
        report = pellucid.import_from(tmp_path / "a.csv", db, table="t", **choices)
        assert (report.verified, db.table("t").column("a")) == (True, [1.1, 2.0])
        # Rows that are read wrongly twice are the same both times.
        monkeypatch.setattr(csv_types.Numbers, "floats", lambda _, cells: [round(float(c), 1) for c in cells])
        with pytest.raises(pellucid.SourceError, match=r"line 3: field 'f' is 0\.1, and the text is '0\.123"):
            pellucid.import_from(tmp_path / "a.csv", db, table="u", **choices)
        assert db.tables() == ["t"]
