"""Dictionaries: the bytes that most rows of a kind share, stored once and left out of each row.

The headers of streams differ in ids, digests and a few numbers. The names of their properties, the keys of the JSON
states and the id of the batch are the same in thousands of them. zstandard compresses each row with these bytes as its
dictionary.

A dictionary is a copy that no deletion reaches, so it holds only what most of its samples have in common, and nothing
of a single row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

import zstandard

FEWEST_SAMPLES = 32
MOST_DICTIONARIES = 250
MARK = b"\xc1"  # no msgpack begins with this byte
_MOST_SAMPLES = 64
_GRAM = 6  # bytes in a row that are looked for in all samples
_SHARE = 0.75  # of the samples have what goes into a dictionary
_BASES = 3
_GROWTH = 1.25
"""Rows that compress so much worse than the samples did get a new dictionary."""

_LEVEL = 1
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS
_MAX_BYTES = 2**20


def kind_of(partition: str, row: str) -> str:
    """Return the kind of a row by its keys: the beginning of the partition key up to a hyphen, and the row key."""
    return f"{partition.partition('-')[0]}/{row}"


def shared_bytes(samples: Sequence[bytes]) -> bytes:
    """Return the stretches of bytes that most of the samples have in common."""
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


class Dictionary:
    """A dictionary, with what compresses and decompresses by it. `size` is the mean size of its own samples."""

    def __init__(self, number: int, kind: str, shared: bytes, size: float) -> None:
        self.number = number
        self.kind = kind
        self.shared = shared
        self.size = size
        self._mark = MARK + bytes([number])
        data = zstandard.ZstdCompressionDict(shared, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, format=_FORMAT, write_content_size=0, write_checksum=1, write_dict_id=0
        )
        self._compress = zstandard.ZstdCompressor(dict_data=data, compression_params=parameters).compress
        self._decompress = zstandard.ZstdDecompressor(dict_data=data, format=_FORMAT).decompress

    @classmethod
    def of(cls, number: int, kind: str, rows: Iterable[bytes]) -> Dictionary:
        """Return the dictionary of some rows."""
        samples = list(islice(rows, _MOST_SAMPLES))
        new = cls(number, kind, shared_bytes(samples), 0)
        new.size = sum(len(new.compress(sample)) for sample in samples) / len(samples)
        return new

    def compress(self, small: bytes) -> bytes:
        """Return the small part of a row compressed, or unchanged if that is shorter."""
        compressed = self._mark + self._compress(small)
        return compressed if len(compressed) < len(small) else small

    def decompress(self, compressed: bytes) -> bytes:
        """Reverse `compress`. Raises `ZstdError`."""
        return self._decompress(compressed[2:], max_output_size=_MAX_BYTES)

    def is_stale(self, compressed: Sequence[bytes]) -> bool:
        """Return whether rows compress much worse than the samples did."""
        return sum(map(len, compressed)) > _GROWTH * self.size * len(compressed)


class Dictionaries:
    """The dictionaries of one table: by number to read with, and the newest of each kind to write with."""

    def __init__(self, stored: Iterable[Dictionary] = ()) -> None:
        self.by_number: dict[int, Dictionary] = {}
        self.newest: dict[str, Dictionary] = {}
        for each in stored:
            self.add(each)

    def add(self, dictionary: Dictionary) -> None:
        """Add a dictionary."""
        self.by_number[dictionary.number] = dictionary
        self.newest[dictionary.kind] = dictionary

    def lacks(self, small: bytes) -> bool:
        """Return whether the small part of a row was compressed by a dictionary that is not here."""
        return small[1:2] != b"" and small[1] not in self.by_number

    def plain(self, small: bytes) -> bytes:
        """Return the small part of a row decompressed; unchanged, and so no valid msgpack, if that fails."""
        if small[:1] == MARK:
            with suppress(LookupError, zstandard.ZstdError):
                return self.by_number[small[1]].decompress(small)
        return small
