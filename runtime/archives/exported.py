"""Finding exported versions: by their stream and the ids of their messages, in memory that no export enlarges.

Parts are read by row groups, whose statistics tell which streams they may hold. Truncation writes streams in the order
of their keys, so those of a stream are few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from handlers.text import is_text
from runtime.archives.files import reading
from runtime.archives.versions import PARTS, rows_in
from runtime.errors import ArchiveError
from runtime.messages.message_ids import IdKey, id_text
from runtime.storage.version import Version

_KEPT_GROUPS = 4
_STREAM = ("handler", "business_id")


class _Group(NamedTuple):
    """A row group of a part, with the least and the greatest value of each of `_STREAM`; None where that is unknown."""

    path: Path
    number: int
    bounds: tuple[tuple[str, str] | None, ...]

    def may_hold(self, *stream: str) -> bool:
        return all(
            known is None or known[0] <= value <= known[1]
            for value, known in zip(stream, self.bounds, strict=True)
        )


class ExportedVersions:
    """The versions in the parts of a folder.

    The row groups that were read last are kept, up to 10,000 versions or 8 MiB of states each: ask for streams in the
    order of their keys. Raises `ArchiveError` for a part that cannot be read, and when there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._parts = sorted(folder.glob(PARTS))
        if not self._parts:
            raise ArchiveError(
                f"There are no versions in {folder}: `consistent truncate --export` writes them."
            )
        self._read = lru_cache(_KEPT_GROUPS)(_read)

    def of_stream(self, handler: str, business_id: str) -> list[Version]:
        """Return the versions of a stream, each once, the oldest first."""
        found = {version.number: version for version in self._versions(handler, business_id, None)}
        return [found[number] for number in sorted(found)]

    def find(
        self, handler: str, business_id: str, ids: Collection[IdKey], since: int = 0
    ) -> Mapping[IdKey, Version]:
        """Return those versions of a stream that some messages made, by the ids of these.

        Versions that were written at `since` or before, in microseconds since 1970 UTC, are left out: an object that
        was forgotten then may have begun anew.
        """
        wanted = pa.array(filter(is_text, map(id_text, ids)), pa.string())
        return {
            version.record.message_id: version
            for version in self._versions(handler, business_id, wanted)
            if version.written_at is None or version.written_at > since
        }

    def _versions(self, handler: str, business_id: str, ids: pa.Array | None) -> Iterator[Version]:
        for group in self._groups:
            if not group.may_hold(handler, business_id):
                continue
            with reading(group.path):
                found = self._read(group)
                found = found.filter(pc.equal(found["handler"], handler))
                found = found.filter(pc.equal(found["business_id"], business_id))
                if ids is not None:
                    found = found.filter(pc.is_in(found["message_id"], ids))
                versions = [row.as_version() for batch in found.to_batches() for row in rows_in(batch)]
            yield from versions

    @cached_property
    def _groups(self) -> list[_Group]:
        return [group for path in self._parts for group in _groups_of(path)]


def _groups_of(path: Path) -> list[_Group]:
    with reading(path), parquet.ParquetFile(path) as file:
        columns = [file.schema_arrow.get_field_index(name) for name in _STREAM]
        return [
            _Group(
                path, number, tuple(_bounds(file.metadata.row_group(number), column) for column in columns)
            )
            for number in range(file.num_row_groups)
        ]


def _bounds(group: parquet.RowGroupMetaData, column: int) -> tuple[str, str] | None:
    known = group.column(column).statistics
    return (known.min, known.max) if known is not None and known.has_min_max else None


def _read(group: _Group) -> pa.Table:
    with parquet.ParquetFile(group.path, page_checksum_verification=True) as file:
        return file.read_row_group(group.number)
