"""Chains: new messages of a stream handled one after another, each on the state that the one before left.

A batch spends most of its time in this loop. What is to be noted of each message is noted for all when the chain ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from handlers import Context
from handlers.app import HandlerDefinition
from handlers.route import Method
from runtime.algorithms.invocation import failure_of, settle
from runtime.algorithms.state_based.transaction import Transaction
from runtime.batches.context import BatchContext
from runtime.blame import is_from_outside
from runtime.clock import Clock
from runtime.documents.names import object_folder
from runtime.messages.outcome import Reason
from runtime.storage import limits
from runtime.storage.columns import size_beside_state
from runtime.storage.new_versions import MadeColumns


class Way(NamedTuple):
    """How messages of a type are handled: by which method, its revision, and what a version takes beside its state."""

    method: Method
    revision: int
    size: int


class Failure(NamedTuple):
    """Why a new message makes no version, and its position."""

    position: int
    reason: Reason
    error: str


class Chain:
    """Handles the new messages of one stream."""

    def __init__(
        self, handler: HandlerDefinition, clock: Clock, batch: BatchContext, business_id: str
    ) -> None:
        self._handler = handler
        self._business_id = business_id
        self._clock = clock
        self._room = batch.limits.room
        self._ways = _ways(handler)
        self._context: Context | None = None
        """That of the call under way. An error is the handler's as long as there is one."""

    def handle(self, transaction: Transaction, first: int, end: int) -> Failure | None:
        """Handle the messages from position `first` on, up to `end`, and add the versions that they make.

        Ends before when the transaction has no room for more at once, when documents were made, and when a message
        makes no version: then returns why.
        """
        run = partial(self._handle, transaction, first, end)
        return self._handler.supervision.call(run, lambda: self._context)

    def _handle(self, transaction: Transaction, first: int, end: int) -> Failure | None:
        handler, business_id, clock, ways = self._handler, self._business_id, self._clock, self._ways
        draw_key, output_room, max_bytes = handler.draw_key, self._room, limits.MAX_STATE_BYTES
        state, before, last_now = transaction.state, transaction.before, transaction.last_now
        place = transaction.attempt and self._place(transaction.attempt)
        room = transaction.room()
        made, afters, documents, failure, size = MadeColumns(), list[bytes](), [], None, 0
        part = slice(first, min(end, first + room.versions))
        envelopes = transaction.deliveries.envelopes
        columns = (envelopes.message_ids, envelopes.types, envelopes.headers, transaction.deliveries.messages)
        try:
            for message_id, type_, headers, message in zip(*[each[part] for each in columns], strict=True):
                method, revision, beside = ways[type_]
                now = max(clock(), last_now)
                self._context = context = Context(
                    handler.name,
                    business_id,
                    message_id,
                    now,
                    headers,
                    room=output_room,
                    place=place and f"{place}-{transaction.number + len(made) + 1}",
                    draw_key=draw_key,
                )
                values = list(state.__dict__.values())
                returned = method(state, message, context)
                returned, after = settle(handler, method, state, values, before, returned, context)
                published, captured, documents = context.published, context.captured, context.documents
                self._context = None
                if headers or captured:
                    beside = size_beside_state(type_, headers, captured)
                if len(after) > max_bytes or beside > max_bytes:
                    failure = _too_large(first + len(afters), max(len(after), beside))
                    break
                made.nows.append(now)
                made.revisions.append(revision)
                made.captured.append(captured or None)
                made.published.append(published)
                afters.append(after)
                size += beside if after == before else beside + len(after)
                state, before, last_now = returned, after, now
                if documents or size >= room.size:
                    break
        except BaseException as error:
            called, self._context = self._context, None
            if called is None or is_from_outside(error):
                raise
            failed = failure_of(called.exceeded or error)
            failure, documents = Failure(first + len(afters), failed.reason, str(failed)), []
            # The handler may have changed the state before it failed.
            state = handler.codec.reread(before)
        made.positions = list(range(first, first + len(afters)))
        transaction.extend(made, afters, size, state)
        if documents and failure is None:
            transaction.add_documents(documents)
        return failure

    def _place(self, attempt: str) -> str:
        """Return what the names of the documents of an attempt begin with."""
        return f"{object_folder(self._handler.name, self._business_id)}/{attempt}"


def _too_large(position: int, size: int) -> Failure:
    problem = f"The version would take {size} bytes; up to {limits.MAX_STATE_BYTES} can be stored."
    return Failure(position, Reason.STATE_TOO_LARGE, problem)


@lru_cache(maxsize=64)
def _ways(handler: HandlerDefinition) -> Mapping[str, Way]:
    return {
        type_: Way(route.revisions[route.newest], route.newest, size_beside_state(type_, None, None))
        for type_, route in handler.routes.items()
    }
