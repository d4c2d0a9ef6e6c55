"""Rows as the JSON of the table service, with the types that JSON lacks named beside them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from eventstore.keys import unescape
from eventstore.port import Int64, Row, Value

_TYPE = "@odata.type"
_NOT_PROPERTIES = frozenset({"PartitionKey", "RowKey", "Timestamp"})
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def encode(partition_key: str, row_key: str, properties: Mapping[str, Value]) -> str:
    """Return the JSON of a row with these stored keys."""
    entity: dict[str, Any] = {"PartitionKey": partition_key, "RowKey": row_key}
    for name, value in properties.items():
        encoded = _ENCODERS.get(type(value))
        if encoded is None:
            entity[name] = value
            continue
        type_name, encoder = encoded
        entity[name + _TYPE] = type_name
        entity[name] = encoder(value)
    text = _dumps(entity)
    if text.isascii():
        return text
    # Valid in JSON, but the emulator takes them for the end of a line.
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def decode(entity: Mapping[str, Any]) -> Row:
    """Return the row that a JSON object of the service stands for."""
    properties: dict[str, Value] = {}
    types: list[tuple[str, str]] = []
    for name, value in entity.items():
        # No property has a full stop in its name, what the service says of one has.
        if "." in name:
            if name.endswith(_TYPE):
                types.append((name.removesuffix(_TYPE), value))
        elif value is not None and name not in _NOT_PROPERTIES:
            properties[name] = value
    for name, type_name in types:
        decoder = _DECODERS.get(type_name)
        if decoder is not None and name in properties:
            properties[name] = decoder(properties[name])
    return Row(
        unescape(entity["PartitionKey"]),
        unescape(entity["RowKey"]),
        _entity_etag(entity),
        properties,
        _decode_datetime(entity["Timestamp"]),
    )


def _entity_etag(entity: Mapping[str, Any]) -> str:
    etag = entity.get("odata.etag")
    if etag is not None:
        return str(etag)
    return f"W/\"datetime'{quote(entity['Timestamp'], safe='')}'\""


def _encode_binary(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _encode_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _encode_datetime(value: datetime) -> str:
    return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _decode_datetime(value: str) -> datetime:
    return datetime.fromisoformat(value).astimezone(UTC)


_ENCODERS: dict[type, tuple[str, Any]] = {
    bytes: ("Edm.Binary", _encode_binary),
    float: ("Edm.Double", _encode_float),
    datetime: ("Edm.DateTime", _encode_datetime),
    UUID: ("Edm.Guid", str),
    Int64: ("Edm.Int64", str),
}
_DECODERS: dict[str, Any] = {
    "Edm.Binary": base64.b64decode,
    "Edm.Double": float,
    "Edm.DateTime": _decode_datetime,
    "Edm.Guid": UUID,
    "Edm.Int64": Int64,
}
