"""Export and import of a whole table: rows as Parquet files, a manifest, and a digest that verifies them."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self
from uuid import UUID

import msgpack
import pyarrow as pa
from pyarrow import parquet

from eventstore import Int64, Operation, Page, Row, RowExistsError, Table, Value, pages
from eventstore.limits import MAX_OPERATIONS, SURELY_SMALL_BYTES, prepare_row
from eventstore.port import CommitsTogether, Transaction
from runtime.archives import MARK
from runtime.clock import to_datetime, to_microseconds
from runtime.errors import ArchiveError, UsageError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import number

# Digests of sets of rows: the same in whatever order the rows come, as stores order keys differently.

_MODULUS = 2**256
_INT64, _DATETIME, _UUID = 1, 2, 3


class SetDigest:
    """Counts the members of a set, and adds up their digests. Finds accidents, not forgeries."""

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SetDigest) and (self.count, self._sum) == (other.count, other._sum)

    __hash__ = None  # type: ignore[assignment] # it changes

    def add(self, member: bytes) -> None:
        """Add a member."""
        self.count += 1
        self._sum = (self._sum + int.from_bytes(sha256(member).digest())) % _MODULUS

    def update(self, other: SetDigest) -> None:
        """Add all members of another set."""
        self.count += other.count
        self._sum = (self._sum + other._sum) % _MODULUS

    def hexdigest(self) -> str:
        """Return the digest as hexadecimal digits."""
        return f"{self._sum:064x}"


def packed_row(row: Row) -> bytes:
    """Return a row without its ETag: equal for equal keys and properties, types included, whatever their order."""
    properties = [part for item in sorted(row.properties.items()) for part in item]
    parts = [row.partition_key, row.row_key, *properties]
    packed: bytes = msgpack.packb(parts, default=_to_extension, strict_types=True)
    return packed


def written_row(row: Row) -> bytes:
    """Return what is the same for two readings of a row exactly if nobody wrote it in between."""
    packed: bytes = msgpack.packb((row.partition_key, row.row_key, row.etag))
    return packed


def _to_extension(value: Value) -> object:
    if isinstance(value, Int64):
        return msgpack.ExtType(_INT64, value.to_bytes(8, "big", signed=True))
    if isinstance(value, datetime):
        return msgpack.ExtType(_DATETIME, to_microseconds(value).to_bytes(8, "big", signed=True))
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    raise TypeError(f"A {type(value).__name__} is no property of a row.")


# The files of an archive: written through to the disk, and read with errors that name them.

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


# The manifest of an exported table: which files it has, and what they must hold. Written last, read first.

NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of an export: how many rows it has, their digest, and its size in bytes."""

    name: str
    rows: int
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """An exported table: its rows in all, their digest, and the files that they are in."""

    table: str
    rows: int
    digest: str
    files: tuple[PartFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder, which makes an export of it."""
        write_document(folder / NAME, {"format": FORMAT, **asdict(self)})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an export. Raises `ArchiveError`."""
    path = folder / NAME
    if not path.exists():
        raise ArchiveError(
            f"There is no export in {folder}: no {NAME}, which `consistent export` writes at its end."
        )
    with reading(path):
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"]
        if found == FORMAT:
            return _manifest(document)
    raise ArchiveError(
        f"The export in {folder} has the format {found}; this version reads the format {FORMAT}."
    )


def _manifest(document: Mapping[str, Any]) -> Manifest:
    files = tuple(PartFile(**file) for file in document["files"])
    return Manifest(document["table"], document["rows"], document["digest"], files)


# Rows of a table as Arrow has them: keys, and a list of properties, each in the field that is named by its
# type.

_TYPES: dict[type, tuple[str, pa.DataType]] = {
    str: ("string", pa.string()),
    bool: ("boolean", pa.bool_()),
    int: ("int32", pa.int32()),
    Int64: ("int64", pa.int64()),
    float: ("double", pa.float64()),
    datetime: ("datetime", pa.timestamp("us", tz="UTC")),
    UUID: ("uuid", pa.binary(16)),
    bytes: ("binary", pa.binary()),
}
_READ: dict[str, Callable[[Any], Value]] = {
    "int64": Int64,
    "datetime": to_datetime,
    "uuid": lambda value: UUID(bytes=value),
}
_FIELDS = [pa.field("name", pa.string(), nullable=False), *(pa.field(*each) for each in _TYPES.values())]
_PROPERTIES = pa.list_(pa.struct(_FIELDS))

SCHEMA = pa.schema(
    [
        pa.field("partition_key", pa.string(), nullable=False),
        pa.field("row_key", pa.string(), nullable=False),
        pa.field("properties", _PROPERTIES, nullable=False),
    ]
)


class RowBuffer:
    """Rows that are on their way into an Arrow batch."""

    def __init__(self) -> None:
        self._begin()

    def __len__(self) -> int:
        return len(self._row_keys)

    def _begin(self) -> None:
        self.bytes = 0
        self._partition_keys: list[str] = []
        self._row_keys: list[str] = []
        self._ends = [0]
        self._names: list[str] = []
        self._columns: dict[type, list[Value | None]] = {type_: [] for type_ in _TYPES}

    def add(self, row: Row) -> None:
        """Add a row."""
        self._partition_keys.append(row.partition_key)
        self._row_keys.append(row.row_key)
        for name, value in row.properties.items():
            self._names.append(name)
            for type_, column in self._columns.items():
                column.append(value if type(value) is type_ else None)
            self.bytes += len(value) if isinstance(value, str | bytes) else len(name)
        self._ends.append(len(self._names))

    def take(self) -> pa.RecordBatch:
        """Return the rows that were added, and begin anew."""
        columns = [pa.array(self._names, pa.string())]
        for type_, values in self._columns.items():
            columns.append(pa.array(_bytes_of(values) if type_ is UUID else values, _TYPES[type_][1]))
        properties = pa.ListArray.from_arrays(
            pa.array(self._ends, pa.int32()), pa.StructArray.from_arrays(columns, fields=_FIELDS), _PROPERTIES
        )
        keys = [pa.array(self._partition_keys, pa.string()), pa.array(self._row_keys, pa.string())]
        self._begin()
        return pa.RecordBatch.from_arrays([*keys, properties], schema=SCHEMA)


def read_rows(path: Path) -> Iterator[Sequence[Row]]:
    """Give the rows in a file, up to 1,000 at a time; they have no ETags. Raises `ArchiveError`."""
    for batch in read_batches(path):
        with reading(path):
            rows = list(_rows_in(batch))
        yield rows


def _rows_in(batch: pa.RecordBatch) -> Iterator[Row]:
    lists = batch.column("properties")
    properties = list(_properties(lists.flatten()))
    ends = [end - lists.offsets[0].as_py() for end in lists.offsets.to_pylist()]
    keys = zip(batch.column("partition_key").to_pylist(), batch.column("row_key").to_pylist(), strict=True)
    for position, (partition_key, row_key) in enumerate(keys):
        yield Row(partition_key, row_key, "", dict(properties[ends[position] : ends[position + 1]]))


def _properties(found: pa.StructArray) -> Iterator[tuple[str, Value]]:
    names, *columns = found.flatten()
    given: list[list[Value | None]] = []
    for (name, _), column in zip(_TYPES.values(), columns, strict=True):
        if column.null_count < len(column):
            given.append(_values(name, column))
    for position, name in enumerate(names.to_pylist()):
        for values in given:
            value = values[position]
            if value is not None:
                yield name, value
                break
        else:
            raise ArchiveError(f"the property {name} has no value")


def _values(name: str, column: pa.Array) -> list[Value | None]:
    read = _READ.get(name)
    plain = column.cast(pa.int64()) if name == "datetime" else column
    values: list[Value | None] = plain.to_pylist()
    return values if read is None else [None if value is None else read(value) for value in values]


def _bytes_of(values: Sequence[Value | None]) -> list[bytes | None]:
    return [value.bytes if isinstance(value, UUID) else None for value in values]


# Exporting a table: all rows of all partitions, as Parquet files with a manifest.
#
# The manifest is written once the files were read back, and once nobody has written to the table since its
# rows were read: so the rows are those of one moment. An export that was broken off has no manifest; the
# next one begins anew.

GROUP_ROWS = 10_000
GROUP_BYTES = 8 * 2**20
FILE_BYTES = 64 * 2**20
"""When a row group and a file are full, by the bytes of texts and binaries before compression."""

_PARTS = "rows-*.parquet"

Tell = Callable[[str, int], None]
"""Is told again and again what is being done, and with how many rows it was done."""


async def export_table(table: Table, name: str, folder: Path, tell: Tell) -> Manifest:
    """Copy all rows of a table into a folder, verify the files, and write their manifest.

    Reads the table twice, the second time keys and ETags only: one request for each 1,000 rows, each time. Holds some
    ten thousand rows at a time. Raises `UsageError` for a folder that holds something else, and `ArchiveError` when
    the table was written to meanwhile.
    """
    prepare_folder(folder)
    written, files = SetDigest(), _RowFiles(folder)
    with files:
        async for page in all_pages(table):
            for row in page.rows:
                _check_is_whole(row, name)
                written.add(written_row(row))
                files.add(row)
            tell("Reading", written.count)
    sync_folder(folder)
    await _check_is_unchanged(table, name, written, tell)
    manifest = files.manifest(name)
    check_files(folder, manifest, tell)
    manifest.write(folder)
    return manifest


def prepare_folder(folder: Path) -> None:
    """Make a folder that is empty, or delete what an export that was broken off left in it.

    Raises `UsageError` when it holds anything else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / NAME).exists():
        raise UsageError(f"{folder} holds an export already: choose another folder.")
    left = [*folder.glob(_PARTS), *folder.glob(f"_{NAME}-unfinished")]
    if set(folder.iterdir()) - set(left):
        raise UsageError(f"{folder} is not empty: choose another folder.")
    for file in left:
        file.unlink()


def check_files(folder: Path, manifest: Manifest, tell: Tell) -> None:
    """Read all files of an export. Raises `ArchiveError`, which names the first that is not as the manifest says."""
    found = SetDigest()
    for file in manifest.files:
        path, rows = folder / file.name, SetDigest()
        for some in read_rows(path):
            for row in some:
                rows.add(packed_row(row))
            tell("Verifying the files", found.count + rows.count)
        if (rows.count, rows.hexdigest()) != (file.rows, file.digest):
            raise ArchiveError(
                f"The file {path} of the export is damaged: its {rows.count} rows are not the {file.rows} that were "
                "written."
            )
        found.update(rows)
    if (found.count, found.hexdigest()) != (manifest.rows, manifest.digest):
        raise ArchiveError(
            f"The file {folder / NAME} of the export is damaged: it does not fit its own files."
        )


async def all_pages(table: Table, *, keys_only: bool = False) -> AsyncIterator[Page]:
    """Give all rows of a table, page by page, repeating what the store did not answer."""
    retries = RetryPolicy().beside(table)
    scan = partial(table.scan, None, select=[] if keys_only else None)

    async def read(*, continuation: str | None) -> Page:
        return await until_undisturbed(retries, partial(scan, continuation=continuation))

    async for page in pages(read):
        yield page


async def _check_is_unchanged(table: Table, name: str, written: SetDigest, tell: Tell) -> None:
    now = SetDigest()
    async for page in all_pages(table, keys_only=True):
        for row in page.rows:
            now.add(written_row(row))
        tell("Looking whether the table has changed", now.count)
    if now != written:
        raise ArchiveError(
            f"The table {name} was written to while it was exported: export it again when nobody writes."
        )


def _check_is_whole(row: Row, name: str) -> None:
    if row.partition_key == MARK:
        raise ArchiveError(
            f"The table {name} is not whole: the import into it was broken off. Finish that first."
        )


class _RowFiles:
    """Writes rows to one file after another, in row groups of bounded size."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buffer = RowBuffer()
        self._file: ParquetFile | None = None
        self._rows = SetDigest()
        self._bytes = 0
        self._all = SetDigest()
        self._done: list[PartFile] = []

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._end_file()
        elif self._file is not None:
            self._file.__exit__()

    def add(self, row: Row) -> None:
        self._rows.add(packed_row(row))
        self._buffer.add(row)
        if len(self._buffer) >= GROUP_ROWS or self._buffer.bytes >= GROUP_BYTES:
            self._end_group()
        if self._bytes >= FILE_BYTES:
            self._end_file()

    def manifest(self, table: str) -> Manifest:
        return Manifest(table, self._all.count, self._all.hexdigest(), tuple(self._done))

    def _end_group(self) -> None:
        if self._file is None:
            self._file = ParquetFile(self._folder / f"rows-{len(self._done):05d}.parquet", SCHEMA)
        self._bytes += self._buffer.bytes
        self._file.add(self._buffer.take())

    def _end_file(self) -> None:
        if self._buffer:
            self._end_group()
        if self._file is None:
            return
        size = self._file.close()
        self._done.append(PartFile(self._file.path.name, self._rows.count, self._rows.hexdigest(), size))
        self._all.update(self._rows)
        self._file, self._rows, self._bytes = None, SetDigest(), 0


# Importing a table: the rows of an export, into a table that is empty.
#
# All files are verified before anything is written, and all rows are read back afterwards. While it is
# written to, the table has a row that says so, with the number of files that are done: an import that was
# broken off goes on there when it is run again, and no other export is taken in its place.

_ROW = "IMPORT"
_IN_FLIGHT = 16


async def import_table(table: Table, name: str, folder: Path, manifest: Manifest, tell: Tell) -> None:
    """Write the rows of an export, whose files were checked, into a table that is empty, and read them back.

    Costs a transaction for each 100 rows of a partition, and one request for each 1,000 rows. Raises `ArchiveError`
    when the table holds other rows, or was written to meanwhile.
    """
    done = await _begin(table, name, manifest)
    skipped = sum(file.rows for file in manifest.files[:done])
    for index in range(done, len(manifest.files)):
        skipped += await _write_file(table, folder / manifest.files[index].name, skipped, tell)
        mark = Operation.merge(_ROW, {"Files": index + 1})
        await table.transact(MARK, [mark])
    await table.barrier()
    await _check_rows(table, name, manifest, tell)
    await table.transact(MARK, [Operation.delete(_ROW)])
    await table.barrier()


async def _begin(table: Table, name: str, manifest: Manifest) -> int:
    """Mark an empty table as one that is imported, and return how many files an earlier attempt has written."""
    mark = await table.get(MARK, _ROW)
    if mark is None:
        async for page in all_pages(table, keys_only=True):
            if page.rows:
                raise ArchiveError(f"The table {name} is not empty: import into another one.")
        try:
            await _mark(table, manifest)
        except RowExistsError:
            raise ArchiveError(f"Somebody else imports into the table {name} at this moment.") from None
        return 0
    if mark.properties.get("Digest") != manifest.digest:
        raise ArchiveError(
            f"The import of another export into the table {name} was broken off: finish that, or import into "
            "another table."
        )
    return number(mark.properties, "Files")


async def _mark(table: Table, manifest: Manifest) -> None:
    mark: dict[str, Value] = {"Digest": manifest.digest, "Rows": Int64(manifest.rows), "Files": 0}
    await table.transact(MARK, [Operation.insert(_ROW, mark)])


async def _write_file(table: Table, path: Path, before: int, tell: Tell) -> int:
    written = 0
    for rows in read_rows(path):
        await _write(table, list(transactions(rows)))
        written += len(rows)
        tell("Writing", before + written)
    return written


def transactions(rows: Iterable[Row]) -> Iterator[Transaction]:
    """Cut rows, in their order, into transactions that are surely within the limits."""
    partition, size = "", 0
    operations: list[Operation] = []
    for row in rows:
        bytes_ = prepare_row(row.properties)[1]
        is_full = len(operations) == MAX_OPERATIONS or size + bytes_ > SURELY_SMALL_BYTES
        if operations and (is_full or row.partition_key != partition):
            yield partition, operations
            operations, size = [], 0
        partition = row.partition_key
        operations.append(Operation.insert_or_replace(row.row_key, row.properties))
        size += bytes_
    if operations:
        yield partition, operations


async def _write(table: Table, waiting: Sequence[Transaction]) -> None:
    """Carry out transactions that may be repeated: together where the table can, else several at a time."""
    retries = RetryPolicy().beside(table)
    if isinstance(table, CommitsTogether):
        results = await until_undisturbed(retries, partial(table.transact_each, waiting))
        for error in results:
            if isinstance(error, Exception):
                raise error
        return
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def carry_out(transaction: Transaction) -> None:
        async with slots:
            await until_undisturbed(retries, partial(table.transact, *transaction))

    try:
        async with asyncio.TaskGroup() as group:
            for transaction in waiting:
                group.create_task(carry_out(transaction))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _check_rows(table: Table, name: str, manifest: Manifest, tell: Tell) -> None:
    found = SetDigest()
    async for page in all_pages(table):
        for row in page.rows:
            if row.partition_key != MARK:
                found.add(packed_row(row))
        tell("Reading back", found.count)
    if (found.count, found.hexdigest()) != (manifest.rows, manifest.digest):
        raise ArchiveError(
            f"The table {name} holds {found.count} rows that are not the {manifest.rows} of the export: somebody "
            "else has written to it. Import into another table."
        )
