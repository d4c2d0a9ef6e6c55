"""The files of an archive: written through to the disk, and read with errors that name them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
from pyarrow import parquet

from runtime.errors import ArchiveError

_BATCH_ROWS = 1000
UNFINISHED = "-unfinished"
"""The end of a part's name until it is whole."""


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
        size = self._stream.tell()
        sync(self._stream)
        return size


class Part(ABC):
    """A file of an export in the making: add to it, then `close`. Without content there is no file.

    It gets its name once it is on the disk and was read back: whatever has the name of a part is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}{UNFINISHED}")
        self._written = sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if "_stream" in self.__dict__:
            self._stream.close()
        self._unfinished.unlink(missing_ok=True)

    def close(self) -> None:
        """Finish the file. Raises `ArchiveError` when it holds anything else than was written."""
        if "_stream" not in self.__dict__:
            return
        sync(self._stream)
        found = sha256()
        for each in self._read_back(self._unfinished):
            found.update(each)
        if found.digest() != self._written.digest():
            raise ArchiveError(f"The file {self._unfinished} does not hold what was written to it.")
        self._unfinished.rename(self._path)
        sync_folder(self._path.parent)

    @cached_property
    def _stream(self) -> BinaryIO:
        return self._unfinished.open("wb")

    @abstractmethod
    def _read_back(self, path: Path) -> Iterator[bytes]:
        """Yield what a file holds, as it was added to `_written`."""


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
    with unfinished.open("wb") as stream:
        stream.write(json.dumps(document, indent=2).encode())
        sync(stream)
    unfinished.replace(path)
    sync_folder(path.parent)


def sync(stream: BinaryIO) -> None:
    """Close a file once all of it is on the disk."""
    stream.flush()
    os.fsync(stream.fileno())
    stream.close()


def sync_folder(folder: Path) -> None:
    """Return when the names of the files in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
