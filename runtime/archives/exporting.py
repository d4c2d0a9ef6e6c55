"""Exporting a table: all rows of all partitions, as Parquet files with a manifest.

The manifest is written once the files were read back, and once nobody has written to the table since its rows were
read: so the rows are those of one moment. An export that was broken off has no manifest; the next one begins anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from eventstore import Page, Row, Table, pages
from runtime.archives import MARK
from runtime.archives.digest import SetDigest, packed_row, written_row
from runtime.archives.files import ParquetFile, sync_folder
from runtime.archives.manifest import NAME, Manifest, PartFile
from runtime.archives.rows import SCHEMA, RowBuffer, read_rows
from runtime.errors import ArchiveError, UsageError
from runtime.retries import RetryPolicy, until_undisturbed

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
