"""Specifications: given what was, when a message comes, then what is published and what the next state is."""

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
from handlers.testing.chosen import Choices, ChosenContext, as_guids
from handlers.testing.handled import EPOCH, Handled
from handlers.testing.invocation import FAILURES, Handling, handle
from handlers.testing.past import Past

S = TypeVar("S", bound=State)

_NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class HandlerSpec(Generic[S]):
    """What one handler does, for one business object, without a store.

    Each method returns another specification, so that tests may share the beginning of one. Messages get the ids
    "1", "2" and so on, in their order, and the time is the beginning of 2026 until `at` sets it. Raises `AppError`
    as `App` does, and `SpecError` for what its handler cannot be given.
    """

    def __init__(self, handler_type: type[Handler[S]]) -> None:
        app = guarded(App(handler_type))
        (definition,) = app.handlers.values()
        self._past = Past(definition, definition.initial)
        self._now = _NEW_YEAR
        self._choices = Choices()

    def at(self, now: datetime) -> HandlerSpec[S]:
        """Let the messages that follow be handled at this time, which has a time zone."""
        if now.tzinfo is None:
            problem = f"at({now!r}) has no time zone: add one, such as tzinfo=UTC."
            raise SpecError(problem)
        if self._past.messages and now < self._now:
            problem = "at(...) goes back: the time of a business object never does."
            raise SpecError(problem)
        return self._with(_now=now)

    def drawing(self, *values: Any) -> HandlerSpec[S]:  # noqa: ANN401 - what the handler draws
        """Choose what `context.random` gives the message of `when`, draw by draw: one value for each call.

        A value that the call could not give, or one too many or too few, is a `SpecError`.
        """
        return self._choosing(draws=values)

    def with_guids(self, *guids: UUID) -> HandlerSpec[S]:
        """Choose what `context.new_guid()` gives the message of `when`, one for each call."""
        return self._choosing(guids=as_guids(guids))

    def capturing(self, **values: Any) -> HandlerSpec[S]:  # noqa: ANN401 - plain data of any kind
        """Choose what `context.capture(name, function)` gives the message of `when`; no function is called."""
        return self._choosing(captured=values)

    def given(self, *messages: Message, state: S | None = None) -> HandlerSpec[S]:
        """Let the business object be in a state, the first one if none is given, and handle messages in it.

        Raises `SpecError` when a message is not handled: what is given has happened.
        """
        past = self._past if state is None else self._past.in_state(state)
        for message in messages:
            past = self._followed(past, message)
        return self._with(_past=past)

    def when(self, message: Message, *, headers: Mapping[str, str] | None = None) -> Handled[S]:
        """Handle a message, and return what came of it."""
        past = self._past
        context = self._context(past, message, self._choices, headers)
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

        def again(recorded: Mapping[str, bytes]) -> ChosenContext:
            return self._context(past, message, self._choices, headers, recorded)

        return Handled(past, message, context, handling=handling, error=error, again=again)

    def _followed(self, past: Past, message: Message) -> Past:
        context = self._context(past, message, Choices(), None)
        try:
            handling = handle(past.definition, past.state, message, context)
        except FAILURES as error:
            problem = f"The given {message!r} was not handled: {type(error).__name__}: {error}"
            raise SpecError(problem) from error
        return past.followed_by(message, handling.after)

    def _context(
        self,
        past: Past,
        message: Message,
        choices: Choices,
        headers: Mapping[str, str] | None,
        recorded: Mapping[str, bytes] | None = None,
    ) -> ChosenContext:
        business_id = past.business_id_of(message)
        now = (self._now - EPOCH) // timedelta(microseconds=1)
        number = str(len(past.messages) + 1)
        return ChosenContext(
            choices, past.definition.name, business_id, number, now, headers, recorded=recorded
        )

    def _choosing(self, **chosen: Any) -> HandlerSpec[S]:  # noqa: ANN401 - fields of Choices
        choices = replace(self._choices, **chosen)
        return self._with(_choices=choices)

    def _with(self, **changes: Any) -> HandlerSpec[S]:  # noqa: ANN401 - its attributes
        other = copy.copy(self)
        vars(other).update(changes)
        return other
