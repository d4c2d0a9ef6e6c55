"""The texts of many message ids at once: that of a UUID has 36 characters, so that each has its place in one buffer."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from runtime.messages.message_ids import IdKey, id_text

_DIGITS, _LENGTH = 32, 36
_PLACES = [place for place in range(_LENGTH) if place not in {8, 13, 18, 23}]
"""Where the digits of a UUID stand in its text. Hyphens are between them."""


def id_texts(keys: Sequence[IdKey | None]) -> pa.Array:
    """Return the canonical texts of keys; of no key none."""
    if not all(type(key) is bytes for key in keys):
        return pa.array([None if key is None else id_text(key) for key in keys], pa.string())
    digits = b"".join(keys).hex().encode()  # type: ignore[arg-type] # just checked
    text = bytearray(b"-" * (_LENGTH * len(keys)))
    for digit, place in enumerate(_PLACES):
        text[place::_LENGTH] = digits[digit::_DIGITS]
    ends = pa.array(range(0, len(text) + 1, _LENGTH), pa.int32())
    return pa.StringArray.from_buffers(len(keys), ends.buffers()[1], pa.py_buffer(bytes(text)))
