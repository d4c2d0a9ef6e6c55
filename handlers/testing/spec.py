"""Specifications: given a state and messages, when a message is handled, then these outputs and this next state."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

from pydantic import BaseModel

from handlers.app import App, HandlerDefinition
from handlers.context import Context
from handlers.errors import CodecError, SpecError
from handlers.guard import guarded
from handlers.handler import Handler
from handlers.message import Message, State
from handlers.testing.invocation import (
    FAILURES,
    Handling,
    StubbedContext,
    Stubs,
    as_guids,
    handle,
    round_trip,
)

# Differences between expected and actual values, field by field.

_NOTHING: Any = object()


def differences(expected: Any, actual: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - any field value
    """Yield a line for each difference between two values of a field, models and tuples member by member."""
    if isinstance(expected, BaseModel) and type(expected) is type(actual):
        for name in type(expected).model_fields:
            yield from differences(getattr(expected, name), getattr(actual, name), f"{where}.{name}")
    elif isinstance(expected, tuple) and isinstance(actual, tuple):
        for at, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_NOTHING)):
            yield from differences(one, other, f"{where}[{at}]")
    elif isinstance(expected, frozenset) and isinstance(actual, frozenset):
        yield from (f"{where}: expected {shown(each)} in it" for each in _sorted(expected - actual))
        yield from (f"{where}: got {shown(each)} in it, not expected" for each in _sorted(actual - expected))
    elif not _are_same(expected, actual):
        yield f"{where}: expected {shown(expected)}, got {shown(actual)}"


def differences_of_messages(
    expected: Sequence[Message | type[Message]], actual: Sequence[Message]
) -> Iterator[str]:
    """Yield a line for each difference between messages; an expected type matches any message of it."""
    for at, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_NOTHING)):
        if isinstance(one, type):
            if type(other) is not one:
                yield f"published[{at}]: expected a {one.__name__}, got {shown(other)}"
        else:
            yield from differences(one, other, f"published[{at}]")


def shown(value: Any) -> str:  # noqa: ANN401 - any field value
    """Return a value as text."""
    return "nothing" if value is _NOTHING else repr(value)


def _are_same(expected: Any, actual: Any) -> bool:  # noqa: ANN401 - any field value
    return type(expected) is type(actual) and (expected == actual or repr(expected) == repr(actual) == "nan")


def _sorted(values: frozenset[Any]) -> list[Any]:
    return sorted(values, key=repr)


# The past of a business object in a specification: its state, and the messages handled so far.


@dataclass(frozen=True, slots=True)
class Past:
    """The encoded state of a business object, and the messages handled so far."""

    definition: HandlerDefinition
    state: bytes
    messages: tuple[Message, ...] = ()

    def in_state(self, state: State) -> Past:
        """Return this past with another state. Raises `SpecError` when it is no state of the handler."""
        return replace(self, state=self.encoded(state))

    def followed_by(self, message: Message, state: bytes) -> Past:
        """Return the past after a message."""
        return replace(self, state=state, messages=(*self.messages, message))

    def encoded(self, state: State) -> bytes:
        """Return the stored bytes of a state."""
        try:
            return self.definition.codec.canonical(self.definition.codec.encode(state))[1]
        except CodecError as error:
            raise SpecError(f"This is not a valid state of {self.definition.name}: {error}") from error

    def business_id_of(self, message: Message) -> str:
        """Return the business id of a message. Raises `SpecError` when it is not that of the messages so far."""
        business_id = self._named_by(message)
        if self.messages and business_id != self._named_by(self.messages[0]):
            raise SpecError(
                f"{message!r} is for {business_id!r}, and the messages before for "
                f"{self._named_by(self.messages[0])!r}: use one business object in a specification."
            )
        return business_id

    def _named_by(self, message: Message) -> str:
        route = self.definition.routes.get(getattr(message, "__message_name__", ""))
        if route is None or route.message_type is not type(message):
            raise SpecError(f"{self.definition.name} does not handle {message!r}.")
        return route.business_id(message)


# The result of handling a message in a specification, with the expectations of a test.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

S = TypeVar("S", bound=State)


class Handled(Generic[S]):
    """A message that was handled, or whose handler raised.

    Each expectation returns the same object, to chain calls. All but `then_raises` raise `AssertionError` when the
    handler raised; so do `state` and `published`.
    """

    def __init__(
        self,
        past: Past,
        message: Message,
        context: StubbedContext,
        *,
        handling: Handling | None,
        error: BaseException | None,
        again: Callable[[Mapping[str, bytes]], StubbedContext],
    ) -> None:
        self._past = past
        self._message = message
        self._context = context
        self._handling = handling
        self._error = error
        self._again = again

    @property
    def state(self) -> S:
        """The next state."""
        return self._past.definition.codec.decode(self._done().after)  # type: ignore[return-value] # it is S's codec

    @property
    def published(self) -> tuple[Message, ...]:
        """The published messages, decoded from what would be sent."""
        self._done()
        return tuple(self._context.messages)

    def then(
        self, *, publishes: Sequence[Message | type[Message]] | None = None, state: S | None = None
    ) -> Handled[S]:
        """Expect outputs, in this order, and the next state; what is None is not compared.

        A message type matches any message of the type. Raises `AssertionError` with each field that differs.
        """
        __tracebackhide__ = True
        found = list(self._differences(publishes, state))
        if found:
            self._fail("does not do as expected", found)
        return self

    def then_nothing(self) -> Handled[S]:
        """Expect that nothing is published and the state does not change."""
        __tracebackhide__ = True
        before = self._past.definition.codec.decode(self._past.state)
        return self.then(publishes=[], state=before)  # type: ignore[arg-type] # it is S's codec

    def then_raises(self, error_type: type[BaseException], match: str = "") -> Handled[S]:
        """Expect that the handler raises an error of this type, whose text contains a match of a regular expression."""
        __tracebackhide__ = True
        if self._error is None:
            self._fail("does not do as expected", [f"expected {error_type.__name__}, nothing was raised"])
        if not isinstance(self._error, error_type) or not re.search(match, str(self._error)):
            wanted = f"{error_type.__name__}{f' that matches {match!r}' if match else ''}"
            got = f"{type(self._error).__name__}: {self._error}"
            self._fail("does not do as expected", [f"expected {wanted}, got {got}"])
        return self

    def redelivered(self, *later: Message) -> Handled[S]:
        """Expect the same outputs, ids and next state when the message is redelivered after later messages.

        Without `later`, the given messages and the message itself are handled once more under new ids. Then the message
        is replayed: handled on the version before its own, with the values captured the first time.
        """
        __tracebackhide__ = True
        done = self._done()
        past = self._past.followed_by(self._message, done.after)
        for message in later or (*self._past.messages, self._message):
            past = _after(past, message, self._context)
        context = self._again(done.captured)
        try:
            again = handle(self._past.definition, self._past.state, self._message, context)
        except FAILURES as error:
            self._fail("fails when the message is redelivered", [f"{type(error).__name__}: {error}"])
        found = list(
            _differences_of_handlings(self._past.definition, (done, self._context), (again, context))
        )
        if found:
            self._fail("gives another result when the message is redelivered", found)
        return self

    def _differences(
        self, publishes: Sequence[Message | type[Message]] | None, state: S | None
    ) -> Iterator[str]:
        codec, done = self._past.definition.codec, self._done()
        if publishes is not None:
            expected = [each if isinstance(each, type) else _expected(each) for each in publishes]
            yield from differences_of_messages(expected, self._context.messages)
        if state is not None:
            yield from differences(codec.decode(self._past.encoded(state)), codec.decode(done.after), "state")

    def _done(self) -> Handling:
        __tracebackhide__ = True
        if self._handling is None:
            self._fail("fails", [f"{type(self._error).__name__}: {self._error}"])
        return self._handling

    def _fail(self, what: str, lines: Sequence[str]) -> NoReturn:
        __tracebackhide__ = True
        head = f"{self._past.definition.name} {what}: {self._message!r}"
        raise AssertionError("\n  ".join([head, *lines])) from self._error


def _expected(message: object) -> Message:
    if not isinstance(message, Message):
        raise SpecError(f"publishes=[...] takes messages and message types, not {message!r}.")
    return round_trip(message)


def _after(past: Past, message: Message, first: Context) -> Past:
    """Return the past after a later message; one that fails changes nothing."""
    now = (first.now - EPOCH) // timedelta(microseconds=1)
    number = str(len(past.messages) + 1)
    context = Context(past.definition.name, past.business_id_of(message), number, now)
    try:
        after = handle(past.definition, past.state, message, context).after
    except FAILURES:
        after = past.state
    return past.followed_by(message, after)


def _differences_of_handlings(
    definition: HandlerDefinition,
    one: tuple[Handling, StubbedContext],
    other: tuple[Handling, StubbedContext],
) -> Iterator[str]:
    codec = definition.codec
    yield from differences_of_messages(one[1].messages, other[1].messages)
    for at, (first, again) in enumerate(zip(one[0].published, other[0].published, strict=False)):
        if first.headers != again.headers:
            yield f"published[{at}] headers: expected {dict(first.headers)}, got {dict(again.headers)}"
    yield from differences(codec.decode(one[0].after), codec.decode(other[0].after), "state")


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
