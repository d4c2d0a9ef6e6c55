"""Parsing deliveries: read the bodies, and make sure that they belong to the stream they were routed to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError

from handlers import Message
from handlers.app import HandlerDefinition
from handlers.codec import all_problems
from handlers.context import message_codec
from handlers.route import KeyKind, Route
from handlers.text import is_text
from handlers.unpacking import unpack
from runtime.blame import is_from_outside
from runtime.clock import EARLIEST
from runtime.messages.deliveries import Deliveries, Delivery
from runtime.messages.envelope import Envelope
from runtime.messages.envelopes import Envelopes
from runtime.messages.fingerprint import fingerprint
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.message_ids import IdKey, canonical, id_key, id_keys
from runtime.messages.outcome import Outcome, Reason, dead_letter, shortened
from runtime.messages.too_large import find_excesses, find_notes, is_note


class ParsingTimedOutError(BaseException):
    """Raised in a message's own validators by whoever watches, when one message takes too long."""


def validators_took_too_long(seconds: float) -> str:
    """Return why a message is refused whose validators were interrupted."""
    return f"The validators of the message took longer than {seconds:g} s, and were interrupted."


def prepare(
    handler: HandlerDefinition, business_id: str | None, envelope: Envelope, limits: MessageLimits = USUAL
) -> Delivery:
    """Return the delivery ready to be handled, or the dead letter that it is, as `prepare_all` does."""
    return prepare_all(handler, business_id, Envelopes.of([envelope]), limits)[0]


def prepare_all(
    handler: HandlerDefinition,
    business_id: str | None,
    envelopes: Envelopes,
    limits: MessageLimits = USUAL,
    *,
    letters: Sequence[int] | None = None,
) -> Deliveries:
    """Return the deliveries of one stream ready to be handled, or the dead letters that they are.

    `business_id` is the one by which they were routed, None when none was found in their bodies. Of one that is too
    large the dead letter keeps a note only. In a redrive, `letters` are the numbers of the letters that they are, and
    there may be notes among them.
    """
    keys = id_keys(envelopes.message_ids)
    excesses = dict(find_excesses(envelopes, limits))
    if letters is not None:
        excesses |= find_notes(envelopes)
    parser = _Parser(handler, business_id, limits.error)
    unfit = parser.with_problems(envelopes, _problems(envelopes, keys))
    unfit |= {position: excess.of(handler.name, business_id) for position, excess in excesses.items()}
    with handler.parsing(parser.messages):
        parser.parse(envelopes, unfit)
    return Deliveries(envelopes, keys, parser.messages, parser.fingerprints, handler.routes, letters)


def refused_for_size(
    envelope: Envelope, limits: MessageLimits = USUAL, handler: str | None = None
) -> Outcome | None:
    """Return the dead letter that a delivery is which is too large, before its body is read; None for all others."""
    excess = find_excesses(Envelopes.of([envelope]), limits).get(0)
    return None if excess is None else excess.of(handler)


def unroutable(
    envelope: Envelope,
    problem: str | None,
    handler: str | None = None,
    types: Collection[str] | None = None,
) -> Outcome:
    """Return the dead letter that a delivery is which no handler takes: nor the one that its log names, if it does.

    `problem` is what is wrong with its envelope, if anything is; `types` are those that its log may hold, None for all.
    """
    if problem is not None:
        reason = Reason.TOO_LARGE if is_note(envelope.body) else Reason.INVALID_ENVELOPE
        return dead_letter(envelope, reason, problem)
    refused = not_allowed(envelope, handler, types)
    if refused is not None:
        return refused
    if handler is not None:
        return dead_letter(envelope, Reason.UNKNOWN_HANDLER, f"There is no handler {handler!r}.", handler)
    return dead_letter(envelope, Reason.UNKNOWN_TYPE, f"No handler takes messages of type {envelope.type}.")


def not_allowed(envelope: Envelope, handler: str | None, types: Collection[str] | None) -> Outcome | None:
    """Return the dead letter that a delivery is whose log may not hold its type, None for all others."""
    if types is None or envelope.type in types:
        return None
    error = f"Its log may hold messages of {', '.join(sorted(types))}, not of {envelope.type}."
    return dead_letter(envelope, Reason.TYPE_NOT_ALLOWED, error, handler)


def business_id_of(route: Route, envelope: Envelope) -> str | None:
    """Return the business id that the sender names, or the one in the body; None when there is none.

    A UUID in any spelling is one. What is wrong with a body is told when it is prepared.
    """
    given = envelope.business_id
    if given:
        return canonical(given) if route.key_kind is KeyKind.UUID else given
    try:
        return route.business_id(read_body(route, envelope.body)) or None
    except BaseException as error:  # a message's own validators may raise anything
        if is_from_outside(error):
            raise
        return None


def read_body(route: Route, body: str | bytes) -> Message:
    """Return the message in a body of JSON text or msgpack bytes.

    Raises pydantic's `ValidationError`, what msgpack raises, and whatever the message's own validators do.
    """
    if isinstance(body, bytes):
        return route.message_type.model_validate(unpack(body))
    return message_codec(route.message_type).decode(body)


class _RefusedError(Exception):
    """Raised for a delivery that is a dead letter: says why, and what it is for as far as that is known."""

    def __init__(self, reason: Reason, problem: str, handler: str, business_id: str | None) -> None:
        super().__init__(reason, problem, handler, business_id)

    def of(self, envelope: Envelope, length: int) -> Outcome:
        """Return the dead letter that a delivery is, with an error of so many characters at most."""
        return dead_letter(envelope, *self.args, length=length)


class _Way(NamedTuple):
    """A route, with the codec of its messages, and what gives the business id in one."""

    route: Route
    decode: Callable[[str], Message]
    business_id: Callable[[Message], Any]


class _Parser:
    """Parses the deliveries of one stream.

    `messages` are those in the bodies, or the dead letters that deliveries are; these have no fingerprint.
    """

    def __init__(self, handler: HandlerDefinition, business_id: str | None, error_length: int) -> None:
        self.messages: list[Message | Outcome] = []
        self.fingerprints: list[bytes] = []
        self._handler = handler
        self._business_id = business_id
        self._error_length = error_length
        self._ways: dict[str, _Way] = {}

    def with_problems(self, envelopes: Envelopes, problems: Mapping[int, str]) -> dict[int, Outcome]:
        """Return, by position, the dead letters that deliveries of known types are whose envelopes have problems."""
        return {
            position: self._refused(Reason.INVALID_ENVELOPE, problem).of(
                envelopes[position], self._error_length
            )
            for position, problem in problems.items()
            if envelopes.types[position] in self._handler.routes
        }

    def parse(self, envelopes: Envelopes, unfit: Mapping[int, Outcome]) -> None:
        """Parse the bodies of all deliveries but those that are unfit, which are dead letters already."""
        ways, messages, fingerprints = self._ways, self.messages, self.fingerprints
        # A UUID is compared by its number: writing it as text takes longer.
        business_id, number = self._business_id or None, _number_of_uuid(self._business_id)
        for position, (type_, body) in enumerate(zip(envelopes.types, envelopes.bodies, strict=True)):
            message: Message | Outcome
            if position in unfit:
                message, digest = unfit[position], b""
            else:
                try:
                    route, decode, id_in = ways.get(type_) or self._find_way(type_)
                    if type(body) is str:
                        message, digest = decode(body), fingerprint(type_, body)
                    else:
                        message, digest = read_body(route, body), fingerprint(type_, body, packed=True)
                    found = id_in(message)
                    if not (found.int == number if type(found) is UUID else str(found) == business_id):
                        raise self._of_another_stream(route, message)  # noqa: TRY301 - told as all others are
                except BaseException as error:  # a message's own validators may raise anything
                    if is_from_outside(error):
                        raise
                    refused = self._refusal(type_, error)
                    message, digest = refused.of(envelopes[position], self._error_length), b""
            fingerprints.append(digest)
            messages.append(message)

    def _find_way(self, type_: str) -> _Way:
        route = self._handler.routes.get(type_)
        if route is None:
            raise self._refused(Reason.UNKNOWN_TYPE, f"{self._handler.name} does not handle {type_}.")
        decode, id_in = message_codec(route.message_type).decode, attrgetter(".".join(route.path))
        way = self._ways[type_] = _Way(route, decode, id_in)
        return way

    def _refusal(self, type_: str, error: BaseException) -> _RefusedError:
        """Return what is to be told of an error that a body raised."""
        match error:
            case _RefusedError():
                return error
            case ValidationError():
                reason, problem = _reason(self._handler.routes[type_], error), all_problems(error)
            case ParsingTimedOutError():
                reason, problem = Reason.HANDLER_TIMEOUT, str(error)
            case _:
                reason, problem = Reason.INVALID_BODY, repr(error)
        return self._refused(reason, shortened(problem, self._error_length))

    def _of_another_stream(self, route: Route, message: Message) -> _RefusedError:
        named, path = route.business_id(message), ".".join(route.path)
        if not named:
            problem = f"The field {path} is empty."
            return _RefusedError(Reason.NO_BUSINESS_ID, problem, self._handler.name, None)
        problem = f"The body names {named!r} in {path}; the delivery was routed by {self._business_id!r}."
        problem = shortened(problem, self._error_length)
        return self._refused(Reason.BUSINESS_ID_MISMATCH, problem)

    def _refused(self, reason: Reason, problem: str) -> _RefusedError:
        return _RefusedError(reason, problem, self._handler.name, self._business_id)


def _number_of_uuid(text: str | None) -> int | None:
    """Return the number of the UUID whose one spelling this is, None for any other text."""
    key = id_key(text or "")
    return int.from_bytes(key, "big") if isinstance(key, bytes) else None


def _problems(envelopes: Envelopes, keys: Sequence[IdKey]) -> Mapping[int, str]:
    """Return, by position, why deliveries could not be stored."""
    dated = [moment for moment in envelopes.enqueued_at if moment is not None]
    is_clean = (
        not any(envelopes.headers)
        and min(dated, default=EARLIEST) >= EARLIEST
        and set(map(type, keys)) <= {bytes}  # UUIDs, and so valid text
    )
    if is_clean:
        return {}
    found = enumerate(map(_problem, envelopes))
    return {position: problem for position, problem in found if problem is not None}


def _problem(envelope: Envelope) -> str | None:
    """Say why a delivery could not be stored, None when it could."""
    headers = envelope.headers
    if not is_text(envelope.message_id):
        return f"Its id {envelope.message_id!a} is no valid text."
    if headers and not all(map(is_text, (*headers, *headers.values()))):
        return f"Its headers hold something other than text: {dict(headers)!a}"
    if envelope.enqueued_at is not None and envelope.enqueued_at < EARLIEST:
        return "It was enqueued before the year 1601, where the times begin that can be stored."
    return None


def _reason(route: Route, error: ValidationError) -> Reason:
    for problem in error.errors(include_url=False, include_context=False):
        path = problem["loc"]
        if (
            path
            and path == route.wire_path[: len(path)]
            and (problem["type"] == "missing" or problem["input"] is None)
        ):
            return Reason.NO_BUSINESS_ID
    return Reason.INVALID_BODY
