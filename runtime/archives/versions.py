"""Versions as rows of Parquet files: what truncation has cut, one row for each version, to be read without the table.

A file gets its name once it is on the disk and was read back. So whatever has the name of a part is whole, and only
then are its versions cut. A version may be in several parts: one that was written before a worker died stays.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import parquet

from handlers.codec import is_text
from runtime.archives.tables import NAME as MANIFEST
from runtime.archives.tables import UNFINISHED, Part, read_batches, reading
from runtime.errors import ArchiveError, UsageError
from runtime.messages.envelope import IdKey, id_key, id_text
from runtime.versions.columns import StateVersion
from runtime.versions.run import Version

# Letters that truncation gives up, as lines of JSON.

LETTER_PARTS = "letters-*.jsonl"


class LetterPart(Part):
    """A file of letters in the making: `add` lines, then `close`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"letters-{uuid.uuid4().hex}.jsonl")

    def add(self, line: str) -> None:
        """Add a letter, which is a line of JSON."""
        encoded = f"{line}\n".encode()
        self._stream.write(encoded)
        self._written.update(encoded)

    def _read_back(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            yield from file


# Which files of a folder name a business object: outcomes of batches, exports of tables and of versions.


def files_that_name(folder: Path, handler: str, business_ids: Collection[str]) -> Mapping[Path, int]:
    """Return the files with rows of one of these objects, with how many. Raises `ArchiveError`.

    A row of a Parquet file names an object by its columns `handler` and `business_id`, or by its `partition_key`, and
    an exported letter by its stream; what stands in bodies and states is not looked at.
    """
    keys = [f"{handler}-{business_id}" for business_id in business_ids]
    found = {}
    for path in sorted(filter(Path.is_file, folder.rglob("*.parquet"))):
        with reading(path):
            file = ds.dataset(path, format="parquet")
            names = set(file.schema.names)
            if names >= {"handler", "business_id"}:
                of_handler = ds.field("handler") == handler
                rows = file.count_rows(filter=of_handler & ds.field("business_id").isin(list(business_ids)))
            elif "partition_key" in names:
                rows = file.count_rows(filter=ds.field("partition_key").isin(keys))
            else:
                rows = 0
        if rows:
            found[path] = rows
    for path in sorted(folder.rglob(LETTER_PARTS)):
        with reading(path), path.open(encoding="utf-8") as lines:
            rows = sum(_is_of(json.loads(line), handler, business_ids) for line in lines)
        if rows:
            found[path] = rows
    return found


def _is_of(letter: Mapping[str, Any], handler: str, business_ids: Collection[str]) -> bool:
    return letter["handler"] == handler and letter["stream"] in business_ids


_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS = {
    "version": (pa.int64(), "number"),
    "message_id": (_TEXT, "message_id"),
    "type": (_TEXT, "record.type"),
    "now": (_TIME, "record.now"),
    "enqueued_at": (_TIME, "record.enqueued_at"),
    "written_at": (_TIME, "written_at"),
    "batch": (_TEXT, "batch"),
    "batch_number": (pa.int64(), "batch_number"),
    "headers": (pa.map_(_TEXT, _TEXT), "record.headers"),
    "captured": (pa.map_(_TEXT, pa.binary()), "record.captured"),
    "revision": (pa.int32(), "record.revision"),
    "schema": (pa.int32(), "schema"),
    "fingerprint": (pa.binary(), "record.fingerprint"),
    "outputs_digest": (pa.binary(), "record.outputs_digest"),
    "state_digest": (pa.binary(), "record.state_digest"),
    "before": (pa.binary(), "before"),
    "after": (pa.binary(), "after"),
}
"""The columns of a version: the type of each, and the attribute that it has."""

SCHEMA = pa.schema(
    [("handler", _TEXT), ("business_id", _TEXT), *((name, type_) for name, (type_, _) in _COLUMNS.items())]
)
"""The columns of a row. States are encoded, as JSON of the schema version `schema`."""

PARTS = "versions-*.parquet"
_attributes = attrgetter(*(attribute for _, attribute in _COLUMNS.values()))

# Small row groups: a stream is looked up by decoding those that may hold it.
_GROUP_ROWS = 1000
_GROUP_BYTES = 2**20

_CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class VersionPart(Part):
    """A file of versions in the making: `add` versions, then `close`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"versions-{uuid.uuid4().hex}.parquet")
        self._rows: list[list[Any]] = []
        self._bytes = 0

    def add(self, handler: str, business_id: str, version: Version) -> None:
        """Add a version."""
        row = [handler, business_id, *map(_value, _attributes(version))]
        self._rows.append(row)
        self._written.update(msgpack.packb(row))
        self._bytes += len(version.before) + len(version.after)
        if len(self._rows) >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._end_group()

    @cached_property
    def _writer(self) -> parquet.ParquetWriter:
        return parquet.ParquetWriter(self._stream, SCHEMA, compression="zstd", write_page_checksum=True)

    def close(self) -> None:
        """Write what is left, and finish the file."""
        if self._rows:
            self._end_group()
        if "_writer" in self.__dict__:
            self._writer.close()
        super().close()

    def _end_group(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(values, type_) for values, type_ in zip(columns, SCHEMA.types, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        self._writer.write_batch(batch, row_group_size=len(self._rows))
        self._rows, self._bytes = [], 0

    def _read_back(self, path: Path) -> Iterator[bytes]:
        for batch in read_batches(path):
            with reading(path):
                rows = [msgpack.packb(list(row.values())) for row in _rows_in(batch)]
            yield from rows


def _value(value: object) -> object:
    """Return a value as Arrow takes it and gives it back: a map is a list of pairs."""
    return list(value.items()) if isinstance(value, Mapping) else value


def _rows_in(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [
        (column.cast(pa.int64()) if column.type == _TIME else column).to_pylist() for column in batch.columns
    ]
    return (dict(zip(SCHEMA.names, row, strict=True)) for row in zip(*columns, strict=True))


def _version_of(row: Mapping[str, Any]) -> Version:
    """Return the version in a row, as the table gave it."""
    before, after = row["before"], row["after"]
    record = StateVersion(
        id_key(row["message_id"]),
        row["type"],
        row["fingerprint"],
        row["now"],
        row["enqueued_at"],
        None if row["headers"] is None else dict(row["headers"]),
        None if row["captured"] is None else dict(row["captured"]),
        row["revision"],
        row["outputs_digest"],
        row["state_digest"],
        None if after == before else after,
    )
    names = ("schema", "batch", "written_at", "batch_number")
    return Version(row["version"], record, before, after, *(row[name] for name in names))


def prepare_parts(folder: Path) -> None:
    """Make a folder for parts, and delete files that were never finished. Nobody else may write there now.

    Raises `UsageError` when it holds the export of a table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} holds the export of a table: choose another folder.")
    for parts in (PARTS, LETTER_PARTS):
        for file in folder.glob(f"{parts}{UNFINISHED}"):
            file.unlink()


class ExportedVersions:
    """The versions in the parts of a folder, found by their stream and the ids of their messages.

    Arrow reads the row groups whose statistics say that they may hold the stream. Truncation writes streams in the
    order of their keys, so those of a stream are few. Raises `ArchiveError` for a part that cannot be read, and when
    there is none.
    """

    def __init__(self, folder: Path) -> None:
        parts = sorted(folder.glob(PARTS))
        if not parts:
            raise ArchiveError(
                f"There are no versions in {folder}: `consistent truncate --export` writes them."
            )
        files = ds.dataset(list(map(str, parts)), schema=SCHEMA, format=_CHECKED)
        self._files: list[ds.Fragment] = list(files.get_fragments())

    def of_stream(self, handler: str, business_id: str) -> list[Version]:
        """Return the versions of a stream, each once, the oldest first."""
        found = {version.number: version for version in self._versions(handler, business_id)}
        return [found[number] for number in sorted(found)]

    def find(
        self, handler: str, business_id: str, ids: Collection[IdKey], since: int = 0
    ) -> Mapping[IdKey, Version]:
        """Return those versions of a stream that some messages made, by the ids of these.

        Versions that were written at `since` or before, in microseconds since 1970 UTC, are left out: an object that
        was forgotten then may have begun anew.
        """
        texts = pa.array(filter(is_text, map(id_text, ids)), pa.string())
        return {
            version.record.message_id: version
            for version in self._versions(handler, business_id, ds.field("message_id").isin(texts))
            if version.written_at is None or version.written_at > since
        }

    def _versions(
        self, handler: str, business_id: str, condition: ds.Expression | None = None
    ) -> Iterator[Version]:
        wanted = (ds.field("handler") == handler) & (ds.field("business_id") == business_id)
        if condition is not None:
            wanted &= condition
        for file in self._files:
            with reading(Path(file.path)):
                found = file.to_table(schema=SCHEMA, filter=wanted).to_batches()
                versions = [_version_of(row) for batch in found for row in _rows_in(batch)]
            yield from versions
