"""Envelopes of deliveries, canonical message ids, and fingerprints of messages."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b, sha256
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, overload

import msgpack
from msgspec.msgpack import Encoder, Ext
from pydantic_core import from_json

from handlers import Published
from handlers.codec import is_text, unpack
from runtime.clock import shown_time, to_microseconds

R = TypeVar("R")


class Columnar(Sequence[R]):
    """A sequence of named tuples of class `row`, stored by column. Subclasses are dataclasses with a list per field."""

    __slots__: tuple[str, ...] = ()
    row: ClassVar[Any]
    _all: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        if cls.__slots__:
            cls._all = attrgetter(*cls.__slots__)

    @classmethod
    def of(cls, rows: Iterable[R]) -> Self:
        """Convert rows to columns."""
        columns: Any = zip(*rows, strict=True)
        return cls(*map(list, columns))

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> R | Self:
        fields = [column[index] for column in self.columns()]
        if isinstance(index, slice):
            return type(self)(*fields)
        row: R = self.row._make(fields)
        return row

    def __iter__(self) -> Iterator[R]:
        return map(self.row._make, zip(*self.columns(), strict=True))

    def extend(self, other: Self) -> None:
        """Append the rows of another sequence."""
        for column, added in zip(self.columns(), other.columns(), strict=True):
            column.extend(added)

    def columns(self) -> Sequence[list[Any]]:
        columns: Sequence[list[Any]] = self._all(self)
        return columns


def pieces(joined: bytes, size: int) -> list[bytes]:
    """Split bytes into values of `size` bytes. Raises `ValueError` if bytes are left over."""
    count, rest = divmod(len(joined), size)
    if rest:
        raise ValueError(f"{len(joined)} bytes are not a multiple of {size}")
    return list(struct.unpack(f"{size}s" * count, joined))


# Message ids. All spellings of a UUID are one id. Its canonical spelling is in lower case with hyphens. A run stores
# UUIDs as 16 bytes and other ids as text, so a UUID never equals an id of another form.

MAX_LENGTH = 255
# Matches all spellings of a UUID. The end anchor is missing, because Java and Python write it differently.
UUID_PATTERN = (
    r"(?i)^(?:urn:uuid:)?\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?"
)

_CANONICAL_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID = re.compile(UUID_PATTERN + r"\Z", re.ASCII)
_CANONICAL = re.compile(_CANONICAL_PATTERN + r"\Z", re.ASCII)
_CANONICAL_LINES = re.compile(rf"(?:{_CANONICAL_PATTERN}\n)*\Z")
_CANONICAL_LENGTH = 36
_UUID_BYTES = 16
_UUIDS_ONLY = b"\x01"
_MIXED = b"\x02"

IdKey = bytes | str
"""The form in which ids are compared and stored: 16 bytes for a UUID, otherwise text."""


def canonical(text: str) -> str:
    match = _UUID.match(text)
    return "-".join(match.groups()).lower() if match else text


def id_key(canonical_id: str) -> IdKey:
    """Return the key of a canonical id: 16 bytes for a UUID, otherwise the text."""
    return bytes.fromhex(canonical_id.replace("-", "")) if _CANONICAL.match(canonical_id) else canonical_id


def id_keys(canonical_ids: Sequence[str]) -> list[IdKey]:
    """Return the keys of canonical ids. If all ids are UUIDs, this is faster than calling `id_key` for each."""
    lines = "\n".join([*canonical_ids, ""])
    # The total length rules out an id that contains a line break.
    if len(lines) == len(canonical_ids) * (_CANONICAL_LENGTH + 1) and _CANONICAL_LINES.match(lines):
        return [*pieces(bytes.fromhex(lines.replace("-", "")), _UUID_BYTES)]
    return [id_key(each) for each in canonical_ids]


def id_text(key: IdKey) -> str:
    if isinstance(key, str):
        return key
    digits = key.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_ids(keys: Sequence[IdKey]) -> bytes:
    if set(map(type, keys)) <= {bytes}:
        return _UUIDS_ONLY + b"".join(keys)  # type: ignore[arg-type] # just checked
    packed: bytes = msgpack.packb(list(keys))
    return _MIXED + packed


def unpack_ids(data: bytes) -> list[IdKey]:
    """Decode the message ids that `pack_ids` encoded. Raises one of `properties.UNREADABLE` for corrupt bytes."""
    if data[:1] == _UUIDS_ONLY:
        return [*pieces(data[1:], _UUID_BYTES)]
    ids = unpack(data[1:])
    if not isinstance(ids, list) or not set(map(type, ids)) <= {bytes, str}:
        raise ValueError("not a list of message ids")
    return ids


def join_ids(packed: bytes, following: bytes) -> bytes:
    """Join two lists of message ids that `pack_ids` encoded into one such list. Raises the errors of `unpack_ids`."""
    if packed[:1] == following[:1] == _UUIDS_ONLY:
        return packed + following[1:]
    return pack_ids([*unpack_ids(packed), *unpack_ids(following)])


FIRST, LAST = "ID-", "ID~"  # the bounds of the row keys of messages within their partition

_LONGEST = 120  # escaping triples the length, which every store still accepts


def row_key(message_id: IdKey) -> str:
    """Return the row key of a message. It contains the id or, if the id has more than 120 characters, its SHA-256."""
    text = id_text(message_id)
    return f"ID-T-{text}" if len(text) <= _LONGEST else f"ID-D-{sha256(text.encode()).hexdigest()}"


Headers = Mapping[str, str] | None

# Malformed or long values are not passed on, because a receiver may reject the output that carries them.
_PASSED_ON = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"),
    "tracestate": re.compile(r"[ -~]{1,512}"),
}
_TRACE = frozenset(_PASSED_ON)


def without_trace(headers: Headers) -> Headers:
    """Return the headers that handlers see: all but the W3C trace context, which differs between redeliveries."""
    if not headers or _TRACE.isdisjoint(headers):
        return headers
    return {name: value for name, value in headers.items() if name not in _TRACE} or None


def with_trace(headers: Mapping[str, str], cause: Headers) -> Mapping[str, str]:
    """Add the valid trace context in `cause`, the headers of the handled message, to the headers of an output."""
    if not cause or _TRACE.isdisjoint(cause):
        return headers
    trace = {name: cause[name] for name in sorted(_TRACE & cause.keys())}
    return {**{name: value for name, value in trace.items() if _PASSED_ON[name].fullmatch(value)}, **headers}


class Envelope(NamedTuple):
    """A message in transit: its id, type and body, and the sender's optional fields."""

    message_id: str  # canonical
    type: str
    body: str | bytes  # JSON text or msgpack
    business_id: str | None = None
    sequence: int | None = None
    enqueued_at: int | None = None  # in microseconds since 1970 UTC
    headers: Headers = None

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
        headers: Headers = None,
    ) -> Envelope:
        """Create an envelope, with the id in canonical form. Raises `ValueError` for an invalid id."""
        if not 0 < len(message_id) <= MAX_LENGTH:
            raise ValueError(f"A message id must have 1 to {MAX_LENGTH} characters, not {len(message_id)}.")
        if not is_text(message_id):
            raise ValueError(
                f"The message id {message_id!a} is invalid Unicode: it contains a lone surrogate."
            )
        # JSON may arrive as bytes. No map of msgpack begins with this one.
        if isinstance(body, bytes) and body.lstrip().startswith(b"{"):
            with suppress(UnicodeDecodeError):
                body = body.decode()
        moment = None if enqueued_at is None else to_microseconds(enqueued_at)
        copied = dict(headers) if headers else None
        return cls(canonical(message_id), message_type, body, business_id, sequence, moment, copied)

    def to_json(self, handler: str | None = None) -> str:
        """Return the delivery as a line of JSON, with `handler` if given. A msgpack body becomes hexadecimal digits."""
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
    """Deliveries by column: one list for each field of `Envelope`."""

    row = Envelope

    message_ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    bodies: list[str | bytes] = field(default_factory=list)
    business_ids: list[str | None] = field(default_factory=list)
    sequences: list[int | None] = field(default_factory=list)
    enqueued_at: list[int | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)


_LARGE_INTEGER, _OTHER_KEYS, _TIMESTAMP = 1, 2, 3  # extension types of msgpack
_SURROGATES = "surrogatepass"


def pack_envelope(envelope: Envelope) -> bytes:
    """Encode a delivery as msgpack, even if its fields are invalid. A value unknown to msgpack becomes its `repr`."""
    fields: list[Any] = [*envelope[:-1], None if envelope.headers is None else dict(envelope.headers)]
    while fields and fields[-1] is None:
        fields.pop()
    packed: bytes = msgpack.packb(fields, default=_unusual, unicode_errors=_SURROGATES)
    return packed


def unpack_envelope(packed: bytes) -> Envelope:
    """Decode a delivery that `pack_envelope` encoded. Raises one of `properties.UNREADABLE` for corrupt bytes."""
    fields = unpack(packed, ext_hook=_usual, unicode_errors=_SURROGATES, strict_map_key=False)
    return Envelope(*fields, *[None] * (len(Envelope._fields) - len(fields)))


def _unusual(value: Any) -> Any:  # noqa: ANN401 - a value without a msgpack type
    if isinstance(value, int):
        return msgpack.ExtType(_LARGE_INTEGER, str(value).encode())
    return repr(value)


def _usual(code: int, data: bytes) -> int:
    if code != _LARGE_INTEGER:
        raise ValueError(f"Unknown msgpack extension type {code} in a delivery.")
    return int(data)


SIZE = 16  # bytes of a fingerprint or digest


def _timestamp(value: Any) -> Ext:  # noqa: ANN401 - a value without a type in msgspec
    if isinstance(value, msgpack.Timestamp):
        return Ext(_TIMESTAMP, value.to_bytes())
    raise TypeError(f"{type(value).__name__} cannot be packed")


_encode = Encoder(order="deterministic", enc_hook=_timestamp).encode


def fingerprint(message_type: str, body: str | bytes, *, packed: bool = False) -> bytes:
    """Return the 16-byte digest of a type and a body, parsed as msgpack if `packed`, else JSON.

    Raises `ValueError` for invalid JSON, and the errors of `unpack` for invalid msgpack.
    """
    # The body is parsed, so that spaces, escapes and key order make no difference. 1 and 1.0 stay different. Only the
    # fields that were sent count: defaults of the class are not filled in.
    parsed = unpack(body) if packed else from_json(body)  # type: ignore[arg-type] # `packed` implies bytes
    return digest((message_type, parsed))


def digest(value: object) -> bytes:
    """Return the 16-byte BLAKE2 hash of a value, encoded as msgpack with sorted keys."""
    try:
        encoded = _encode(value)
    except (OverflowError, TypeError):
        encoded = _encode(_packable(value))
    return blake2b(encoded, digest_size=SIZE).digest()


def _packable(value: Any) -> Any:  # noqa: ANN401 - parsed JSON or msgpack
    """Replace large integers and keys that are not text, which msgspec cannot pack, with extension types."""
    match value:
        case int() if not -(2**63) <= value < 2**64:
            return Ext(_LARGE_INTEGER, str(value).encode())
        case dict() if all(type(key) is str for key in value):
            return {key: _packable(item) for key, item in value.items()}
        case dict():
            items = sorted(_encode((key, _packable(item))) for key, item in value.items())
            return Ext(_OTHER_KEYS, b"".join(items))
        case list() | tuple():
            return [_packable(item) for item in value]
        case _:
            return value


def digest_state(encoded: bytes) -> bytes:
    return blake2b(encoded, digest_size=SIZE).digest()


def digest_outputs(published: Sequence[Published]) -> bytes:
    """Return the digest of the outputs' ids, types, bodies and headers, in order."""
    return digest(published) if published else NO_OUTPUTS


NO_OUTPUTS = digest(())
