"""This module reads Parquet and Arrow files, and Arrow streams; it needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Chunk, Job, Part

__all__ = ["chunks", "parts", "parts_of_parquet", "pyarrow"]

BATCH_ROWS = 10_000


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

    if job.input.head.startswith(b"ARROW1") and job.input.packing is not None:
        raise SourceError("a file of Arrow cannot be read compressed; unpack it first")
    with job.input.open() as file:
        try:
            if job.input.head.startswith(b"ARROW1"):
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
        file = parquet.ParquetFile(job.input.path)
    except (library.ArrowException, OSError) as error:
        raise job.damaged(error) from error
    with file:
        yield Part(None, "columns", chunks(job, file.iter_batches(BATCH_ROWS), file.metadata.num_rows))


def chunks(job: Job, batches: Iterator[Any], total: int | None) -> Iterator[Chunk]:
    """Batches of a few thousand rows."""
    library = pyarrow()
    done = 0
    try:
        for whole in batches:
            for start in range(0, whole.num_rows, BATCH_ROWS):
                batch = whole.slice(start, BATCH_ROWS)
                places = range(done, done + batch.num_rows)
                done += batch.num_rows
                yield Chunk(batch, places, "row", done / total if total else None)
    except (library.ArrowException, OSError) as error:
        raise job.damaged(error) from error
