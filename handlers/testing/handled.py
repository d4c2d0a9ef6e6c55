"""The result of handling a message in a specification, with the expectations of a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, NoReturn, TypeVar

from handlers.app import HandlerDefinition
from handlers.context import Context
from handlers.errors import SpecError
from handlers.message import Message
from handlers.state import State
from handlers.testing.diff import differences, differences_of_messages
from handlers.testing.invocation import FAILURES, Handling, handle, round_trip
from handlers.testing.past import Past
from handlers.testing.stubs import StubbedContext

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
