"""Does `joblib.Memory` keep its results in a file of pellucid?

`joblib_suite.py` runs joblib's own tests.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pellucid
import pellucid.contrib.joblib
import pytest
from joblib._store_backends import CacheWarning

pellucid.contrib.joblib.register()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[joblib.Memory]:
    found = joblib.Memory(tmp_path / "results", backend="pellucid", verbose=0)
    yield found
    found.store_backend._file.db.close()


calls: list[object] = []


def double(value: Any) -> Any:
    calls.append(value)
    return value * 2


class Own:
    pass


def own(value: int) -> Own:
    calls.append(value)
    return Own()


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.mark.parametrize(
    "value", [3, "text", [1, (2,)], np.arange(100_000)], ids=["int", "str", "list", "array"]
)
def test_a_result_is_computed_once_and_stored_without_pickle(memory: joblib.Memory, value: Any) -> None:
    kept = memory.cache(double)
    first, second = kept(value), kept(value)
    assert repr(first) == repr(second)
    assert type(first) is type(second)
    assert len(calls) == 1
    assert memory.store_backend._file.db.stats(pickles=True)["pickles"] == 0
    assert sorted(path.name for path in Path(memory.location).iterdir() if path.suffix == ".pel") == [
        "joblib.pel"
    ]


def test_arrays_can_be_changed_unless_mmap_mode_asks_for_views(tmp_path: Path) -> None:
    for mode, writeable in ((None, True), ("r", False)):
        memory = joblib.Memory(tmp_path / "results", backend="pellucid", verbose=0, mmap_mode=mode)
        kept = memory.cache(double)
        kept(np.arange(100_000))
        assert kept(np.arange(100_000)).flags.writeable == writeable


def test_another_memory_of_the_folder_finds_the_results(memory: joblib.Memory, tmp_path: Path) -> None:
    memory.cache(double)(3)
    other = pickle.loads(pickle.dumps(memory))
    assert other.cache(double)(3) == 6
    shelved = (
        joblib.Memory(tmp_path / "results", backend="pellucid", verbose=0).cache(double).call_and_shelve(3)
    )
    assert shelved.get() == 6
    assert calls == [3]
    shelved.clear()
    with pytest.raises(KeyError):
        shelved.get()


class Unpicklable:
    def __reduce__(self) -> Any:
        raise NotImplementedError("it has no pickle")


def unpicklable() -> Unpicklable:
    return Unpicklable()


def test_a_result_whose_class_has_no_pickle_is_returned(tmp_path: Path) -> None:
    options = {"pickle": "allow"}
    memory = joblib.Memory(tmp_path / "a", backend="pellucid", verbose=0, backend_options=options)
    with pytest.warns(CacheWarning, match="it has no pickle"):
        assert type(memory.cache(unpicklable)()) is Unpicklable


def test_results_of_other_classes_need_the_option_that_the_warning_names(tmp_path: Path) -> None:
    plain = joblib.Memory(tmp_path / "a", backend="pellucid", verbose=0).cache(own)
    for _ in range(2):
        with pytest.warns(CacheWarning, match='"pickle": "allow"'):
            assert type(plain(1)) is Own
    options = {"pickle": "allow"}
    pickled = joblib.Memory(tmp_path / "a", backend="pellucid", verbose=0, backend_options=options).cache(own)
    assert type(pickled(1)) is type(pickled(1)) is Own
    assert len(calls) == 3


def test_a_result_is_returned_while_another_writer_has_the_file(tmp_path: Path) -> None:
    options = {"timeout": 0}
    memory = joblib.Memory(tmp_path / "results", backend="pellucid", verbose=0, backend_options=options)
    kept = memory.cache(double)
    with pellucid.open(memory.store_backend._file.path) as db:
        with db.transaction(), pytest.warns(CacheWarning, match="Unable to cache"):
            assert kept(3) == 6
        assert (kept(3), kept(3), calls) == (6, 6, [3, 3])
    memory.store_backend._file.db.close()


def test_the_oldest_uses_go_first(memory: joblib.Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = memory.cache(double)
    for value in range(4):
        kept(value)
    assert kept(0) == 0
    memory.reduce_size(items_limit=2)
    assert [kept.check_call_in_cache(value) for value in range(4)] == [True, False, False, True]
    memory.reduce_size(age_limit=datetime.timedelta(days=1))
    assert len(memory.store_backend.get_items()) == 2
    memory.reduce_size(bytes_limit="1K")
    assert len(memory.store_backend.get_items()) == 2
    kept.clear(warn=False)
    assert memory.store_backend.get_items() == []


def test_a_changed_function_is_computed_again(memory: joblib.Memory, tmp_path: Path) -> None:
    def load(text: str) -> Callable[[int], int]:
        path = tmp_path / "changing.py"
        path.write_text(text)
        names: dict[str, Any] = {"__name__": "changing", "__file__": str(path)}
        exec(compile(text, str(path), "exec"), names)  # noqa: S102
        return names["f"]  # type: ignore[no-any-return]

    assert memory.cache(load("def f(x):\n    return x + 1\n"))(1) == 2
    joblib.memory._FUNCTION_HASHES.clear()
    assert memory.cache(load("def f(x):\n    return x + 2\n"))(1) == 3
    memory.clear(warn=False)
    assert memory.store_backend.get_items() == []


def test_options_that_change_nothing_are_told(tmp_path: Path) -> None:
    with pytest.warns(CacheWarning, match="not compressed"):
        joblib.Memory(tmp_path / "a", backend="pellucid", verbose=0, compress=True)
    with pytest.warns(CacheWarning, match="no option 'level'"):
        joblib.Memory(tmp_path / "b", backend="pellucid", verbose=0, backend_options={"level": 1})


def test_loading_is_told_to_the_user(memory: joblib.Memory, capsys: pytest.CaptureFixture[str]) -> None:
    memory.cache(double, verbose=0)(3)
    memory.cache(double, verbose=11)(3)
    assert "Loading" in capsys.readouterr().out
