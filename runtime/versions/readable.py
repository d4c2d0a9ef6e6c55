"""Captured values and states as JSON.

Values without a JSON form become objects: `{"base64": "AP8="}`, `{"float": "nan"}`, and `{"items": [[1, "one"]]}` for a
dict with other keys than text.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from handlers import CodecError, State
from handlers.codec import unpack
from handlers.message import StateCodec


def readable(packed: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Convert a captured value to JSON."""
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


ABSENT = "(absent)"
"""Shown for a field that is missing on one side."""


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs between two states. `field`: its dotted path."""

    field: str
    before: Any
    after: Any


def decode(encoded: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Decode a state. Bytes that are not JSON become hexadecimal digits."""
    try:
        return json.loads(encoded)
    except ValueError:
        return encoded.hex()


def changes(before: Any, after: Any, path: str = "") -> list[Change]:  # noqa: ANN401 - any JSON values
    """Return the fields that differ, in the order of the state. Lists are compared as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            change
            for name in {**before, **after}
            for change in changes(
                before.get(name, ABSENT), after.get(name, ABSENT), f"{path}.{name}" if path else str(name)
            )
        ]
    # Compared as text, because 1, 1.0 and True are equal in Python but differ in JSON.
    return [] if json.dumps(before) == json.dumps(after) else [Change(path, before, after)]


_SHOWN = 5


def read_state(codec: StateCodec, encoded: bytes, of: str) -> State:
    """Decode a stored state of the current schema version. `of` names the object in errors.

    Raises `CodecError` if it is invalid, or changes in a round trip.
    """
    name = codec.model_type.__name__
    try:
        state = codec.reread(encoded)
    except CodecError as error:
        raise CodecError(
            f"The state of {of} cannot be read. {error}. If the fields changed, declare a new schema version: class "
            f"{name}(State, version={codec.version + 1}, upcasters=...)."
        ) from error
    again = codec.write(state)
    if again != encoded:
        fields = [each.field for each in changes(decode(encoded), decode(again))]
        shown = ", ".join([*fields[:_SHOWN], *(["..."] if len(fields) > _SHOWN else [])])
        raise CodecError(
            f"The state of {of} changes when it is decoded and encoded ({shown}). If the fields changed, declare a new "
            f"schema version: class {name}(State, version={codec.version + 1}, upcasters=...)."
        )
    return state
