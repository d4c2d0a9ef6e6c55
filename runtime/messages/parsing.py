"""Parsing deliveries: read the bodies, and make sure that they belong to the stream they were routed to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any
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
    large the dead letter keeps a note only. In a redrive `letters` are the numbers of the letters that the deliveries
    are, and there may be notes among them.
    """
    keys = id_keys(envelopes.message_ids)
    excesses = dict(find_excesses(envelopes, limits))
    if letters is not None:
        excesses |= find_notes(envelopes)
    parser = _Parser(handler, business_id, limits.error)
    unfit = parser.with_problems(envelopes, _problems(envelopes, keys))
    unfit |= {position: excess.of(handler.name, business_id) for position, excess in excesses.items()}
    with handler.parsing(parser.parsed):
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


class _Parser:
    """Parses the deliveries of one stream: all bodies of a type by one call, which ends at those that have a problem.

    `messages` are those in the bodies, or the dead letters that deliveries are; these have no fingerprint. `parsed`
    grows by one with each body that was read.
    """

    def __init__(self, handler: HandlerDefinition, business_id: str | None, error_length: int) -> None:
        self.messages: list[Any] = []
        self.fingerprints: list[Any] = []
        self.parsed: list[Message | Outcome] = []
        self._handler = handler
        self._business_id = business_id
        self._error_length = error_length

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
        messages = self.messages = [None] * len(envelopes)
        self.fingerprints = [b""] * len(envelopes)
        for position, outcome in unfit.items():
            messages[position] = outcome
        places = _places_by_type(envelopes.types, unfit)
        for type_, places_of_type in places.items():
            read = self._read(type_, places_of_type, envelopes)
            for position, message in zip(places_of_type, read, strict=True):
                messages[position] = message
        self._add_fingerprints(envelopes)
        for type_, places_of_type in places.items():
            self._refuse_others(type_, places_of_type, envelopes)
        if Outcome in map(type, messages):
            of_dead_letters = (place for place, each in enumerate(messages) if type(each) is Outcome)
            for position in of_dead_letters:
                self.fingerprints[position] = b""

    def _read(self, type_: str, places: Sequence[int], envelopes: Envelopes) -> Sequence[Message | Outcome]:
        """Return the messages in the bodies of one type, and dead letters in place of those that cannot be read."""
        first, end = len(self.parsed), len(self.parsed) + len(places)
        route = self._handler.routes.get(type_)
        if route is None:
            unknown = self._refused(Reason.UNKNOWN_TYPE, f"{self._handler.name} does not handle {type_}.")
            self.parsed += [unknown.of(envelopes[place], self._error_length) for place in places]
            return self.parsed[first:]
        bodies = [envelopes.bodies[place] for place in places]
        has_bytes = bytes in map(type, bodies)
        decode: Any = partial(read_body, route) if has_bytes else message_codec(route.message_type).decode
        waiting = iter(bodies)
        while len(self.parsed) < end:
            error: BaseException = StopIteration()  # which ends this quietly, if a validator raises it
            try:
                self.parsed.extend(map(decode, waiting))
            except BaseException as raised:  # noqa: BLE001 - a message's own validators may raise anything
                error = raised
            if len(self.parsed) < end:
                place = places[len(self.parsed) - first]
                self.parsed.append(self._dead_letter(type_, error, envelopes[place]))
        return self.parsed[first:]

    def _add_fingerprints(self, envelopes: Envelopes) -> None:
        """Compute the fingerprints of all messages."""
        for position, (type_, body, message) in enumerate(
            zip(envelopes.types, envelopes.bodies, self.messages, strict=True)
        ):
            if type(message) is not Outcome:
                try:
                    self.fingerprints[position] = fingerprint(type_, body, packed=isinstance(body, bytes))
                except BaseException as error:  # noqa: BLE001 - the body may hold anything
                    self.messages[position] = self._dead_letter(type_, error, envelopes[position])

    def _refuse_others(self, type_: str, places: Sequence[int], envelopes: Envelopes) -> None:
        """Put dead letters in place of messages of one type that are of another stream."""
        route = self._handler.routes.get(type_)
        if route is None:
            return
        messages = [self.messages[place] for place in places]
        id_in = attrgetter(".".join(route.path))
        ids = [id_in(each) for each in messages if type(each) is not Outcome]
        if self._are_ours(ids):
            return
        for place, message in zip(places, messages, strict=True):
            if type(message) is not Outcome and not self._are_ours([id_in(message)]):
                refused = self._of_another_stream(route, message)
                self.messages[place] = refused.of(envelopes[place], self._error_length)

    def _are_ours(self, ids: Sequence[Any]) -> bool:
        """Say whether all business ids are the one that the deliveries were routed by."""
        if set(map(type, ids)) <= {UUID}:
            # A UUID is compared by its number: writing it as text takes longer.
            return {each.int for each in ids} <= {_number_of_uuid(self._business_id)}
        return set(map(str, ids)) <= {self._business_id or None}

    def _dead_letter(self, type_: str, error: BaseException, envelope: Envelope) -> Outcome:
        """Return the dead letter that a delivery is whose body raised an error, unless it came from outside."""
        if is_from_outside(error):
            raise error
        return self._refusal(type_, error).of(envelope, self._error_length)

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


def _places_by_type(types: Sequence[str], unfit: Collection[int]) -> Mapping[str, Sequence[int]]:
    """Return the positions of the deliveries of each type, but for those that are unfit."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position, type_ in enumerate(types):
        found[type_].append(position)
    if unfit:
        return {type_: [place for place in places if place not in unfit] for type_, places in found.items()}
    return found


def _number_of_uuid(text: str | None) -> int | None:
    """Return the number of the UUID whose one spelling this is, None for any other text."""
    key = id_key(text or "")
    return int.from_bytes(key) if isinstance(key, bytes) else None


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
