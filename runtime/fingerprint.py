"""Fingerprints: tell copies of a message from another message that uses the same id.

The fingerprint is taken of the parsed body, so that a copy written with other spaces, another order of keys
or 1.0 for 1 is still the same message. Defaults are not filled in: what was sent counts, not the class.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgpack
from pydantic_core import from_json

SIZE = 16
_INT64 = 2**63
_LARGE_INTEGER = 1


def fingerprint(message_type: str, body: str | bytes, *, packed: bool = False) -> bytes:
    """Return 16 bytes for a message, from the name of its type and its body.

    `packed` says that the body is msgpack and not JSON. Raises `ValueError` when the body does not parse.
    """
    parsed = msgpack.unpackb(body) if packed else from_json(body)
    try:
        return sha256(msgpack.packb((message_type, _normalised(parsed)))).digest()[:SIZE]
    except RecursionError as error:
        message = "the body is nested too deep"
        raise ValueError(message) from error


def _normalised(value: Any) -> Any:  # noqa: ANN401 - parsed JSON
    kind = type(value)
    if kind is dict:
        return {str(key): _normalised(value[key]) for key in sorted(value, key=str)}
    if kind is list:
        return [_normalised(item) for item in value]
    if kind is float and value.is_integer():
        value, kind = int(value), int
    if kind is int and not -_INT64 <= value < _INT64:
        return msgpack.ExtType(_LARGE_INTEGER, str(value).encode())
    return value
