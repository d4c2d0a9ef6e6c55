"""The draft of a commit: the versions that one transaction stores, and the outcomes that depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

from handlers import Published, State
from handlers.context import NewDocument
from runtime.algorithms.refusals import Refusals
from runtime.ledger.batch import BatchContext, Seen
from runtime.messages.envelope import IdKey
from runtime.messages.outcome import Outcome, Outcomes, Reason, Status
from runtime.messages.parsing import Deliveries, Delivery
from runtime.versions import limits
from runtime.versions.columns import MadeColumns
from runtime.versions.run import Version
from runtime.versions.stream import History, PackedRun, Packer, Room, StreamUpdate


class SealedCommit(NamedTuple):
    """A sealed draft: the update of the stream, if any, and the outcomes to publish once that is stored.

    `appended` are the versions made since the load, as far as more copies of their messages wait; `seen` is what has
    been seen after the outcomes; `documents` are those that the appended versions refer to, made by an `attempt`.
    """

    outcomes: Outcomes
    update: StreamUpdate | None
    appended: Mapping[IdKey, Version]
    seen: Seen
    documents: Sequence[NewDocument] = ()
    attempt: str | None = None


class Failure(NamedTuple):
    """Why the new message at a position makes no version."""

    position: int
    reason: Reason
    error: str


class Newest(NamedTuple):
    """The newest version of a stream, on which the next one is made: its state, that encoded, its number, its time."""

    state: State
    encoded: bytes
    number: int
    now: int


class Handled(NamedTuple):
    """The versions that new messages of a stream made, in a row, and why the next message makes none, if so.

    `afters` are the encoded states after each version, `size` the bytes that the versions take, without states that did
    not change. `state` is the one to continue with. `documents` are those of the last version.
    """

    made: MadeColumns
    afters: Sequence[bytes]
    size: int
    state: State
    documents: Sequence[NewDocument]
    failure: Failure | None


class CommitDraft:
    """Collects new versions and outcomes of deliveries, on top of a history, until it is full; then it is sealed.

    `state` is the newest state, and `before` its encoded bytes, on which the next version is made; `number` is the
    number of the newest version, and `last_now` the time when it was made. `outcomes` are those of the first
    deliveries, `delivered` the messages that had their first delivery in this batch, and `refusals` the letters.
    `attempt` is the id of this attempt, None when there is no store of documents. `may_find` says that a delivery may
    be of a message that made a version: most groups have no copies, and none is looked for.
    """

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
        self.refusals = Refusals(history.letters, batch, deliveries.letters)
        self.deliveries = deliveries
        self.seen = seen
        self.state = state
        self.before = newest.encoded
        self.number = head.versions
        self.last_now = head.last_now
        self.delivered = set(seen.delivered)
        self.dead_letter = seen.dead_letter
        self.outcomes = Outcomes(deliveries.envelopes)
        self.attempt = attempt
        self._documents: list[tuple[int, NewDocument]] = []
        self._history = history
        self._batch = batch
        self._packer = Packer(deliveries, head, newest, batch.batch_id, batch.number)
        self._positions: dict[IdKey, int] = {}
        self._has_found = bool(history.appended or history.found)
        self.may_find = self._has_found or len(set(deliveries.keys)) < len(deliveries.keys)

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, before or in this draft."""
        position = self._positions.get(message_id)
        if position is not None:
            return self._version(position)
        return self._history.find(message_id) if self._has_found else None

    def known_positions(self) -> list[int]:
        """Return where deliveries are whose message made a version before, or stands before them in the group."""
        known, before = list[int](), set[IdKey]()
        for position, key in enumerate(self.deliveries.keys if self.may_find else ()):
            if key in before or (self._has_found and self._history.has(key)):
                known.append(position)
            before.add(key)
        return known

    def room(self) -> Room:
        """Return how many versions may be added at once, and after how many bytes of them this is to be asked again."""
        return self._packer.room()

    @property
    def is_full(self) -> bool:
        """Whether a commit may have no room for more."""
        size = sum(document.reference.size for _, document in self._documents)
        return (
            self._packer.is_full
            or self.refusals.is_full
            or len(self._documents) >= limits.MAX_TRANSACTION_DOCUMENTS
            or size >= limits.MAX_TRANSACTION_DOCUMENT_BYTES
        )

    @property
    def newest(self) -> Newest:
        """The newest version."""
        return Newest(self.state, self.before, self.number, self.last_now)

    def extend(self, handled: Handled) -> None:
        """Add the versions that the next deliveries made, and conclude these."""
        made, afters, size, self.state, documents, failure = handled
        if not made:
            return
        first, end = made.positions[0], made.positions[-1] + 1
        keys = self.deliveries.keys[first:end]
        self._positions.update(zip(keys, count(len(self._positions)), strict=False))
        self._packer.extend(made, afters, size)
        self.outcomes.processed(self.number + 1, made.nows, made.published)
        self.number += len(made)
        self.last_now, self.before = made.nows[-1], afters[-1]
        self.delivered.update(keys)
        if self.refusals.kept:
            self._remove_letters(first, end)
        if failure is None:
            self._documents += [(self.number, document) for document in documents]

    def conclude(
        self, key: IdKey, status: Status, number: int, now: int, published: Sequence[Published]
    ) -> None:
        """Add the outcome of the next delivery, whose message made version `number` before."""
        self.outcomes.conclude(status, number, now, published)
        self.delivered.add(key)
        if self.refusals.kept:
            self._remove_letters(len(self.outcomes) - 1, len(self.outcomes))

    def _remove_letters(self, first: int, end: int) -> None:
        """Note that messages were processed, which are no letters any more."""
        keys, fingerprints = self.deliveries.keys, self.deliveries.fingerprints
        for position in range(first, end):
            self.refusals.processed(position, keys[position], fingerprints[position])

    def refuse(self, outcome: Outcome, delivery: Delivery, now: int) -> None:
        """Add the outcome of the next delivery, which makes no version. A dead letter is kept."""
        if outcome.is_dead_letter:
            position = len(self.outcomes)
            self.refusals.record(position, outcome, delivery, version=self.number, now=now)
            self.dead_letter = True
        self.outcomes.refuse(outcome)

    def seal(self, written_at: int) -> SealedCommit:
        """Return the longest prefix that one commit holds, and the outcomes up to the first version left out."""
        head = self.head
        runs: Sequence[PackedRun] = ()
        stored, decided = 0, len(self.outcomes)
        if self._positions:
            packed = self._packer.pack(written_at)
            stored, runs = packed.last - head.versions, packed.runs
            head = self._packer.head_after(head, packed)
            if stored < len(self._positions):
                decided = self._packer.made.positions[stored]
        letters = self.refusals.letters(decided)
        if letters is not None:
            waiting = head.waiting.after(letters, self.refusals.beyond_limit(decided))
            head = head._replace(waiting=waiting)
        update = StreamUpdate(head, runs, letters) if stored or letters is not None else None
        outcomes, seen = self.outcomes, Seen(self.delivered, self.dead_letter)
        if decided < len(outcomes):
            outcomes = outcomes[:decided]
            seen = self.seen.after(outcomes)
        last = self.head.versions + stored
        documents = [document for number, document in self._documents if number <= last]
        return SealedCommit(outcomes, update, self._appended(stored, decided), seen, documents, self.attempt)

    def _appended(self, stored: int, decided: int) -> Mapping[IdKey, Version]:
        """Return the versions appended since the load that messages still waiting have made."""
        waiting, before = self.deliveries.ready_keys(decided), self._history.appended
        appended = {key: before[key] for key in waiting if key in before}
        for key in waiting:
            if self._positions.get(key, stored) < stored:
                appended[key] = self._version(self._positions[key])
        return appended

    def _version(self, position: int) -> Version:
        """Return the version at a position of this draft."""
        record, before, after = self._packer.version(position)
        number, batch, schema = self.head.versions + 1 + position, self._batch, self._history.newest.schema
        return Version(number, record, before, after, schema, batch.batch_id, batch_number=batch.number)
