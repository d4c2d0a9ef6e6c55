"""Exports of truncated versions and dead letters, in files that can be read without the table."""

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgpack
import pyarrow as pa
import pyarrow.dataset as ds

from handlers.codec import is_text
from runtime.archives import tables
from runtime.errors import ArchiveError, UsageError
from runtime.file_systems import flush
from runtime.messages.envelope import IdKey, id_key, id_text
from runtime.tables.columns import TEXT, TIME
from runtime.tables.streams import COLUMNS
from runtime.versions.run import StateVersion, Version

PARTS = "versions-*.parquet"
LETTER_PARTS = "letters-*.jsonl"
_UNFINISHED = "-unfinished"

_ENCODED = {"captured": pa.map_(TEXT, pa.binary()), "before": pa.binary(), "after": pa.binary()}
SCHEMA = pa.schema(
    [(name, _ENCODED.get(name, column.type)) for name, column in COLUMNS.items() if name != "changed"]
)
"""The columns of versions in `runtime.tables`. A state is JSON in bytes, in the schema version `schema`."""

_OF_VERSION = ("schema", "batch", "written_at", "batch_number")

# Row groups are small, because the lookup of a stream decodes all row groups that may contain it.
_GROUP_ROWS = 1000
_GROUP_BYTES = 2**20


class Part(ABC):
    """A context manager that writes a file: `add` content, then `close`. Without content, no file is created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
        self._written = sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._unfinished.unlink(missing_ok=True)

    def close(self) -> None:
        """Fsync, verify and rename the file. Raises `ArchiveError` if its content is not as written."""
        self._stream.close()
        if self._written.digest() == sha256().digest():
            return
        flush(self._unfinished)
        read = sha256()
        for each in self._read_back(self._unfinished):
            read.update(each)
        if read.digest() != self._written.digest():
            raise ArchiveError(
                f"The file {self._unfinished} was corrupted while it was written: check the disk."
            )
        self._unfinished.rename(self._path)
        flush(self._path.parent)

    @cached_property
    def _stream(self) -> BinaryIO:
        return self._unfinished.open("wb")

    @abstractmethod
    def _read_back(self, path: Path) -> Iterator[bytes]:
        """Yield the content of a file as the bytes that `add` passed to the digest `_written`."""


class LetterPart(Part):
    """A file of dead letters as lines of JSON."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"letters-{uuid.uuid4().hex}.jsonl")

    def add(self, line: str) -> None:
        """Add a dead letter, given as a line of JSON."""
        encoded = f"{line}\n".encode()
        self._stream.write(encoded)
        self._written.update(encoded)

    def _read_back(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            yield from file


class VersionPart(Part):
    """A Parquet file of versions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"versions-{uuid.uuid4().hex}.parquet")
        self._groups: tables.RowGroups | None = None

    def add(self, handler: str, business_id: str, version: Version) -> None:
        """Add a version of a stream."""
        record = version.record
        values = {
            **record._asdict(),
            "handler": handler,
            "business_id": business_id,
            "version": version.number,
            "message_id": version.message_id,
            "headers": None if record.headers is None else list(record.headers.items()),
            "captured": None if record.captured is None else list(record.captured.items()),
            "before": version.before,
            "after": version.after,
            **{name: getattr(version, name) for name in _OF_VERSION},
        }
        row = {name: values[name] for name in SCHEMA.names}
        self._written.update(msgpack.packb(list(row.values())))
        self._groups = self._groups or tables.RowGroups(self._stream, SCHEMA, _GROUP_ROWS, _GROUP_BYTES)
        self._groups.add(row, len(version.before) + len(version.after))

    def close(self) -> None:
        """Write the last row group, then close as the base class does."""
        if self._groups is not None:
            self._groups.close()
        super().close()

    def _read_back(self, path: Path) -> Iterator[bytes]:
        for batch in tables.read_batches(path):
            with tables.reading(path):
                rows = [msgpack.packb(list(row.values())) for row in _rows_in(batch)]
            yield from rows


def _rows_in(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert a record batch to rows. Times are in microseconds since 1970 UTC, maps are lists of pairs."""
    plain = pa.schema([(field.name, pa.int64() if field.type == TIME else field.type) for field in SCHEMA])
    rows: list[dict[str, Any]] = batch.cast(plain).to_pylist()
    return rows


def _version_of(row: Mapping[str, Any]) -> Version:
    before, after = row["before"], row["after"]
    fields = {
        **{name: row[name] for name in StateVersion._fields},
        "message_id": id_key(row["message_id"]),
        "headers": None if row["headers"] is None else dict(row["headers"]),
        "captured": None if row["captured"] is None else dict(row["captured"]),
        "after": None if after == before else after,
    }
    return Version(
        row["version"], StateVersion(**fields), before, after, *(row[name] for name in _OF_VERSION)
    )


def prepare_parts(folder: Path) -> None:
    """Create a folder, or delete its unfinished files. Raises `UsageError` if the folder has the export of a table."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / tables.MANIFEST).exists():
        raise UsageError(f"{folder} contains the export of a table. Choose another folder.")
    for file in (*folder.glob(f"{PARTS}{_UNFINISHED}"), *folder.glob(f"{LETTER_PARTS}{_UNFINISHED}")):
        file.unlink()


class ExportedVersions:
    """Looks up exported versions by stream and message id. Raises `ArchiveError` if files are missing or corrupt."""

    def __init__(self, folder: Path) -> None:
        parts = sorted(folder.glob(PARTS))
        if not parts:
            raise ArchiveError(
                f"There are no exported versions in {folder}. `consistent truncate --export` writes them."
            )
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        format_ = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        files = ds.dataset(list(map(str, parts)), schema=SCHEMA, format=format_)
        self._files: list[ds.Fragment] = list(files.get_fragments())

    def find(
        self, handler: str, business_id: str, ids: Collection[IdKey], since: int = 0
    ) -> Mapping[IdKey, Version]:
        """Return the versions that the messages `ids` made after `since` (microseconds since 1970 UTC), by id."""
        texts = pa.array(filter(is_text, map(id_text, ids)), pa.string())
        wanted = (ds.field("handler") == handler) & (ds.field("business_id") == business_id)
        wanted &= ds.field("message_id").isin(texts)
        versions: list[Version] = []
        for file in self._files:
            with tables.reading(Path(file.path)):
                batches = file.to_table(schema=SCHEMA, filter=wanted).to_batches()
                versions += [_version_of(row) for batch in batches for row in _rows_in(batch)]
        return {
            version.record.message_id: version
            for version in versions
            if version.written_at is None or version.written_at > since
        }


def files_that_name(folder: Path, handler: str, business_ids: Collection[str]) -> Mapping[Path, int]:
    """Return the files of outcomes or exports that name the objects, each with the number of rows or lines that do.

    Raises `ArchiveError` for a corrupt file.
    """
    ids, keys = list(business_ids), [f"{handler}-{business_id}" for business_id in business_ids]
    counts = {}
    for path in sorted(filter(Path.is_file, folder.rglob("*.parquet"))):
        with tables.reading(path):
            file = ds.dataset(path, format="parquet")
            if {"handler", "business_id"} <= set(file.schema.names):
                is_named = (ds.field("handler") == handler) & ds.field("business_id").isin(ids)
                counts[path] = file.count_rows(filter=is_named)
            elif "partition_key" in file.schema.names:
                counts[path] = file.count_rows(filter=ds.field("partition_key").isin(keys))
    for path in sorted(folder.rglob(LETTER_PARTS)):
        with tables.reading(path), path.open(encoding="utf-8") as lines:
            letters = map(json.loads, lines)
            counts[path] = sum(letter["handler"] == handler and letter["stream"] in ids for letter in letters)
    return {path: count for path, count in counts.items() if count}
