"""This module unpacks what an import reads, and packs what an export writes: gzip, bzip2 and Zstandard."""

from __future__ import annotations

import importlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from pellucid.errors import SourceError

__all__ = ["WRITTEN", "kind_of", "packed", "split_suffix", "unpacked"]

# The first bytes of each kind, and the suffix of its files.
MAGICS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
WRITTEN = (".gz", ".zst")
# A file that comes to more is taken for one that was made to fill the disk or the memory: JSON and CSV come
# to 5 to 50 times their packed size, and zeros to a thousand times.
RATIO_MAX = 200
# This much may come of any file.
UNPACKED_FREE = 1 << 26
PIECE = 1 << 17


def kind_of(head: bytes) -> str | None:
    """The kind of a packed file, as its suffix; None if it is not packed."""
    return next((kind for magic, kind in MAGICS.items() if head.startswith(magic)), None)


def split_suffix(name: str) -> tuple[str, str]:
    """A name without the suffix of a packed file, and that suffix; it is empty if there is none."""
    found = next((kind for kind in MAGICS.values() if name.lower().endswith(kind)), "")
    return name[: len(name) - len(found)], found


def _zstd() -> Any:
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    raise ImportError("files of .zst need Python 3.14, or: pip install backports.zstd")


def _opened(file: Any, kind: str, mode: str) -> Any:
    if kind == ".gz":
        import gzip

        # Without a time, so that the same rows give the same bytes.
        return gzip.GzipFile("", mode, 6, file, 0)
    if kind == ".bz2":
        import bz2

        return bz2.BZ2File(file)
    zstd = _zstd()
    # The other two have a checksum always.
    options = {zstd.CompressionParameter.checksum_flag: 1} if mode == "wb" else None
    return zstd.ZstdFile(file, mode, options=options)


@contextmanager
def packed(file: BinaryIO, kind: str) -> Iterator[BinaryIO]:
    """A file whose bytes are packed into another one, which stays open."""
    if not kind:
        yield file
        return
    with _opened(file, kind, "wb") as packing:
        yield packing


def unpacked(file: BinaryIO, kind: str, name: str) -> io.BufferedReader:
    """The bytes that a packed file comes to. `SourceError` is raised for a damaged file, and for too many."""
    return io.BufferedReader(_Unpacked(file, kind, name), PIECE)


class _Counted:
    """A file that counts the bytes that are read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.count += len(data)
        return data

    def seekable(self) -> bool:
        return False


class _Unpacked(io.RawIOBase):
    def __init__(self, file: BinaryIO, kind: str, name: str) -> None:
        self.counted = _Counted(file)
        self.file = _opened(self.counted, kind, "rb")
        self.name = name
        self.damage: Any = (EOFError, OSError, zlib.error)
        if kind == ".zst":
            self.damage = (*self.damage, _zstd().ZstdError)
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self.file.read1(len(buffer))
        except self.damage as error:
            if getattr(error, "errno", None) is not None:
                # The disk, and not what is on it.
                raise
            raise SourceError(f"{self.name} cannot be unpacked: {str(error).lower()}") from error
        self.count += len(piece)
        if self.count > max(UNPACKED_FREE, RATIO_MAX * self.counted.count):
            raise SourceError(
                f"{self.name} comes to more than {RATIO_MAX} times its size, {self.count:,} bytes so far; if "
                "you trust it, unpack it and import that file"
            )
        buffer[: len(piece)] = piece
        return len(piece)
