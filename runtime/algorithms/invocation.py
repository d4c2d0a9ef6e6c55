"""Invoking a handler: pure code in, encoded state and outputs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from handlers import (
    CodecError,
    Context,
    HandlersError,
    InputStateChangedError,
    Message,
    NondeterminismError,
    OutputsTooLargeError,
    State,
)
from handlers.app import HandlerDefinition
from handlers.codec import all_problems
from handlers.route import Method
from runtime.blame import is_from_outside, users_frame
from runtime.messages.outcome import Reason


class HandlerFailedError(Exception):
    """Raised when a handler raised, or did not do what a handler may do. Holds one line that says what."""

    reason = Reason.HANDLER_ERROR


class TooMuchPublishedError(HandlerFailedError):
    """Raised when a handler published more than one message may."""

    reason = Reason.TOO_LARGE


class HandlerTimedOutError(HandlerFailedError):
    """Raised when a handler took longer than it may."""

    reason = Reason.HANDLER_TIMEOUT


class HandlerCrashedError(HandlerFailedError):
    """Raised when a handler ends the process that it runs in."""

    reason = Reason.HANDLER_CRASHED


class CallTimedOutError(BaseException):
    """Raised in a handler by whoever supervises it, when it takes too long; no `except Exception` of it stops this."""


class CallCrashedError(Exception):
    """Raised in place of a call that is known to end its process."""


def invoke_handler(
    handler: HandlerDefinition,
    method: Method,
    state: State,
    before: bytes,
    *,
    message: Message,
    context: Context,
) -> tuple[State, bytes]:
    """Call the method for a message on a state whose encoded bytes are `before`.

    Return the next state as a replay will read it, and its bytes. What was captured and published is in the context.
    Raises `HandlerFailedError` for whatever the handler raises, for a result that is no valid state, and when
    the state that was passed in is another one after the call.
    """

    def call() -> tuple[State, bytes]:
        values = list(state.__dict__.values())
        return settle(handler, method, state, values, before, method(state, message, context), context)

    try:
        return handler.supervision.call(call, lambda: context)
    except BaseException as error:
        if is_from_outside(error):
            raise
        raise failure_of(context.exceeded or error) from error


def settle(  # noqa: PLR0917 - called for each message: by position, which is faster
    handler: HandlerDefinition,
    method: Method,
    state: State,
    values: list[Any],
    before: bytes,
    returned: Any,  # noqa: ANN401 - what the user's code returned
    context: Context,
) -> tuple[State, bytes]:
    """Return the next state, as a replay will read it, and its bytes, once a method has returned something.

    `values` are those that the fields of its input `state` had. Raises whatever is wrong with what it did.
    """
    codec, plain = handler.codec, handler.codec.plain
    if context.exceeded is not None:
        raise context.exceeded
    if type(returned) is not handler.state_type:
        raise CodecError(_no_result(method, handler, returned))
    if plain is not None:
        if not plain.is_unchanged(state, values):
            raise _changed(handler)
        if returned is state:
            return state, before
        after = codec.encode(returned)
        if plain.survives(returned, after):
            return returned, after
    else:
        after = codec.encode(returned)
        if (after if returned is state else codec.encode(state)) != before:
            raise _changed(handler)
    return (codec.reread(before), before) if after == before else codec.canonical(after)


def failure_of(error: BaseException) -> HandlerFailedError:
    """Return what is to be told of an error that a call raised."""
    match error:
        case OutputsTooLargeError():
            return TooMuchPublishedError(f"{error}{_place(error)}")
        case NondeterminismError():
            return HandlerFailedError(str(error))  # which names its place itself
        case HandlersError():
            return HandlerFailedError(f"{error}{_place(error)}")
        case CallTimedOutError():
            return HandlerTimedOutError(f"{error}{_place(error)}")
        case CallCrashedError():
            return HandlerCrashedError(str(error))
        case _:
            return HandlerFailedError(_describe(error))


def _describe(error: BaseException) -> str:
    try:
        text = _text(error)
    except Exception:  # noqa: BLE001 - the error is a handler's, and may be anything
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}{_place(error)}"


def _text(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    is_frozen = any(problem["type"] == "frozen_instance" for problem in error.errors())
    advice = "; return a changed copy: model_copy(update={...})" if is_frozen else ""
    return f"{error.title}: {all_problems(error)}{advice}"


def _place(error: BaseException) -> str:
    frame = users_frame(error)
    return "" if frame is None else f" ({Path(frame.filename).name}, line {frame.lineno})"


def _no_result(method: Method, handler: HandlerDefinition, returned: object) -> str:
    name = getattr(method, "__qualname__", "The handler")
    if returned is None:
        return f"{name} returned None: return the next state, or the input state unchanged."
    return f"{name} returned a {type(returned).__name__}: return the next state, a {handler.state_type.__name__}."


def _changed(handler: HandlerDefinition) -> InputStateChangedError:
    """Return the error of a handler that left another input state than it got."""
    return InputStateChangedError(
        f"{handler.name} mutated its input state: return a changed copy, state.model_copy(update=...)."
    )
