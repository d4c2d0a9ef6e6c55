"""Envelopes: messages as a log holds them, and the canonical form of their ids."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, overload

import msgpack

from handlers.codec import is_text, unpack
from runtime.clock import shown_time, to_microseconds

R = TypeVar("R")


class Columnar(Sequence[R]):
    """Base of sequences that are stored by columns: dataclasses with slots, one list for each field of `row`."""

    __slots__: tuple[str, ...] = ()
    row: ClassVar[Any]
    _all: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        if cls.__slots__:
            cls._all = attrgetter(*cls.__slots__)

    @classmethod
    def of(cls, rows: Iterable[R]) -> Self:
        """Return rows as columns."""
        columns: Any = zip(*rows, strict=True)
        return cls(*map(list, columns))

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> R | Self:
        found = [column[index] for column in self.columns()]
        if isinstance(index, slice):
            return type(self)(*found)
        row: R = self.row._make(found)
        return row

    def __iter__(self) -> Iterator[R]:
        return map(self.row._make, zip(*self.columns(), strict=True))

    def extend(self, other: Self) -> None:
        """Add rows at the end."""
        for column, added in zip(self.columns(), other.columns(), strict=True):
            column.extend(added)

    def columns(self) -> tuple[list[Any], ...]:
        """Return the columns, in the order of the fields of a row."""
        columns: tuple[list[Any], ...] = self._all(self)
        return columns


def pieces(joined: bytes, size: int) -> list[bytes]:
    """Return values of equal size that were joined. Raises `ValueError` when the last one is shorter."""
    count, rest = divmod(len(joined), size)
    if rest:
        raise ValueError(f"{len(joined)} bytes are no values of {size} bytes")
    return list(struct.unpack(f"{size}s" * count, joined))


# Message ids: a UUID in any spelling is one id, in small letters with hyphens. In a run, UUIDs take 16 bytes each; any
# other id is text, so that none can equal the bytes of a UUID.

MAX_LENGTH = 255
UUID_PATTERN = (
    r"(?i)^(?:urn:uuid:)?\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?"
)
"""The spellings of a UUID, without the end of text, which Java and Python write differently."""

_CANONICAL_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID = re.compile(UUID_PATTERN + r"\Z", re.ASCII)
_CANONICAL = re.compile(_CANONICAL_PATTERN + r"\Z", re.ASCII)
_CANONICAL_LINES = re.compile(rf"(?:{_CANONICAL_PATTERN}\n)*\Z")
_CANONICAL_LENGTH = 36
_UUID_BYTES = 16
_UUIDS_ONLY = b"\x01"
_MIXED = b"\x02"

IdKey = bytes | str  # an id as it is compared and stored: 16 bytes for a UUID, else the text


def canonical(text: str) -> str:
    """Return the one spelling of an id."""
    match = _UUID.match(text)
    return "-".join(match.groups()).lower() if match else text


def id_key(canonical_id: str) -> IdKey:
    """Return the key of a canonical id."""
    return bytes.fromhex(canonical_id.replace("-", "")) if _CANONICAL.match(canonical_id) else canonical_id


def id_keys(canonical_ids: Sequence[str]) -> list[IdKey]:
    """Return the keys of canonical ids."""
    lines = "\n".join([*canonical_ids, ""])
    # Of the same length as lines of one id each, so that no id can be two lines.
    if len(lines) == len(canonical_ids) * (_CANONICAL_LENGTH + 1) and _CANONICAL_LINES.match(lines):
        return [*pieces(bytes.fromhex(lines.replace("-", "")), _UUID_BYTES)]
    return [id_key(each) for each in canonical_ids]


def id_text(key: IdKey) -> str:
    """Return the canonical text of a key."""
    if isinstance(key, str):
        return key
    digits = key.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_ids(keys: Sequence[IdKey]) -> bytes:
    """Return the bytes of the ids of a run, in order."""
    if set(map(type, keys)) <= {bytes}:
        return _UUIDS_ONLY + b"".join(keys)  # type: ignore[arg-type] # just checked
    packed: bytes = msgpack.packb(list(keys))
    return _MIXED + packed


def unpack_ids(data: bytes) -> list[IdKey]:
    """Return the ids of a run, in order. Raises `ValueError`, `TypeError` and what msgpack raises."""
    if data[:1] == _UUIDS_ONLY:
        return [*pieces(data[1:], _UUID_BYTES)]
    ids = unpack(data[1:])
    if not isinstance(ids, list) or not set(map(type, ids)) <= {bytes, str}:
        raise ValueError("these are no message ids")
    return ids


def join_ids(packed: bytes, following: bytes) -> bytes:
    """Return the bytes of the ids of two runs, of which one follows the other. Raises what `unpack_ids` does."""
    if packed[:1] == following[:1] == _UUIDS_ONLY:
        return packed + following[1:]
    return pack_ids([*unpack_ids(packed), *unpack_ids(following)])


# Row keys for message ids: the id itself where it fits, so that it can be read in the table, else its digest.

FIRST, LAST = "ID-", "ID~"  # the bounds of the row keys of messages within their partition

_LONGEST = 120  # three times as many characters once each is escaped, which any table holds


def row_key(message_id: IdKey) -> str:
    """Return the row key of a message id. No two ids have the same."""
    text = id_text(message_id)
    if len(text) <= _LONGEST:
        return f"ID-T-{text}"
    return f"ID-D-{sha256(text.encode()).hexdigest()}"


class Envelope(NamedTuple):
    """One delivery of a message. `message_id` is canonical, and `body` JSON text or msgpack bytes.

    `business_id` is that of the sender, if any. Times are in microseconds since 1970 UTC.
    """

    message_id: str
    type: str
    body: str | bytes
    business_id: str | None = None
    sequence: int | None = None
    enqueued_at: int | None = None
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        message_id: str,
        message_type: str,
        body: str | bytes,
        *,
        business_id: str | None = None,
        sequence: int | None = None,
        enqueued_at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Envelope:
        """Make an envelope of a message from a queue.

        Raises `ValueError` for an id that is empty, has more than 255 characters, or is no valid text.
        """
        if not 0 < len(message_id) <= MAX_LENGTH:
            raise ValueError(f"A message id has 1 to {MAX_LENGTH} characters, not {len(message_id)}.")
        if not is_text(message_id):
            raise ValueError(f"A message id is text, and {message_id!a} holds half a character.")
        moment = None if enqueued_at is None else to_microseconds(enqueued_at)
        copied = dict(headers) if headers else None
        return cls(canonical(message_id), message_type, body, business_id, sequence, moment, copied)

    def to_json(self, handler: str | None = None) -> str:
        """Return the delivery as a line of JSON for a log, with hexadecimal digits for msgpack."""
        fields = {
            **self._asdict(),
            "body": self.body if isinstance(self.body, str) else self.body.hex(),
            "enqueued_at": None if self.enqueued_at is None else shown_time(self.enqueued_at),
            "headers": dict(self.headers) if self.headers else None,
            "handler": handler,
        }
        always = ("message_id", "type", "body")
        given = {name: value for name, value in fields.items() if value is not None or name in always}
        return json.dumps(given, ensure_ascii=False)


@dataclass(slots=True)
class Envelopes(Columnar[Envelope]):
    """Deliveries as a log holds them: each list has one field of `Envelope` for all of them."""

    row = Envelope

    message_ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    bodies: list[str | bytes] = field(default_factory=list)
    business_ids: list[str | None] = field(default_factory=list)
    sequences: list[int | None] = field(default_factory=list)
    enqueued_at: list[int | None] = field(default_factory=list)
    headers: list[Mapping[str, str] | None] = field(default_factory=list)


_LARGE_INTEGER = 1
_SURROGATES = "surrogatepass"


def pack_envelope(envelope: Envelope) -> bytes:
    """Return a delivery as msgpack: the fields in their order, without those at the end that are None.

    Invalid fields are kept too: text with half a character, a missing id or type. Headers that are neither text, bytes
    nor numbers become their `repr`.
    """
    headers = envelope.headers
    fields: list[Any] = list(envelope._replace(headers=None if headers is None else dict(headers)))
    while fields and fields[-1] is None:
        fields.pop()
    packed: bytes = msgpack.packb(fields, default=_unusual, unicode_errors=_SURROGATES)
    return packed


def unpack_envelope(packed: bytes) -> Envelope:
    """Return the delivery that was packed."""
    fields = unpack(packed, ext_hook=_usual, unicode_errors=_SURROGATES, strict_map_key=False)
    return Envelope(*fields, *[None] * (len(Envelope._fields) - len(fields)))


def _unusual(value: Any) -> Any:  # noqa: ANN401 - what msgpack has no type for
    if isinstance(value, int):
        return msgpack.ExtType(_LARGE_INTEGER, str(value).encode())
    return repr(value)


def _usual(code: int, data: bytes) -> int:
    if code != _LARGE_INTEGER:
        raise ValueError(f"A delivery has no values of the extension type {code}.")
    return int(data)
