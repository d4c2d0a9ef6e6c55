"""Captured values as people and JSON have them.

What JSON has no form for is an object that names its type: `{"base64": "AP8="}`, `{"float": "nan"}`, and `{"items":
[[1, "one"]]}` for a dict whose keys are not all text.
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


ABSENT = "(absent)"
"""What a field is shown as that one of two states does not have."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that is not the same before and after; `field` is its dotted path."""

    field: str
    before: Any
    after: Any


def decode(encoded: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value of an encoded state; hexadecimal digits for bytes that are no JSON."""
    try:
        return json.loads(encoded)
    except ValueError:
        return encoded.hex()


def changes(before: Any, after: Any, path: str = "") -> list[Change]:  # noqa: ANN401 - any JSON values
    """Return the fields that differ, in the state's order; objects are compared by field, lists as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            change
            for name in {**before, **after}
            for change in changes(
                before.get(name, ABSENT), after.get(name, ABSENT), f"{path}.{name}" if path else str(name)
            )
        ]
    # As text: 1, 1.0 and true are equal in Python, and three things in a state.
    return [] if json.dumps(before) == json.dumps(after) else [Change(path, before, after)]


_SHOWN = 5


def read_state(codec: StateCodec, encoded: bytes, of: str) -> State:
    """Return the stored state of an object in today's schema version.

    Raises `CodecError` when it is not valid, or does not survive a round trip.
    """
    name = codec.model_type.__name__
    try:
        state = codec.reread(encoded)
    except CodecError as error:
        raise CodecError(
            f"The state of {of} cannot be read. {error}. Another shape needs another schema version, class "
            f"{name}(State, version={codec.version + 1}, upcasters=...)."
        ) from error
    again = codec.write(state)
    if again != encoded:
        fields = [each.field for each in changes(decode(encoded), decode(again))]
        shown = ", ".join([*fields[:_SHOWN], *(["..."] if len(fields) > _SHOWN else [])])
        raise CodecError(
            f"What is stored of {of} comes back as something else ({shown}): another shape needs another "
            f"schema version, class {name}(State, version={codec.version + 1}, upcasters=...)."
        )
    return state
