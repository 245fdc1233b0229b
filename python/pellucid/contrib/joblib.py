"""This module keeps the results of `joblib.Memory` in one file of pellucid instead of a folder for each call.

`register()` makes the backend "pellucid" known to joblib. Results that the format holds are stored natively:
arrays, dicts, lists, numbers, texts. Others need `backend_options={"pickle": "allow"}`.
"""

from __future__ import annotations

import datetime
import os
import time
import warnings
from typing import Any

import joblib
from joblib._store_backends import CacheItemInfo, CacheWarning, StoreBackendBase, StoreBackendMixin
from joblib.logger import format_time

import pellucid
from pellucid.cache.entries import ABSENT
from pellucid.cache.functions import is_of_value
from pellucid.cache.limits import size_of
from pellucid.cache.uses import Uses, slot_count
from pellucid.contrib.arrays import changeable

__all__ = ["StoreBackend", "register"]

FILE = "joblib.pel"
# What an entry has, by the last part of its key.
OUTPUT, METADATA, CODE = "output", "metadata", "code"


def _key(call_id: Any, part: str) -> tuple[str, ...]:
    return (*call_id, part)


def register() -> None:
    """Let `joblib.Memory(location, backend="pellucid")` keep its results in a file of pellucid.

    >>> import joblib
    >>> import pellucid.contrib.joblib
    >>> pellucid.contrib.joblib.register()
    >>> memory = joblib.Memory("results", backend="pellucid", verbose=0)
    >>> length = memory.cache(len)
    >>> length("abc"), length.check_call_in_cache("abc")
    (3, True)
    """
    joblib.register_store_backend("pellucid", StoreBackend)


class _File:
    """The open file of a backend. joblib compares a backend with its pickle: files of one path are equal."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.path = path
        self.db: Any = pellucid.open(path, **options)
        self.rows: Any = self.db.table("results", type=object)
        self.uses = Uses(f"{path}-uses", slot_count(None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _File) and self.path == other.path

    __hash__ = None  # type: ignore[assignment]


class StoreBackend(StoreBackendMixin):  # type: ignore[misc]
    """The backend: rows under the function and the arguments of a call, in `location/joblib.pel`."""

    _file: _File

    def configure(
        self, location: str, verbose: int = 1, backend_options: dict[str, Any] | None = None
    ) -> None:
        """Open the file in the folder `location`; `backend_options` may have `pickle` and `timeout`."""
        options = dict(backend_options or {})
        if options.pop("compress", False):
            warnings.warn("results are not compressed by the backend pellucid", CacheWarning, stacklevel=2)
        self.mmap_mode = options.pop("mmap_mode", None)
        for name in options.keys() - {"pickle", "timeout", "durability", "memory"}:
            del options[name]
            warnings.warn(f"the backend pellucid has no option {name!r}", CacheWarning, stacklevel=2)
        self.location, self.verbose, self._options = location, verbose, options
        self._open()

    def _open(self) -> None:
        os.makedirs(self.location, exist_ok=True)
        self._file = _File(os.path.join(os.path.abspath(self.location), FILE), self._options)

    def __getstate__(self) -> Any:
        return self.location, self.verbose, self._options, self.mmap_mode

    def __setstate__(self, state: Any) -> None:
        self.location, self.verbose, self._options, self.mmap_mode = state
        self._open()

    # ---- results

    def load_item(
        self, call_id: list[str], verbose: int = 1, timestamp: float | None = None, metadata: Any = None
    ) -> Any:
        """Return the result of a call; raises `KeyError` if there is none."""
        if verbose > 1:
            self._say_loading(call_id, verbose, timestamp, metadata)
        key = _key(call_id, OUTPUT)
        value = self._file.rows.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(f"Non-existing item (may have been cleared): {self._path(call_id)}")
        self._file.uses.slots[self._file.uses.slot(key)] = time.time()
        return value if self.mmap_mode == "r" else changeable(value)

    def _say_loading(self, call_id: list[str], verbose: int, timestamp: float | None, metadata: Any) -> None:
        since = "" if timestamp is None else f"{format_time(time.time() - timestamp): <16}"
        signature = os.path.basename(call_id[0])
        if metadata and "input_args" in metadata:
            signature += "({})".format(
                ", ".join(f"{name}={each}" for name, each in metadata["input_args"].items())
            )
        origin = "..." if verbose < 10 else f" from {self._path(call_id)}"
        print(f"[Memory]{since}: Loading {signature}{origin}")

    def dump_item(self, call_id: list[str], item: Any, verbose: int = 1) -> None:
        """Store the result of a call. One that cannot be stored is computed again, and a warning says so."""
        if verbose > 10:
            print(f"Persisting in {self._path(call_id)}")
        try:
            self._store(call_id, OUTPUT, item)
        except Exception as problem:
            if not is_of_value(problem):
                raise
            way = "" if "pickle" in self._options else '; or use backend_options={"pickle": "allow"}'
            warnings.warn(f"Unable to cache to disk: {problem}{way}", CacheWarning, stacklevel=2)

    def _store(self, call_id: list[str], part: str, value: Any) -> None:
        """Store a part of a call. If there is no way to do so now, the call is computed again."""
        try:
            self._file.rows[_key(call_id, part)] = value
        except (pellucid.DiskFull, pellucid.RecordTooLarge, pellucid.Busy) as problem:
            warnings.warn(f"Unable to cache to disk: {problem}", CacheWarning, stacklevel=3)

    def contains_item(self, call_id: list[str]) -> bool:
        """Say whether the result of a call is there."""
        return _key(call_id, OUTPUT) in self._file.rows

    def clear_item(self, call_id: list[str]) -> None:
        """Remove what is stored of a call."""
        self.clear_path(call_id)

    def get_metadata(self, call_id: list[str]) -> dict[str, Any]:
        """Return what joblib noted of a call; an empty dict if there is nothing."""
        return self._file.rows.get(_key(call_id, METADATA), {})  # type: ignore[no-any-return]

    def store_metadata(self, call_id: list[str], metadata: dict[str, Any]) -> None:
        """Store what joblib notes of a call."""
        self._store(call_id, METADATA, metadata)

    # ---- functions

    def store_cached_func_code(self, call_id: list[str], func_code: str | None = None) -> None:
        """Store the code of a function, by which joblib knows that it has changed."""
        if func_code is not None:
            self._store(call_id, CODE, func_code)

    def get_cached_func_code(self, call_id: list[str]) -> str:
        """Return the code of a function; raises `FileNotFoundError`, as joblib expects, if there is none."""
        code = self._file.rows.get(_key(call_id, CODE), ABSENT)
        if code is ABSENT:
            raise FileNotFoundError(2, "the code of the function is not stored", self._path(call_id))
        return code  # type: ignore[no-any-return]

    def contains_path(self, call_id: list[str]) -> bool:
        """Say whether anything of a function is there."""
        return next(iter(self._file.rows.keys(prefix=tuple(call_id))), None) is not None

    def clear_path(self, call_id: list[str]) -> None:
        """Remove everything of a function."""
        with self._file.db.transaction():
            for key in list(self._file.rows.keys(prefix=tuple(call_id))):
                self._file.rows.pop(key, None)

    # ---- the whole

    def clear(self) -> None:
        """Remove everything."""
        self._file.rows.clear()

    def get_items(self) -> list[Any]:
        """Return the calls, each with its size and its last use, from which joblib chooses what goes."""
        items = []
        for key, value in self._file.rows.items():
            if key[-1] != OUTPUT:
                continue
            call_id = key[:-1]
            metadata = self._file.rows.get(_key(call_id, METADATA), {})
            used = max(self._file.uses.slots[self._file.uses.slot(key)], metadata.get("time", 0.0))
            moment = datetime.datetime.fromtimestamp(used)
            items.append(CacheItemInfo(self._path(call_id), size_of(value) + size_of(metadata), moment))
        return items

    def clear_location(self, location: str) -> None:
        """Remove a call by its path, as `get_items` has it."""
        if location == self.location:
            self.clear()
            return
        function, _, arguments = os.path.relpath(location, self.location).rpartition(os.sep)
        self.clear_path([function, arguments])

    def _path(self, call_id: Any) -> str:
        return os.path.join(self.location, *call_id)


# joblib asks for a class of this kind. Its abstract methods are about files, and there are none.
StoreBackendBase.register(StoreBackend)
