"""Are arrays of one shape a column, and do expressions look into them?"""

from __future__ import annotations

from typing import Any

import numpy
import pellucid
import pyarrow
import pytest
from pellucid import KEY, F, count

DTYPES = ["float32", "float64", "int8", "int64", "uint64", "bool", ">f4", "float16"]


def runs(db: pellucid.Database, arrays: list[Any]) -> pellucid.Table[Any]:
    table = db.table("runs")
    table.extend({"n": n, "loss": array} for n, array in enumerate(arrays))
    return table


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0,)], ids=str)
def test_arrays_of_one_shape_are_one_array(db: pellucid.Database, dtype: str, shape: tuple[int, ...]) -> None:
    arrays = [(numpy.arange(numpy.prod(shape)).reshape(shape) + n).astype(dtype) for n in range(5)]
    table = runs(db, arrays)
    found = table.to_numpy("loss")
    assert (found.shape, found.dtype) == ((5, *shape), numpy.dtype(dtype))
    assert numpy.array_equal(found, numpy.stack(arrays))
    found[...] = 0
    assert numpy.array_equal(table.where(F.n >= 3).to_numpy(F.loss), numpy.stack(arrays[3:]))


def test_large_arrays_and_many_rows_are_one_array(db: pellucid.Database) -> None:
    arrays = [numpy.full(20_000, n, "float32") for n in range(3)]
    assert numpy.array_equal(runs(db, arrays).to_numpy("loss"), numpy.stack(arrays))
    many = db.table("many")
    many.extend({"v": numpy.array([n, -n], "int32")} for n in range(70_000 if db.path else 2_000))
    found = many.to_numpy("v")
    assert numpy.array_equal(found[:, 0], numpy.arange(len(many)))


def test_a_row_without_an_array_is_nan(db: pellucid.Database) -> None:
    table = runs(db, [None, numpy.array([1, 2], "float32"), None])
    table.append({"n": 3})
    found = table.to_numpy("loss")
    assert found.dtype == numpy.dtype("float32")
    assert numpy.array_equal(
        found, [[numpy.nan] * 2, [1, 2], [numpy.nan] * 2, [numpy.nan] * 2], equal_nan=True
    )


UNLIKE = [
    [numpy.zeros(2), numpy.zeros(3)],
    [numpy.zeros(2), numpy.zeros((1, 2))],
    [numpy.zeros(2), numpy.zeros(2, "float32")],
    [numpy.zeros(2), [0.0, 0.0]],
    [numpy.zeros(2, "int64"), None],
]


@pytest.mark.parametrize("arrays", UNLIKE, ids=range(len(UNLIKE)))
def test_other_arrays_are_an_array_of_objects(db: pellucid.Database, arrays: list[Any]) -> None:
    found = runs(db, arrays).to_numpy("loss")
    assert (found.shape, found.dtype) == ((2,), numpy.dtype("O"))
    assert all(numpy.array_equal(one, other) for one, other in zip(found, arrays, strict=True))


def test_float32_stays_float32_in_arrow_and_pandas(db: pellucid.Database) -> None:
    arrays = [numpy.array([0.1, numpy.nan], "float32"), numpy.array([], "float32")]
    table = runs(db, [*arrays, None])
    column = pyarrow.table(table.where()).column("loss")
    assert column.type == pyarrow.list_(pyarrow.field("item", pyarrow.float32()))
    assert [None if part is None else len(part) for part in column.to_pylist()] == [2, 0, None]
    assert column[0].values[0].as_py() == float(numpy.float32(0.1))
    assert table.to_pandas()["loss"][0].dtype == numpy.dtype("float32")


def test_float32_beside_floats_and_ints_loses_no_digit(db: pellucid.Database) -> None:
    single = numpy.array([0.1], "float32")
    for other in (numpy.array([0.1]), [0.1], numpy.array([2**24 + 1]), [2**24 + 1]):
        for arrays in ([single, other], [other, single]):
            db.drop_table("runs") if "runs" in db.tables() else None
            found = pyarrow.table(runs(db, arrays).where()).column("loss")
            assert found.type == pyarrow.list_(pyarrow.field("item", pyarrow.float64()))
            assert found.to_pylist() == [list(map(float, array)) for array in arrays]


def test_an_index_in_a_path_is_that_of_an_element(db: pellucid.Database) -> None:
    table = runs(db, [numpy.array([3, 1, 2], "float32"), numpy.array([5], "int8"), [7, 8], numpy.eye(2), 5])
    assert table.column(F.loss[-1]) == [2.0, 5, 8, None, None]
    assert table.column(F.loss[1]) == [1.0, None, 8, None, None]
    assert table.column("n") == [0, 1, 2, 3, 4]
    assert table.column(F.loss[1][1]) == [None, None, None, 1.0, None]
    assert table.column(F.loss[-1][0]) == [None, None, None, 0.0, None]
    assert table.where(F.loss[-1] > 4).select("n").to_dicts() == [{"n": 1}, {"n": 2}]
    assert [row.n for row in table.where(F.loss[0] < 6).order_by(F.loss[0].desc())] == [1, 0]


def test_an_array_in_columns_first_order_has_the_same_elements(db: pellucid.Database) -> None:
    array = numpy.asfortranarray(numpy.arange(6).reshape(2, 3))
    table = runs(db, [array])
    assert [table.column(F.loss[i][j])[0] for i in range(2) for j in range(3)] == list(range(6))


def test_each_and_length_look_into_arrays(db: pellucid.Database) -> None:
    table = runs(db, [numpy.array([1.5, 2.5]), numpy.array([[1, 2], [3, 4]]), numpy.zeros(20_000), [1, 2], 5])
    assert table.column(F.loss.length()) == [2, 2, 20_000, 2, None]
    assert table.where(F.loss.each() == 2.5).count() == 1
    assert table.where(F.loss.each() == 4).select("n").to_dicts() == [{"n": 1}]
    assert table.limit(2).column(F.loss.each()) == [[1.5, 2.5], [1, 2, 3, 4]]


def test_aggregates_take_the_elements_of_arrays(db: pellucid.Database) -> None:
    table = runs(
        db, [numpy.array([1, 2, 6], "float32"), numpy.array([-5], "int64"), None, numpy.array([], "int8")]
    )
    assert (table.min("loss"), table.max("loss"), table.mean("loss"), table.sum("loss")) == (
        -5,
        6.0,
        1.0,
        4.0,
    )
    found = table.agg(least=F.loss.min(), most=F.loss.max(), mean=F.loss.mean(), rows=count())
    assert found == {"least": -5, "most": 6.0, "mean": 1.0, "rows": 4}
    by_row = table.group_by(key=KEY).agg(mean=F.loss.mean(), least=F.loss.min())
    assert by_row[0] == {"key": 0, "mean": 3.0, "least": 1.0}
    assert [row["mean"] for row in by_row] == [3.0, -5.0, None, None]


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([numpy.array([1, 2]), 2**70], 2**70 + 3),
        ([numpy.array([1, 2]), numpy.uint64(2**63)], 2**63 + 3),
        ([numpy.array([2**63, 1], "uint64")], 2**63 + 1),
        ([numpy.array([1, 2]), numpy.array(5)], 3),
        ([numpy.array([[1, 2], [3, 4]], order="F"), 2**70, numpy.array(["x"])], 2**70 + 10),
    ],
    ids=["large int", "scalar", "large elements", "no dimensions", "texts"],
)
def test_sums_take_the_elements_beside_numbers_that_python_adds(
    db: pellucid.Database, values: list[Any], total: int
) -> None:
    assert runs(db, values).sum("loss") == total


def test_an_index_over_an_element_finds_its_rows(db: pellucid.Database) -> None:
    table = runs(db, [numpy.array([n, n / 2]) for n in range(50)])
    table.create_index("last", F.loss[-1])
    assert [row.n for row in table.where(F.loss[-1] == 4)] == [8]
    assert table.where(F.loss[-1] >= 20).count() == 10
