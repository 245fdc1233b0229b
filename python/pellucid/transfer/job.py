"""This module has what all sources share: the file, what the caller asked for, and the rows in chunks."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from pellucid.errors import SourceError
from pellucid.transfer import compressed, safe_pickles

__all__ = ["CHUNK_ROWS", "CHUNK_SIZE", "HEAD_SIZE", "Allowance", "Chunk", "Input", "Job", "Part", "in_chunks"]

# Rows are stored in chunks: large enough to make the cost of a call small, small enough for the cache.
CHUNK_ROWS = 500
CHUNK_SIZE = 1 << 15
# Large values make a chunk shorter.
CHUNK_BYTES = 1 << 25
HEAD_SIZE = 1 << 16


class Chunk(NamedTuple):
    """Some rows, or pairs of key and row, and where each of them is in the source."""

    rows: Any
    places: Sequence[object]
    word: str = "row"
    share: float | None = None

    def place(self, position: int) -> str:
        """The place of a row, in words: `line 7`, `key 'ann'`."""
        return f"{self.word} {self.places[position]!r}"


class Part(NamedTuple):
    """The rows of one table. `name` is None if the source has no names for tables.

    `kind` is "rows", "pairs" of key and value, or "columns": batches of Arrow. `key` is a field that the
    source itself has for a key. A source that decides the types of its columns gives them in `columns`, which
    it fills when the first chunk is read, and has converted its rows as `types=` says.
    """

    name: str | None
    kind: str
    chunks: Iterator[Chunk]
    key: tuple[str, ...] = ()
    columns: dict[str, str] | None = None


class Input:
    """A file, a folder or a stream that an import reads."""

    def __init__(self, source: Any) -> None:
        self.stream: BinaryIO | None = None
        self.pipe: BinaryIO | None = None
        self.wrapper: io.BufferedReader | None = None
        self.path = ""
        # The suffix of its kind if the file is compressed.
        self.packing: str | None = None
        self.head = b""
        self.size: int | None = None
        self.stamps: dict[str, tuple[int, ...]] = {}
        # What came of a stream, where it is read several times.
        self.copied: Any = None
        if hasattr(source, "read"):
            self._of_stream(source)
        else:
            self._of_path(os.fsdecode(source))

    def _of_stream(self, source: Any) -> None:
        if isinstance(source, io.TextIOBase):
            raise TypeError("import_from() reads bytes; open the file in binary mode, with open(path, 'rb')")
        name = getattr(source, "name", None)
        self.name = name.strip("<>") if isinstance(name, str) else "the stream"
        self.wrapper = None if hasattr(source, "peek") else io.BufferedReader(source, HEAD_SIZE)
        stream = self.wrapper or source
        # One call of peek() gives what one read gave. A pipe may give its first bytes in pieces.
        head = stream.peek(HEAD_SIZE)[:HEAD_SIZE]
        if (packing := compressed.kind_of(head)) is not None:
            self.packing = packing
            stream = compressed.unpacked(stream, packing, self.name)
            head = stream.peek(HEAD_SIZE)[:HEAD_SIZE]
        self.stream, self.head = stream, head

    def _of_path(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(os.path.normpath(path))
        try:
            found = os.stat(path)
        except FileNotFoundError:
            # A dbm may add its own suffix to the name.
            return
        if stat.S_ISDIR(found.st_mode):
            return
        if not stat.S_ISREG(found.st_mode):
            self.pipe = open(path, "rb")  # noqa: SIM115  `close` closes it
            self._of_stream(self.pipe)
            return
        self.watch(path)
        with open(path, "rb") as file:
            self.head = file.read(HEAD_SIZE)
        self.packing = compressed.kind_of(self.head)
        if self.packing is None:
            self.size = found.st_size
            return
        with self.open() as unpacked:
            self.head = unpacked.read(HEAD_SIZE)

    @property
    def suffix(self) -> str:
        """The suffix of the name, in small letters; that of a compressed file is left out."""
        return os.path.splitext(compressed.split_suffix(self.name)[0])[1].lower()

    @property
    def is_plain_file(self) -> bool:
        """Whether a library can open the path, and read at any place."""
        return self.stream is None and self.packing is None

    @property
    def may_have_more(self) -> bool:
        """Whether there may be more than the head."""
        return not self.is_plain_file or (self.size or 0) > len(self.head)

    def goes_on_after_line(self) -> bool:
        """Whether there is more than space behind the first line."""
        if not self.may_have_more:
            return False
        if self.stream is not None:
            # What was read to see this is put before the rest.
            ahead = self.stream.read(HEAD_SIZE)
            self.stream = io.BufferedReader(_Joined(ahead, self.stream), HEAD_SIZE)
            return bool(ahead.strip().partition(b"\n")[2])
        with self.open() as file:
            is_behind = False
            while piece := file.read(HEAD_SIZE):
                if not is_behind:
                    is_behind, piece = b"\n" in piece.lstrip(), piece.lstrip().partition(b"\n")[2]
                if is_behind and piece.strip():
                    return True
        return False

    @contextmanager
    def ahead(self) -> Iterator[BinaryIO]:
        """The bytes from the beginning, only to look at: a stream has them again afterwards."""
        if self.stream is None:
            with self.open() as file:
                yield file
            return
        stream, taken = self.stream, io.BytesIO()
        try:
            yield io.BufferedReader(_Taken(stream, taken), HEAD_SIZE)
        finally:
            self.stream = io.BufferedReader(_Joined(taken.getvalue(), stream), HEAD_SIZE)

    @property
    def exists(self) -> bool:
        """Whether there is a file or folder at the path, or a stream."""
        return self.stream is not None or os.path.exists(self.path)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes of the file from its beginning. A stream can be read once, and its owner closes it."""
        if self.stream is not None:
            yield self.stream
            return
        with open(self.path, "rb", buffering=1 << 18) as file:
            yield file if self.packing is None else compressed.unpacked(file, self.packing, self.name)

    @contextmanager
    def again(self) -> Iterator[BinaryIO]:
        """The bytes as a file that can be read several times.

        What comes of a stream or a compressed file is copied into a temporary one.
        """
        if self.copied is not None:
            self.copied.seek(0)
            yield self.copied
            return
        with self.open() as source, ExitStack() as stack:
            if self.is_plain_file:
                yield source
                return
            file = tempfile.TemporaryFile()  # noqa: SIM115  closed here, or by `close`
            if self.stream is not None:
                self.copied = file
            else:
                stack.enter_context(file)
            shutil.copyfileobj(source, file, HEAD_SIZE)
            file.seek(0)
            yield file

    @contextmanager
    def text(self, encoding: str, newline: str = "") -> Iterator[io.TextIOWrapper]:
        """The text of the file."""
        with self.open() as file:
            text = io.TextIOWrapper(file, encoding, newline=newline)
            try:
                yield text
            finally:
                text.detach()

    def close(self) -> None:
        """Close what this object itself opened, and leave the stream of the caller open."""
        if self.copied is not None:
            self.copied.close()
        if self.wrapper is not None:
            self.wrapper.detach()
        if self.pipe is not None:
            self.pipe.close()

    def watch(self, *paths: str) -> None:
        """Note the state of files, for `check_unchanged`."""
        for path in paths:
            if os.path.exists(path):
                self.stamps[path] = _stamp(path)

    def check_unchanged(self) -> None:
        """Raise `SourceError` if a file is another one than at the beginning, or was written to."""
        for path, before in self.stamps.items():
            try:
                after: tuple[int, ...] = _stamp(path)
            except FileNotFoundError:
                after = ()
            if after != before:
                raise SourceError(
                    f"{path} changed while it was read; import it again when no program writes to it"
                )


class _Joined(io.RawIOBase):
    """A stream with bytes before it that were read already."""

    def __init__(self, ahead: bytes, stream: BinaryIO) -> None:
        self.ahead = io.BytesIO(ahead)
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.ahead.read(len(buffer)) or self.stream.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class _Taken(io.RawIOBase):
    """A stream of which all that is read is kept."""

    def __init__(self, stream: BinaryIO, taken: io.BytesIO) -> None:
        self.stream = stream
        self.taken = taken

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.stream.read(len(buffer))
        self.taken.write(piece)
        buffer[: len(piece)] = piece
        return len(piece)


def _stamp(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Job(NamedTuple):
    """An import, as a source sees it."""

    input: Input
    encoding: str | None
    types: Any
    pickle: Any
    path: tuple[str, ...] | None
    skip: Callable[[str, str], None]
    note: Callable[[str], None]
    # The fields that `key=` names, and whether `dates=` is on.
    key: tuple[str, ...] = ()
    dates: bool = False
    # How a CSV is written, as far as the caller says it: `columns=` and `dialect=`.
    columns: tuple[str, ...] | None = None
    dialect: Mapping[str, Any] = MappingProxyType({})
    # The files of the same format in this import, with what their reader knows of all of them.
    group: Group | None = None
    # Whether the rows were stored already, and are read again to compare them.
    is_verification: bool = False
    # What makes the row of a cache from a key, a value, the time when it expires, and its tag.
    entry: Callable[[Any, Any, float | None, Any], tuple[Any, Any]] | None = None

    def unpickle(self, data: bytes) -> Any:
        """The object of a pickle, as far as the policy allows; raises `ValueError`."""
        return safe_pickles.load(data, self.pickle, self.encoding)

    def share(self, done: int) -> float | None:
        """Which part of the file `done` bytes are."""
        return done / self.input.size if self.input.size else None

    def damaged(self, what: object) -> SourceError:
        """The error for a source that cannot be read any further."""
        return SourceError(f"{self.input.name} cannot be read: {what}")


class Group(NamedTuple):
    """Files whose reader decides something for all of them together."""

    jobs: list[Job]
    known: dict[str, Any]
    # Notes what there is to say of all of them.
    note: Callable[[str], None]


class Allowance:
    """How much the rows of a file may come to. A file made to fill memory claims far more than it holds."""

    # What is computed, or stands in many rows and once in the file, comes to more than the file.
    BASE = 1 << 20
    PER_BYTE = 8

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.left = self.BASE + self.PER_BYTE * size

    def take(self, row: Sequence[object]) -> None:
        """Count a row, with the bytes and texts in its cells; raise `SourceError` if that is too much."""
        self.left -= 4 + len(row) + weight(row)
        if self.left < 0:
            raise SourceError(
                f"{self.name} cannot be read: its rows come to far more than its {self.size:,} bytes; it is "
                "damaged, or has computed columns that are longer than it: import a copy without them"
            )


def weight(row: Any) -> int:
    """The bytes and texts in a row, or in a pair of key and row."""
    kind = type(row)
    if kind is bytes or kind is str:
        return len(row)
    if kind is dict:
        row = row.values()
    elif kind is not tuple and kind is not list:
        return 0
    return sum(len(cell) for cell in row if type(cell) is bytes or type(cell) is str)


def in_chunks(rows: Iterator[tuple[object, Any]], word: str, total: int | None = None) -> Iterator[Chunk]:
    """Chunks of rows that come one by one, each with its place."""
    done = 0
    while True:
        places: list[object] = []
        values: list[Any] = []
        size = 0
        for place, value in rows:
            places.append(place)
            values.append(value)
            size += weight(value)
            if len(values) == CHUNK_ROWS or size >= CHUNK_BYTES:
                break
        if not values:
            return
        done += len(values)
        yield Chunk(values, places, word, min(1.0, done / total) if total else None)
