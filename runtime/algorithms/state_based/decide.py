"""Decide the outcome of each delivery of a stream, given its history.

A *new* message is handled on the newest state and adds a version. A *known* message is replayed on the version before
its own, and the result is compared with the recorded digests. All other deliveries are *rejected*. The decisions are
pure except for clock and captured values.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import inf
from typing import TypeVar

from handlers import CodecError, Context, Published
from handlers.app import HandlerDefinition, Method, settle
from runtime.algorithms.algorithm import decided_before, failure_of
from runtime.algorithms.state_based import replay
from runtime.algorithms.state_based.draft import CommitDraft, Failure, Handled, Newest
from runtime.algorithms.state_based.replay import Copy, Replayed, Replayer, find_difference
from runtime.clock import Clock, shown_time
from runtime.documents import object_folder
from runtime.errors import DifferenceError, ReplayFailedError
from runtime.ledger.batch import FORGOTTEN, HELD_BACK, BatchContext
from runtime.messages.envelope import Envelope, without_trace
from runtime.messages.outcome import Outcome, Reason, Status, dead_letter
from runtime.messages.parsing import Deliveries, Prepared, is_copy
from runtime.namesakes import is_from_outside
from runtime.versions import limits
from runtime.versions.packing import MadeColumns
from runtime.versions.run import size_beside_state

T = TypeVar("T")


class Invoker:
    """Handles new messages of one stream, each on the state that the previous message made."""

    def __init__(
        self,
        handler: HandlerDefinition,
        clock: Clock,
        batch: BatchContext,
        business_id: str = "",
        *,
        new_context: Callable[..., Context] = Context,
    ) -> None:
        self._handler = handler
        self._new_context = new_context
        self.business_id = business_id
        self._clock = clock
        self._room = batch.limits.room
        self._methods = _newest_methods(handler)
        self._context: Context | None = None
        """The context of the current call. While this is set, an error comes from the handler."""

    def handle(self, draft: CommitDraft, first: int, end: int) -> Failure | None:
        """Handle the messages at positions `first` to `end - 1`, and add their versions to the draft.

        Stops early if the draft is full or has documents, or if a call fails. Return that failure, or `None`.
        """
        versions, size = draft.packer.room()
        part = slice(first, min(end, first + versions))
        handled = self.supervise(partial(self.run, draft.deliveries, part, draft.newest, size, draft.attempt))
        draft.extend(handled)
        return handled.failure

    def supervise(self, run: Callable[[], T]) -> T:
        return self._handler.interceptor.call(run, lambda: self._context)

    def run(
        self,
        deliveries: Deliveries,
        part: slice,
        newest: Newest,
        room: float = inf,
        attempt: str | None = None,
    ) -> Handled:
        """Handle the deliveries in `part`, starting on `newest`, until the versions take `room` bytes.

        `attempt` identifies the attempt that stores the documents. It is `None` if no document store is configured.
        """
        handler, business_id = self._handler, self.business_id
        name, key, most = handler.name, handler.draw_key, self._room
        place = attempt and f"{object_folder(name, business_id)}/{attempt}"
        state, before, number, last_now = newest
        new_context = self._new_context
        made, afters, documents, failure, size = MadeColumns(), list[bytes](), [], None, 0
        first, envelopes = part.start, deliveries.envelopes
        columns = (envelopes.message_ids, envelopes.types, envelopes.headers, deliveries.messages)
        try:
            for message_id, type_, headers, message in zip(*[each[part] for each in columns], strict=True):
                method, revision, beside = self._methods[type_]
                headers = without_trace(headers) if headers else None  # noqa: PLW2901 - as they are recorded
                now = max(self._clock(), last_now)
                named = place and f"{place}-{number + len(afters) + 1}"
                self._context = context = new_context(
                    name, business_id, message_id, now, headers, room=most, place=named, draw_key=key
                )
                values = list(state.__dict__.values())
                returned = method(state, message, context)
                returned, after = settle(handler, method, state, values, before, returned, context)
                published, captured, documents = context.published, context.captured, context.documents
                self._context = None
                # Without headers and captured values, the size of a type is precomputed.
                if headers or captured:
                    beside = size_beside_state(type_, headers, captured)
                taken = max(len(after), beside)
                if taken > limits.MAX_STATE_BYTES:
                    problem = (
                        f"The version would take {taken} bytes; up to {limits.MAX_STATE_BYTES} can be stored."
                    )
                    failure = Failure(first + len(afters), Reason.STATE_TOO_LARGE, problem)
                    break
                made.nows.append(now)
                made.revisions.append(revision)
                made.captured.append(captured or None)
                made.published.append(published)
                afters.append(after)
                size += beside if after == before else beside + len(after)
                state, before, last_now = returned, after, now
                if documents or size >= room:
                    break
        except BaseException as error:
            called, self._context = self._context, None
            if called is None or is_from_outside(error):
                raise
            failed = failure_of(called.exceeded or error)
            failure, documents = Failure(first + len(afters), failed.reason, str(failed)), []
            # The handler may have mutated the state before it failed.
            state = handler.codec.reread(before)
        made.positions = list(range(first, first + len(afters)))
        return Handled(made, afters, size, state, documents, failure)


@lru_cache(maxsize=64)
def _newest_methods(handler: HandlerDefinition) -> Mapping[str, tuple[Method, int, int]]:
    """Return for each type its newest method, that method's revision, and the size of a version without its state."""
    return {
        type_: (route.revisions[route.newest], route.newest, size_beside_state(type_, None, None))
        for type_, route in handler.routes.items()
    }


FUTURE_TOLERANCE = 3600 * 1_000_000  # how far ahead of the clock `enqueued_at` may be, in microseconds


class Decider:
    """Decides the outcome of each delivery of one stream, in order, and adds it to a draft."""

    def __init__(
        self, handler: HandlerDefinition, clock: Clock, batch: BatchContext, business_id: str
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._batch = batch
        self._business_id = business_id
        self._invoker = Invoker(handler, clock, batch, business_id)
        self._replayer = Replayer(handler, business_id)

    def decide(self, draft: CommitDraft, most: int) -> None:
        """Decide deliveries until the draft is full, or `most` or all are decided. Copies in a row may exceed `most`.

        Raises `ReplayFailedError` if a duplicate with unpublished outputs cannot be replayed, and `DifferenceError` if
        a replay differs from the record and `on_difference` is `fail`.
        """
        draft.outcomes.handler = self._handler.name
        draft.outcomes.business_id = self._business_id
        if draft.head.refuses:
            # A forgotten object rejects even invalid deliveries, and keeps no dead letters.
            for envelope in draft.deliveries.envelopes:
                draft.outcomes.refuse(self._dead_letter(envelope, Reason.FORGOTTEN, FORGOTTEN))
            draft.dead_letter = True
            return
        position, count = 0, min(most, len(draft.deliveries.messages))
        looked_at = iter(self._to_look_at(draft))
        end = -1
        while position < count and not draft.is_full:
            while end < position:
                end = min(next(looked_at, count), count)
            if position < end and not draft.dead_letter:
                self._handle(position, end, draft)
            else:
                known = [] if self._batch.is_redrive else self._copies_from(position, draft)
                if known:
                    self._replay_all(known, draft)
                if len(draft.outcomes) == position:
                    self._decide_on(position, draft)
            position = len(draft.outcomes)

    def _to_look_at(self, draft: CommitDraft) -> Sequence[int]:
        """Return the positions of deliveries to decide individually, in order. Other deliveries are new messages."""
        messages, head = draft.deliveries.messages, draft.head
        newest = max(filter(None, draft.deliveries.envelopes.enqueued_at), default=None)
        if (
            self._batch.is_redrive
            or self._batch.stops_streams
            or draft.refusals.kept
            or head.horizon is not None
            or head.undated_cut
            or (newest is not None and self._is_in_future(newest))
        ):
            return range(len(messages))
        known = draft.known_positions()
        if Outcome not in map(type, messages):
            return known
        return sorted({*known, *(place for place, each in enumerate(messages) if type(each) is Outcome)})

    def _copies_from(self, position: int, draft: CommitDraft) -> list[Copy]:
        """Return the deliveries from `position` on, up to the first that is no exact copy of a known message."""
        deliveries, found = draft.deliveries, []
        ids, types = deliveries.envelopes.message_ids, deliveries.envelopes.types
        for place in range(position, min(position + replay.IN_A_ROW, len(deliveries))):
            message, version = deliveries.messages[place], draft.find(deliveries.keys[place])
            if (
                version is None
                or version.record.fingerprint != deliveries.fingerprints[place]
                or isinstance(message, Outcome)
            ):
                break
            found.append(Copy(ids[place], deliveries.routes[types[place]], message, version, place))
        return found

    def _decide_on(self, position: int, draft: CommitDraft) -> None:
        delivery = draft.deliveries[position]
        if isinstance(delivery, Outcome):
            self._refuse(position, delivery, draft)
        elif refused := draft.refusals.refused_by_redrive(position, delivery):
            self._refuse(position, refused, draft)
        elif (version := draft.find(delivery.key)) is not None:
            if is_copy(delivery, version.record.fingerprint):
                self._replay_all([Copy.of(delivery, version, position)], draft)
            else:
                id_ = delivery.envelope.message_id
                problem = f"Version {version.number} was made by another message with the id {id_}."
                reused = self._dead_letter(delivery.envelope, Reason.ID_REUSED, problem)
                reused = decided_before(draft.refusals, position, delivery, reused)
                self._refuse(position, reused, draft)
        elif refused := self._refusal(position, delivery, draft):
            self._refuse(position, refused, draft)
        else:
            self._handle(position, position + 1, draft)

    def _refuse(self, position: int, refused: Outcome, draft: CommitDraft) -> None:
        delivery = draft.deliveries[position]
        draft.refuse(refused, delivery, max(self._clock(), draft.last_now))

    def _handle(self, first: int, end: int, draft: CommitDraft) -> None:
        failure = self._invoker.handle(draft, first, end)
        if failure is not None:
            envelope = draft.deliveries.envelopes[failure.position]
            refused = self._dead_letter(envelope, failure.reason, failure.error)
            self._refuse(failure.position, refused, draft)

    def _replay_all(self, known: Sequence[Copy], draft: CommitDraft) -> None:
        replayed, error = self._replayer.replay_all(known)
        for each, found in zip(known, replayed, strict=False):
            if replay.meets_digests(found, each.version):
                self._conclude(each, found.published, draft)
            else:
                self._compare(each, found, draft)
        if error is not None:
            self._refuse_replay(known[len(replayed)], Reason.REPLAY_FAILED, str(error), draft)

    def _compare(self, known: Copy, replayed: Replayed, draft: CommitDraft) -> None:
        """Accept a duplicate if its replay matches the record. Otherwise reject it, or raise `DifferenceError`."""
        try:
            difference = find_difference(self._handler, replayed, known.version)
        except CodecError as error:
            self._refuse_replay(known, Reason.REPLAY_FAILED, str(error), draft)
            return
        if difference is None:
            self._conclude(known, replayed.published, draft)
        elif self._batch.on_difference == "fail":
            message_id = draft.deliveries.envelopes.message_ids[known.position]
            stream = f"{self._handler.name}-{self._business_id}"
            raise DifferenceError(f"Message {message_id} of {stream} was redelivered. {difference}")
        else:
            self._refuse_replay(known, Reason.NONDETERMINISTIC, str(difference), draft)

    def _conclude(self, known: Copy, published: Sequence[Published], draft: CommitDraft) -> None:
        position, version = known.position, known.version
        key = draft.deliveries.keys[position]
        is_first = key not in draft.delivered
        is_ours = self._batch.is_ours(version.batch, version.batch_number)
        status = Status.PROCESSED if is_first and is_ours else Status.DUPLICATE
        published = published if is_first else ()
        draft.conclude(key, status, version, published)

    def _refuse_replay(self, known: Copy, reason: Reason, error: str, draft: CommitDraft) -> None:
        """Reject a duplicate that cannot be replayed. Raises `ReplayFailedError` if its outputs are unpublished."""
        position, version, deliveries = known.position, known.version, draft.deliveries
        envelope = deliveries.envelopes[position]
        has_outputs = deliveries.keys[position] in draft.delivered
        if not has_outputs and not self._batch.is_finished(version.batch, version.batch_number):
            raise ReplayFailedError(
                f"Message {envelope.message_id} made version {version.number} of "
                f"{self._handler.name}-{self._business_id} in batch {version.batch}, whose outputs were never "
                f"published, and cannot be replayed: {error} Run with the handlers that made it, or abandon "
                f"that batch."
            )
        self._refuse(position, self._dead_letter(envelope, reason, error), draft)

    def _refusal(self, position: int, message: Prepared, draft: CommitDraft) -> Outcome | None:
        envelope, enqueued_at = message.envelope, message.envelope.enqueued_at
        # The message could be a duplicate of a truncated version, unless it is a redriven dead letter.
        is_too_late = (
            self._batch.late != "process"
            and draft.head.is_too_late(enqueued_at)
            and not draft.refusals.is_redriven(position, message)
        )
        refused = draft.refusals.refusal(position, message, waits=not is_too_late)
        if refused is not None:
            return refused
        if enqueued_at is not None and self._is_in_future(enqueued_at):
            error = f"It was enqueued at {shown_time(enqueued_at)}, more than an hour ahead of the clock."
            return self._dead_letter(envelope, Reason.ENQUEUED_IN_FUTURE, error)
        if is_too_late:
            return Outcome(envelope, self._handler.name, self._business_id, Status.TOO_LATE)
        if draft.dead_letter and self._batch.stops_streams:
            return self._dead_letter(envelope, Reason.HELD_BACK, HELD_BACK)
        return None

    def _is_in_future(self, enqueued_at: int) -> bool:
        return not self._batch.is_cascade and enqueued_at > self._clock() + FUTURE_TOLERANCE

    def _dead_letter(self, envelope: Envelope, reason: Reason, error: str) -> Outcome:
        length = self._batch.limits.error
        return dead_letter(envelope, reason, error, self._handler.name, self._business_id, length=length)
