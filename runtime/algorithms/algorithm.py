"""The interface of the algorithms that process each message exactly once.

An algorithm awaits only tables and `publish`, and each call to a table is one atomic operation. Clock, ids and sleep
are passed in, so that the model checker can run the shipped coroutines through all interleavings.
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
from runtime.namesakes import users_frame

Publish = Callable[[Output], Awaitable[None]]
"""Sends one output, perhaps repeatedly. Any exception ends the attempt."""

AT_ONCE = timedelta()
"""A minimum age of zero."""


class Algorithm(Protocol):
    """Processes the messages of one handler, one at a time."""

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return its outcome.

        On return, the effect is durable and the message can be acknowledged. After cancellation or a crash at any
        await, the next delivery completes the work. A rejected message stays rejected until it is redriven.

        `redrive_beside`: the open batches, if this is a redrive. Dead letters of an open batch stay rejected, because
        all attempts at the batch must agree.

        Raises `RetriesExhaustedError` after too many conflicts or timeouts in a row.
        """

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish messages that crashed workers left unfinished: publish their outputs. Return the number of messages.

        Skips messages handled less than `older_than` ago, because their attempt may still run. Sweeping them is safe,
        but may publish their outputs twice.
        """

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed more than `older_than` ago. Return the number of ids.

        A later copy of such a message is processed again. Algorithms that do not evict ids return 0.
        """


NewId = Callable[[], str]
"""Returns an alphanumeric id that is unique across processes."""


def fresh_id() -> str:
    """Return 32 random hexadecimal digits."""
    return uuid.uuid4().hex


class HandlerFailedError(Exception):
    """Raised when a handler raised an exception or broke a rule. The text of the error is one line."""

    def __init__(self, problem: str, reason: Reason = Reason.HANDLER_ERROR) -> None:
        super().__init__(problem)
        self.reason = reason


class CallTimedOutError(BaseException):
    """Raised by supervision in a handler that exceeds its time limit."""

    # A BaseException, so that `except Exception` in the handler does not catch it.


class CallCrashedError(Exception):
    """Raised instead of making a call that is known to crash its process."""


def settle(  # noqa: PLR0917 - called for each message: by position, which is faster
    handler: HandlerDefinition,
    method: Method,
    state: State,
    values: list[Any],
    before: bytes,
    returned: Any,  # noqa: ANN401 - what the user's code returned
    context: Context,
) -> tuple[State, bytes]:
    """Check the result of a method call. Return the next state, as a replay reads it, and its bytes.

    `values`: the field values of the input `state` before the call. Raises `HandlersError`.
    """
    codec, plain = handler.codec, handler.codec.plain
    if context.exceeded is not None:  # the handler may have caught the error
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
    """Convert an exception of a handler to an error with the text and reason of a dead letter."""
    frame = users_frame(error)
    place = "" if frame is None else f" ({Path(frame.filename).name}, line {frame.lineno})"
    match error:
        case OutputsTooLargeError():
            return HandlerFailedError(f"{error}{place}", Reason.TOO_LARGE)
        case NondeterminismError():
            return HandlerFailedError(str(error))  # its text already says where
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
    return InputStateChangedError(
        f"{handler.name} mutated its input state: return a changed copy, state.model_copy(update=...)."
    )


async def publish_all(table: Table, publish: Publish, outputs: Iterable[Output]) -> None:
    """Make the commits to a table durable, then publish outputs in order."""
    await table.barrier()
    for output in outputs:
        await publish(output)
