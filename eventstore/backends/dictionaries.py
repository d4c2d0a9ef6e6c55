"""zstandard dictionaries for the rows of a SQLite table.

The headers of streams share property names, the keys of JSON states and batch ids. A dictionary stores such bytes once
for each kind of row, and the rows are compressed with it.

Deleting a row does not change a dictionary. A dictionary therefore contains only bytes that most of its samples share,
and no data of a single row.
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
_GRAM = 6  # the length of the substrings that are counted
_SHARE = 0.75  # a dictionary contains substrings of at least this share of the samples
_BASES = 3  # the samples that shared substrings are taken from
_GROWTH = 1.25  # a dictionary is stale if rows compress worse than its samples by this factor

_LEVEL = 1
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS
_MAX_BYTES = 64 * 2**10  # larger rows are not compressed; decompression allocates this much


def kind_of(partition: str, row: str) -> str:
    """Return the kind of a row: the prefix of its partition key before the first hyphen, and its row key."""
    return f"{partition.partition('-')[0]}/{row}"


def shared_bytes(samples: Sequence[bytes]) -> bytes:
    """Return the substrings that most samples share, joined."""
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
    """A zstandard dictionary and its compressor. `size` is the mean compressed size of its samples, in bytes."""

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
        """Train a dictionary on the first few of these rows."""
        samples = list(islice(rows, _MOST_SAMPLES))
        new = cls(number, kind, shared_bytes(samples), 0)
        new.size = sum(len(new.compress(sample)) for sample in samples) / len(samples)
        return new

    def compress(self, small: bytes) -> bytes:
        """Compress the small part of a row. Return the part unchanged if it is large or would not shrink."""
        if len(small) > _MAX_BYTES:
            return small
        compressed = self._mark + self._compress(small)
        return compressed if len(compressed) < len(small) else small

    def decompress(self, compressed: bytes) -> bytes:
        """Reverse `compress`. Raises `ZstdError`."""
        return self._decompress(compressed[2:], max_output_size=_MAX_BYTES)

    def is_stale(self, compressed: Sequence[bytes]) -> bool:
        """Return whether rows compress much worse than the samples did."""
        return sum(map(len, compressed)) > _GROWTH * self.size * len(compressed)


class Dictionaries:
    """The zstandard dictionaries of one table: by number, as stored in rows, and the newest for each kind of row."""

    def __init__(self, stored: Iterable[Dictionary] = ()) -> None:
        self.by_number: dict[int, Dictionary] = {}
        self.newest: dict[str, Dictionary] = {}
        for each in stored:
            self.add(each)

    def add(self, dictionary: Dictionary) -> None:
        """Add a dictionary, as the newest of its kind."""
        self.by_number[dictionary.number] = dictionary
        self.newest[dictionary.kind] = dictionary

    def lacks(self, small: bytes) -> bool:
        """Return whether the small part of a row needs a dictionary that is not loaded."""
        return small[1:2] != b"" and small[1] not in self.by_number

    def plain(self, small: bytes) -> bytes:
        """Decompress the small part of a row. If that fails, return it unchanged; it is then not valid msgpack."""
        if small[:1] == MARK:
            with suppress(LookupError, zstandard.ZstdError):
                return self.by_number[small[1]].decompress(small)
        return small
