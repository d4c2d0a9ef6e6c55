"""Parse the bodies of deliveries. Deliveries that are invalid, or were routed to the wrong stream, are rejected."""

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
from handlers.app import HandlerDefinition, KeyKind, Route
from handlers.codec import all_problems, is_text, unpack
from handlers.context import message_codec
from runtime.clock import EARLIEST
from runtime.messages.envelope import Envelope, Envelopes, IdKey, canonical, fingerprint, id_keys
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.messages.sizes import NOT_KEPT, USUAL, MessageLimits, TooLarge, find_excesses, is_note
from runtime.namesakes import is_from_outside


class Prepared(NamedTuple):
    """A delivery with a valid body, routed to the stream of the business id in the body."""

    envelope: Envelope
    route: Route
    message: Message
    key: IdKey
    fingerprint: bytes

    @property
    def business_id(self) -> str:
        return self.route.business_id(self.message)


Delivery = Prepared | Outcome  # ready to be handled, or a dead letter


@dataclass(slots=True)
class Deliveries(Sequence[Delivery]):
    """Parsed deliveries by column. Rows are created on access."""

    envelopes: Envelopes
    keys: Sequence[IdKey]  # arbitrary for dead letters
    messages: Sequence[Message | Outcome]  # an outcome is a dead letter
    fingerprints: Sequence[bytes]  # empty for dead letters
    routes: Mapping[str, Route]  # by the name of a type
    letters: Sequence[int] | None = None  # in a redrive, the numbers of the redriven dead letters

    @classmethod
    def of(cls, deliveries: Sequence[Delivery]) -> Deliveries:
        """Convert deliveries to columns."""
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
        """Return the id keys of the deliveries from `position` on that are not dead letters."""
        rows = zip(self.keys[position:], self.messages[position:], strict=True)
        return {key for key, message in rows if not isinstance(message, Outcome)}

    def take(self, positions: Sequence[int]) -> Deliveries:
        envelopes = Envelopes(*[[column[at] for at in positions] for column in self.envelopes.columns()])
        keys = [self.keys[at] for at in positions]
        messages = [self.messages[at] for at in positions]
        return Deliveries(envelopes, keys, messages, [self.fingerprints[at] for at in positions], self.routes)

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> Deliveries: ...

    def __getitem__(self, index: int | slice) -> Delivery | Deliveries:
        if index == slice(0, None):
            return self
        if isinstance(index, slice):
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
    """Return whether a delivery has the fingerprint `recorded`, under the name of its type or any alias of the type."""
    if delivery.fingerprint == recorded:
        return True
    others = [name for name in delivery.route.names if name != delivery.envelope.type]
    return recorded in _fingerprints(delivery.envelope, others, delivery.route)


def has_fingerprint(envelope: Envelope, names: Iterable[str], recorded: bytes, route: Route | None) -> bool:
    """Return whether a delivery, valid or not, has fingerprint `recorded` for a type in `names`. `route`: its own."""
    try:
        return recorded in _fingerprints(envelope, names, route)
    except Exception:  # noqa: BLE001 - a body may hold anything
        return False


def _fingerprints(envelope: Envelope, names: Iterable[str], route: Route | None) -> list[bytes]:
    exact = None if route is None else message_codec(route.message_type).exact
    return [_fingerprint(name, envelope.body, exact) for name in names]


def _fingerprint(name: str, body: str | bytes, exact: Callable[[str | bytes], str | bytes] | None) -> bytes:
    """Return the fingerprint of a body of the type `name`. `exact` normalises numbers in JSON, None: nothing."""
    if isinstance(body, bytes):
        return fingerprint(name, body, packed=True)
    return fingerprint(name, body if exact is None else exact(body))


class ParsingTimedOutError(BaseException):
    """Raised by the supervisor inside a message's own validators when they exceed the time limit."""


def prepare(
    handler: HandlerDefinition, business_id: str | None, envelope: Envelope, limits: MessageLimits = USUAL
) -> Delivery:
    """Parse one delivery as `prepare_all` does."""
    return prepare_all(handler, business_id, Envelopes.of([envelope]), limits)[0]


def prepare_all(
    handler: HandlerDefinition,
    business_id: str | None,
    envelopes: Envelopes,
    limits: MessageLimits = USUAL,
    *,
    letters: Sequence[int] | None = None,
) -> Deliveries:
    """Parse deliveries routed by `business_id` (`None`: by none). Those that cannot be handled become dead letters.

    `letters`: the numbers of the redriven dead letters, or `None` if this is no redrive.
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
    """Parse deliveries as `prepare_all` does. `business_ids` has, for each delivery, the business id that routed it."""
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
    """Return the dead letter of a delivery over a limit, or else `None`. Does not validate the body."""
    excess = find_excesses(Envelopes.of([envelope]), limits).get(0)
    return None if excess is None else excess.of(handler)


def unroutable(
    envelope: Envelope, problem: str | None, handler: str | None = None, types: Collection[str] | None = None
) -> Outcome:
    """Return the dead letter of a delivery that cannot be routed.

    `problem` says why the row of the log is invalid (`None`: it is valid). `handler` is the handler that the log names,
    if any. `types` are the types that the log allows (`None`: all).
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
    """Return the dead letter of a delivery whose type is not among `types`, or else `None`. `types=None` allows all."""
    if types is None or envelope.type in types:
        return None
    error = f"Its log allows messages of {', '.join(sorted(types))}, not of {envelope.type}."
    return dead_letter(envelope, Reason.TYPE_NOT_ALLOWED, error, handler)


def business_id_of(route: Route, envelope: Envelope) -> str | None:
    """Return the business id given by the sender, or else found in the body, or `None` if there is none."""
    if not envelope.business_id:
        try:
            return route.business_id(read_body(route, envelope.body)) or None
        except BaseException as error:  # a message's own validators may raise anything
            if is_from_outside(error):
                raise
    return id_as_written(route, envelope)


def id_as_written(route: Route, envelope: Envelope) -> str | None:
    """Return the business id given by the sender or else found in JSON text, which may be invalid, or `None`.

    `runtime.spark.logs.normalise` follows the same rule.
    """
    body, business_id = envelope.body, envelope.business_id
    if not business_id and isinstance(body, str):
        business_id = _id_in(body, route.wire_path)
    return canonical(business_id) if business_id and route.key_kind is KeyKind.UUID else business_id or None


def _id_in(text: str, path: Sequence[str]) -> str | None:
    try:
        value, _ = _JSON.raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not is_text(value):
        return None
    return "0" if type(value) is _Integer and value == "-0" else str(value)


class _Integer(str):
    """A JSON integer of any length, in its original spelling."""

    __slots__ = ()


_JSON = json.JSONDecoder(parse_int=_Integer)


def read_body(route: Route, body: str | bytes) -> Message:
    """Parse a body of JSON text or msgpack bytes. Raises errors of pydantic, of msgpack and of validators."""
    codec = message_codec(route.message_type)
    if isinstance(body, str):
        return codec.decode(body)
    if body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):  # not a message: msgpack would read a number
        raise ValueError(
            "the body holds JSON as bytes, which are read as msgpack: pass text, in Spark body.cast('string')"
        )
    fields = unpack(body)
    try:
        text = json.dumps(fields) if codec.plain is None else None  # plain types decode equally from both
    except TypeError:  # bytes or a timestamp
        text = None
    return route.message_type.model_validate(fields) if text is None else codec.decode(text)


@dataclass(slots=True)
class _Parser:
    """Parses deliveries, grouped by type. `parsed` grows with each body, so that the supervisor sees the progress."""

    handler: HandlerDefinition
    business_ids: Sequence[str | None]
    envelopes: Envelopes
    error_length: int
    is_redrive: bool
    messages: list[Any] = field(init=False)
    fingerprints: list[bytes] = field(init=False)
    parsed: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages = [None] * len(self.envelopes)
        self.fingerprints = [b""] * len(self.envelopes)

    def named(self, position: int) -> str | None:
        """Return the business id that routed a delivery, or, outside redrives, `None` if it names another or none."""
        envelope, business_id = self.envelopes[position], self.business_ids[position]
        route = self.handler.routes.get(envelope.type)
        if self.is_redrive or route is None or id_as_written(route, envelope) == business_id:
            return business_id
        return None

    def refuse(self, position: int, reason: Reason, problem: str, *, has_stream: bool = True) -> None:
        business_id = self.named(position) if has_stream else None
        self.messages[position] = dead_letter(
            self.envelopes[position],
            reason,
            problem,
            self.handler.name,
            business_id,
            length=self.error_length,
        )

    def parse(self) -> None:
        positions_by_type: defaultdict[str, list[int]] = defaultdict(list)
        for position, (type_, message) in enumerate(zip(self.envelopes.types, self.messages, strict=True)):
            if message is None:
                positions_by_type[type_].append(position)
        for type_, positions in positions_by_type.items():
            route = self.handler.routes.get(type_)
            if route is None:
                problem = f"{self.handler.name} does not handle {type_}."
                for position in positions:
                    self.refuse(position, Reason.UNKNOWN_TYPE, problem)
                continue
            self._read(route, positions)
            self._refuse_misrouted(route, positions)
            bodies, exact = self.envelopes.bodies, message_codec(route.message_type).exact
            for position in positions:
                if type(self.messages[position]) is not Outcome:
                    try:
                        self.fingerprints[position] = _fingerprint(type_, bodies[position], exact)
                    except Exception as error:  # noqa: BLE001 - the body may hold anything
                        self.refuse(position, Reason.INVALID_BODY, repr(error))

    def _read(self, route: Route, positions: Sequence[int]) -> None:
        bodies = [self.envelopes.bodies[position] for position in positions]
        has_bytes = bytes in map(type, bodies)
        decode: Any = partial(read_body, route) if has_bytes else message_codec(route.message_type).decode
        first, waiting = len(self.parsed), iter(bodies)
        while (count := len(self.parsed) - first) < len(positions):
            error: BaseException = StopIteration()  # if raised by a validator, it ends `extend` silently
            try:
                self.parsed.extend(map(decode, waiting))
            except BaseException as raised:  # noqa: BLE001 - a message's own validators may raise anything
                error = raised
            read = len(self.parsed) - first
            for position, message in zip(positions[count:read], self.parsed[first + count :], strict=True):
                self.messages[position] = message
            if read < len(positions):
                if is_from_outside(error):
                    raise error
                match error:
                    case ValidationError():
                        self.refuse(positions[read], _reason(route, error), all_problems(error))
                    case ParsingTimedOutError():
                        self.refuse(positions[read], Reason.HANDLER_TIMEOUT, str(error))
                    case _:
                        self.refuse(positions[read], Reason.INVALID_BODY, repr(error))
                self.parsed.append(None)

    def _refuse_misrouted(self, route: Route, positions: Sequence[int]) -> None:
        path, messages = ".".join(route.path), self.messages
        id_in = attrgetter(path)
        ready = [position for position in positions if type(messages[position]) is not Outcome]
        ids = [(position, id_in(messages[position])) for position in ready]
        if self._are_routed(ids):
            return
        for position, id_ in ids:
            if self._are_routed([(position, id_)]):
                continue
            if not str(id_):
                self.refuse(position, Reason.NO_BUSINESS_ID, f"The field {path} is empty.", has_stream=False)
                continue
            routed = self.business_ids[position]
            problem = f"The body names {str(id_)!r} in {path}; the delivery was routed by {routed!r}."
            self.refuse(position, Reason.BUSINESS_ID_MISMATCH, problem)

    def _are_routed(self, ids: Sequence[tuple[int, Any]]) -> bool:
        routed = [self.business_ids[position] or "" for position, _ in ids]
        if {type(id_) for _, id_ in ids} <= {UUID}:
            # Comparing bytes is faster than formatting UUIDs.
            return [id_.int.to_bytes(16) for _, id_ in ids] == id_keys(routed)
        return "" not in routed and [str(id_) for _, id_ in ids] == routed


def _problems(envelopes: Envelopes, keys: Sequence[IdKey]) -> Mapping[int, str]:
    dated = [moment for moment in envelopes.enqueued_at if moment is not None]
    problems: dict[int, str] = {}
    are_uuids = set(map(type, keys)) <= {bytes}  # UUIDs are valid Unicode
    if are_uuids and not any(envelopes.headers) and min(dated, default=EARLIEST) >= EARLIEST:
        return problems
    for position, envelope in enumerate(envelopes):
        headers, enqueued_at = envelope.headers, envelope.enqueued_at
        if not is_text(envelope.message_id):
            problems[position] = f"Its id {envelope.message_id!a} is invalid Unicode."
        elif headers and not all(map(is_text, (*headers, *headers.values()))):
            problems[position] = f"Its headers must contain only text, not {dict(headers)!a}."
        elif enqueued_at is not None and enqueued_at < EARLIEST:
            problems[position] = "Its enqueued time is before 1601, the earliest that a store can hold."
    return problems


def _reason(route: Route, error: ValidationError) -> Reason:
    for problem in error.errors(include_url=False, include_context=False):
        path = problem["loc"]
        is_of_id = path and path == route.wire_path[: len(path)]
        if is_of_id and (problem["type"] == "missing" or problem["input"] is None):
            return Reason.NO_BUSINESS_ID
    return Reason.INVALID_BODY
