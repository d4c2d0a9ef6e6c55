"""The interface of the algorithms that process each message exactly once.

An algorithm awaits nothing but tables, stores made of tables, and `publish`; each call of a table is one atomic
operation. Clocks, ids and the sleep between two attempts are passed in. So a model checker can step the shipped
coroutine through all interleavings of its calls.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from eventstore import Table
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
from handlers.handler import Method
from runtime.ledger.batch import OpenBatches
from runtime.messages.outcome import Outcome, Output, Reason
from runtime.messages.parsing import Delivery
from runtime.namesakes import is_from_outside, users_frame

Publish = Callable[[Output], Awaitable[None]]
"""Sends one output. It may be called again with the same output. Whatever it raises ends the attempt."""

AT_ONCE = timedelta()
"""No age: what was begun a moment ago counts too."""


class Algorithm(Protocol):
    """Processes the messages of one handler, one at a time."""

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return the outcome with the outputs that were published.

        A message that is refused is kept as a letter with its stream; its redeliveries are refused too, and only when
        it is redriven it is handled again: then `redrive_beside` are the batches that are open. What one of them
        refused stays refused, as all attempts at it have to find it so.

        On return the effect of the message is stored durably, and the message can be acknowledged. The call may be
        cancelled, or its process killed, at any await: the next delivery of the message completes the work.

        Raises `RetriesExhaustedError` after too many attempts in a row that lost a race or got no answer.
        """

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish and finish messages whose worker died and that will not be redelivered. Return how many.

        Messages handled less than `older_than` ago are left out, as their attempt may still run. To sweep them too is
        safe: their outputs may then be published once more.
        """

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed longer ago than `older_than`. Return how many.

        A later copy of such a message is processed again. With `dry_run` nothing is deleted. Algorithms that keep no
        ids by age return 0.
        """


NewId = Callable[[], str]
"""Returns an id of letters and digits that no call has returned before, in any process."""


def fresh_id() -> str:
    """Return 32 random hexadecimal digits."""
    return uuid.uuid4().hex


class HandlerFailedError(Exception):
    """Raised when a handler raised, or did not do what a handler may do. Holds one line that says what."""

    def __init__(self, problem: str, reason: Reason = Reason.HANDLER_ERROR) -> None:
        super().__init__(problem)
        self.reason = reason


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
    Raises `HandlerFailedError` for whatever the handler raises, for a result that is no valid state, and when the state
    that was passed in is another one after the call.
    """

    def call() -> tuple[State, bytes]:
        values = list(state.__dict__.values())
        return settle(handler, method, state, values, before, method(state, message, context), context)

    try:
        return handler.interceptor.call(call, lambda: context)
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
        name, kind = getattr(method, "__qualname__", "The handler"), type(returned).__name__
        if returned is None:
            raise CodecError(f"{name} returned None: return the next state, or the input state unchanged.")
        raise CodecError(f"{name} returned a {kind}: return the next state, a {handler.state_type.__name__}.")
    if plain is not None:
        if not plain.is_unchanged(state, values):
            raise _changed(handler)
        if returned is state:
            return state, before
        after = codec.write(returned)
        if plain.survives(returned, after):
            return returned, after
    else:
        after = codec.write(returned)
        if (after if returned is state else codec.write(state)) != before:
            raise _changed(handler)
    return (codec.reread(before), before) if returned is state else codec.canonical(returned, after)


def failure_of(error: BaseException) -> HandlerFailedError:
    """Return what is to be told of an error that a call raised."""
    frame = users_frame(error)
    place = "" if frame is None else f" ({Path(frame.filename).name}, line {frame.lineno})"
    match error:
        case OutputsTooLargeError():
            return HandlerFailedError(f"{error}{place}", Reason.TOO_LARGE)
        case NondeterminismError():
            return HandlerFailedError(str(error))  # which names its place itself
        case HandlersError():
            return HandlerFailedError(f"{error}{place}")
        case CallTimedOutError():
            return HandlerFailedError(f"{error}{place}", Reason.HANDLER_TIMEOUT)
        case CallCrashedError():
            return HandlerFailedError(str(error), Reason.HANDLER_CRASHED)
    try:
        text = str(error)
        if isinstance(error, ValidationError):
            is_frozen = any(problem["type"] == "frozen_instance" for problem in error.errors())
            advice = "; return a changed copy: model_copy(update={...})" if is_frozen else ""
            text = f"{error.title}: {all_problems(error)}{advice}"
    except Exception:  # noqa: BLE001 - the error is a handler's, and may be anything
        text = "(its text cannot be shown)"
    return HandlerFailedError(f"{type(error).__name__}: {text}{place}")


def _changed(handler: HandlerDefinition) -> InputStateChangedError:
    """Return the error of a handler that left another input state than it got."""
    return InputStateChangedError(
        f"{handler.name} mutated its input state: return a changed copy, state.model_copy(update=...)."
    )


async def publish_all(table: Table, publish: Publish, outputs: Iterable[Output]) -> None:
    """Make what was committed to a table durable, then publish outputs, one after another."""
    await table.barrier()
    for output in outputs:
        await publish(output)
