"""Message ids that have one CRC-32: what a sender can make who wants the index to be slow."""

import uuid
from collections.abc import Sequence
from zlib import crc32

from runtime.messages.envelope import id_text

_ALL = 0xFFFFFFFF
_POLYNOMIAL = 0xEDB88320


def colliding_ids(first: int, count: int, crc: int = 7) -> Sequence[str]:
    """Return UUIDs of this CRC-32; another `first` gives others."""
    return [id_text(_forged(number.to_bytes(12, "big"), crc)) for number in range(first, first + count)]


def ordinary_ids(first: int, count: int) -> Sequence[str]:
    """Return UUIDs as a sender makes them who wants nothing."""
    return [str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(first, first + count)]


def _forged(prefix: bytes, crc: int) -> bytes:
    """Return 12 bytes with four more behind them, with which they have a CRC-32."""
    register = crc ^ _ALL
    for _ in range(4):  # backwards: the highest byte tells which entry of the table was added
        index = _INDEXES[register >> 24]
        register = (register ^ _TABLE[index]) << 8 & _ALL | index
    forged = prefix + (register ^ crc32(prefix) ^ _ALL).to_bytes(4, "little")
    assert crc32(forged) == crc
    return forged


def _entry(index: int) -> int:
    for _ in range(8):
        index = index >> 1 ^ (_POLYNOMIAL if index & 1 else 0)
    return index


_TABLE = [_entry(index) for index in range(256)]
_INDEXES = {entry >> 24: index for index, entry in enumerate(_TABLE)}
