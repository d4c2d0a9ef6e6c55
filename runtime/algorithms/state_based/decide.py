"""Decisions: the outcome of each delivery of a stream, given its history.

A *new* message is handled on the newest state and adds a version; a *known* one is replayed on the version before its
own, and compared with the digests of that; all others are *refused*. Pure but for the clock and for what handlers
capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from handlers import CodecError, Context
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError, Invocation, invoke_handler, outputs_of
from runtime.algorithms.state_based.difference import Difference
from runtime.algorithms.state_based.replay import find_difference, replay
from runtime.algorithms.state_based.transaction import Transaction
from runtime.batches.context import HELD_BACK, BatchContext
from runtime.clock import Clock, shown_time
from runtime.errors import DifferenceError, ReplayFailedError
from runtime.messages.copies import is_copy
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output, Reason, Status, dead_letter
from runtime.messages.parsing import Delivery, Prepared
from runtime.storage import limits
from runtime.storage.columns import StateVersion
from runtime.storage.version import Version

FUTURE_TOLERANCE = 3600 * 1_000_000
"""How far ahead of the clock, in microseconds, a message may say that it was enqueued."""


class Known(NamedTuple):
    """A delivery of a message that made a version before."""

    delivery: Prepared
    version: Version


class Decider:
    """Decides on the deliveries of one stream, one after another, in a transaction."""

    def __init__(
        self, handler: HandlerDefinition, clock: Clock, batch: BatchContext, business_id: str
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._batch = batch
        self._business_id = business_id

    def decide(self, delivery: Delivery, transaction: Transaction) -> None:
        """Add the outcome of a delivery, and the version that it makes, to the transaction.

        Raises `ReplayFailedError` and `DifferenceError`.
        """
        match self._classified(delivery, transaction):
            case Prepared() as new:
                self._handle(new, transaction)
            case Known() as known:
                self._replay(known, transaction)
            case Outcome() as refused:
                transaction.reply(refused)

    def _classified(self, delivery: Delivery, transaction: Transaction) -> Prepared | Known | Outcome:
        """Return a delivery as what it is: new, known, or refused."""
        if isinstance(delivery, Outcome):
            return delivery
        version = transaction.find(delivery.key)
        if version is not None:
            return Known(delivery, version)
        return self._refusal(delivery.envelope, transaction) or delivery

    def _handle(self, new: Prepared, transaction: Transaction) -> None:
        """Handle a new message on the newest state, and add the version that it makes."""
        envelope, revision = new.envelope, new.route.newest
        now = max(self._clock(), transaction.last_now)
        context = Context(self._handler.name, self._business_id, envelope.message_id, now, envelope.headers)
        try:
            invocation = invoke_handler(
                self._handler,
                new.route,
                revision,
                state=transaction.state,
                before=transaction.before,
                message=new.message,
                context=context,
            )
        except HandlerFailedError as error:
            # The handler may have changed the state before it failed.
            transaction.state = self._handler.codec.reread(transaction.before)
            transaction.reply(self._dead_letter(envelope, Reason.HANDLER_ERROR, str(error)))
            return
        record = _record(new, now, revision, invocation)
        size = record.raw_size()
        problem = _too_large(invocation.after, size, record)
        if problem is not None:
            transaction.reply(self._dead_letter(envelope, Reason.STATE_TOO_LARGE, problem))
            return
        transaction.add(record, size, invocation.state, invocation.after)
        outputs = outputs_of(invocation, transaction.number, now)
        transaction.reply(
            self._outcome(envelope, Status.PROCESSED, transaction.number, outputs), delivered=new.key
        )

    def _replay(self, known: Known, transaction: Transaction) -> None:
        """Handle a known message again on the version before its own, and compare. Nothing is added."""
        delivery, version = known
        envelope, key = delivery.envelope, delivery.key
        if not is_copy(delivery, version.record.fingerprint):
            problem = (
                f"Version {version.number} was made by another message with the id {envelope.message_id}."
            )
            transaction.reply(self._dead_letter(envelope, Reason.ID_REUSED, problem))
            return
        try:
            invocation = replay(self._handler, self._business_id, delivery, version)
            difference = find_difference(
                self._handler, invocation, version, lambda: _first_outputs(known, transaction)
            )
        except (HandlerFailedError, CodecError) as error:
            transaction.reply(self._without_outputs(known, transaction, Reason.REPLAY_FAILED, str(error)))
            return
        if difference is not None:
            self._fail_if_asked(envelope, difference)
            refused = self._without_outputs(known, transaction, Reason.NONDETERMINISTIC, str(difference))
            transaction.reply(refused)
            return
        is_first = key not in transaction.delivered
        is_ours = version.batch is not None and version.batch == self._batch.batch_id
        status = Status.PROCESSED if is_first and is_ours else Status.DUPLICATE
        outputs = outputs_of(invocation, version.number, version.record.now) if is_first else ()
        transaction.reply(self._outcome(envelope, status, version.number, outputs), delivered=key)

    def _refusal(self, envelope: Envelope, transaction: Transaction) -> Outcome | None:
        """Return the outcome of an unknown message that must not be handled, None for all others."""
        enqueued_at = envelope.enqueued_at
        if enqueued_at is not None and self._is_in_future(enqueued_at):
            error = f"It was enqueued at {shown_time(enqueued_at)}, more than an hour ahead of the clock."
            return self._dead_letter(envelope, Reason.ENQUEUED_IN_FUTURE, error)
        if self._batch.late != "process" and transaction.head.is_too_late(enqueued_at):
            return self._outcome(envelope, Status.TOO_LATE)
        if transaction.dead_letter and self._batch.stops_streams:
            return self._dead_letter(envelope, Reason.HELD_BACK, HELD_BACK)
        return None

    def _is_in_future(self, enqueued_at: int) -> bool:
        return not self._batch.is_cascade and enqueued_at > self._clock() + FUTURE_TOLERANCE

    def _fail_if_asked(self, envelope: Envelope, difference: Difference) -> None:
        if self._batch.on_difference == "fail":
            stream = f"{self._handler.name}-{self._business_id}"
            message = f"Message {envelope.message_id} of {stream} was redelivered. {difference}"
            raise DifferenceError(message)

    def _without_outputs(self, known: Known, transaction: Transaction, reason: Reason, error: str) -> Outcome:
        """Return a dead letter for what cannot be replayed; fail the batch when its outputs are unpublished."""
        delivery, version = known
        has_outputs = delivery.key in transaction.delivered
        if not has_outputs and not self._is_finished(version.batch):
            problem = (
                f"Message {delivery.envelope.message_id} made version {version.number} of "
                f"{self._handler.name}-{self._business_id} in batch {version.batch}, whose outputs were never "
                f"published, and cannot be replayed: {error} Run with the handlers that made it, or abandon "
                f"that batch."
            )
            raise ReplayFailedError(problem)
        return self._dead_letter(delivery.envelope, reason, error)

    def _is_finished(self, batch: str | None) -> bool:
        finished = self._batch.finished
        return batch is None or finished is None or batch in finished

    def _outcome(
        self,
        envelope: Envelope,
        status: Status,
        version: int | None = None,
        outputs: tuple[Output, ...] = (),
    ) -> Outcome:
        return Outcome(envelope, self._handler.name, self._business_id, status, None, None, version, outputs)

    def _dead_letter(self, envelope: Envelope, reason: Reason, error: str) -> Outcome:
        return dead_letter(envelope, reason, error, self._handler.name, self._business_id)


def _record(new: Prepared, now: int, revision: int, invocation: Invocation) -> StateVersion:
    envelope = new.envelope
    return StateVersion(
        new.key,
        envelope.type,
        new.fingerprint,
        now,
        envelope.enqueued_at,
        dict(envelope.headers) if envelope.headers else None,
        invocation.captured,
        revision,
        invocation.outputs_digest,
        invocation.state_digest,
        invocation.after if invocation.changed else None,
    )


def _too_large(after: bytes, size: int, record: StateVersion) -> str | None:
    """Return the problem of a version that is too large to store, None for all others."""
    largest = max(len(after), size - len(record.after or b""))
    if largest <= limits.MAX_STATE_BYTES:
        return None
    return f"The version would take {largest} bytes; up to {limits.MAX_STATE_BYTES} can be stored."


def _first_outputs(known: Known, transaction: Transaction) -> Sequence[Output] | None:
    """Return the outputs of a message's first delivery in this batch, None when they are not in memory."""
    key = known.delivery.key
    if key in transaction.seen.delivered or key not in transaction.delivered:
        return None
    return transaction.outputs_of(known.version.number)
