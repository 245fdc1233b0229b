"""This module reads Parquet and Arrow files, and Arrow streams; it needs pyarrow."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from pellucid.errors import SourceError
from pellucid.transfer.job import Chunk, Job, Part

__all__ = ["chunks", "parts", "parts_of_parquet", "pyarrow"]

BATCH_ROWS = 10_000
# A batch of Parquet has fewer rows if they are large.
BATCH_BYTES = 1 << 25
# One read of a Parquet file, without which a whole row group is read at once.
READ_SIZE = 1 << 18
# What a batch of an Arrow file may come to: it is read as a whole.
BATCH_SIZE_MAX = 1 << 30
# A message of Arrow: its kinds that have buffers, and what is before its head.
DICTIONARY, BATCH, CONTINUES = 2, 3, b"\xff\xff\xff\xff"


def pyarrow() -> Any:
    """The library; `ImportError` says what to install."""
    try:
        import pyarrow as library
    except ImportError as error:
        raise ImportError("Arrow and Parquet files need pyarrow: pip install pyarrow") from error
    return library


def parts(job: Job) -> Iterator[Part]:
    """The one table of an Arrow file or stream."""
    library = pyarrow()
    from pyarrow import ipc

    is_file = job.input.head.startswith(b"ARROW1")
    if is_file and job.input.packing is not None:
        raise SourceError("a file of Arrow cannot be read compressed; unpack it first")
    with job.input.open() as opened:
        file = _Bounded(job, opened, is_file)
        try:
            if is_file:
                reader = ipc.open_file(file)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = iter(ipc.open_stream(file))
        except (library.ArrowException, OSError) as error:
            raise job.damaged(error) from error
        yield Part(None, "columns", chunks(job, batches, None))


def parts_of_parquet(job: Job) -> Iterator[Part]:
    """The one table of a Parquet file."""
    library = pyarrow()
    from pyarrow import parquet

    if not job.input.is_plain_file:
        raise SourceError("Parquet cannot be read from a pipe, or compressed; store it in a file first")
    try:
        file = parquet.ParquetFile(job.input.path, buffer_size=READ_SIZE, pre_buffer=False)
    except (library.ArrowException, OSError) as error:
        raise job.damaged(error) from error
    with file:
        yield Part(None, "columns", chunks(job, batches_of_parquet(file), file.metadata.num_rows))


def batches_of_parquet(file: Any) -> Iterator[Any]:
    """The batches of each row group, which have as many rows as come to about `BATCH_BYTES`."""
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        row_size = max(1, group.total_byte_size) / max(1, group.num_rows)
        rows = max(1, min(BATCH_ROWS, int(BATCH_BYTES / row_size)))
        yield from file.iter_batches(rows, row_groups=[number])


def chunks(job: Job, batches: Iterator[Any], total: int | None) -> Iterator[Chunk]:
    """Batches of a few thousand rows."""
    library = pyarrow()
    done = 0
    try:
        for whole in batches:
            names = whole.schema.names
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise job.damaged(f"it has two columns with the name {twice!r}; give one of them another one")
            index = _index_of_pandas(whole.schema, total)
            for start in range(0, whole.num_rows, BATCH_ROWS):
                batch = whole.slice(start, BATCH_ROWS)
                places = range(done, done + batch.num_rows)
                done += batch.num_rows
                if index is not None and done <= len(index[1]):
                    batch = _with_column(library, batch, index[0], index[1][places.start : done])
                yield Chunk(batch, places, "row", done / total if total else None)
    except (library.ArrowException, OSError) as error:
        raise job.damaged(error) from error


def _index_of_pandas(schema: Any, total: int | None) -> tuple[str, range] | None:
    """The name and the values of an index that pandas did not write as a column, because it is a range.

    One that only counts the rows is no column of a frame either.
    """
    try:
        (found,) = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
        name, values = found["name"], range(found["start"], found["stop"], found["step"])
        is_whole = total is None or total == len(values)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        # No index that is a range, or metadata of another program.
        return None
    is_counter = name is None and values.start == 0 and values.step == 1
    if is_counter or not is_whole or not all(-(2**63) <= end < 2**63 for end in (*values[:1], *values[-1:])):
        return None
    name = "__index_level_0__" if name is None else str(name)
    return None if name in schema.names else (name, values)


def _with_column(library: Any, batch: Any, name: str, values: range) -> Any:
    column = library.array(values, library.int64())
    return library.RecordBatch.from_arrays(
        [*batch.columns, column], schema=batch.schema.append(library.field(name, column.type))
    )


class _Bounded:
    """A file of Arrow that pyarrow reads. A batch that would take too much memory is refused before it does.

    pyarrow reads the head of a message, and then its body with one call. Of a file it reads both together.
    """

    def __init__(self, job: Job, file: BinaryIO, is_file: bool) -> None:
        self.job = job
        self.file = file
        self.is_file = is_file
        self.head = b""
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        self.check(size)
        data = self.file.read(size)
        if self.is_file and len(data) >= 8:
            skip = 8 if data.startswith(CONTINUES) else 4
            end = skip + int.from_bytes(data[skip - 4 : skip], "little")
            self.check(_size_of_buffers(data[skip:end], memoryview(data)[end:]))
        elif not self.is_file:
            self.check(_size_of_buffers(self.head, data))
            self.head = data
        return data

    def check(self, size: int) -> None:
        if size > BATCH_SIZE_MAX:
            raise self.job.damaged(
                f"one of its batches comes to {size:,} bytes, and may come to {BATCH_SIZE_MAX:,}; write it "
                "with smaller batches (max_chunksize= of pyarrow), or as Parquet"
            )

    def seekable(self) -> bool:
        return self.file.seekable()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seek(self, place: int, whence: int = 0) -> int:
        return self.file.seek(place, whence)

    def tell(self) -> int:
        return self.file.tell()

    def close(self) -> None:
        """Leave the file open: the source closes it."""

    def flush(self) -> None:
        """Nothing is written."""


def _size_of_buffers(head: bytes, body: bytes | memoryview) -> int:
    """What the compressed buffers of a message say that they come to; 0 for anything else."""
    try:
        message = _Table(head, _behind(head, 0))
        kind = head[message.place(1)] if message.place(1) else 0
        if kind not in (DICTIONARY, BATCH) or not body:
            return 0
        batch = _Table(head, _behind(head, message.place(2)))
        if kind == DICTIONARY:
            batch = _Table(head, _behind(head, batch.place(1)))
        if not batch.place(3):
            return 0
        buffers = _behind(head, batch.place(2))
        (count,) = struct.unpack_from("<I", head, buffers)
        total = 0
        for offset, size in struct.iter_unpack("<qq", head[buffers + 4 : buffers + 4 + 16 * count]):
            if size >= 8:
                # -1 says that it was not compressed.
                total += max(size, *struct.unpack_from("<q", body, offset))
        return total
    except (struct.error, IndexError):
        # No head of a message, or a damaged one, which pyarrow refuses.
        return 0


def _behind(data: bytes, place: int) -> int:
    """The place that a relative offset leads to."""
    return place + int(struct.unpack_from("<I", data, place)[0])


class _Table(NamedTuple):
    """A table of FlatBuffers, in which the head of a message is written."""

    data: bytes
    start: int

    def place(self, number: int) -> int:
        """The place of a field; 0 if it is left out."""
        fields = self.start - struct.unpack_from("<i", self.data, self.start)[0]
        size, at = struct.unpack_from("<H", self.data, fields)[0], 4 + 2 * number
        offset = struct.unpack_from("<H", self.data, fields + at)[0] if at < size else 0
        return self.start + offset if offset else 0
