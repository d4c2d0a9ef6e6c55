"""Versions as rows of Parquet files: what truncation has cut, one row for each version, to be read without the table.

A file gets its name once it is on the disk and was read back. So whatever has the name of a part is whole, and only
then are its versions cut. A version may be in several parts: one that was written before a worker died stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa

from runtime.archives import letters
from runtime.archives.files import ParquetFile, read_batches, reading
from runtime.archives.manifest import NAME as MANIFEST
from runtime.archives.part import UNFINISHED, Part
from runtime.errors import UsageError
from runtime.messages.message_ids import id_key
from runtime.storage.columns import StateVersion
from runtime.storage.version import Version

_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS: dict[str, pa.DataType] = {
    "handler": pa.string(),
    "business_id": pa.string(),
    "version": pa.int64(),
    "message_id": pa.string(),
    "type": pa.string(),
    "now": _TIME,
    "enqueued_at": _TIME,
    "written_at": _TIME,
    "batch": pa.string(),
    "batch_number": pa.int64(),
    "headers": pa.map_(pa.string(), pa.string()),
    "captured": pa.map_(pa.string(), pa.binary()),
    "revision": pa.int32(),
    "schema": pa.int32(),
    "fingerprint": pa.binary(),
    "outputs_digest": pa.binary(),
    "state_digest": pa.binary(),
    "before": pa.binary(),
    "after": pa.binary(),
}
SCHEMA = pa.schema(list(_COLUMNS.items()))
"""The columns of a version. Its states are encoded, as JSON of the schema version `schema`."""

PARTS = "versions-*.parquet"
_GROUP_ROWS = 10_000
_GROUP_BYTES = 8 * 2**20


class Row(NamedTuple):
    """A version as it is written, with its times in microseconds since 1970 UTC. The fields are the columns."""

    handler: str
    business_id: str
    version: int
    message_id: str
    type: str
    now: int
    enqueued_at: int | None
    written_at: int | None
    batch: str | None
    batch_number: int | None
    headers: Sequence[tuple[str, str]] | None
    captured: Sequence[tuple[str, bytes]] | None
    revision: int
    schema: int
    fingerprint: bytes
    outputs_digest: bytes
    state_digest: bytes
    before: bytes
    after: bytes

    @classmethod
    def of(cls, handler: str, business_id: str, version: Version) -> Row:
        """Return the row of a version."""
        record = version.record
        return cls(
            handler,
            business_id,
            version.number,
            version.message_id,
            record.type,
            record.now,
            record.enqueued_at,
            version.written_at,
            version.batch,
            version.batch_number,
            None if record.headers is None else list(record.headers.items()),
            None if record.captured is None else list(record.captured.items()),
            record.revision,
            version.schema,
            record.fingerprint,
            record.outputs_digest,
            record.state_digest,
            version.before,
            version.after,
        )

    def as_version(self) -> Version:
        """Return the version, as the table gave it."""
        record = StateVersion(
            id_key(self.message_id),
            self.type,
            self.fingerprint,
            self.now,
            self.enqueued_at,
            None if self.headers is None else dict(self.headers),
            None if self.captured is None else dict(self.captured),
            self.revision,
            self.outputs_digest,
            self.state_digest,
            None if self.after == self.before else self.after,
        )
        return Version(
            self.version,
            record,
            self.before,
            self.after,
            self.schema,
            self.batch,
            self.written_at,
            self.batch_number,
        )


class VersionPart(Part[ParquetFile]):
    """A file of versions in the making: `add` versions, then `close`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"versions-{uuid.uuid4().hex}.parquet")
        self._rows: list[Row] = []
        self._bytes = 0

    def add(self, handler: str, business_id: str, version: Version) -> None:
        """Add a version."""
        row = Row.of(handler, business_id, version)
        self._rows.append(row)
        self._written.add(msgpack.packb(row))
        self._bytes += len(row.before) + len(row.after)
        if len(self._rows) >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._end_group()

    def close(self) -> int:
        """Write what is left, and close as `Part` does."""
        self._end_group()
        return super().close()

    def _read_back(self, path: Path) -> Iterator[bytes]:
        return (msgpack.packb(row) for row in _rows(path))

    def _end_group(self) -> None:
        if not self._rows:
            return
        if self._file is None:
            self._file = ParquetFile(self._unfinished, SCHEMA)
        self._file.add(_to_arrow(self._rows))
        self._rows, self._bytes = [], 0


def prepare_parts(folder: Path) -> None:
    """Make a folder for parts, and delete files that were never finished. Nobody else may write there now.

    Raises `UsageError` when it holds the export of a table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} holds the export of a table: choose another folder.")
    for parts in (PARTS, letters.PARTS):
        for file in folder.glob(f"{parts}{UNFINISHED}"):
            file.unlink()


def _to_arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    arrays = []
    for values, type_ in zip(zip(*rows, strict=True), _COLUMNS.values(), strict=True):
        is_time = type_ is _TIME
        array = pa.array(values, pa.int64() if is_time else type_)
        arrays.append(array.cast(_TIME) if is_time else array)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_in(batch: pa.RecordBatch) -> Iterator[Row]:
    """Give the versions in a batch of a part."""
    return map(Row._make, zip(*(_values(batch.column(name)) for name in _COLUMNS), strict=True))


def _rows(path: Path) -> Iterator[Row]:
    """Give all rows of a part."""
    for batch in read_batches(path):
        with reading(path):
            rows = list(rows_in(batch))
        yield from rows


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = (column.cast(pa.int64()) if column.type == _TIME else column).to_pylist()
    return values
