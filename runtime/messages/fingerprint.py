"""Fingerprints: tell copies of a message from another message that uses the same id.

The fingerprint is taken of the parsed body, so that a copy written with other spaces, another order of keys
or 1.0 for 1 is still the same message. Defaults are not filled in: what was sent counts, not the class.
"""

from __future__ import annotations

import threading
from hashlib import sha256
from types import NoneType
from typing import Any

import msgpack
from pydantic_core import from_json

from handlers.unpacking import MAX_DEPTH, unpack

SIZE = 16

_INT64 = 2**63
_LARGE_INTEGER = 1
_NORMAL = frozenset({str, bool, NoneType})


class _Msgpack(threading.local):
    """A packer for each thread: making one takes longer than its use."""

    def __init__(self) -> None:
        self.pack = msgpack.Packer().pack


_msgpack = _Msgpack()


def fingerprint(message_type: str, body: str | bytes, *, packed: bool = False) -> bytes:
    """Return 16 bytes for a message, from the name of its type and its body.

    `packed` says that the body is msgpack and not JSON. Raises `ValueError` when the body does not parse.
    """
    if packed:
        return digest((message_type, _normalised(unpack(body), 0)))  # type: ignore[arg-type] # bytes, as the caller says
    parsed = from_json(body)
    if type(parsed) is not dict:
        return digest((message_type, _normalised(parsed, 0)))
    for value in parsed.values():
        kind = type(value)
        if kind not in _NORMAL and not (kind is int and -_INT64 <= value < _INT64):
            return digest((message_type, _normalised(parsed, 0)))
    # The values are normal as they are, as those of nearly all bodies.
    names = sorted(parsed)
    normal = parsed if names == list(parsed) else {name: parsed[name] for name in names}
    return digest((message_type, normal))


def digest(value: object) -> bytes:
    """Return the first bytes of the SHA-256 of a value packed with msgpack."""
    return sha256(_msgpack.pack(value)).digest()[:SIZE]


def _normalised(value: Any, depth: int) -> Any:  # noqa: ANN401 - parsed JSON
    if depth > MAX_DEPTH:
        message = f"the body is nested deeper than {MAX_DEPTH} levels"
        raise ValueError(message)
    kind = type(value)
    if kind is dict:
        return {str(key): _normalised(value[key], depth + 1) for key in sorted(value, key=str)}
    if kind is list:
        return [_normalised(item, depth + 1) for item in value]
    if kind is float and value.is_integer():
        value, kind = int(value), int
    if kind is int and not -_INT64 <= value < _INT64:
        return msgpack.ExtType(_LARGE_INTEGER, str(value).encode())
    return value
