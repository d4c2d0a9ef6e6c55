"""Specifications: given a state and messages, when a message is handled, then these outputs and this next state."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from handlers.app import App
from handlers.errors import SpecError
from handlers.guard import guarded
from handlers.handler import Handler
from handlers.message import Message
from handlers.state import State
from handlers.testing.handled import EPOCH, Handled
from handlers.testing.invocation import FAILURES, Handling, handle
from handlers.testing.past import Past
from handlers.testing.stubs import StubbedContext, Stubs, as_guids

S = TypeVar("S", bound=State)

_NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class HandlerSpec(Generic[S]):
    """A specification of one handler, for one business object, without a store.

    Each method returns a new specification, so that tests may share a beginning. Messages get the ids "1", "2" and so
    on, in their order; `context.now` is the beginning of 2026 until `at` sets it. Raises `AppError` as `App` does, and
    `SpecError` for messages, states and stubs that the handler cannot get.
    """

    def __init__(self, handler_type: type[Handler[S]]) -> None:
        app = guarded(App(handler_type))
        (definition,) = app.handlers.values()
        self._past = Past(definition, definition.initial)
        self._now = _NEW_YEAR
        self._stubs = Stubs()

    def at(self, now: datetime) -> HandlerSpec[S]:
        """Set `context.now` of the messages that follow. The time needs a time zone, and must not go back."""
        if now.tzinfo is None:
            raise SpecError(f"at({now!r}) has no time zone: pass one, such as tzinfo=UTC.")
        if self._past.messages and now < self._now:
            raise SpecError("at(...) goes back in time: context.now of a business object never decreases.")
        return self._with(_now=now)

    def drawing(self, *values: Any) -> HandlerSpec[S]:  # noqa: ANN401 - what the handler draws
        """Stub `context.random` for the message of `when`: one value for each call, in order.

        `when` raises `SpecError` for a value that the call cannot return, and for too many or too few values.
        """
        return self._stub(draws=values)

    def with_guids(self, *guids: UUID) -> HandlerSpec[S]:
        """Stub `context.new_guid()` for the message of `when`: one guid for each call, in order."""
        return self._stub(guids=as_guids(guids))

    def capturing(self, **values: Any) -> HandlerSpec[S]:  # noqa: ANN401 - plain data of any kind
        """Stub `context.capture(name, function)` by name for the message of `when`; the function is not called."""
        return self._stub(captured=values)

    def given(self, *messages: Message, state: S | None = None) -> HandlerSpec[S]:
        """Start in a state, by default the one so far, and handle messages on it.

        Raises `SpecError` when the handler raises for one of them.
        """
        past = self._past if state is None else self._past.in_state(state)
        for message in messages:
            past = self._followed(past, message)
        return self._with(_past=past)

    def when(self, message: Message, *, headers: Mapping[str, str] | None = None) -> Handled[S]:
        """Handle a message, and return the result for expectations. Raises `SpecError` for stubs that do not fit."""
        past = self._past
        context = self._context(past, message, self._stubs, headers)
        handling: Handling | None = None
        error: BaseException | None = None
        try:
            handling = handle(past.definition, past.state, message, context)
        except SpecError:
            raise
        except FAILURES as raised:
            error = raised
        else:
            context.check_all_taken()

        def again(recorded: Mapping[str, bytes]) -> StubbedContext:
            return self._context(past, message, self._stubs, headers, recorded)

        return Handled(past, message, context, handling=handling, error=error, again=again)

    def _followed(self, past: Past, message: Message) -> Past:
        context = self._context(past, message, Stubs(), None)
        try:
            handling = handle(past.definition, past.state, message, context)
        except FAILURES as error:
            raise SpecError(
                f"The handler failed for the given {message!r}: {type(error).__name__}: {error}"
            ) from error
        return past.followed_by(message, handling.after)

    def _context(
        self,
        past: Past,
        message: Message,
        stubs: Stubs,
        headers: Mapping[str, str] | None,
        recorded: Mapping[str, bytes] | None = None,
    ) -> StubbedContext:
        business_id = past.business_id_of(message)
        now = (self._now - EPOCH) // timedelta(microseconds=1)
        number = str(len(past.messages) + 1)
        return StubbedContext(
            stubs, past.definition.name, business_id, number, now, headers, recorded=recorded
        )

    def _stub(self, **stubs: Any) -> HandlerSpec[S]:  # noqa: ANN401 - fields of Stubs
        return self._with(_stubs=replace(self._stubs, **stubs))

    def _with(self, **changes: Any) -> HandlerSpec[S]:  # noqa: ANN401 - its attributes
        other = copy.copy(self)
        vars(other).update(changes)
        return other
