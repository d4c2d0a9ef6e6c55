"""Parsing deliveries: read the bodies, and make sure that they belong to the stream they were routed to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, overload
from uuid import UUID

from pydantic import ValidationError

from handlers import Message
from handlers.app import HandlerDefinition
from handlers.codec import all_problems, is_text, unpack
from handlers.context import message_codec
from handlers.handler import KeyKind, Route
from runtime.clock import EARLIEST
from runtime.messages.digests import fingerprint
from runtime.messages.envelope import Envelope, Envelopes, IdKey, canonical, id_keys
from runtime.messages.limits import NOT_KEPT, USUAL, MessageLimits, TooLarge, find_excesses, is_note
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.namesakes import is_from_outside


class Prepared(NamedTuple):
    """A delivery whose body is a valid message of the stream."""

    envelope: Envelope
    route: Route
    message: Message
    key: IdKey
    fingerprint: bytes

    @property
    def business_id(self) -> str:
        """The id of the business object that the message is for."""
        return self.route.business_id(self.message)


Delivery = Prepared | Outcome  # ready to be handled, or a dead letter

_ALL = slice(0, None)


@dataclass(slots=True)
class Deliveries(Sequence[Delivery]):
    """Parsed deliveries, column by column: for each its message or its dead letter. Rows are made lazily."""

    envelopes: Envelopes
    keys: Sequence[IdKey]  # any for dead letters
    messages: Sequence[Message | Outcome]
    fingerprints: Sequence[bytes]  # empty for dead letters
    routes: Mapping[str, Route]  # by the name of a type
    letters: Sequence[int] | None = None  # their numbers in a redrive, by which a mended body finds its own

    @classmethod
    def of(cls, deliveries: Sequence[Delivery]) -> Deliveries:
        """Return deliveries as columns."""
        if isinstance(deliveries, Deliveries):
            return deliveries
        rows = [
            (each.key, each.message, each.fingerprint) if isinstance(each, Prepared) else (b"", each, b"")
            for each in deliveries
        ]
        return cls(
            Envelopes.of(each.envelope for each in deliveries),
            [key for key, _, _ in rows],
            [message for _, message, _ in rows],
            [fingerprint for _, _, fingerprint in rows],
            {each.envelope.type: each.route for each in deliveries if isinstance(each, Prepared)},
        )

    def ready_keys(self, position: int = 0) -> set[IdKey]:
        """Return the keys of the messages that are ready to be handled, from a position on."""
        keys, messages = self.keys[position:], self.messages[position:]
        if Outcome not in map(type, messages):
            return set(keys)
        return {key for key, message in zip(keys, messages, strict=True) if not isinstance(message, Outcome)}

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> Deliveries: ...

    def __getitem__(self, index: int | slice) -> Delivery | Deliveries:
        if isinstance(index, slice):
            if index == _ALL:
                return self
            letters = None if self.letters is None else self.letters[index]
            columns = self.envelopes[index], self.keys[index], self.messages[index], self.fingerprints[index]
            return Deliveries(*columns, self.routes, letters)
        message = self.messages[index]
        if isinstance(message, Outcome):
            return message
        envelope = self.envelopes[index]
        route = self.routes[envelope.type]
        return Prepared(envelope, route, message, self.keys[index], self.fingerprints[index])

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.__getitem__, range(len(self)))


def is_copy(delivery: Prepared, recorded: bytes) -> bool:
    """Return whether a delivery has the recorded fingerprint of its id, under any name of its type (`aliases`)."""
    if delivery.fingerprint == recorded:
        return True
    others = [name for name in delivery.route.names if name != delivery.envelope.type]
    return recorded in _fingerprints(delivery.envelope, others, delivery.route)


def has_fingerprint(envelope: Envelope, names: Iterable[str], recorded: bytes, route: Route | None) -> bool:
    """Return whether a body that its type refuses has the recorded fingerprint, under any of the type's names."""
    try:
        return recorded in _fingerprints(envelope, names, route)
    except Exception:  # noqa: BLE001 - a body may hold anything
        return False


def _fingerprints(envelope: Envelope, names: Iterable[str], route: Route | None) -> list[bytes]:
    exact = None if route is None else message_codec(route.message_type).exact
    return [_fingerprint(name, envelope.body, exact) for name in names]


def _fingerprint(name: str, body: str | bytes, exact: Callable[[str | bytes], str | bytes] | None) -> bytes:
    """Return the fingerprint of a body: of JSON, those digits count that a handler can see, which `exact` keeps."""
    if isinstance(body, bytes):
        return fingerprint(name, body, packed=True)
    return fingerprint(name, body if exact is None else exact(body))


class ParsingTimedOutError(BaseException):
    """Raised in a message's own validators by whoever watches, when one message takes too long."""


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
    """Return the deliveries of one stream, each ready to be handled or a dead letter.

    `business_id` is the one by which they were routed, None when none was found in their bodies. The dead letter of one
    that is too large has a note only. In a redrive `letters` are the numbers of the letters, and some may be notes.
    """
    return prepare_streams(handler, [business_id] * len(envelopes), envelopes, limits, letters=letters)


def prepare_streams(
    handler: HandlerDefinition,
    business_ids: Sequence[str | None],
    envelopes: Envelopes,
    limits: MessageLimits = USUAL,
    *,
    letters: Sequence[int] | None = None,
) -> Deliveries:
    """Do the same for deliveries of several streams: `business_ids` has for each the id that it was routed by."""
    keys = id_keys(envelopes.message_ids)
    excesses = dict(find_excesses(envelopes, limits))
    if letters is not None:
        notes = (position for position, body in enumerate(envelopes.bodies) if is_note(body))
        excesses |= {position: TooLarge(NOT_KEPT, envelopes[position]) for position in notes}
    parser = _Parser(handler, business_ids, envelopes, limits.error, is_redrive=letters is not None)
    for position, problem in _problems(envelopes, keys).items():
        if envelopes.types[position] in handler.routes:
            parser.refuse(position, Reason.INVALID_ENVELOPE, problem)
    for position, excess in excesses.items():
        parser.messages[position] = excess.of(handler.name, parser.named(position))
    handler.interceptor.parse(parser.parse, parser.parsed)
    return Deliveries(envelopes, keys, parser.messages, parser.fingerprints, handler.routes, letters)


def refused_for_size(
    envelope: Envelope, limits: MessageLimits = USUAL, handler: str | None = None
) -> Outcome | None:
    """Return the dead letter of a delivery that is too large, before its body is read; None for all others."""
    excess = find_excesses(Envelopes.of([envelope]), limits).get(0)
    return None if excess is None else excess.of(handler)


def unroutable(
    envelope: Envelope, problem: str | None, handler: str | None = None, types: Collection[str] | None = None
) -> Outcome:
    """Return the dead letter of a delivery that no handler takes, nor the `handler` that its log names.

    `problem` says why its envelope is invalid, if it is; `types` are those that its log may hold, None for all.
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
    """Return the dead letter of a delivery whose log may not hold its type, None for all others."""
    if types is None or envelope.type in types:
        return None
    error = f"Its log may hold messages of {', '.join(sorted(types))}, not of {envelope.type}."
    return dead_letter(envelope, Reason.TYPE_NOT_ALLOWED, error, handler)


def business_id_of(route: Route, envelope: Envelope) -> str | None:
    """Return the business id of the sender, or the one in the body, or None. `prepare` reports invalid bodies."""
    if not envelope.business_id:
        try:
            return route.business_id(read_body(route, envelope.body)) or None
        except BaseException as error:  # a message's own validators may raise anything
            if is_from_outside(error):
                raise
    return id_as_written(route, envelope)


def id_as_written(route: Route, envelope: Envelope) -> str | None:
    """Return the business id of the sender, or the one in JSON text, valid or not. Java finds the same."""
    body, found = envelope.body, envelope.business_id
    if not found and isinstance(body, str):
        found = _id_in(body, route.wire_path)
    return canonical(found) if found and route.key_kind is KeyKind.UUID else found or None


def _id_in(text: str, path: Sequence[str]) -> str | None:
    """Return the text or integer at a path of a JSON object, or None. Java treats equal names and a rest alike."""
    try:
        found, _ = _JSON.raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str) or not is_text(found):
        return None
    return "0" if type(found) is _Integer and found == "-0" else str(found)


class _Integer(str):
    """A JSON integer of any length, as it is written."""

    __slots__ = ()


_JSON = json.JSONDecoder(parse_int=_Integer)


def read_body(route: Route, body: str | bytes) -> Message:
    """Return the message in a body of JSON text or msgpack bytes.

    Msgpack is read as the JSON of which it has the fingerprint, unless it holds what JSON does not have. Raises
    pydantic's `ValidationError`, what msgpack raises, and whatever the message's own validators do.
    """
    codec = message_codec(route.message_type)
    if isinstance(body, str):
        return codec.decode(body)
    if body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):  # in msgpack a number, and no message is one
        raise ValueError(
            "bytes are msgpack, and these are JSON: give it as text, in Spark body.cast('string')"
        )
    fields = unpack(body)
    try:
        text = json.dumps(fields) if codec.plain is None else None  # plain ones are read alike in both forms
    except TypeError:  # it holds bytes or a timestamp
        text = None
    return route.message_type.model_validate(fields) if text is None else codec.decode(text)


@dataclass(slots=True)
class _Parser:
    """Parses deliveries: all bodies of a type by one call, which ends at the first invalid one.

    `messages` has messages and dead letters; these have no fingerprint. `parsed` grows by one with each body.
    """

    handler: HandlerDefinition
    business_ids: Sequence[str | None]
    envelopes: Envelopes
    error_length: int
    is_redrive: bool
    messages: list[Any] = field(default_factory=list)
    fingerprints: list[bytes] = field(default_factory=list)
    parsed: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages += [None] * len(self.envelopes)
        self.fingerprints += [b""] * len(self.envelopes)

    def named(self, place: int) -> str | None:
        """Return the business id of a dead letter; None where Java may have found another one."""
        envelope, business_id = self.envelopes[place], self.business_ids[place]
        route = self.handler.routes.get(envelope.type)
        if self.is_redrive or route is None or id_as_written(route, envelope) == business_id:
            return business_id
        return None

    def refuse(self, place: int, reason: Reason, problem: str, *, has_stream: bool = True) -> None:
        """Make a delivery a dead letter."""
        business_id, envelope = self.named(place) if has_stream else None, self.envelopes[place]
        name, length = self.handler.name, self.error_length
        self.messages[place] = dead_letter(envelope, reason, problem, name, business_id, length=length)

    def parse(self) -> None:
        """Parse the bodies of all deliveries but those that are dead letters already."""
        places_by_type: defaultdict[str, list[int]] = defaultdict(list)
        for place, (type_, message) in enumerate(zip(self.envelopes.types, self.messages, strict=True)):
            if message is None:
                places_by_type[type_].append(place)
        for type_, places in places_by_type.items():
            route = self.handler.routes.get(type_)
            if route is None:
                for place in places:
                    self.refuse(place, Reason.UNKNOWN_TYPE, f"{self.handler.name} does not handle {type_}.")
                continue
            self._read(route, places)
            self._refuse_others(route, places)
            bodies, exact = self.envelopes.bodies, message_codec(route.message_type).exact
            for place in places:
                if type(self.messages[place]) is not Outcome:
                    try:
                        self.fingerprints[place] = _fingerprint(type_, bodies[place], exact)
                    except Exception as error:  # noqa: BLE001 - the body may hold anything
                        self.refuse(place, Reason.INVALID_BODY, repr(error))

    def _read(self, route: Route, places: Sequence[int]) -> None:
        bodies = [self.envelopes.bodies[place] for place in places]
        has_bytes = bytes in map(type, bodies)
        decode: Any = partial(read_body, route) if has_bytes else message_codec(route.message_type).decode
        first, waiting = len(self.parsed), iter(bodies)
        while (count := len(self.parsed) - first) < len(places):
            error: BaseException = StopIteration()  # which ends this quietly, if a validator raises it
            try:
                self.parsed.extend(map(decode, waiting))
            except BaseException as raised:  # noqa: BLE001 - a message's own validators may raise anything
                error = raised
            read = len(self.parsed) - first
            for place, message in zip(places[count:read], self.parsed[first + count :], strict=True):
                self.messages[place] = message
            if read < len(places):
                if is_from_outside(error):
                    raise error
                match error:
                    case ValidationError():
                        self.refuse(places[read], _reason(route, error), all_problems(error))
                    case ParsingTimedOutError():
                        self.refuse(places[read], Reason.HANDLER_TIMEOUT, str(error))
                    case _:
                        self.refuse(places[read], Reason.INVALID_BODY, repr(error))
                self.parsed.append(None)

    def _refuse_others(self, route: Route, places: Sequence[int]) -> None:
        """Make messages of one type dead letters that are of another stream."""
        path = ".".join(route.path)
        id_in = attrgetter(path)
        messages = self.messages
        ids = [(place, id_in(messages[place])) for place in places if type(messages[place]) is not Outcome]
        if self._are_routed(ids):
            return
        for place, id_ in ids:
            if self._are_routed([(place, id_)]):
                continue
            if not str(id_):
                self.refuse(place, Reason.NO_BUSINESS_ID, f"The field {path} is empty.", has_stream=False)
                continue
            problem = (
                f"The body names {str(id_)!r} in {path}; the delivery was routed by "
                f"{self.business_ids[place]!r}."
            )
            self.refuse(place, Reason.BUSINESS_ID_MISMATCH, problem)

    def _are_routed(self, ids: Sequence[tuple[int, Any]]) -> bool:
        """Return whether the business ids at some places are those that the deliveries were routed by."""
        routed = [self.business_ids[place] or "" for place, _ in ids]
        if {type(id_) for _, id_ in ids} <= {UUID}:
            # A UUID is compared by its bytes: writing it as text takes longer.
            return [id_.int.to_bytes(16) for _, id_ in ids] == id_keys(routed)
        return "" not in routed and [str(id_) for _, id_ in ids] == routed


def _problems(envelopes: Envelopes, keys: Sequence[IdKey]) -> Mapping[int, str]:
    """Return, by position, why deliveries could not be stored."""
    dated = [moment for moment in envelopes.enqueued_at if moment is not None]
    found: dict[int, str] = {}
    are_uuids = set(map(type, keys)) <= {bytes}  # and so valid text
    if are_uuids and not any(envelopes.headers) and min(dated, default=EARLIEST) >= EARLIEST:
        return found
    for position, envelope in enumerate(envelopes):
        headers, enqueued_at = envelope.headers, envelope.enqueued_at
        if not is_text(envelope.message_id):
            found[position] = f"Its id {envelope.message_id!a} is no valid text."
        elif headers and not all(map(is_text, (*headers, *headers.values()))):
            found[position] = f"Its headers hold something other than text: {dict(headers)!a}"
        elif enqueued_at is not None and enqueued_at < EARLIEST:
            found[position] = (
                "It was enqueued before the year 1601, where the times begin that can be stored."
            )
    return found


def _reason(route: Route, error: ValidationError) -> Reason:
    for problem in error.errors(include_url=False, include_context=False):
        path = problem["loc"]
        is_of_id = path and path == route.wire_path[: len(path)]
        if is_of_id and (problem["type"] == "missing" or problem["input"] is None):
            return Reason.NO_BUSINESS_ID
    return Reason.INVALID_BODY
