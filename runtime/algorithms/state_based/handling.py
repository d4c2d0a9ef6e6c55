"""Handling: new messages of a stream one after another, each on the state that the one before it left.

Messages in a row that need no other decision are handled in one loop, which has the state and the time at hand. What
is to be noted of each is noted for all of them when it ends.
"""

from __future__ import annotations

from typing import NamedTuple

from handlers import Context
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError, invoke_handler
from runtime.algorithms.state_based.transaction import Transaction
from runtime.batches.context import BatchContext
from runtime.clock import Clock
from runtime.documents.names import object_folder
from runtime.messages.outcome import Reason
from runtime.storage import limits
from runtime.storage.columns import SIZE_BESIDE, size_beside_state
from runtime.storage.new_versions import Made


class Failure(NamedTuple):
    """Why a new message makes no version, and its position."""

    position: int
    reason: Reason
    error: str


class Handling:
    """Handles the new messages of one stream."""

    def __init__(
        self, handler: HandlerDefinition, clock: Clock, batch: BatchContext, business_id: str
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._business_id = business_id
        self._output_room = batch.limits.room

    def handle(self, transaction: Transaction, first: int, end: int) -> Failure | None:
        """Handle the messages from position `first` on, up to `end`, and add the versions that they make.

        Ends before when the transaction has no room for more at once, when documents were made, and when a message
        makes no version: then returns why.
        """
        handler, clock, business_id = self._handler, self._clock, self._business_id
        name, draw_key, output_room = handler.name, handler.draw_key, self._output_room
        deliveries, envelopes = transaction.deliveries, transaction.deliveries.envelopes
        state, before, last_now = transaction.state, transaction.before, transaction.last_now
        room, attempt = transaction.room(), transaction.attempt
        made: list[Made] = []
        afters: list[bytes] = []
        size, context, failure = 0, None, None
        rows = slice(first, min(end, first + room.versions))
        columns = (envelopes.message_ids, envelopes.types, envelopes.headers, deliveries.messages)
        for position, message_id, type_, headers, message in zip(
            range(rows.start, rows.stop), *(column[rows] for column in columns), strict=True
        ):
            now = max(clock(), last_now)
            place = attempt and self._place(attempt, transaction.number + len(made) + 1)
            context = Context(
                name,
                business_id,
                message_id,
                now,
                headers,
                place=place,
                draw_key=draw_key,
                room=output_room,
            )
            route = deliveries.routes[type_]
            revision = route.newest
            method = route.revisions[revision]
            try:
                returned, after = invoke_handler(
                    handler, method, state, before, message=message, context=context
                )
            except HandlerFailedError as error:
                # The handler may have changed the state before it failed.
                state = handler.codec.reread(before)
                failure = Failure(position, error.reason, str(error))
                break
            captured = context.captured or None
            beside = SIZE_BESIDE + len(type_)
            if captured or headers:
                beside = size_beside_state(type_, headers, captured)
            largest = max(len(after), beside)
            if largest > limits.MAX_STATE_BYTES:
                problem = (
                    f"The version would take {largest} bytes; up to {limits.MAX_STATE_BYTES} can be stored."
                )
                failure = Failure(position, Reason.STATE_TOO_LARGE, problem)
                break
            made.append((position, now, revision, captured, context.published))
            afters.append(after)
            size += beside if after == before else beside + len(after)
            state, before, last_now = returned, after, now
            if context.documents or size >= room.size:
                break
        transaction.extend(made, afters, size, state)
        if made and context and context.documents and failure is None:
            transaction.add_documents(context.documents)
        return failure

    def _place(self, attempt: str, version: int) -> str:
        """Return what the names of the documents begin with that an attempt at a version makes."""
        return f"{object_folder(self._handler.name, self._business_id)}/{attempt}-{version}"
