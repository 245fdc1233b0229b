"""Is an index of pandas a field, also one that is a range and no column of its file?"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas
import pellucid
import pyarrow
import pytest
from pyarrow import feather, ipc, parquet

WHOLE = pandas.DataFrame({"v": range(30_000)})
INDEX = "__index_level_0__"


def with_index(index: Any) -> pandas.DataFrame:
    return pandas.DataFrame({"v": range(len(index))}, index=index)


def write(frame: pandas.DataFrame, kind: str, folder: Path) -> Any:
    path = folder / f"a.{kind}"
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "feather":
        feather.write_feather(pyarrow.Table.from_pandas(frame), path)
    elif kind == "pickle":
        frame.to_pickle(path)
    else:
        columns = pyarrow.Table.from_pandas(frame)
        with ipc.new_stream(file := io.BytesIO(), columns.schema) as stream:
            stream.write_table(columns, max_chunksize=7_000)
        return io.BytesIO(file.getvalue())
    return path


@pytest.mark.parametrize("kind", ["parquet", "feather", "pickle", "stream"])
@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (WHOLE[10:], INDEX),
        (WHOLE[::-1], INDEX),
        (WHOLE[1_000:2_000:7], INDEX),
        (with_index(pandas.RangeIndex(3, name="id")), "id"),
        (with_index(pandas.RangeIndex(5, 3, -1, name=7)), "7"),
        (with_index([4, 2, 9]), INDEX),
        (with_index(["a", "b"]), INDEX),
        (WHOLE, None),
        (WHOLE[:10], None),
        (with_index(pandas.RangeIndex(3, name="v")), None),
    ],
)
def test_the_index_of_a_frame_is_a_field(
    frame: pandas.DataFrame, name: str | None, kind: str, tmp_path: Path
) -> None:
    source = write(frame, kind, tmp_path)
    expected = [{"v": value} | ({name: index} if name else {}) for index, value in frame.v.items()]
    choices: dict[str, Any] = {"pickle": "allow"} if kind == "pickle" else {}
    with pellucid.open(":memory:") as db:
        pellucid.import_from(source, db, verify=kind != "stream", **choices)
        assert db.to_dicts() == expected
        if name is not None and kind != "stream":
            pellucid.import_from(source, db, table="keyed", key=name, **choices)
            assert sorted(frame.index) == list(db.table("keyed"))
            assert dict(frame.v.items()) == {key: row.v for key, row in db.table("keyed").items()}


@pytest.mark.parametrize(
    "said",
    [
        *(b"{", b"{}", b"[]", b"[" * 100_000, b'{"index_columns": [7]}', b'{"index_columns": [{"name": 1}]}'),
        *(
            b'{"index_columns": [{"name": "i", "start": %d, "stop": %d, "step": %d}]}' % ends
            for ends in ((0, 2**70, 1), (2**70, 2**70 + 2, 1), (0, 2, 0))
        ),
    ],
)
def test_damaged_metadata_of_pandas_says_nothing(said: bytes, tmp_path: Path) -> None:
    columns = pyarrow.table({"v": [1, 2]}).replace_schema_metadata({b"pandas": said})
    parquet.write_table(columns, tmp_path / "a.parquet")
    with pellucid.open(":memory:") as db:
        pellucid.import_from(tmp_path / "a.parquet", db)
        assert db.to_dicts() == [{"v": 1}, {"v": 2}]


def test_a_range_of_another_length_is_not_the_index(tmp_path: Path) -> None:
    columns = pyarrow.Table.from_pandas(WHOLE[10:20])
    parquet.write_table(columns.slice(2), tmp_path / "a.parquet")
    with pellucid.open(":memory:") as db:
        pellucid.import_from(tmp_path / "a.parquet", db)
        assert db.to_dicts() == [{"v": value} for value in range(12, 20)]
