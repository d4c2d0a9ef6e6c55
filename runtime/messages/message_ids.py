"""Message ids: one canonical text for each, and compact bytes to store them in.

A UUID in any spelling is one id: small letters with hyphens. In a run, ids that are UUIDs take 16 bytes each;
any other text stands as text, so that no text can equal the bytes of a UUID.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgpack

from handlers.unpacking import unpack
from runtime.columnar import pieces

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

IdKey = bytes | str
"""An id as it is compared and stored: 16 bytes for a UUID, else the text."""


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
        message = "these are no message ids"
        raise ValueError(message)
    return ids


def join_ids(packed: bytes, following: bytes) -> bytes:
    """Return the bytes of the ids of two runs, of which one follows the other. Raises what `unpack_ids` does."""
    if packed[:1] == following[:1] == _UUIDS_ONLY:
        return packed + following[1:]
    return pack_ids([*unpack_ids(packed), *unpack_ids(following)])
