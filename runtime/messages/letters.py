"""Deliveries as stored bytes: what cannot be handled is kept as it was delivered.

The bytes are msgpack: the fields of an envelope in their order, without those at the end that are None. Nothing that an
envelope may hold is lost, valid or not: text with half a character, an id or a type that is missing, a header without
a value, times to the microsecond.
"""

from __future__ import annotations

from typing import Any

import msgpack

from handlers.unpacking import unpack
from runtime.messages.envelope import Envelope

_LARGE_INTEGER = 1
_SURROGATES = "surrogatepass"


def pack_envelope(envelope: Envelope) -> bytes:
    """Return a delivery as bytes. What is neither text, bytes nor a number in its headers becomes its `repr`."""
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
        message = f"A delivery has no values of the extension type {code}."
        raise ValueError(message)
    return int(data)
