"""Invoking a handler: pure code in, encoded state and outputs out, with the digests that replays must meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgpack
from pydantic import ValidationError

from handlers import (
    CodecError,
    Context,
    HandlersError,
    InputStateChangedError,
    Message,
    NondeterminismError,
    Published,
    State,
)
from handlers.app import HandlerDefinition
from handlers.codec import all_problems
from handlers.route import Route
from runtime.blame import users_frame
from runtime.messages import fingerprint
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Output

_ERROR_LENGTH = 1000


class HandlerFailedError(Exception):
    """Raised when a handler raised, or did not do what a handler may do. Holds one line that says what."""


class Invocation(NamedTuple):
    """What one call of a handler gave. `changed` compares encoded states; `state` has been through the codec."""

    state: State
    after: bytes
    changed: bool
    published: Sequence[Published]
    captured: Mapping[str, bytes] | None
    outputs_digest: bytes
    state_digest: bytes


def invoke_handler(
    handler: HandlerDefinition,
    route: Route,
    revision: int,
    *,
    state: State,
    before: bytes,
    message: Message,
    context: Context,
) -> Invocation:
    """Call the method for a message on a state whose encoded bytes are `before`.

    Raises `HandlerFailedError` for whatever the handler raises, for a result that is no valid state, and when
    the state that was passed in is another one after the call.
    """
    codec = handler.codec
    try:
        returned = _result(route.revisions[revision](state, message, context), route, revision)
        after = codec.encode(returned)
        _check_unchanged(handler, after if returned is state else codec.encode(state), before)
        following, after = (codec.reread(before), before) if after == before else codec.canonical(after)
        outputs_digest = digest_outputs(context.published)
    except HandlersError as error:
        place = "" if isinstance(error, NondeterminismError) else _place(error)  # which it names itself
        raise HandlerFailedError(f"{error}{place}") from error
    except (Exception, SystemExit) as error:
        raise HandlerFailedError(_describe(error)) from error
    return Invocation(
        following,
        after,
        after != before,
        context.published,
        context.captured or None,
        outputs_digest,
        digest_state(after),
    )


def digest_state(encoded: bytes) -> bytes:
    """Return the digest of an encoded state."""
    return sha256(encoded).digest()[: fingerprint.SIZE]


def digest_outputs(published: Sequence[Published]) -> bytes:
    """Return the digest of outputs: their ids, types, bodies and headers, in order."""
    if not published:
        return _NO_OUTPUTS
    return _digest(
        [
            (message_id, name, body, sorted(headers.items()) if headers else ())
            for message_id, name, body, headers in published
        ]
    )


def outputs_of(invocation: Invocation, version: int, now: int) -> tuple[Output, ...]:
    """Return the published messages as messages of a log: in the order of versions, at the recorded time."""
    first = version << OUTPUT_INDEX_BITS
    return tuple(
        Output(message_id, name, body.decode(), first + index, now, headers)
        for index, (message_id, name, body, headers) in enumerate(invocation.published)
    )


def _digest(parts: Sequence[tuple[object, ...]]) -> bytes:
    return sha256(msgpack.packb(parts)).digest()[: fingerprint.SIZE]


_NO_OUTPUTS = _digest([])


def _describe(error: BaseException) -> str:
    try:
        text = _text(error)
    except Exception:  # noqa: BLE001 - the error is a handler's, and may be anything
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"[:_ERROR_LENGTH] + _place(error)


def _text(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    is_frozen = any(problem["type"] == "frozen_instance" for problem in error.errors())
    advice = "; return a changed copy: model_copy(update={...})" if is_frozen else ""
    return f"{error.title}: {all_problems(error)}{advice}"


def _place(error: BaseException) -> str:
    frame = users_frame(error)
    return "" if frame is None else f" ({Path(frame.filename).name}, line {frame.lineno})"


def _result(returned: State | None, route: Route, revision: int) -> State:
    if returned is None:
        name = getattr(route.revisions[revision], "__qualname__", "The handler")
        message = f"{name} returned None: return the next state, or the input state unchanged."
        raise CodecError(message)
    return returned


def _check_unchanged(handler: HandlerDefinition, state: bytes, before: bytes) -> None:
    if state != before:
        message = (
            f"{handler.name} mutated its input state: return a changed copy, state.model_copy(update=...)."
        )
        raise InputStateChangedError(message)
