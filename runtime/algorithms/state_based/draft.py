"""The draft of a commit: new versions for one transaction, and the outcomes that depend on them."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

from handlers import Published, State
from handlers.context import NewDocument
from runtime.algorithms.algorithm import Refusals
from runtime.ledger.batch import BatchContext, Seen
from runtime.messages.envelope import IdKey
from runtime.messages.outcome import Outcome, Outcomes, Reason, Status
from runtime.messages.parsing import Deliveries, Delivery
from runtime.versions import limits
from runtime.versions.packing import MadeColumns, PackedRun, Packer
from runtime.versions.run import Version
from runtime.versions.stream import History, StreamUpdate


class SealedCommit(NamedTuple):
    """A sealed draft: the update of the stream, if any, and the outcomes to publish once the update is stored."""

    outcomes: Outcomes
    update: StreamUpdate | None
    appended: Mapping[IdKey, Version]  # versions made since the load, if more copies of their messages wait
    seen: Seen  # after these outcomes
    documents: Sequence[NewDocument] = ()  # of the appended versions
    attempt: str | None = None  # the attempt that stores the documents


class Failure(NamedTuple):
    """Why a new message made no version."""

    position: int
    reason: Reason
    error: str


class Newest(NamedTuple):
    """The newest version of a stream, on which the next one is made."""

    state: State
    encoded: bytes
    number: int
    now: int


class Handled(NamedTuple):
    """The versions that consecutive new messages made, and the failure of the next message, if it failed."""

    made: MadeColumns
    afters: Sequence[bytes]  # the encoded state after each version
    size: int  # in bytes, without unchanged states
    state: State  # after the last version
    documents: Sequence[NewDocument]  # of the last version
    failure: Failure | None


class CommitDraft:
    """Collects new versions and outcomes on top of a history until a transaction is full, and is then sealed."""

    def __init__(
        self,
        history: History,
        deliveries: Deliveries,
        seen: Seen,
        state: State,
        batch: BatchContext,
        *,
        attempt: str | None = None,
    ) -> None:
        head, newest = history.head, history.newest
        self.head = head
        self.refusals = Refusals(history.letters, head.waiting, batch, deliveries.letters)
        self.deliveries = deliveries
        self.seen = seen
        self.state = state  # the newest state; `before` is its encoded form
        self.before = newest.encoded
        self.number = head.versions
        self.last_now = head.last_now
        self.delivered = set(seen.delivered)  # ids of messages that had their first delivery in this batch
        self.dead_letter = seen.dead_letter
        self.outcomes = Outcomes(deliveries.envelopes)
        self.attempt = attempt
        self._documents: list[tuple[int, NewDocument]] = []
        self._history = history
        self._batch = batch
        self.packer = Packer(deliveries, head, newest, batch.of or batch.batch_id, batch.number)
        self._positions: dict[IdKey, int] = {}
        self._has_found = bool(history.appended or history.found)
        # Most groups have no duplicates, and skip all lookups.
        self.may_find = self._has_found or len(set(deliveries.keys)) < len(deliveries.keys)

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, in the history or in this draft, or `None` if the message is new."""
        position = self._positions.get(message_id)
        if position is not None:
            return self._version(position)
        return self._history.find(message_id) if self._has_found else None

    def known_positions(self) -> list[int]:
        """Return the positions of deliveries that are copies of a stored message or of an earlier delivery."""
        known, before = list[int](), set[IdKey]()
        for position, key in enumerate(self.deliveries.keys if self.may_find else ()):
            if key in before or (self._has_found and self._history.has(key)):
                known.append(position)
            before.add(key)
        return known

    @property
    def is_full(self) -> bool:
        """Whether the transaction might lack room for another version."""
        size = sum(document.reference.size for _, document in self._documents)
        return (
            self.packer.is_full
            or self.refusals.is_full
            or len(self._documents) >= limits.MAX_TRANSACTION_DOCUMENTS
            or size >= limits.MAX_TRANSACTION_DOCUMENT_BYTES
        )

    @property
    def newest(self) -> Newest:
        return Newest(self.state, self.before, self.number, self.last_now)

    def extend(self, handled: Handled) -> None:
        """Add the versions and outcomes of the next deliveries."""
        made, afters, size, self.state, documents, failure = handled
        if not made:
            return
        first, end = made.positions[0], made.positions[-1] + 1
        keys = self.deliveries.keys[first:end]
        self._positions.update(zip(keys, count(len(self._positions)), strict=False))
        self.packer.extend(made, afters, size)
        self.outcomes.processed(self.number + 1, made.nows, made.published)
        self.number += len(made)
        self.last_now, self.before = made.nows[-1], afters[-1]
        self.delivered.update(keys)
        if self.refusals.kept:
            self._remove_letters(first, end)
        if failure is None:
            self._documents += [(self.number, document) for document in documents]

    def conclude(self, key: IdKey, status: Status, version: Version, published: Sequence[Published]) -> None:
        """Add the outcome of the next delivery, which is a copy of the message that made `version`."""
        if status is Status.DUPLICATE and version.batch is not None and version.batch_number is not None:
            self.outcomes.makers[len(self.outcomes)] = version.batch, version.batch_number
        self.outcomes.conclude(status, version.number, version.record.now, published)
        self.delivered.add(key)
        if self.refusals.kept:
            self._remove_letters(len(self.outcomes) - 1, len(self.outcomes))

    def _remove_letters(self, first: int, end: int) -> None:
        keys, fingerprints = self.deliveries.keys, self.deliveries.fingerprints
        for position in range(first, end):
            self.refusals.processed(position, keys[position], fingerprints[position])

    def refuse(self, outcome: Outcome, delivery: Delivery, now: int) -> None:
        """Add the outcome of the next delivery, which makes no version. A dead letter is stored with the stream."""
        if outcome.is_dead_letter:
            position = len(self.outcomes)
            self.refusals.record(position, outcome, delivery, version=self.number, now=now)
            self.dead_letter = True
        self.outcomes.refuse(outcome)

    def seal(self, written_at: int) -> SealedCommit:
        """Seal the versions that fit in one transaction. If one does not, leave out the outcomes from its delivery on.

        `written_at` is in microseconds since 1970 UTC.
        """
        head = self.head
        runs: Sequence[PackedRun] = ()
        stored, decided = 0, len(self.outcomes)
        if self._positions:
            head, runs = self.packer.pack(written_at)
            stored = head.versions - self.head.versions
            if stored < len(self._positions):
                decided = self.packer.made.positions[stored]
        letters = self.refusals.letters(decided)
        if letters is not None:
            head = head._replace(waiting=self.refusals.summary(letters, decided))
        update = StreamUpdate(head, runs, letters) if stored or letters is not None else None
        outcomes, seen = self.outcomes, Seen(self.delivered, self.dead_letter)
        if decided < len(outcomes):
            outcomes = outcomes[:decided]
            seen = self.seen.after(outcomes)
        last = self.head.versions + stored
        documents = [document for number, document in self._documents if number <= last]
        return SealedCommit(outcomes, update, self._appended(stored, decided), seen, documents, self.attempt)

    def _appended(self, stored: int, decided: int) -> Mapping[IdKey, Version]:
        """Return, by message id, versions made since the load if a delivery from `decided` on has the same id.

        Includes only the first `stored` versions of this draft.
        """
        waiting, before = self.deliveries.ready_keys(decided), self._history.appended
        appended = {key: before[key] for key in waiting if key in before}
        for key in waiting:
            if self._positions.get(key, stored) < stored:
                appended[key] = self._version(self._positions[key])
        return appended

    def _version(self, position: int) -> Version:
        record, before, after = self.packer.version(position)
        number, batch, schema = self.head.versions + 1 + position, self._batch, self._history.newest.schema
        return Version(number, record, before, after, schema, batch.batch_id, batch_number=batch.number)
