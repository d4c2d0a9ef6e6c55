"""Parsing deliveries: read the body, and make sure that it belongs to the stream it was routed to."""

from __future__ import annotations

from typing import NamedTuple

import msgpack
from pydantic import ValidationError

from handlers import Message
from handlers.app import HandlerDefinition
from handlers.codec import all_problems
from handlers.context import message_codec
from handlers.route import Route
from handlers.text import is_text
from runtime.clock import EARLIEST
from runtime.messages.envelope import Envelope
from runtime.messages.fingerprint import fingerprint
from runtime.messages.message_ids import IdKey, id_key
from runtime.messages.outcome import Outcome, Reason, dead_letter


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


Delivery = Prepared | Outcome
"""A delivery that was parsed: ready to be handled, or the dead letter that it is."""


def prepare(handler: HandlerDefinition, business_id: str | None, envelope: Envelope) -> Delivery:
    """Return the delivery ready to be handled, or the dead letter that it is.

    `business_id` is the one by which the delivery was routed, None when none was found in its body.
    """
    route = handler.routes.get(envelope.type)
    if route is None:
        problem = f"{handler.name} does not handle {envelope.type}."
        return dead_letter(envelope, Reason.UNKNOWN_TYPE, problem, handler.name, business_id)
    invalid = _problem(envelope)
    if invalid:
        return dead_letter(envelope, Reason.INVALID_ENVELOPE, invalid, handler.name, business_id)
    try:
        message = read_body(route, envelope.body)
        digest = fingerprint(envelope.type, envelope.body, packed=isinstance(envelope.body, bytes))
    except ValidationError as error:
        return dead_letter(envelope, _reason(route, error), all_problems(error), handler.name, business_id)
    except Exception as error:  # noqa: BLE001 - a message's own validators may raise anything
        return dead_letter(envelope, Reason.INVALID_BODY, repr(error), handler.name, business_id)
    named = route.business_id(message)
    if not named:
        problem = f"The field {'.'.join(route.path)} is empty."
        return dead_letter(envelope, Reason.NO_BUSINESS_ID, problem, handler.name)
    if named != business_id:
        problem = (
            f"The body names {named!r} in {'.'.join(route.path)}; the delivery was routed by {business_id!r}."
        )
        return dead_letter(envelope, Reason.BUSINESS_ID_MISMATCH, problem, handler.name, business_id)
    return Prepared(envelope, route, message, id_key(envelope.message_id), digest)


def read_body(route: Route, body: str | bytes) -> Message:
    """Return the message in a body of JSON text or msgpack bytes.

    Raises pydantic's `ValidationError`, what msgpack raises, and whatever the message's own validators do.
    """
    if isinstance(body, bytes):
        return route.message_type.model_validate(msgpack.unpackb(body))
    return message_codec(route.message_type).decode(body)


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
