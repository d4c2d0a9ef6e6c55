"""What rows and transactions of a state stream hold at most: all limits in one place.

Read them as `limits.NAME`, so that a test that makes one smaller does so for everybody.
"""

from __future__ import annotations

from runtime.messages.limits import KIB, MIB

MAX_STATE_BYTES = 320 * KIB
"""The largest encoded state: two of them and their context always fit the row of a run."""

MAX_HEAD_STATE_BYTES = 32 * KIB
"""The largest encoded state that the header keeps; a larger one is read from the newest run."""

MAX_SEGMENT_VERSIONS = 400
MAX_SEGMENT_BYTES = 32 * KIB
"""What one commit may add to the tail; more becomes a run at once."""

MAX_TAIL_BYTES = 12 * KIB
"""What all segments of a tail take at most; a tail that is full becomes a run."""

MAX_TAIL_RAW_BYTES = 4 * MIB
"""What the versions of a tail take at most before compression."""

MAX_RUN_VERSIONS = 8192
MAX_RUN_RAW_BYTES = 8 * MIB
"""What the versions of a run take at most before compression: as much is in memory when one is read."""

MAX_RUN_DATA_BYTES = 700 * KIB
"""What the compressed columns of a run take at most; a larger run is split."""

ID_CHUNKS = 4
MAX_RUN_ID_BYTES = ID_CHUNKS * 64 * KIB - 16
"""What the message ids of a run take at most."""

MAX_INDEX_HASHES = 64 * KIB
"""How many hashes of ids a row of the index holds."""

HASH_BYTES = 4

_INDEX_BYTES = 2 * MAX_INDEX_HASHES * HASH_BYTES * 4 // 3
"""What the index row that new runs are merged into takes at most, as sent: hashes, and the ends of runs."""

MAX_TRANSACTION_BYTES = 4 * MIB - 256 * KIB - _INDEX_BYTES
"""What the runs of one transaction take at most, as sent; the rest is for the header, a tail and the index."""

MAX_TRANSACTION_RUNS = 48
MAX_TRANSACTION_RAW_BYTES = 64 * MIB
"""How many bytes of new versions, before compression, are kept in memory until they are stored."""

ROW_OVERHEAD = 12 * KIB
"""What a row takes beside its bytes: the longest key, twice and escaped as it is sent, and its properties' names."""

MAX_TRANSACTION_DOCUMENTS = 256
MAX_TRANSACTION_DOCUMENT_BYTES = 8 * MIB
"""After how many new documents, or bytes of them, a transaction is committed before more messages are handled."""

MAX_LETTERS = 1000
"""How many letters of a stream wait at most; more are in the outcomes only."""

MAX_STREAM_LETTER_BYTES = MIB
"""What the letters of a stream that wait take at most before compression; more are in the outcomes only."""

MAX_LETTER_BYTES = 640 * KIB
"""What one letter takes at most before compression, and a row of them; a larger one is in the outcomes only."""

MAX_LETTER_ROW_BYTES = 11 * 64 * KIB
MAX_ROW_LETTERS = 128
"""How many letters are in a row."""

MAX_TRANSACTION_LETTERS = 2000
"""How many letters one transaction adds or changes."""

MAX_TASK_LETTERS = 1000
"""How many refused deliveries that reached no stream one task keeps; more are in the outcomes only."""
