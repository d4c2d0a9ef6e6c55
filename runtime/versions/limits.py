"""The limits of rows and transactions of a state stream.

Refer to them as `limits.NAME`, so that tests can lower them.
"""

from runtime.messages.sizes import KIB, MIB

# Two states and their context fit the row of a run.
MAX_STATE_BYTES = 320 * KIB  # of an encoded state
MAX_HEAD_STATE_BYTES = 32 * KIB  # of one in the header. A larger state is read from the newest run.

# What one commit adds to the tail. A larger commit becomes a run at once.
MAX_SEGMENT_VERSIONS = 400
MAX_SEGMENT_BYTES = 32 * KIB

# A full tail becomes a run.
MAX_TAIL_BYTES = 12 * KIB  # of all segments
MAX_TAIL_RAW_BYTES = 4 * MIB  # of the versions of a tail, before compression

# A larger run is split.
MAX_RUN_VERSIONS = 8192
MAX_RUN_RAW_BYTES = 8 * MIB  # of its versions, before compression. Reading a run takes as much memory.
MAX_RUN_DATA_BYTES = 700 * KIB  # of its compressed columns
ID_CHUNKS = 4
MAX_RUN_ID_BYTES = ID_CHUNKS * 64 * KIB - 16  # of its message ids

MAX_INDEX_HASHES = 64 * KIB  # in an index row
HASH_BYTES = 4

# The encoded size of the index row into which new runs are merged: hashes and ends of runs.
_INDEX_BYTES = 2 * MAX_INDEX_HASHES * HASH_BYTES * 4 // 3

MAX_TRANSACTION_BYTES = 4 * MIB - 256 * KIB - _INDEX_BYTES  # of runs; the rest: header, tail and index
MAX_TRANSACTION_RUNS = 48
MAX_TRANSACTION_RAW_BYTES = 64 * MIB  # of unsaved versions in memory, before compression
ROW_OVERHEAD = 12 * KIB  # the estimated size of a row without values: its key, twice, and property names

# New documents after which a transaction is committed: their number and total size.
MAX_TRANSACTION_DOCUMENTS = 256
MAX_TRANSACTION_DOCUMENT_BYTES = 8 * MIB

MAX_LETTERS = 1000  # waiting dead letters of a stream. Further ones are only in the outcomes.
MAX_STREAM_LETTER_BYTES = MIB  # of the waiting dead letters of a stream, before compression
MAX_LETTER_BYTES = 640 * KIB  # of a dead letter, and of a row of dead letters, before compression
MAX_LETTER_ROW_BYTES = 11 * 64 * KIB  # of a row of dead letters, as it is stored
MAX_ROW_LETTERS = 128  # dead letters in a row
MAX_TRANSACTION_LETTER_ROWS = 20  # rows in which one transaction discards or drops dead letters
MAX_TRANSACTION_LETTERS = 2000  # dead letters that one transaction adds or changes
MAX_TASK_LETTERS = 1000  # dead letters without a stream that one task stores
