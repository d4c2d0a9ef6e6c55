"""Handling: new messages of a stream one after another, each on the state that the one before left.

Messages in a row that need no other decision are one chain of calls. What is to be noted of each is noted for all of
them when it ends.
"""

from __future__ import annotations

from typing import NamedTuple

from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import failure_of
from runtime.algorithms.state_based.chain import Chain, Progress, Rows
from runtime.algorithms.state_based.transaction import Transaction
from runtime.batches.context import BatchContext
from runtime.blame import is_from_outside
from runtime.clock import Clock
from runtime.documents.names import object_folder
from runtime.messages.outcome import Reason
from runtime.storage import limits


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
        self._business_id = business_id
        self._chain = Chain(handler, business_id, clock, batch.limits.room)

    def handle(self, transaction: Transaction, first: int, end: int) -> Failure | None:
        """Handle the messages from position `first` on, up to `end`, and add the versions that they make.

        Ends before when the transaction has no room for more at once, when documents were made, and when a message
        makes no version: then returns why.
        """
        room, envelopes = transaction.room(), transaction.deliveries.envelopes
        rows = Rows(
            envelopes.message_ids,
            envelopes.types,
            envelopes.headers,
            transaction.deliveries.messages,
            first,
            min(end, first + room.versions),
        )
        progress = Progress(transaction.state, transaction.before, transaction.last_now, transaction.number)
        failure = None
        try:
            self._chain.handle(
                progress, rows, room.size, transaction.attempt and self._place(transaction.attempt)
            )
        except BaseException as error:
            if not progress.is_calling or is_from_outside(error):
                raise
            failed = failure_of(error)
            failure = Failure(first + len(progress.made), failed.reason, str(failed))
            # The handler may have changed the state before it failed.
            progress.state = self._handler.codec.reread(progress.before)
        if progress.excess:
            failure = _too_large(first + len(progress.made), progress.excess)
        transaction.extend(progress.made, progress.afters, progress.size, progress.state)
        if progress.documents:
            transaction.add_documents(progress.documents)
        return failure

    def _place(self, attempt: str) -> str:
        """Return what the names of the documents begin with that an attempt makes."""
        return f"{object_folder(self._handler.name, self._business_id)}/{attempt}"


def _too_large(position: int, size: int) -> Failure:
    problem = f"The version would take {size} bytes; up to {limits.MAX_STATE_BYTES} can be stored."
    return Failure(position, Reason.STATE_TOO_LARGE, problem)
