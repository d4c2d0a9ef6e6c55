"""The limits of rows and transactions of a state stream.

Refer to them as `limits.NAME`, so that tests can lower them.
"""

from runtime.messages.sizes import KIB, MIB

MAX_STATE_BYTES = 320 * KIB
"""The maximum size of an encoded state. Two states and their context fit the row of a run."""

MAX_HEAD_STATE_BYTES = 32 * KIB
"""The maximum size of an encoded state in the header. A larger one is read from the newest run."""

MAX_SEGMENT_VERSIONS = 400
MAX_SEGMENT_BYTES = 32 * KIB
"""The maximum that one commit adds to the tail. More becomes a run at once."""

MAX_TAIL_BYTES = 12 * KIB
"""The maximum size of all segments of a tail. A full tail becomes a run."""

MAX_TAIL_RAW_BYTES = 4 * MIB  # the maximum size of the versions of a tail before compression
MAX_RUN_VERSIONS = 8192
MAX_RUN_RAW_BYTES = 8 * MIB
"""The maximum size of the versions of a run before compression. Reading a run takes as much memory."""

MAX_RUN_DATA_BYTES = 700 * KIB
"""The maximum size of the compressed columns of a run. A larger run is split."""

ID_CHUNKS = 4
MAX_RUN_ID_BYTES = ID_CHUNKS * 64 * KIB - 16  # the maximum size of the message ids of a run
MAX_INDEX_HASHES = 64 * KIB  # the maximum number of id hashes in an index row
HASH_BYTES = 4

_INDEX_BYTES = 2 * MAX_INDEX_HASHES * HASH_BYTES * 4 // 3
"""The maximum encoded size of the index row into which new runs are merged: hashes and ends of runs."""

MAX_TRANSACTION_BYTES = 4 * MIB - 256 * KIB - _INDEX_BYTES
"""The maximum encoded size of the runs of a transaction. The rest is for header, tail and index."""

MAX_TRANSACTION_RUNS = 48
MAX_TRANSACTION_RAW_BYTES = 64 * MIB  # the maximum size of unsaved versions in memory, before compression
ROW_OVERHEAD = 12 * KIB
"""The estimated encoding overhead of a row: its key, twice and escaped, and the names of its properties."""

MAX_TRANSACTION_DOCUMENTS = 256
MAX_TRANSACTION_DOCUMENT_BYTES = 8 * MIB
"""The number and total size of new documents after which a transaction is committed."""

MAX_LETTERS = 1000
"""The maximum number of waiting dead letters of a stream. Further ones are only in the outcomes."""

MAX_STREAM_LETTER_BYTES = MIB  # the maximum size of the waiting dead letters of a stream, before compression
MAX_LETTER_BYTES = 640 * KIB
"""The maximum size of a dead letter, and of a row of dead letters, before compression."""

MAX_LETTER_ROW_BYTES = 11 * 64 * KIB
MAX_ROW_LETTERS = 128  # the maximum number of dead letters in a row
MAX_TRANSACTION_LETTERS = 2000  # the maximum number of dead letters that one transaction adds or changes
MAX_TASK_LETTERS = 1000  # the maximum number of dead letters without a stream that one task keeps
