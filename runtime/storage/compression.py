"""Compression with zstandard: a checksum detects damage, and the decompressed size is bounded."""

from __future__ import annotations

import threading

import zstandard

from runtime.storage import limits

_LEVEL = 3
_MIN_DICTIONARY = 512
_MAX_BYTES = 2 * limits.MAX_RUN_RAW_BYTES
"""A run is closed when it reaches its limit: with its last version and the state before it, it is a little larger."""


class _Zstandard(threading.local):
    """A compressor and a decompressor for each thread: making them costs more than a small run."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_zstandard = _Zstandard()


def compress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Return compressed bytes. Text that also occurs in the dictionary, of at least 512 bytes, takes almost none."""
    if len(dictionary) < _MIN_DICTIONARY:
        return _zstandard.compressor.compress(data)
    known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=known, write_checksum=True).compress(data)


def decompress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Decompress bytes that were compressed with the same dictionary. Raises `ValueError` and `ZstdError`."""
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= _MAX_BYTES:
        message = f"{size} bytes after decompression are more than a run can have"
        raise ValueError(message)
    if len(dictionary) < _MIN_DICTIONARY:
        return _zstandard.decompressor.decompress(data, max_output_size=_MAX_BYTES)
    known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdDecompressor(dict_data=known).decompress(data, max_output_size=_MAX_BYTES)
