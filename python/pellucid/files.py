"""This module opens one stored value as a binary file: `Table.open`.

A reader reads ranges of the value where it lies. A writer collects what is written, in memory up to 8 MiB and
then in a nameless temporary file, and stores all of it in one commit when it is closed.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ValueReader", "ValueWriter"]

SPOOL_SIZE = 8 << 20
"""Larger values are written to a temporary file first."""


class ValueReader(io.BufferedIOBase):
    """A file object that reads a stored value as it was when it was opened."""

    def __init__(self, view: memoryview) -> None:
        """Make a reader of these bytes, which it releases when it is closed."""
        self._view = view
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        self._check()
        return True

    def seekable(self) -> bool:
        """Return True."""
        self._check()
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position, as `io.IOBase.seek` does."""
        self._check()
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._view)}
        if whence not in starts:
            raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        at = starts[whence] + offset
        if at < 0:
            raise ValueError(f"the position {at} is before the first byte")
        self._at = at
        return at

    def tell(self) -> int:
        """Return the position."""
        self._check()
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next `size` bytes, or all that follow if it is None or negative."""
        return self._take(size).tobytes()

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes, as `read` does."""
        return self.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        """Copy the next bytes into a buffer, and return how many."""
        with memoryview(buffer).cast("B") as target:
            part = self._take(len(target))
            target[: len(part)] = part
            return len(part)

    def readinto1(self, buffer: Buffer, /) -> int:
        """Copy the next bytes into a buffer, as `readinto` does."""
        return self.readinto(buffer)

    def close(self) -> None:
        """Let go of the value, and of the version of the database that it belongs to."""
        if not self.closed:
            self._view.release()
        super().close()

    def _take(self, size: int | None) -> memoryview:
        self._check()
        end = len(self._view) if size is None or size < 0 else self._at + size
        part = self._view[self._at : end]
        self._at += len(part)
        return part

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class ValueWriter(io.BufferedIOBase):
    """A file object whose bytes become a stored value when it is closed, in one commit.

    Until then nothing is stored. An exception in its `with` block, and `discard`, throw the bytes away; the
    bytes of a writer that nothing refers to any more are thrown away, too.
    """

    def __init__(self, store: Callable[[Buffer], None], folder: str | None, head: bytes) -> None:
        """Make a writer that calls `store` with `head` and the bytes; many go through a file in `folder`."""
        self._store = store
        self._folder = folder
        self._head_size = len(head)
        self._file: Any = io.BytesIO()
        self._file.write(head)

    def writable(self) -> bool:
        """Return True."""
        self._check()
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        self._check()
        return int(self._file.tell()) - self._head_size

    def write(self, data: Buffer, /) -> int:
        """Add bytes, and return how many."""
        self._check()
        with memoryview(data).cast("B") as view:
            if isinstance(self._file, io.BytesIO) and self._file.tell() + len(view) > SPOOL_SIZE:
                self._spill()
            self._file.write(view)
            return len(view)

    def close(self) -> None:
        """Store what was written. A second call does nothing."""
        if self.closed:
            return
        try:
            if isinstance(self._file, io.BytesIO):
                with self._file.getbuffer() as whole:
                    self._store(whole)
            else:
                self._file.flush()
                with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    self._store(mapped)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close without storing anything."""
        self._file.close()
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store what was written, or discard it if the block was left by an exception."""
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        """Discard what was written."""
        # `IOBase` would call `close`, which stores.
        self.discard()

    def _spill(self) -> None:
        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # closed with this object
        file.write(self._file.getvalue())
        self._file = file

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
