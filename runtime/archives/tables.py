"""Export and import of a whole table as Parquet files, verified by a manifest with digests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import pyarrow as pa
from pyarrow import parquet

from eventstore import Int64, Operation, Page, Row, RowExistsError, Table, Value, pages
from eventstore.backends.rows import from_extension, to_extension
from eventstore.port import MultiPartitionTable, Transaction
from runtime.archives import MARK
from runtime.dead_letters import in_transactions
from runtime.errors import ArchiveError, UsageError
from runtime.file_systems import flush
from runtime.retries import RetryPolicy, first_error, until_undisturbed
from runtime.versions.properties import number

MANIFEST = "manifest.json"
FORMAT = 2
SCHEMA = pa.schema([("partition_key", pa.string()), ("row_key", pa.string()), ("properties", pa.binary())])
"""The columns of an exported row. Its properties are a msgpack array of names, each followed by its value, sorted."""

GROUP_ROWS = 10_000
GROUP_BYTES = 8 * 2**20
FILE_BYTES = 64 * 2**20  # limits of a row group and a file, in bytes of properties before compression

_READ_ROWS = 1000
_ROW = "IMPORT"

Tell = Callable[[str, int], None]
"""Called with the name of the current step, and the number of rows that the step has processed."""


@dataclass(slots=True)
class SetDigest:
    """Counts and hashes a set of byte strings. The digest ignores their order, because stores sort keys differently."""

    count: int = 0
    total: int = 0

    def add(self, member: bytes) -> None:
        """Add a member to the set."""
        self.count += 1
        self.total += int.from_bytes(sha256(member).digest())

    def hexdigest(self) -> str:
        """Return the digest in hexadecimal."""
        return f"{self.total % 2**256:064x}"


def packed_row(row: Row) -> bytes:
    """Encode a row without its ETag. Rows with equal keys and properties give equal bytes."""
    packed: bytes = msgpack.packb((row.partition_key, row.row_key, packed_properties(row.properties)))
    return packed


def packed_properties(properties: Mapping[str, Value]) -> bytes:
    """Encode properties with their types, sorted by name."""
    parts = [part for item in sorted(properties.items()) for part in item]
    packed: bytes = msgpack.packb(parts, default=to_extension, strict_types=True)
    return packed


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Context manager that converts errors from reading a file to an `ArchiveError` that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise ArchiveError(f"The file {path} of the export is missing.") from error
    except (OSError, pa.ArrowException, ArchiveError, ValueError, KeyError, TypeError) as error:
        line = str(error).partition("\n")[0].rstrip(".")
        raise ArchiveError(f"The file {path} of the export is corrupt: {line}.") from error


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file in batches of up to 1,000 rows. Raises `ArchiveError` if it is corrupt."""
    with reading(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        # Row groups are read one at a time. Otherwise Arrow keeps the whole file in memory.
        for group in range(file.num_row_groups):
            yield from file.iter_batches(batch_size=_READ_ROWS, row_groups=[group])


def read_rows(path: Path) -> Iterator[Sequence[Row]]:
    """Yield the rows of a file, up to 1,000 at a time. The rows lack ETags. Raises `ArchiveError` if it is corrupt."""
    for batch in read_batches(path):
        with reading(path):
            columns = (batch[name].to_pylist() for name in SCHEMA.names)
            rows = []
            for partition_key, row_key, packed in zip(*columns, strict=True):
                parts = iter(msgpack.unpackb(packed, ext_hook=from_extension))
                rows.append(Row(partition_key, row_key, "", dict(zip(parts, parts, strict=True))))
        yield rows


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of an export."""

    name: str
    rows: int
    digest: str  # of the rows
    bytes: int  # the size of the file


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of an export's manifest: the name of the table, and its files."""

    table: str
    files: tuple[PartFile, ...]

    @property
    def rows(self) -> int:
        """The total number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def digest(self) -> str:
        """The digest of all rows."""
        return SetDigest(0, sum(int(file.digest, 16) for file in self.files)).hexdigest()

    @property
    def bytes(self) -> int:
        """The total size of the files, in bytes."""
        return sum(file.bytes for file in self.files)

    def document(self) -> dict[str, Any]:
        """Return the content of the manifest file."""
        sums = {"rows": self.rows, "digest": self.digest}
        return {"format": FORMAT, "table": self.table, **sums, "files": list(map(asdict, self.files))}


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an export. Raises `ArchiveError` if it is missing or corrupt."""
    path = folder / MANIFEST
    if not path.exists():
        raise ArchiveError(
            f"There is no complete export in {folder}: {MANIFEST} is missing, which `consistent export` writes last."
        )
    with reading(path):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ArchiveError(
                f"it has the format {document['format']}, but this version reads only {FORMAT}"
            )
        manifest = Manifest(document["table"], tuple(PartFile(**file) for file in document["files"]))
        if manifest.document() != document:
            raise ArchiveError("its totals do not match its files")
    return manifest


def check_files(folder: Path, manifest: Manifest, tell: Tell) -> None:
    """Verify all files of an export, reporting to `tell`. Raises `ArchiveError` at the first file that is corrupt."""
    checked = 0
    for file in manifest.files:
        path, digest = folder / file.name, SetDigest()
        for rows in read_rows(path):
            for row in rows:
                digest.add(packed_row(row))
            tell("Verifying the files", checked + digest.count)
        if (digest.count, digest.hexdigest()) != (file.rows, file.digest):
            raise ArchiveError(
                f"The file {path} of the export is corrupt: its {digest.count} rows are not the {file.rows} that were "
                "written."
            )
        checked += digest.count


async def export_table(table: Table, name: str, folder: Path, tell: Tell) -> Manifest:
    """Copy all rows of a table into a folder, verify the files, and write their manifest.

    Reads the table twice, with one request for every 1,000 rows. Holds about 10,000 rows in memory. Raises `UsageError`
    if the folder has other content, and `ArchiveError` if the table was written to during the export.
    """
    _prepare_folder(folder)
    files, read, now = RowFiles(folder), SetDigest(), SetDigest()
    try:
        async for page in all_pages(table):
            for row in page.rows:
                if row.partition_key == MARK:
                    raise ArchiveError(
                        f"The table {name} is incomplete, as an import into it was interrupted. Finish the import "
                        f"first."
                    )
                read.add(_written(row))
                files.add(row)
            tell("Reading", read.count)
    finally:
        files.end_file()
    # The rows are a consistent snapshot if the table has not changed.
    async for page in all_pages(table, keys_only=True):
        for row in page.rows:
            now.add(_written(row))
        tell("Checking that the table has not changed", now.count)
    if now != read:
        raise ArchiveError(
            f"The table {name} was written to while it was exported. Stop all writers, and export it again."
        )
    manifest = Manifest(name, tuple(files.done))
    check_files(folder, manifest, tell)
    # The manifest is written last. An interrupted export has none, and starts over.
    unfinished = folder / f"_{MANIFEST}-unfinished"
    unfinished.write_text(json.dumps(manifest.document(), indent=2), encoding="utf-8")
    flush(unfinished)
    unfinished.replace(folder / MANIFEST)
    flush(folder)
    return manifest


def _prepare_folder(folder: Path) -> None:
    """Create the folder, or delete the files of an interrupted export. Raises `UsageError` if it has other content."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} contains an export already. Choose another folder.")
    left = [*folder.glob("rows-*.parquet"), *folder.glob(f"_{MANIFEST}-unfinished")]
    if set(folder.iterdir()) - set(left):
        raise UsageError(f"{folder} is not empty. Choose another folder.")
    for file in left:
        file.unlink()


async def all_pages(table: Table, *, keys_only: bool = False) -> AsyncIterator[Page]:
    """Yield all rows of a table by pages. Failed requests are retried."""
    retries = RetryPolicy().beside(table)
    scan = partial(table.scan, None, select=[] if keys_only else None)

    async def read(*, continuation: str | None) -> Page:
        return await until_undisturbed(retries, partial(scan, continuation=continuation))

    async for page in pages(read):
        yield page


def _written(row: Row) -> bytes:
    """Return the keys and the ETag of a row as bytes, which change whenever the row is written."""
    packed: bytes = msgpack.packb((row.partition_key, row.row_key, row.etag))
    return packed


class RowGroups:
    """Writes a compressed Parquet file with checksums, in groups of at most `rows` rows and about `size` bytes."""

    def __init__(self, file: Path | BinaryIO, schema: pa.Schema, rows: int, size: int) -> None:
        self.bytes = 0
        self._file, self._schema, self._full = file, schema, (rows, size)
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0

    @cached_property
    def _writer(self) -> parquet.ParquetWriter:
        return parquet.ParquetWriter(self._file, self._schema, compression="zstd", write_page_checksum=True)

    def add(self, row: Mapping[str, Any], size: int) -> None:
        """Add a row of `size` bytes before compression."""
        self._rows.append(row)
        self.bytes += size
        self._bytes += size
        if len(self._rows) >= self._full[0] or self._bytes >= self._full[1]:
            self._end_group()

    def close(self) -> None:
        """Write the last row group and close the file."""
        if self._rows:
            self._end_group()
        self._writer.close()

    def _end_group(self) -> None:
        batch = pa.RecordBatch.from_pylist(self._rows, self._schema)
        self._writer.write_batch(batch, row_group_size=batch.num_rows)
        self._rows, self._bytes = [], 0


class RowFiles:
    """Writes rows to files of about `FILE_BYTES` before compression. `done` has the files that are complete."""

    def __init__(self, folder: Path) -> None:
        self.done: list[PartFile] = []
        self._folder = folder
        self._rows = SetDigest()
        self._groups: RowGroups | None = None

    @property
    def _path(self) -> Path:
        return self._folder / f"rows-{len(self.done):05d}.parquet"

    def add(self, row: Row) -> None:
        """Write a row, and end the file if it is full."""
        self._rows.add(packed_row(row))
        self._groups = self._groups or RowGroups(self._path, SCHEMA, GROUP_ROWS, GROUP_BYTES)
        packed = packed_properties(row.properties)
        columns = {"partition_key": row.partition_key, "row_key": row.row_key, "properties": packed}
        self._groups.add(columns, len(packed))
        if self._groups.bytes >= FILE_BYTES:
            self.end_file()

    def end_file(self) -> None:
        """Close and fsync the current file. The next row begins another file."""
        if self._groups is None:
            return
        self._groups.close()
        flush(self._path)
        size = self._path.stat().st_size
        self.done.append(PartFile(self._path.name, self._rows.count, self._rows.hexdigest(), size))
        self._groups, self._rows = None, SetDigest()


async def import_table(table: Table, name: str, folder: Path, manifest: Manifest, tell: Tell) -> None:
    """Write the rows of an export into an empty table, and verify the table. Call `check_files` first.

    An interrupted import is resumed: a marker row counts the finished files. Costs a transaction for every 100 rows of
    a partition, and one request for every 1,000 rows. Raises `ArchiveError` if the table has other rows.
    """
    done, written = await _begin(table, name, manifest), 0
    for index, file in enumerate(manifest.files):
        if index < done:
            written += file.rows
            continue
        for rows in read_rows(folder / file.name):
            await _write(table, list(transactions(rows)))
            written += len(rows)
            tell("Writing", written)
        await table.transact(MARK, [Operation.merge(_ROW, {"Files": index + 1})])
    await table.barrier()
    digest = SetDigest()
    async for page in all_pages(table):
        for row in page.rows:
            if row.partition_key != MARK:
                digest.add(packed_row(row))
        tell("Reading back", digest.count)
    if (digest.count, digest.hexdigest()) != (manifest.rows, manifest.digest):
        raise ArchiveError(
            f"The {digest.count} rows of the table {name} are not the {manifest.rows} of the export: another process "
            "has written to it. Import into another table."
        )
    await table.transact(MARK, [Operation.delete(_ROW)])
    await table.barrier()


async def _begin(table: Table, name: str, manifest: Manifest) -> int:
    """Mark an empty table as the target of an import. Return how many files an interrupted import has written."""
    mark = await table.get(MARK, _ROW)
    if mark is not None:
        if mark.properties.get("Digest") != manifest.digest:
            raise ArchiveError(
                f"The import of another export into the table {name} was interrupted. Finish it, or import into "
                "another table."
            )
        return number(mark.properties, "Files")
    async for page in all_pages(table, keys_only=True):
        if page.rows:
            raise ArchiveError(f"The table {name} is not empty. Import into another table.")
    properties: dict[str, Value] = {"Digest": manifest.digest, "Rows": Int64(manifest.rows), "Files": 0}
    try:
        await table.transact(MARK, [Operation.insert(_ROW, properties)])
    except RowExistsError:
        raise ArchiveError(
            f"Another process imports into the table {name}. Wait for it, or import into another table."
        ) from None
    return 0


def transactions(rows: Iterable[Row]) -> Iterator[Transaction]:
    """Split rows, in order, into transactions that write them, within the limits of all stores."""
    for part in in_transactions(rows):
        yield (
            part[0].partition_key,
            [Operation.insert_or_replace(row.row_key, row.properties) for row in part],
        )


async def _write(table: Table, waiting: Sequence[Transaction]) -> None:
    """Run idempotent transactions, with retries: in one commit if the table supports that, else up to 16 at a time."""
    retries = RetryPolicy().beside(table)
    if isinstance(table, MultiPartitionTable):
        for result in await until_undisturbed(retries, partial(table.transact_each, waiting)):
            if isinstance(result, Exception):
                raise result
        return
    slots = asyncio.Semaphore(16)

    async def transact(transaction: Transaction) -> None:
        async with slots:
            await until_undisturbed(retries, partial(table.transact, *transaction))

    with first_error():
        async with asyncio.TaskGroup() as group:
            for transaction in waiting:
                group.create_task(transact(transaction))
