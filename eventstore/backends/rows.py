"""The format of rows in SQL databases, shared by SQLite and PostgreSQL.

Keys, ETag and time are columns. The properties are two byte strings: `large` concatenates the large binary properties,
shortest first. `small` is msgpack of the other properties and of the lengths of the large ones, so that a reader can
skip `large`, or read only its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import inf
from typing import Any
from uuid import UUID

import msgpack
import zstandard

from eventstore import port
from eventstore.errors import DamagedRowError
from eventstore.keys import BETWEEN_KEYS, escape, unescape
from eventstore.limits import MAX_BINARY_BYTES, MAX_PROPERTIES, MAX_STRING_UNITS, prepare
from eventstore.port import ANY_ETAG, Bounds, Int64, Page, PageKind, Row, Value

LARGE_BYTES = 2048
"""Binary properties above this size are stored in the large part."""

_LEAST_LARGE_BYTES = 512  # the limit when the oldest rows were written

_NAMES = frozenset({str})
_KINDS = frozenset({str, bool, int, Int64, float, datetime, UUID, bytes})
_INT64, _DATETIME, _UUID = 1, 2, 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def packer() -> msgpack.Packer:
    """Return a packer of properties, for one thread."""
    return msgpack.Packer(default=to_extension, strict_types=True)


def pack(packer: msgpack.Packer, properties: Mapping[str, Value]) -> tuple[bytes, bytes | None]:
    """Return the small part of a row, and its large part: None unless a binary property exceeds `LARGE_BYTES`."""
    large = sorted(
        (len(value), name, value)
        for name, value in properties.items()
        if type(value) is bytes and len(value) > LARGE_BYTES
    )
    if not large:
        return packer.pack(properties), None
    lengths = {name: length for length, name, _ in large}
    small = {name: value for name, value in properties.items() if name not in lengths}
    return packer.pack([small, lengths]), b"".join([value for _, _, value in large])


def unpack_small(small: bytes) -> tuple[dict[str, Value], dict[str, int]]:
    """Return the small properties, and the lengths of the large ones in storage order. Raises one of `DAMAGED`."""
    unpacked = msgpack.unpackb(
        small,
        ext_hook=from_extension,
        max_str_len=4 * MAX_STRING_UNITS,
        max_bin_len=MAX_BINARY_BYTES,
        max_array_len=2,
        max_map_len=MAX_PROPERTIES,
        max_ext_len=16,
    )
    properties, lengths = unpacked if type(unpacked) is list else (unpacked, {})
    if not (
        type(properties) is type(lengths) is dict
        and _NAMES.issuperset(map(type, [*properties, *lengths]))
        and _KINDS.issuperset(map(type, properties.values()))
        and all(type(length) is int and length > _LEAST_LARGE_BYTES for length in lengths.values())
    ):
        raise TypeError("it holds no properties")
    return properties, lengths


def unpack(small: bytes, large: bytes | None) -> dict[str, Value]:
    """Return all properties of a row."""
    properties, lengths = unpack_small(small)
    _add_large(properties, lengths, large or b"", lengths)
    return properties


def unpack_some(
    select: Sequence[str], read_large: Callable[[Any, int], bytes], small: bytes, along: object
) -> dict[str, Value]:
    """Return the selected properties of a row.

    `read_large(along, n)` returns the first `n` bytes of the large part. `along` is the large part, its beginning, or
    the id of its row, depending on the statement that read the row.
    """
    properties, lengths = unpack_small(small)
    end = needed = 0
    for name, length in lengths.items():
        end += length
        if name in select:
            needed = end
    selected = {name: properties[name] for name in select if name in properties}
    _add_large(selected, lengths, read_large(along, needed) if needed else b"", select)
    return selected


def _add_large(
    properties: dict[str, Value], lengths: Mapping[str, int], large: bytes, select: Container[str]
) -> None:
    start = 0
    for name, length in lengths.items():
        if name in select:
            value = large[start : start + length]
            if len(value) < length or type(value) is not bytes:
                raise ValueError(f"the large property {name!r} is truncated")
            properties[name] = value
        start += length


def to_extension(value: object) -> msgpack.ExtType:
    """Convert an `Int64`, a datetime or a UUID to an extension type of msgpack. Raises `TypeError` for other types."""
    if isinstance(value, Int64):
        return msgpack.ExtType(_INT64, value.to_bytes(8, "big", signed=True))
    if isinstance(value, datetime):
        return msgpack.ExtType(_DATETIME, ((value - _EPOCH) // _MICROSECOND).to_bytes(8, "big", signed=True))
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    raise TypeError(f"A {type(value).__name__} cannot be stored.")


def from_extension(code: int, data: bytes) -> Value:
    """Convert an extension type of msgpack to its value."""
    if code == _INT64:
        return Int64(int.from_bytes(data, "big", signed=True))
    if code == _DATETIME:
        return _EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))
    if code == _UUID:
        return UUID(bytes=data)
    raise ValueError(f"The extension type {code} is unknown.")


def etag_number(etag: str | None) -> int | None:
    """Return the number of an ETag, None for `"*"`, or -1 for an invalid ETag. No row has -1."""
    if etag == ANY_ETAG:
        return None
    if etag is None or not etag.isdecimal() or len(etag) > 19:  # noqa: PLR2004 - the digits of 2**63
        return -1
    number = int(etag)
    # Leading zeros and digits of other scripts are other ETags.
    return number if number < 2**63 and str(number) == etag else -1


DAMAGED = (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException)
"""The errors of decoding a corrupt row."""

StoredRow = tuple[str, int, int, bytes, Any]
"""Row key (in a scan, partition and row key), ETag, time in microseconds, small part and large part."""

PAGE_BYTES = 4 * 2**20
"""A page of complete rows ends at this size, as with a table service, so that it fits into memory."""

ALONG_BYTES = 64 * 2**10
"""The maximum size of a large part that is read together with the small part of its row."""

Decode = Callable[[bytes, Any], dict[str, Value]]
"""Returns the properties of a row from its small part and the value that was selected for its large part."""


class Changes:
    """A validated transaction of a SQL table, with escaped keys."""

    def __init__(self, partition_key: str, operations: Sequence[port.Operation]) -> None:
        self.operations = operations
        self.properties = prepare(partition_key, operations)
        self.partition = escape(partition_key)
        self.rows = [escape(operation.row_key) for operation in operations]


class SqlTable(port.RangeTable):
    """A table that reads each page with one SQL statement. A continuation is the key of the next row."""

    async def page(
        self, kind: PageKind, bounds: Bounds, select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        key, low, high = bounds
        if kind == "query":
            return await self.read(kind, (key, continuation or low, high), select)
        low, _, low_row = (continuation or low).partition(BETWEEN_KEYS)
        return await self.read(kind, (key, low, high) if kind == "scan" else (high, low, low_row), select)

    async def read(self, kind: PageKind, bounds: Bounds, select: Sequence[str] | None) -> Page:
        """Read a page with the SQL statement for `kind`. `bounds` are the parameters of the statement."""
        raise NotImplementedError


def read_page(
    bounds: Sequence[str], found: Iterable[StoredRow], decode: Decode = unpack, most: float = inf
) -> Page:
    """Return a page of the rows that were `found` by a statement with the parameters `bounds`.

    It ends after 1,000 rows or `most` bytes, or before a corrupt row. A corrupt first row raises `DamagedRowError`.
    """
    rows: list[Row] = []
    size, left = 0, iter(found)
    for row in left:
        if len(rows) == port.PAGE_SIZE or size >= most:
            return Page(tuple(rows), row[0])
        try:
            rows.append(read_row(bounds, row, decode))
        except DamagedRowError as error:
            if rows:
                return Page(tuple(rows), row[0])
            keys, after = (error.partition_key, error.row_key), next(left, None)
            raise DamagedRowError(*keys, error.problem, after and after[0]) from error.__cause__
        if most < inf:
            size += len(row[3]) + len(row[4] or b"")
    return Page(tuple(rows))


def read_row(bounds: Sequence[str], row: StoredRow, decode: Decode = unpack) -> Row:
    """Decode a row. Raises `DamagedRowError` if the row is corrupt.

    If the row contains no partition key, as in a query, the first of `bounds` is its partition key.
    """
    keys, etag, written, small, large = row
    partition, _, key = keys.rpartition(BETWEEN_KEYS)
    address = unescape(partition or bounds[0]), unescape(key)
    try:
        properties = decode(small, large)
        return Row(*address, str(etag), properties, datetime.fromtimestamp(written / 1_000_000, UTC))
    except DAMAGED as error:
        raise DamagedRowError(*address, f"cannot be read: {error or type(error).__name__}") from error


# zstandard dictionaries for the small parts of SQLite's rows.

FEWEST_SAMPLES = 32
MOST_DICTIONARIES = 250
MARK = b"\xc1"  # no msgpack begins with this byte
MARK_BYTES = 5  # the mark and the number of a dictionary: a byte below 255, else this and three bytes
_WIDE = 255
_MOST_SAMPLES = 64
_GRAM = 6  # the length of the substrings that are counted
_SHARE = 0.75  # a dictionary contains substrings of at least this share of the samples
_BASES = 3  # the samples that shared substrings are taken from
_GROWTH = 1.25  # a dictionary is stale if rows compress worse than its samples by this factor

_LEVEL = 1
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS
_MAX_BYTES = 64 * 2**10  # larger rows are not compressed; decompression allocates this much


def kind_of(partition: str, row: str) -> str:
    """Return the kind of a row: its partition key up to the first hyphen, and its row key.

    Rows of the same kind are compressed with the same dictionary.
    """
    return f"{partition.partition('-')[0]}/{row}"


def shared_bytes(samples: Sequence[bytes]) -> bytes:
    """Return the concatenated substrings that most samples share."""
    found: Counter[bytes] = Counter()
    for sample in samples:
        found.update({sample[at : at + _GRAM] for at in range(len(sample) - _GRAM + 1)})
    most = {gram for gram, count in found.items() if count >= _SHARE * len(samples)}
    stretches: dict[bytes, None] = {}
    for sample in samples[:_BASES]:
        begin = None
        for at in range(len(sample) + 1):
            is_shared = sample[at : at + _GRAM] in most
            if is_shared and begin is None:
                begin = at
            elif not is_shared and begin is not None:
                stretches[sample[begin : at + _GRAM - 1]] = None
                begin = None
    return b"".join(stretches)


def number_of(small: bytes) -> int:
    """Return the number of the dictionary with which a small part was compressed."""
    number = int.from_bytes(small[1:2])
    return int.from_bytes(small[2:MARK_BYTES]) if number == _WIDE else number


class Dictionary:
    """A zstandard dictionary and its compressor. `size` is the mean compressed size of its samples, in bytes."""

    def __init__(self, number: int, kind: str, shared: bytes, size: float) -> None:
        self.number = number
        self.kind = kind
        self.shared = shared
        self.size = size
        self.mark = MARK + (bytes([number]) if number < _WIDE else (_WIDE << 24 | number).to_bytes(4))
        data = zstandard.ZstdCompressionDict(shared, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, format=_FORMAT, write_content_size=0, write_checksum=1, write_dict_id=0
        )
        self._compress = zstandard.ZstdCompressor(dict_data=data, compression_params=parameters).compress
        self._decompress = zstandard.ZstdDecompressor(dict_data=data, format=_FORMAT).decompress

    @classmethod
    def of(cls, number: int, kind: str, rows: Iterable[bytes]) -> Dictionary:
        """Train a dictionary for a kind of row on the small parts of the first few rows."""
        samples = list(islice(rows, _MOST_SAMPLES))
        new = cls(number, kind, shared_bytes(samples), 0)
        new.size = sum(len(new.compress(sample)) for sample in samples) / len(samples)
        return new

    def compress(self, small: bytes) -> bytes:
        """Compress the small part of a row. Return the part unchanged if it exceeds 64 KiB or would not shrink."""
        if len(small) > _MAX_BYTES:
            return small
        compressed = self.mark + self._compress(small)
        return compressed if len(compressed) < len(small) else small

    def decompress(self, compressed: bytes) -> bytes:
        """Decompress a part that `compress` has shortened. Raises `ZstdError` if the part is corrupt."""
        return self._decompress(compressed[len(self.mark) :], max_output_size=_MAX_BYTES)

    def is_stale(self, compressed: Sequence[bytes]) -> bool:
        """Return whether rows compress much worse than the samples did, so that a new dictionary is needed."""
        return sum(map(len, compressed)) > _GROWTH * self.size * len(compressed)


class Dictionaries:
    """The zstandard dictionaries of one table.

    Compressed rows contain the number of their dictionary. New rows use the newest dictionary of their kind.
    """

    def __init__(self, stored: Iterable[Dictionary] = ()) -> None:
        self.by_number: dict[int, Dictionary] = {}
        self.newest: dict[str, Dictionary] = {}
        for each in stored:
            self.add(each)

    def add(self, dictionary: Dictionary) -> None:
        """Add a dictionary, as the newest of its kind."""
        self.by_number[dictionary.number] = dictionary
        self.newest[dictionary.kind] = dictionary

    def plain(self, small: bytes) -> bytes:
        """Decompress the small part of a row. Return a corrupt part unchanged: decoding the row will then fail."""
        if small[:1] == MARK:
            with suppress(LookupError, zstandard.ZstdError):
                return self.by_number[number_of(small)].decompress(small)
        return small
