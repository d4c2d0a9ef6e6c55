"""Stored values as JSON: captured values, states and versions. Also the patterns of hidden characters.

Values without a JSON form become objects: `{"base64": "AP8="}`, `{"float": "nan"}`, and `{"items": [[1, "one"]]}` for a
dict with keys that are not text.
"""

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import msgpack

from handlers import CodecError, State
from handlers.codec import unpack
from handlers.message import StateCodec
from runtime.clock import moment, shown_time
from runtime.versions.head import Head
from runtime.versions.run import Version


def readable(packed: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Decode a captured value. A value without a JSON type, such as bytes, becomes an object that describes it."""
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


ABSENT = "(absent)"  # shown for a field that is missing on one side


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs between two states."""

    field: str  # the dotted path
    before: Any
    after: Any


def decode(encoded: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Decode a state. If it is not JSON, return its bytes as hexadecimal digits."""
    try:
        return json.loads(encoded)
    except ValueError:
        return encoded.hex()


def changes(before: Any, after: Any, path: str = "") -> list[Change]:  # noqa: ANN401 - any JSON values
    """Return the fields that differ between two states, in their order. Lists are compared as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        pairs = {name: (before.get(name, ABSENT), after.get(name, ABSENT)) for name in {**before, **after}}
        inner = [changes(*pair, f"{path}.{name}" if path else str(name)) for name, pair in pairs.items()]
        return list(chain.from_iterable(inner))
    # Compared as text, because 1, 1.0 and True are equal in Python but differ in JSON.
    return [] if json.dumps(before) == json.dumps(after) else [Change(path, before, after)]


_SHOWN = 5


def read_state(codec: StateCodec, encoded: bytes, of: str) -> State:
    """Decode a state in the current schema version. `of` names the object in errors.

    Raises `CodecError` if the state is invalid, or changes when it is decoded and encoded again.
    """
    name = codec.model_type.__name__
    hint = (
        f"If the fields changed, declare a new schema version: class {name}(State, version={codec.version + 1}, "
        f"upcasters=...)."
    )
    try:
        state = codec.reread(encoded)
    except CodecError as error:
        raise CodecError(f"The state of {of} cannot be read. {error}. {hint}") from error
    again = codec.write(state)
    if again != encoded:
        fields = [each.field for each in changes(decode(encoded), decode(again))]
        shown = ", ".join([*fields[:_SHOWN], *(["..."] if len(fields) > _SHOWN else [])])
        raise CodecError(f"The state of {of} changes when it is decoded and encoded ({shown}). {hint}")
    return state


def recognised(head: Head) -> str:
    """Describe, in sentences, which messages the stream can still recognise as duplicates."""
    if head.horizon is None and not head.undated_cut:
        return "No version was truncated: all duplicates are recognised."
    undated = (
        "An unknown message without enqueued_at is too_late."
        if head.undated_cut
        else "All duplicates without enqueued_at are recognised."
    )
    if head.horizon is None:
        return f"All duplicates with enqueued_at are recognised. {undated}"
    return (
        f"All duplicates enqueued after {shown_time(head.horizon)} are recognised. An unknown message of that time or "
        f"before is too_late. {undated}"
    )


def describe_version(stored: Version, *, whole: bool, diff: bool) -> dict[str, Any]:
    """Return the JSON form of a version. `whole` adds all recorded fields, `diff` the changed fields of the state."""
    version = stored.record
    before, after = decode(stored.before), decode(stored.after)
    described: dict[str, Any] = {
        "version": stored.number,
        "message_id": stored.message_id,
        "type": version.type,
        "now": moment(version.now),
        "enqueued_at": moment(version.enqueued_at),
        "batch": stored.batch,
        "changed": version.after is not None,
    }
    if whole:
        described |= {
            "written_at": moment(stored.written_at),
            "headers": dict(version.headers or {}),
            "captured": {name: readable(value) for name, value in (version.captured or {}).items()},
            "revision": version.revision,
            "schema": stored.schema,
            "fingerprint": version.fingerprint.hex(),
            "outputs_digest": version.outputs_digest.hex(),
            "state_digest": version.state_digest.hex(),
            "before": before,
        }
    described["after" if whole else "state"] = after
    if diff:
        described["changes"] = [asdict(change) for change in changes(before, after)]
    return described


# Senders control ids, types, errors and bodies. A control character in such text could clear the screen, write to the
# clipboard, reverse the text direction or fake output. An invisible character makes an id look like another id.

# Control characters except tab and line feed, bidirectional controls, line separators and surrogates.
_COMMANDS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"

# Unicode's characters without width.
_UNSEEN = (
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

HIDDEN = re.compile(f"[{_COMMANDS}{_UNSEEN}]")
HIDDEN_IN_LINE = re.compile(f"[\t\n{_COMMANDS}{_UNSEEN}]")
