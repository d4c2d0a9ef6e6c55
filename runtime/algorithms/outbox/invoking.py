"""Invoking a handler on an entity: the next entity, with an outbox entry for the message, or a dead letter. Pure."""

from __future__ import annotations

from dataclasses import replace

from handlers import Context
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError, invoke_handler
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.entry import Entry, outputs_of
from runtime.batches.context import FORGOTTEN
from runtime.batches.open_batches import BatchKey
from runtime.errors import UsageError
from runtime.messages.deliveries import Delivery, Prepared
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.outcome import MAX_ERROR_LENGTH, Outcome, Output, Reason, Status, dead_letter
from runtime.storage.stored_state import read_state


def invoke(
    handler: HandlerDefinition,
    entity: Entity,
    message: Prepared,
    now: int,
    batch: BatchKey | None = None,
    *,
    limits: MessageLimits = USUAL,
) -> Entity | Outcome:
    """Handle a message on an entity. Return the entity with what it did, or the dead letter that the message is.

    `batch` is the batch that the message is handled in, None for a single message; `limits` bound what it publishes.
    """
    now, version = max(now, entity.last_now), entity.version + 1
    envelope, before = message.envelope, handler.codec.upcast(entity.state, entity.schema)
    context = Context(
        handler.name,
        message.business_id,
        envelope.message_id,
        now,
        envelope.headers,
        draw_key=handler.draw_key,
        room=limits.room,
    )
    route, state = message.route, read_state(handler.codec, before)
    try:
        _, after = invoke_handler(
            handler, route.revisions[route.newest], state, before, message=message.message, context=context
        )
    except HandlerFailedError as error:
        return refused(handler, message, error.reason, str(error), limits.error)
    if context.documents:
        raise UsageError(
            f"{handler.name} stores documents (store_document), which an outbox cannot refer to: process its messages "
            f"with the state-based algorithm."
        )
    published = [
        (message_id, name, body.decode(), headers) for message_id, name, body, headers in context.published
    ]
    outputs, type_ = outputs_of(published, version, now), envelope.type
    entry = Entry(message.fingerprint, now, version, outputs, None, type_, batch)
    changed = replace(
        entity.with_entry(message.key, entry),
        state=after,
        schema=handler.codec.version,
        version=version,
        last_now=now,
    )
    return if_it_fits(handler, changed, message)


def if_it_fits(handler: HandlerDefinition, entity: Entity, message: Prepared) -> Entity | Outcome:
    """Return an entity that can be stored, or the dead letter of the message that would make it too large."""
    if entity.too_large:
        return refused(handler, message, Reason.STATE_TOO_LARGE, entity.too_large)
    return entity


def after_forgetting(
    handler: HandlerDefinition, entity: Entity, delivery: Delivery, late: str = "refuse"
) -> Outcome | None:
    """Return the outcome of a delivery that an entity no longer takes since it was forgotten, None for all others.

    `late` says what to do with a message that may have been processed before.
    """
    tombstone = entity.tombstone
    if tombstone is None or (isinstance(delivery, Prepared) and delivery.key in entity.outbox):
        return None
    if tombstone.refuses:
        return dead_letter(delivery.envelope, Reason.FORGOTTEN, FORGOTTEN, handler.name, delivery.business_id)
    if isinstance(delivery, Outcome) or late != "refuse":
        return None
    enqueued_at = delivery.envelope.enqueued_at
    if enqueued_at is None or enqueued_at <= tombstone.at:
        return concluded(handler, delivery, Status.TOO_LATE)
    return None


def concluded(
    handler: HandlerDefinition,
    message: Prepared,
    status: Status,
    version: int | None = None,
    outputs: tuple[Output, ...] = (),
) -> Outcome:
    """Return the outcome of a message that was handled, now or before, with the outputs that were published now."""
    return Outcome(message.envelope, handler.name, message.business_id, status, None, None, version, outputs)


def id_reused(handler: HandlerDefinition, message: Prepared) -> Outcome:
    """Return the outcome of another message that has the id of one that was handled."""
    problem = f"Another message with the id {message.envelope.message_id} was processed."
    return refused(handler, message, Reason.ID_REUSED, problem)


def refused(
    handler: HandlerDefinition,
    message: Prepared,
    reason: Reason,
    problem: str,
    length: int = MAX_ERROR_LENGTH,
) -> Outcome:
    """Return the dead letter that a message is."""
    return dead_letter(message.envelope, reason, problem, handler.name, message.business_id, length=length)
