"""Handling: new messages of a stream one after another, each on the state that the one before it left.

Messages in a row that need no other decision are handled in one loop, which has the state and the time at hand. What
is to be noted of each is noted for all of them when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from handlers import Context
from handlers.app import HandlerDefinition
from handlers.documents import NewDocument
from runtime.algorithms.invocation import HandlerFailedError, invoke_handler
from runtime.algorithms.state_based.transaction import Transaction
from runtime.batches.context import BatchContext
from runtime.clock import Clock
from runtime.documents.names import object_folder
from runtime.messages.outcome import Reason
from runtime.storage import limits
from runtime.storage.columns import size_beside_state
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
        handler, clock = self._handler, self._clock
        deliveries, envelopes = transaction.deliveries, transaction.deliveries.envelopes
        state, before, last_now = transaction.state, transaction.before, transaction.last_now
        room, number = transaction.room(), transaction.number
        made: list[Made] = []
        afters: list[bytes] = []
        documents: Sequence[NewDocument] = ()
        size, failure = 0, None
        rows = slice(first, min(end, first + room.versions))
        columns = (envelopes.message_ids, envelopes.types, envelopes.headers, deliveries.messages)
        for position, message_id, type_, headers, message in zip(
            range(rows.start, rows.stop), *[column[rows] for column in columns], strict=True
        ):
            now = max(clock(), last_now)
            place = transaction.attempt and self._place(transaction.attempt, number + len(made) + 1)
            context = self._context(message_id, now, headers, place)
            route = deliveries.routes[type_]
            method = route.revisions[route.newest]
            try:
                returned, after = invoke_handler(
                    handler, method, state, before, message=message, context=context
                )
            except HandlerFailedError as error:
                # The handler may have changed the state before it failed.
                state = handler.codec.reread(before)
                failure = Failure(position, error.reason, str(error))
                break
            beside = size_beside_state(type_, headers, context.captured)
            if max(len(after), beside) > limits.MAX_STATE_BYTES:
                failure = _too_large(position, max(len(after), beside))
                break
            made.append((position, now, route.newest, context.captured or None, context.published))
            afters.append(after)
            size += beside if after == before else beside + len(after)
            state, before, last_now, documents = returned, after, now, context.documents
            if documents or size >= room.size:
                break
        transaction.extend(made, afters, size, state)
        if documents:
            transaction.add_documents(documents)
        return failure

    def _context(
        self, message_id: str, now: int, headers: Mapping[str, str] | None, place: str | None
    ) -> Context:
        name, draw_key = self._handler.name, self._handler.draw_key
        return Context(
            name,
            self._business_id,
            message_id,
            now,
            headers,
            place=place,
            draw_key=draw_key,
            room=self._output_room,
        )

    def _place(self, attempt: str, version: int) -> str:
        """Return what the names of the documents begin with that an attempt at a version makes."""
        return f"{object_folder(self._handler.name, self._business_id)}/{attempt}-{version}"


def _too_large(position: int, size: int) -> Failure:
    problem = f"The version would take {size} bytes; up to {limits.MAX_STATE_BYTES} can be stored."
    return Failure(position, Reason.STATE_TOO_LARGE, problem)
