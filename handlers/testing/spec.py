"""Specifications: given a state and messages, when a message is handled, then expect outputs and a next state."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from pydantic import BaseModel

from handlers.app import App, Handler, HandlerDefinition, settle
from handlers.codec import unpack
from handlers.context import Context, Published, message_codec
from handlers.draws import Seed, SeededRandom
from handlers.errors import CodecError, SpecError
from handlers.guard import guarded
from handlers.message import Message, State, message_name

S = TypeVar("S", bound=State)

FAILURES = (Exception, SystemExit)
"""Errors of a handler that make its message a dead letter and do not end the process."""

# Handlers are called as by the runtime: states and messages are decoded from bytes.


class HandlerResult(NamedTuple):
    """The result of one call of a handler. `after` is the next state as JSON."""

    after: bytes
    published: tuple[Published, ...]
    captured: Mapping[str, bytes]


def handle(handler: HandlerDefinition, before: bytes, message: Message, context: Context) -> HandlerResult:
    """Call the newest method for a message, with the state JSON `before`. Raises errors of the method and `settle`."""
    codec, route = handler.codec, handler.routes[message_name(type(message))]
    state, method = codec.reread(before), route.revisions[route.newest]
    values = list(state.__dict__.values())
    returned = method(state, _round_trip(message), context)
    after = settle(handler, method, state, values, before, returned, context)[1]
    return HandlerResult(after, tuple(context.published), dict(context.captured))


def _round_trip(message: Message) -> Message:
    codec = message_codec(type(message))
    return codec.reread(codec.encode(message))


# Stubs for random numbers, guids and captured values.


class StubbedRandom(SeededRandom):
    """A generator that returns the stubs in order, whichever method is called."""

    def __init__(self, left: list[Any]) -> None:
        super().__init__(Seed("", "", ""))
        self.left = left


_POSSIBLE: Mapping[str, Callable[..., bool]] = {
    "random": lambda value: 0 <= value < 1,
    "getrandbits": lambda value, k: value in range(1 << k),
    "randbytes": lambda value, n: isinstance(value, bytes) and len(value) == n,
    "randrange": lambda value, start, stop=None, step=1: (
        value in (range(start) if stop is None else range(start, stop, step))
    ),
    "randint": lambda value, a, b: value in range(a, b + 1),
    "uniform": lambda value, a, b: min(a, b) <= value <= max(a, b),
    "choice": lambda value, seq: value in seq,
    "choices": lambda drawn, among, *, k=1, **_: len(drawn) == k and all(each in among for each in drawn),
    "sample": lambda drawn, among, k, **_: len(drawn) == k and not Counter(drawn) - Counter(among),
    "shuffle": lambda value, x: Counter(value) == Counter(x),
}
"""By method: a function that returns whether the method can return a value for its arguments."""


def _stubbed(name: str, is_possible: Callable[..., bool]) -> Callable[..., Any]:
    def draw(self: StubbedRandom, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - the method's own
        told = [*map(repr, given), *(f"{key}={value!r}" for key, value in named.items())]
        call = f"{name}({', '.join(told)})"
        if not self.left:
            raise SpecError(f"The handler calls {call} after all values of drawing(...): add one for it.")
        value = self.left.pop(0)
        try:
            possible = is_possible(value, *given, **named)
        except TypeError:
            possible = False
        if not possible:
            raise SpecError(f"{call} cannot return {value!r}: change that value of drawing(...).")
        if name == "shuffle":
            (shuffled,) = (*given, *named.values())
            shuffled[:] = value
            return None
        return list(value) if name in ("choices", "sample") else value

    return draw


for _name, _is_possible in _POSSIBLE.items():
    setattr(StubbedRandom, _name, _stubbed(_name, _is_possible))


@dataclass(frozen=True, slots=True)
class Stubs:
    """The stubs for one message. If `draws` or `guids` is None, they are derived from the message."""

    draws: tuple[Any, ...] | None = None
    guids: tuple[UUID, ...] | None = None
    captured: Mapping[str, Any] = field(default_factory=dict)


class StubbedContext(Context):
    """A context that returns the stubs, and keeps the published messages."""

    __slots__ = ("_draws_left", "_guids_left", "messages", "stubs")

    def __init__(self, stubs: Stubs, seed: Seed, *given: Any, **named: Any) -> None:  # noqa: ANN401 - a context's
        super().__init__(*given, **named)
        self._seed = seed
        self._draws_left, self._guids_left = list(stubs.draws or ()), list(stubs.guids or ())
        self._random = None if stubs.draws is None else StubbedRandom(self._draws_left)
        self.stubs = stubs
        self.messages: list[Message] = []

    def new_guid(self) -> UUID:
        """Return the next stub or, without stubs, the next guid derived from the message."""
        if self.stubs.guids is None:
            return super().new_guid()
        if not self._guids_left:
            raise SpecError("The handler takes more guids than with_guids(...) has: add them.")
        return self._guids_left.pop(0)

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        """Capture the stub for this name or, without one, the result of the function."""
        stubs = self.stubs.captured
        return super().capture(name, (lambda: stubs[name]) if name in stubs else function)

    def publish(self, message: Message, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish a message, and keep it in `messages` as a receiver would decode it."""
        super().publish(message, headers=headers)
        self.messages.append(_round_trip(message))

    def check_all_taken(self) -> None:
        """Raise `SpecError` if a stub was not used."""
        if left := len(self._draws_left):
            raise SpecError(f"The handler does not draw the last {left} values of drawing(...): remove them.")
        if left := len(self._guids_left):
            raise SpecError(f"The handler leaves the last {left} guids of with_guids(...): remove them.")
        unused = sorted(set(self.stubs.captured) - set(self.captured))
        if unused:
            raise SpecError(f"The handler captures nothing as {unused[0]!r}: remove it from capturing(...).")


# Differences between expected and actual values, field by field.

_NOTHING: Any = object()


def differences(expected: Any, actual: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - any field value
    """Yield a line for each difference, by member in models, tuples and sets. `where` is the path of both values."""
    if isinstance(expected, BaseModel) and type(expected) is type(actual):
        for name in type(expected).model_fields:
            yield from differences(getattr(expected, name), getattr(actual, name), f"{where}.{name}")
    elif isinstance(expected, tuple) and isinstance(actual, tuple):
        for at, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_NOTHING)):
            yield from differences(one, other, f"{where}[{at}]")
    elif isinstance(expected, frozenset) and isinstance(actual, frozenset):
        for each in sorted(expected - actual, key=repr):
            yield f"{where}: expected {each!r} in it"
        for each in sorted(actual - expected, key=repr):
            yield f"{where}: got {each!r} in it, not expected"
    elif type(expected) is type(actual) and repr(expected) == repr(actual) == "nan":
        return
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{where}: expected {_shown(expected)}, got {_shown(actual)}"


def differences_of_messages(
    expected: Sequence[Message | type[Message]], actual: Sequence[Message]
) -> Iterator[str]:
    """Yield a line for each difference between published messages. An expected type matches any message of the type."""
    for at, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_NOTHING)):
        if isinstance(one, type):
            if type(other) is not one:
                yield f"published[{at}]: expected a {one.__name__}, got {_shown(other)}"
        else:
            yield from differences(one, other, f"published[{at}]")


def _shown(value: Any) -> str:  # noqa: ANN401 - any field value
    return "nothing" if value is _NOTHING else repr(value)


@dataclass(frozen=True, slots=True)
class Past:
    """A business object in a specification: its encoded state, the clock, and the messages handled so far."""

    definition: HandlerDefinition
    state: bytes
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    messages: tuple[Message, ...] = ()
    message_id: str | None = None  # of the next message; None for the number of the message
    drawn_for: str | None = None  # the business id from which draws are derived; None for that of the message

    def followed_by(self, message: Message, state: bytes) -> Past:
        """Return this past with one more message, after which the object has `state`."""
        return replace(self, state=state, messages=(*self.messages, message), message_id=None)

    def encoded(self, state: State) -> bytes:
        """Return the stored bytes of a state. Raises `SpecError` for a state of another type."""
        try:
            return self.definition.codec.canonical(state, self.definition.codec.write(state))[1]
        except CodecError as error:
            raise SpecError(f"This is not a valid state of {self.definition.name}: {error}") from error

    def context(
        self,
        message: Message,
        stubs: Stubs | None = None,
        headers: Mapping[str, str] | None = None,
        recorded: Mapping[str, bytes] | None = None,
    ) -> StubbedContext:
        """Return the context for the next message. For a replay, `recorded` has the captured values.

        Raises `SpecError` if the handler does not take the message, or it is for another business object.
        """
        business_id = self._named_by(message)
        before = self._named_by(self.messages[0]) if self.messages else business_id
        if business_id != before:
            problem = f"{message!r} is for {business_id!r}, and messages before for {before!r}"
            raise SpecError(f"{problem}: use one business object in a specification.")
        now = (self.now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        message_id = self.message_id or str(len(self.messages) + 1)
        place = (self.definition.name, business_id, message_id, now)
        seed = Seed(message_id, self.definition.name, self.drawn_for or business_id)
        return StubbedContext(stubs or Stubs(), seed, *place, headers, recorded=recorded)

    def _named_by(self, message: Message) -> str:
        route = self.definition.routes.get(getattr(message, "__message_name__", ""))
        if route is None or route.message_type is not type(message):
            raise SpecError(f"{self.definition.name} does not handle {message!r}.")
        return route.business_id(message)


@dataclass(eq=False, repr=False)
class Handled(Generic[S]):
    """The result of `when`: a message was handled, or its handler raised an error.

    Each expectation returns this object, to chain calls. If the handler raised, `state`, `published` and all
    expectations except `then_raises` raise `AssertionError`.
    """

    _past: Past
    _message: Message
    _context: StubbedContext
    _result: HandlerResult | BaseException

    @property
    def state(self) -> S:
        """The next state, decoded from its JSON."""
        return self._past.definition.codec.decode(self._done().after)  # type: ignore[return-value] # it is S's codec

    @property
    def published(self) -> tuple[Message, ...]:
        """The published messages, decoded from their bodies."""
        self._done()
        return tuple(self._context.messages)

    def then(
        self, *, publishes: Sequence[Message | type[Message]] | None = None, state: S | None = None
    ) -> Handled[S]:
        """Expect these outputs, in order, and this next state. An argument that is None is not compared.

        A message type matches any message of the type. Raises `AssertionError` with each field that differs.
        """
        __tracebackhide__ = True
        codec, done = self._past.definition.codec, self._done()
        lines: list[str] = []
        if publishes is not None:
            for each in publishes:
                if not isinstance(each, type | Message):
                    raise SpecError(f"publishes=[...] takes messages and message types, not {each!r}.")
            expected = [each if isinstance(each, type) else _round_trip(each) for each in publishes]
            lines += differences_of_messages(expected, self._context.messages)
        if state is not None:
            lines += differences(codec.decode(self._past.encoded(state)), codec.decode(done.after), "state")
        if lines:
            self._fail("does not do as expected", lines)
        return self

    def then_nothing(self) -> Handled[S]:
        """Expect no outputs and an unchanged state."""
        __tracebackhide__ = True
        before = self._past.definition.codec.decode(self._past.state)
        return self.then(publishes=[], state=before)  # type: ignore[arg-type] # it is S's codec

    def then_raises(self, error_type: type[BaseException], match: str = "") -> Handled[S]:
        """Expect an error of this type. Its text contains a match of the regular expression `match`."""
        __tracebackhide__ = True
        error = self._result
        if not isinstance(error, error_type) or not re.search(match, str(error)):
            wanted = f"{error_type.__name__}{f' that matches {match!r}' if match else ''}"
            raised = isinstance(error, BaseException)
            got = f"got {type(error).__name__}: {error}" if raised else "nothing was raised"
            self._fail("does not do as expected", [f"expected {wanted}, {got}"])
        return self

    def redelivered(self, *later: Message) -> Handled[S]:
        """Expect the same outputs, headers and next state if the message is redelivered after later messages.

        First, the `later` messages are handled. By default, these are all messages so far, under new ids. Then the
        message is replayed on the version before its own, with the values that were captured the first time.
        """
        __tracebackhide__ = True
        done, first, definition = self._done(), self._context, self._past.definition
        past = self._past.followed_by(self._message, done.after)
        for message in later or (*self._past.messages, self._message):
            context = past.context(message)
            try:
                after = handle(definition, past.state, message, context).after
            except FAILURES:
                after = past.state  # a later message that fails changes nothing
            past = past.followed_by(message, after)
        context = self._past.context(self._message, first.stubs, first.headers, done.captured)
        try:
            again = handle(definition, self._past.state, self._message, context)
        except FAILURES as error:
            self._fail("fails when the message is redelivered", [f"{type(error).__name__}: {error}"])
        lines = [*differences_of_messages(first.messages, context.messages)]
        for at, (one, other) in enumerate(zip(done.published, again.published, strict=False)):
            if one.headers != other.headers:
                lines.append(f"published[{at}] headers: expected {one.headers}, got {other.headers}")
        decode = definition.codec.decode
        lines += differences(decode(done.after), decode(again.after), "state")
        if lines:
            self._fail("gives another result when the message is redelivered", lines)
        return self

    def _done(self) -> HandlerResult:
        __tracebackhide__ = True
        if isinstance(self._result, BaseException):
            self._fail("fails", [f"{type(self._result).__name__}: {self._result}"])
        return self._result

    def _fail(self, what: str, lines: Sequence[str]) -> NoReturn:
        __tracebackhide__ = True
        head = f"{self._past.definition.name} {what}: {self._message!r}"
        cause = self._result if isinstance(self._result, BaseException) else None
        raise AssertionError("\n  ".join([head, *lines])) from cause


class HandlerSpec(Generic[S]):
    """A specification of one handler, for one business object, without a store.

    Each method returns a new specification, so tests may share a setup. Messages get the ids "1", "2" and so on.
    `context.now` is the beginning of 2026 until `at` sets the time. Raises `AppError` as `App` does, and `SpecError`
    for messages of another object or type, invalid states, and stubs that a call could not return.
    """

    def __init__(self, handler_type: type[Handler[S]]) -> None:
        (definition,) = guarded(App(handler_type)).handlers.values()
        self._past = Past(definition, definition.initial)
        self._stubs = Stubs()

    @classmethod
    def from_export(
        cls,
        handler_type: type[Handler[S]],
        path: str | Path,
        *,
        replacing: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields,
    ) -> Case[S]:
        """Return the recorded version that `consistent fork --case` wrote to a file, as a case to test.

        The clock and captured values are as recorded. So are random numbers and guids, unless draws were keyed.
        `replacing` gets the fields of each state and of the message, and returns them without personal data. The
        business id may be replaced too. Raises `SpecError` if the case is from another handler or message type.
        """
        case, spec = json.loads(Path(path).read_text(encoding="utf-8")), cls(handler_type)
        past, codec = spec._past, spec._past.definition.codec
        route, name = past.definition.routes.get(case["type"]), past.definition.name
        if route is None or name != case["handler"]:
            kind = f"{case['handler']} and {case['type']}"
            raise SpecError(f"{path} is a case of {kind}: {name} has no such case.")

        def state(name: str) -> State:
            return codec.decode(codec.upcast(json.dumps(replacing(case[name])).encode(), case["schema"]))

        past = replace(
            past,
            state=past.encoded(state("before")),
            now=datetime.fromisoformat(case["now"]),
            message_id=case["message_id"],
            drawn_for=case["business_id"],
        )
        message = message_codec(route.message_type).decode(json.dumps(replacing(case["body"])))
        captured = dict(case["captured"])
        for name, packed in case["packed"].items():
            captured[name] = unpack(bytes.fromhex(packed), strict_map_key=False)
        given = spec._with(past, Stubs(captured=captured))
        return Case(given, message, case["headers"], state("after"))  # type: ignore[arg-type] # S's codec

    def at(self, now: datetime) -> HandlerSpec[S]:
        """Set `context.now` for the next messages.

        Raises `SpecError` if `now` has no time zone, or is earlier than the time of the messages so far.
        """
        if now.tzinfo is None:
            raise SpecError(f"at({now!r}) has no time zone: pass one, such as tzinfo=UTC.")
        if self._past.messages and now < self._past.now:
            raise SpecError("at(...) goes back in time: context.now of a business object never decreases.")
        return self._with(replace(self._past, now=now), self._stubs)

    def drawing(self, *values: Any) -> HandlerSpec[S]:  # noqa: ANN401 - what the handler draws
        """Stub `context.random` for the message of `when`: one value for each call, in order.

        `when` raises `SpecError` if a call cannot return its value, or if there are too few or too many values.
        """
        return self._with(self._past, replace(self._stubs, draws=values))

    def with_guids(self, *guids: UUID) -> HandlerSpec[S]:
        """Stub `context.new_guid()` for the message of `when`: one guid for each call, in order."""
        for guid in guids:
            if not isinstance(guid, UUID):
                raise SpecError(f"with_guids takes UUIDs, not {guid!r}.")
        return self._with(self._past, replace(self._stubs, guids=guids))

    def capturing(self, **values: Any) -> HandlerSpec[S]:  # noqa: ANN401 - plain data of any kind
        """Stub `context.capture(name, function)` by name for the message of `when`. The function is not called."""
        return self._with(self._past, replace(self._stubs, captured=values))

    def given(self, *messages: Message, state: S | None = None) -> HandlerSpec[S]:
        """Handle messages, first setting the state to `state` if given. Raises `SpecError` if the handler fails."""
        past = self._past if state is None else replace(self._past, state=self._past.encoded(state))
        for message in messages:
            context = past.context(message)
            try:
                past = past.followed_by(message, handle(past.definition, past.state, message, context).after)
            except FAILURES as error:
                told = f"{type(error).__name__}: {error}"
                raise SpecError(f"The handler failed for the given {message!r}: {told}") from error
        return self._with(past, self._stubs)

    def when(self, message: Message, *, headers: Mapping[str, str] | None = None) -> Handled[S]:
        """Handle a message. Return the result for expectations. Raises `SpecError` if stubs are missing or unused."""
        past = self._past
        context = past.context(message, self._stubs, headers)
        try:
            result = handle(past.definition, past.state, message, context)
        except SpecError:
            raise
        except FAILURES as error:
            return Handled(past, message, context, error)
        context.check_all_taken()
        return Handled(past, message, context, result)

    def _with(self, past: Past, stubs: Stubs) -> HandlerSpec[S]:
        other = copy.copy(self)
        other._past, other._stubs = past, stubs  # noqa: SLF001 - its own class
        return other


class Case(NamedTuple, Generic[S]):
    """A recorded version as a test: the specification before the message, the message, and the recorded next state."""

    given: HandlerSpec[S]
    message: Message
    headers: Mapping[str, str] | None
    state: S  # the recorded next state

    def when(self) -> Handled[S]:
        """Handle the recorded message, and return the result for expectations."""
        return self.given.when(self.message, headers=self.headers)
