"""The fold: what becomes of each delivery of a stream, given what was loaded. Pure but for the clock.

New messages extend a part; duplicates are handled again on their own version and compared with its digests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from handlers import CodecError, Context, State
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError, Invocation, invoke_handler, outputs_of
from runtime.algorithms.state_based.difference import Difference
from runtime.algorithms.state_based.replay import find_difference, replay
from runtime.algorithms.state_based.transaction import Part
from runtime.batches.context import HELD_BACK, BatchContext
from runtime.clock import Clock, shown_time
from runtime.errors import DifferenceError, ReplayFailedError
from runtime.messages.copies import is_copy
from runtime.messages.envelope import Envelope
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output, Reason, Status, dead_letter
from runtime.messages.parsing import Delivery, Prepared
from runtime.storage.columns import StateVersion
from runtime.storage.limits import MAX_STATE_BYTES
from runtime.storage.stored_state import read_state
from runtime.storage.stream import KnownVersion, LoadedStream

FUTURE_TOLERANCE = 3600 * 1_000_000
"""How far ahead of the clock, in microseconds, a message may say that it was enqueued."""


class Fold:
    """Folds deliveries of one stream, in their order, onto what was loaded of it.

    `delivered` are the messages that had their first delivery in this batch already; `stopped` that new messages
    are held back because of an earlier dead letter.
    """

    def __init__(
        self,
        handler: HandlerDefinition,
        clock: Clock,
        batch: BatchContext,
        stream: LoadedStream,
        business_id: str,
        *,
        fresh: dict[IdKey, KnownVersion],
        delivered: Collection[IdKey],
        stopped: bool,
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._batch = batch
        self._stream = stream
        self._business_id = business_id
        self._delivered = set(delivered)
        self._delivered_before = delivered
        self._stopped = stopped
        head = stream.head
        before = head.state or b""
        self.part = Part(
            head,
            read_state(handler.codec, before),
            before,
            head.versions,
            head.last_now,
            head.schema,
            batch.batch_id,
            fresh,
        )

    def handle(self, delivery: Delivery) -> None:
        """Handle one delivery and add its outcome to the part."""
        outcome = delivery if isinstance(delivery, Outcome) else self._handle(delivery)
        if outcome.status is Status.DEAD_LETTER and self._batch.on_error == "stop-stream":
            self._stopped = True
        self.part.outcomes.append(outcome)

    def _handle(self, delivery: Prepared) -> Outcome:
        known = self.part.fresh.get(delivery.key) or self._stream.find(delivery.key)
        if known is not None:
            return self._handle_duplicate(delivery, known)
        return self._refusal(delivery.envelope) or self._handle_new(delivery)

    def _handle_new(self, delivery: Prepared) -> Outcome:
        part, envelope = self.part, delivery.envelope
        now = max(self._clock(), part.last_now)
        revision = delivery.route.newest
        context = Context(self._handler.name, self._business_id, envelope.message_id, now, envelope.headers)
        try:
            invocation = self._invoke(delivery, revision, part.state, part.before, context)
        except HandlerFailedError as error:
            part.state = self._state(part.before)
            return self._dead(envelope, Reason.HANDLER_ERROR, str(error))
        version = StateVersion(
            delivery.key,
            envelope.type,
            delivery.fingerprint,
            now,
            envelope.enqueued_at,
            dict(envelope.headers) if envelope.headers else None,
            invocation.captured,
            revision,
            invocation.outputs_digest,
            invocation.state_digest,
            invocation.after if invocation.changed else None,
        )
        size = version.raw_size()
        largest = max(len(invocation.after), size - len(version.after or b""))
        if largest > MAX_STATE_BYTES:
            problem = f"The version would take {largest} bytes; up to {MAX_STATE_BYTES} can be stored."
            return self._dead(envelope, Reason.STATE_TOO_LARGE, problem)
        part.close_full_run(now)
        part.add(version, size, invocation.state, invocation.after)
        self._delivered.add(delivery.key)
        outputs = outputs_of(invocation, part.number, now)
        return self._outcome(envelope, Status.PROCESSED, part.number, outputs)

    def _handle_duplicate(self, delivery: Prepared, known: KnownVersion) -> Outcome:
        envelope, version = delivery.envelope, known.version
        if not is_copy(delivery, version.fingerprint):
            problem = f"Version {known.number} was made by another message with the id {envelope.message_id}."
            return self._dead(envelope, Reason.ID_REUSED, problem)
        try:
            invocation = replay(self._handler, self._business_id, delivery, known)
            difference = find_difference(
                self._handler, invocation, known, lambda: self._first_outputs(delivery, known.number)
            )
        except (HandlerFailedError, CodecError) as error:
            return self._without_outputs(delivery, known, Reason.REPLAY_FAILED, str(error))
        if difference:
            self._fail_if_told(delivery, difference)
            return self._without_outputs(delivery, known, Reason.NONDETERMINISTIC, str(difference))
        first = delivery.key not in self._delivered
        self._delivered.add(delivery.key)
        ours = known.batch is not None and known.batch == self._batch.batch_id
        status = Status.PROCESSED if first and ours else Status.DUPLICATE
        outputs = outputs_of(invocation, known.number, version.now) if first else ()
        return self._outcome(envelope, status, known.number, outputs)

    def _invoke(
        self, delivery: Prepared, revision: int, state: State, before: bytes, context: Context
    ) -> Invocation:
        return invoke_handler(
            self._handler,
            delivery.route,
            revision,
            state=state,
            before=before,
            message=delivery.message,
            context=context,
        )

    def _fail_if_told(self, delivery: Prepared, difference: Difference) -> None:
        if self._batch.on_difference == "fail":
            stream = f"{self._handler.name}-{self._business_id}"
            message = f"Message {delivery.envelope.message_id} of {stream} came again. {difference}"
            raise DifferenceError(message)

    def _first_outputs(self, delivery: Prepared, number: int) -> Sequence[Output] | None:
        """Return the outputs of a message's first delivery in this batch, None when they are not in hand."""
        if delivery.key in self._delivered_before:
            return None
        return next((each.outputs for each in self.part.outcomes if each.version == number), None)

    def _without_outputs(
        self, delivery: Prepared, known: KnownVersion, reason: Reason, error: str
    ) -> Outcome:
        """Give a dead letter for what cannot be replayed; fail the batch when its outputs are not out yet."""
        in_hand = delivery.key in self._delivered
        if not in_hand and not self._is_finished(known.batch):
            problem = (
                f"Message {delivery.envelope.message_id} made version {known.number} of "
                f"{self._handler.name}-{self._business_id} in batch {known.batch}, whose outputs were never "
                f"published, and cannot be replayed: {error} Run with the handlers that made it, or abandon "
                f"that batch."
            )
            raise ReplayFailedError(problem)
        return self._dead(delivery.envelope, reason, error)

    def _is_finished(self, batch: str | None) -> bool:
        finished = self._batch.finished
        return batch is None or finished is None or batch in finished

    def _is_in_future(self, enqueued_at: int | None) -> bool:
        if enqueued_at is None or self._batch.is_cascade:
            return False
        return enqueued_at > self._clock() + FUTURE_TOLERANCE

    def _refusal(self, envelope: Envelope) -> Outcome | None:
        """Give the outcome of an unknown message that must not be handled, None for all others."""
        enqueued_at = envelope.enqueued_at
        if self._is_in_future(enqueued_at):
            error = (
                f"It was enqueued at {shown_time(enqueued_at or 0)}, more than an hour ahead of the clock."
            )
            return self._dead(envelope, Reason.ENQUEUED_IN_FUTURE, error)
        if self._batch.late != "process" and self._stream.head.is_too_late(enqueued_at):
            return self._outcome(envelope, Status.TOO_LATE, None, ())
        if self._stopped:
            return self._dead(envelope, Reason.HELD_BACK, HELD_BACK)
        return None

    def _state(self, encoded: bytes) -> State:
        return self._handler.codec.reread(encoded)

    def _outcome(
        self, envelope: Envelope, status: Status, version: int | None, outputs: tuple[Output, ...]
    ) -> Outcome:
        return Outcome(envelope, self._handler.name, self._business_id, status, None, None, version, outputs)

    def _dead(self, envelope: Envelope, reason: Reason, error: str) -> Outcome:
        return dead_letter(envelope, reason, error, self._handler.name, self._business_id)
