"""The files of an archive: written through to the disk, and read with errors that name them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyarrow import parquet

from runtime.errors import ArchiveError

_BATCH_ROWS = 1000


class ParquetFile:
    """A Parquet file in the making: compressed, pages with checksums. Each batch becomes a row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._stream = path.open("wb")
        self._writer = parquet.ParquetWriter(
            self._stream, schema, compression="zstd", write_page_checksum=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a row group."""
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def close(self) -> int:
        """Return the size of the file, once all of it is on the disk."""
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        size = self._stream.tell()
        self._stream.close()
        return size


class LinesFile:
    """A file of lines in the making."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("wb")

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def add(self, line: bytes) -> None:
        """Write a line, which ends as one."""
        self._stream.write(line)

    def close(self) -> None:
        """Return once all of it is on the disk."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Give what a Parquet file holds, 1,000 rows at a time. Raises `ArchiveError` when it cannot be read."""
    with reading(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        # One row group at a time: asked for all, Arrow holds on to what it has read, up to the whole file.
        for group in range(file.num_row_groups):
            yield from file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in the error of whatever cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise ArchiveError(f"The file {path} of the export is missing.") from error
    except (OSError, pa.ArrowException, ArchiveError, ValueError, KeyError, TypeError) as error:
        line = str(error).partition("\n")[0].rstrip(".")
        raise ArchiveError(f"The file {path} of the export is damaged: {line}.") from error


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON to a file that is there as a whole or not at all, and is on the disk when this returns."""
    unfinished = path.with_name(f"_{path.name}-unfinished")
    with unfinished.open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names of the files in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
