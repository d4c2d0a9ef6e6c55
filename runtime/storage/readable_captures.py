"""Captured values as people and JSON have them.

What JSON has no form for is an object that names its type: `{"base64": "AP8="}`, `{"float": "nan"}`, and
`{"items": [[1, "one"]]}` for a dict whose keys are not all text.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import msgpack

from handlers.unpacking import unpack


def readable(packed: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value of what `Context.capture` recorded."""
    return _json(unpack(packed, strict_map_key=False))


def _json(value: Any) -> Any:  # noqa: ANN401 - any value of msgpack, and of JSON
    match value:
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return {"float": str(value)}
        case list():
            return [_json(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _json(item) for key, item in value.items()}
        case dict():
            return {"items": [[_json(key), _json(item)] for key, item in value.items()]}
        case msgpack.Timestamp() | msgpack.ExtType():
            return {"msgpack": repr(value)}
    return value
