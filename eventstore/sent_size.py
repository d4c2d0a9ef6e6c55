"""How many bytes a transaction takes as sent, counted without writing it.

A service limits the body of the request, which also has the table's address in it for each operation. So that what
one store takes all stores take, the address is counted as if it were the longest: an account of 24 characters, a table
of 63. A property's name is sent twice if JSON has no type for its value, and bytes are sent as base64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from eventstore.keys import escape
from eventstore.port import ANY_ETAG, Int64, Operation, Value, Verb

_ADDRESS_BYTES = len("https://") + 24 + len(".table.cosmosdb.azure.com") + len("/") + 63
AROUND_ALL_BYTES = 134
_AROUND_OPERATION_BYTES = 228
_PREFER_BYTES = len("Prefer: return-no-content\r\n")
_IF_MATCH_BYTES = len("If-Match: \r\n")
_ETAG_BYTES = len("W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\"")
_KEYS_IN_URL_BYTES = len("(PartitionKey='',RowKey='')")
_KEYS_IN_ROW_BYTES = len('{"PartitionKey":"","RowKey":""}')
_METHOD_BYTES = {
    Verb.INSERT: len("POST"),
    Verb.REPLACE: len("PUT"),
    Verb.INSERT_OR_REPLACE: len("PUT"),
    Verb.MERGE: len("POSTX-HTTP-Method: MERGE\r\n"),
    Verb.INSERT_OR_MERGE: len("POSTX-HTTP-Method: MERGE\r\n"),
    Verb.DELETE: len("DELETE"),
}
_TYPE_BYTES: dict[type, int] = {
    bytes: len('"@odata.type":"Edm.Binary",'),
    float: len('"@odata.type":"Edm.Double",'),
    datetime: len('"@odata.type":"Edm.DateTime",'),
    UUID: len('"@odata.type":"Edm.Guid",'),
    Int64: len('"@odata.type":"Edm.Int64",'),
}
_PROPERTY_BYTES = len(',"":')


def sent_size(
    partition_key: str, operations: Sequence[Operation], prepared: Sequence[dict[str, Value]]
) -> int:
    """Return how many bytes the body of a transaction has, given what is stored by each operation."""
    return AROUND_ALL_BYTES + sum(
        operation_size(partition_key, index, operation, properties)
        for index, (operation, properties) in enumerate(zip(operations, prepared, strict=True))
    )


def operation_size(partition_key: str, index: int, operation: Operation, properties: dict[str, Value]) -> int:
    """Return what one operation adds to the body."""
    stored_keys = escape(partition_key), escape(operation.row_key)
    size = _AROUND_OPERATION_BYTES + len(str(index)) + _ADDRESS_BYTES + _METHOD_BYTES[operation.verb]
    if operation.verb is Verb.INSERT:
        size += _PREFER_BYTES
    else:
        size += _KEYS_IN_URL_BYTES + sum(len(quote(key, safe="")) for key in stored_keys)
    if operation.etag is not None:
        size += _IF_MATCH_BYTES + (1 if operation.etag == ANY_ETAG else _ETAG_BYTES)
    if operation.verb is Verb.DELETE:
        return size
    size += _KEYS_IN_ROW_BYTES + sum(len(key.encode()) + key.count('"') for key in stored_keys)
    return size + sum(_property_size(name, value) for name, value in properties.items())


def _property_size(name: str, value: Value) -> int:
    name_bytes = len(name) if name.isascii() else len(name.encode())
    size = _PROPERTY_BYTES + name_bytes + _VALUE_SIZES[type(value)](value)
    type_bytes = _TYPE_BYTES.get(type(value))
    return size if type_bytes is None else size + name_bytes + type_bytes


def _text_size(value: str) -> int:
    size = len(json.dumps(value, ensure_ascii=False).encode())
    # These two characters are sent in six bytes each instead of three.
    return size if value.isascii() else size + 3 * (value.count("\u2028") + value.count("\u2029"))


def _float_size(value: float) -> int:
    if math.isfinite(value):
        return len(repr(value))
    return len('"NaN"') if math.isnan(value) else len('"Infinity"') + (value < 0)


_VALUE_SIZES: dict[type, Callable[[Any], int]] = {
    str: _text_size,
    bytes: lambda value: (len(value) + 2) // 3 * 4 + 2,
    bool: lambda value: 4 if value else 5,
    int: lambda value: len(str(value)),
    Int64: lambda value: len(str(value)) + 2,
    float: _float_size,
    datetime: lambda _: len('"2000-01-01T00:00:00.000000Z"'),
    UUID: lambda _: len('"00000000-0000-0000-0000-000000000000"'),
}
