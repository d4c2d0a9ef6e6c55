"""Streams of events over a table: Azure Table Storage, PostgreSQL, or an SQLite file.

    async with connect("sqlite:///events.db") as store:
        partition = Partition(await store.table("games"), "game-1")
        await Stream.write(partition, EventData({"Hits": 1}), expected_version=0)
        events = (await Stream.read(partition)).events

The row layout is that of the C# library Streamstone. See `eventstore.port` for tables and `eventstore.errors` for
errors.
"""

from eventstore.connect import connect
from eventstore.errors import (
    ConcurrencyConflictError,
    DamagedRowError,
    DuplicateEventError,
    EventStoreError,
    IncludeConflictError,
    InvalidKeyError,
    PayloadTooLargeError,
    RowChangedError,
    RowError,
    RowExistsError,
    RowNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
    StreamDeletedError,
    StreamNotFoundError,
    StreamTruncatedError,
    TableNameError,
    TableNotFoundError,
)
from eventstore.header import EventData, EventId, Include, Partition, RecordedEvent
from eventstore.keys import Shard
from eventstore.port import (
    ANY_ETAG,
    PAGE_SIZE,
    Int64,
    InterceptedTable,
    Operation,
    Page,
    Properties,
    Row,
    Scope,
    Store,
    Table,
    Value,
    Verb,
    drive,
    pages,
)
from eventstore.reading import StreamSlice, StreamWriteResult
from eventstore.stream import KeyRange, Stream, list_streams, split_streams
from eventstore.writing import ExpectedVersion

__all__ = [
    "ANY_ETAG",
    "PAGE_SIZE",
    "ConcurrencyConflictError",
    "DamagedRowError",
    "DuplicateEventError",
    "EventData",
    "EventId",
    "EventStoreError",
    "ExpectedVersion",
    "Include",
    "IncludeConflictError",
    "Int64",
    "InterceptedTable",
    "InvalidKeyError",
    "KeyRange",
    "Operation",
    "Page",
    "Partition",
    "PayloadTooLargeError",
    "Properties",
    "RecordedEvent",
    "Row",
    "RowChangedError",
    "RowError",
    "RowExistsError",
    "RowNotFoundError",
    "Scope",
    "Shard",
    "Store",
    "StoreUnavailableError",
    "StoreUrlError",
    "Stream",
    "StreamDeletedError",
    "StreamNotFoundError",
    "StreamSlice",
    "StreamTruncatedError",
    "StreamWriteResult",
    "Table",
    "TableNameError",
    "TableNotFoundError",
    "Value",
    "Verb",
    "connect",
    "drive",
    "list_streams",
    "pages",
    "split_streams",
]
