"""Does an import take for JSON what Python's json takes for it, and read the same values?"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pellucid
import pytest
from json_cases import CASES
from pellucid.transfer.digits import with_numbers
from pellucid.transfer.job import Input, Job
from pellucid.transfer.outgoing import plain
from pellucid.transfer.sources.json_values import Decoder

# What Python reads and an import refuses. The guide names these, too.
REFUSED = {
    "i_array_nested_too_deeply_to_be_stored",
    "i_bytes_of_a_surrogate",
    "i_utf_32_without_mark",
}
FORMATS = (("json", "json"), ("jsonl", "jsonl"), ("json", None), ("jsonl", None), ("txt", None))


def by_python(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return ValueError


@pytest.fixture(params=["msgspec", "json"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "json":
        monkeypatch.setitem(sys.modules, "msgspec", None)
    return str(request.param)


@pytest.mark.parametrize("name", CASES)
def test_python_agrees_with_the_list(name: str) -> None:
    is_json = by_python(CASES[name]) is not ValueError
    assert name.startswith("i_") or is_json == name.startswith("y_")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("library")
def test_an_import_reads_what_python_reads(name: str, tmp_path: Path) -> None:
    data, expected = CASES[name], by_python(CASES[name])
    for suffix, form in FORMATS:
        # Without its suffix, a value alone is no JSON to whom it is not told.
        if suffix == "txt" and data.lstrip()[:1] not in (b"[", b"{"):
            continue
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(data)
        with pellucid.open(":memory:") as db:
            if expected is ValueError or name in REFUSED:
                with pytest.raises(pellucid.SourceError):
                    pellucid.import_from(path, db, format=form, strict=True)
                assert len(db) == 0
                continue
            report = pellucid.import_from(path, db, format=form, strict=True, verify=True)
            rows = list(map(plain, db.values()))
        # The elements of an array are rows, unless it stands in a line of its own.
        rows_expected = expected if isinstance(expected, list) and report.format == "json" else [expected]
        assert repr(rows) == repr(rows_expected)


@pytest.mark.parametrize("name", [name for name in CASES if "utf_" not in name])
def test_numbers_with_all_digits_are_read_from_the_same_texts(name: str) -> None:
    source = Input(io.BytesIO(b"{}"))
    job = Job(source, None, {"x": "text"}, "deny", None, lambda _place, _why: None, lambda _what: None)
    data, expected = CASES[name].removeprefix(b"\xef\xbb\xbf"), by_python(CASES[name])
    if expected is ValueError or name == "i_bytes_of_a_surrogate":
        with pytest.raises((ValueError, RecursionError)):
            Decoder(job).loads(data)
    else:
        assert repr(with_numbers(Decoder(job).loads(data))) == repr(expected)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b'{"a": 1} {"a": 2}', [{"a": 1}, {"a": 2}]),
        (b"1\n2\n", [1, 2]),
        (b"[1][2]", [[1], [2]]),
        (b" \n\t\n", []),
    ],
)
@pytest.mark.usefixtures("library")
def test_any_number_of_values_is_rows(text: bytes, rows: list[Any], tmp_path: Path) -> None:
    for suffix, form in (("jsonl", None), ("json", "jsonl")):
        (tmp_path / f"a.{suffix}").write_bytes(text)
        with pellucid.open(":memory:") as db:
            pellucid.import_from(tmp_path / f"a.{suffix}", db, format=form, strict=True)
            assert list(map(plain, db.values())) == rows
