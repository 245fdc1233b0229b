"""The bytes of one value of a server's table, as a buffer and as a file.

A value comes from the server whole, with the large values of the field that is asked for and no others.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid._native import Record, RecordList

if TYPE_CHECKING:
    from pellucid.postgres.table.records import Records

# More of a value that is written waits in a file.
SPOOL_SIZE = 8 << 20


def writer_of(
    table: MutableMapping[Any, Any], records: Records, key: Any, mode: str, path: Any
) -> ValueWriter:
    """Return a file that becomes the value of a key."""
    if mode != "wb":
        raise ValueError(f"mode={mode!r} is unknown; use 'rb' or 'wb'")
    if path is not None:
        raise ValueError(
            "a part of a value cannot be written as a file; set it as a field: record.image = data"
        )
    records.connection.check_writable()
    # Refuses what cannot be a key before anything is written.
    records.encode_key(key)
    return ValueWriter(table, key)


def buffer_of(value: Any, key: Any, path: Any) -> memoryview:
    """Return the bytes of a value or of one of its fields."""
    steps = [] if path is None else path.split(".") if isinstance(path, str) else list(path)
    for step in steps:
        holder: Any = value if isinstance(value, Record | RecordList | tuple) else {}
        try:
            value = holder[step]
        except (LookupError, TypeError, OverflowError):
            raise KeyError(path) from None
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            value = None
    elif hasattr(value, "tobytes"):
        value = value.tobytes()
    if not isinstance(value, bytes | bytearray):
        place = f"the value of key {key!r}" if path is None else f"what is at {path!r} of key {key!r}"
        raise TypeError(f"{place} has no buffer: it is neither bytes, nor text in UTF-8, nor an array")
    return memoryview(value).toreadonly()


class ValueReader(io.RawIOBase):
    """A file over bytes that are in memory."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data = data
        self._place = 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that its place can be set."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return how many bytes were read."""
        part = self._data[self._place : self._place + len(buffer)]
        buffer[: len(part)] = part
        self._place += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the place, and return it."""
        if whence not in (0, 1, 2):
            raise ValueError(f"whence={whence} is unknown; use 0, 1 or 2")
        place = (0, self._place, len(self._data))[whence] + offset
        if place < 0:
            raise ValueError(f"the place {place} is before the first byte")
        self._place = place
        return place


class ValueWriter(io.RawIOBase):
    """A file that becomes the value of a key, as bytes, when it is closed."""

    def __init__(self, table: MutableMapping[Any, Any], key: Any) -> None:
        super().__init__()
        self._target = table
        self._key = key
        self._written: Any = tempfile.SpooledTemporaryFile(SPOOL_SIZE)  # noqa: SIM115 - closed with this

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def write(self, data: Any) -> int:
        """Add bytes, and return how many."""
        self._check()
        view = memoryview(data).cast("B")
        self._written.write(view)
        return len(view)

    def tell(self) -> int:
        """Return how many bytes were written."""
        self._check()
        return int(self._written.tell())

    def _check(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")

    def discard(self) -> None:
        """Close the file without storing anything."""
        self._written.close()
        super().close()

    def close(self) -> None:
        """Store the value."""
        if self.closed:
            return
        self._written.seek(0)
        data = self._written.read()
        self.discard()
        self._target[self._key] = data

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # One that is dropped is not whole.
        if not self.closed:
            self.discard()
