"""State-based consistent messaging: load, invoke, store, publish.

A new message is handled on the newest state and adds a version. A duplicate is replayed on the version before its own
with the recorded context. So it yields the same outputs with the same ids, and stores nothing. Many small streams share
one query and one commit.

After Masternak and Pobiega, "State-based consistent messaging" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from math import inf
from typing import NamedTuple

from eventstore import EventStoreError, InvalidKeyError, Operation, PayloadTooLargeError, Row, Table
from eventstore.header import HEADER, header_row, is_tombstone, versions_of
from eventstore.port import MultiPartitionTable, Transaction
from handlers import Published
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish, has_stream, publish_all
from runtime.algorithms.state_based.decide import FUTURE_TOLERANCE, Decider, Invoker
from runtime.algorithms.state_based.draft import CommitDraft, Newest, SealedCommit
from runtime.clock import Clock
from runtime.documents import Commit, Documents, Drafts
from runtime.errors import StoredDataError, UsageError
from runtime.ledger.batch import NOTHING, BatchContext, OpenBatches, Seen
from runtime.ledger.ledger import ConsumerBatches
from runtime.messages.envelope import Envelopes, IdKey
from runtime.messages.outcome import Outcome, Outcomes, Reason, Status, dead_letter
from runtime.messages.parsing import Deliveries, Delivery, prepare_streams
from runtime.retries import READ_AGAIN, RetryPolicy
from runtime.versions import dead_letter_rows, index
from runtime.versions.head import Head, NewestState, read_head
from runtime.versions.index import candidates, read_index_row
from runtime.versions.packing import Packer
from runtime.versions.properties import error_location
from runtime.versions.readable import read_state
from runtime.versions.stream import History, append, is_key, load, stream_partition


@dataclass(eq=False, repr=False)
class StateBased:
    """Processes the messages of one handler, one stream at a time."""

    table: Table
    handler: HandlerDefinition
    clock: Clock
    batch: BatchContext
    retries: RetryPolicy
    documents: Documents | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.retries = self.retries.beside(self.table)

    def on_behalf_of(self, batch: BatchContext) -> StateBased:
        return replace(self, batch=batch)

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> Sequence[Outcome]:
        """Handle the deliveries of one stream in order. Return an outcome for each.

        `seen`: facts about earlier deliveries of the stream in this batch. Copies of a message should be adjacent.

        Costs one query and one transaction. Duplicates cost more (see `runtime.versions.stream`), and so do versions
        that exceed one transaction.

        Raises `RetriesExhaustedError` after too many conflicts or timeouts, `StoredDataError` for a corrupt row, and
        `ReplayFailedError` or `DifferenceError` as `Decider.decide` does.
        """
        try:
            partition = stream_partition(self.table, self.handler.name, business_id)
        except InvalidKeyError as error:
            name, reason, problem = self.handler.name, Reason.KEY_TOO_LONG, str(error)
            return [
                each
                if isinstance(each, Outcome)
                else dead_letter(each.envelope, reason, problem, name, business_id)
                for each in deliveries
            ]
        with error_location(self.table, partition.key):
            return await self._process(business_id, Deliveries.of(deliveries), seen)

    async def _process(self, business_id: str, deliveries: Deliveries, seen: Seen) -> Outcomes:
        decider = Decider(self.handler, self.clock, self.batch, business_id)
        outcomes = Outcomes(deliveries.envelopes, self.handler.name, business_id)
        history: History | None = None
        retries, most = self.retries.start(), len(deliveries)
        while len(outcomes) < len(deliveries):
            waiting = deliveries[len(outcomes) :]
            try:
                history = history or await self.load(business_id, waiting)
                sealed = self.invoke(decider, history, waiting, seen, most)
                try:
                    history = await self.store(history, sealed)
                except PayloadTooLargeError:
                    # Dead letters beside versions may be too large, or in too many rows. Nothing was stored.
                    most = len(sealed.outcomes) // 2
                    if most == 0:
                        raise
                    continue
            except READ_AGAIN as error:
                # Even after a timeout the versions may be stored. Only a read can tell, so drop the outcomes.
                history = None
                await retries.pause(error)
                continue
            outcomes += sealed.outcomes
            seen = sealed.seen
            most *= 2
            retries.progress()
        return outcomes

    async def load(self, business_id: str, deliveries: Deliveries) -> History:
        """Load the newest state of a stream, and the versions that messages among the deliveries already made."""
        return await load(self.table, self.handler, business_id, deliveries.ready_keys())

    def invoke(
        self, decider: Decider, history: History, deliveries: Deliveries, seen: Seen, most: int
    ) -> SealedCommit:
        """Handle about `most` deliveries, or until a commit is full, and seal it.

        Pure except for clock, ids and captured values.
        """
        state = read_state(self.handler.codec, history.newest.encoded, history.stream.partition.key)
        attempt = None if self.documents is None else self.documents.new_id()
        draft = CommitDraft(history, deliveries, seen, state, self.batch, attempt=attempt)
        decider.decide(draft, most)
        return draft.seal(self.clock())

    async def store(self, history: History, sealed: SealedCommit) -> History:
        """Store the documents, then append the versions with optimistic concurrency. Return the updated history."""
        if sealed.update is not None:
            append_ = partial(append, history, sealed.update)
            history = await (self.with_documents(sealed, history, append_) if sealed.documents else append_())
        return history._replace(appended=sealed.appended)

    async def with_documents(
        self, sealed: SealedCommit, history: History, append_: Commit[History]
    ) -> History:
        """Register the attempt, store its documents, and append the versions that refer to the documents."""
        if self.documents is None or sealed.attempt is None:
            raise UsageError(
                f"{self.handler.name} stores documents (store_document), but no document store is configured: set "
                f"documents=URL or --documents."
            )
        key = history.stream.partition.key
        drafts = Drafts(key, sealed.attempt, sealed.documents, self.batch.key)
        return await self.documents.commit(drafts, append_)


@dataclass(eq=False, repr=False)
class StateBasedOneByOne:
    """Processes single messages of one handler, and publishes their outputs. Messages may share a consumer batch."""

    algorithm: StateBased
    publish: Publish
    consumer_batches: ConsumerBatches | None = None

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return its outcome. A new message costs two requests."""
        if isinstance(message, Outcome) and not has_stream(message):
            return message
        batch = self.algorithm.batch.redriving(redrive_beside)
        if self.consumer_batches is None:
            return await self.publish_after(self.algorithm.on_behalf_of(batch), message)
        consumer_batch = await self.consumer_batches.enter()
        algorithm = self.algorithm.on_behalf_of(replace(batch, number=consumer_batch.number))
        name = algorithm.handler.name, message.business_id, message.envelope.message_id
        try:
            outcome = await self.publish_after(algorithm, message)
        except BaseException:
            self.consumer_batches.fail(consumer_batch, name)
            raise
        await self.consumer_batches.leave(consumer_batch, None if outcome.version is None else name)
        return outcome

    async def publish_after(self, algorithm: StateBased, message: Delivery) -> Outcome:
        """Store the version of a message, then publish its outputs. Return its outcome."""
        (outcome,) = await algorithm.process(message.business_id or "", [message])
        if outcome.status is not Status.TOO_LATE:
            await publish_all(algorithm.table, self.publish, outcome.outputs)
        return outcome

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:  # noqa: ARG002 - the interface's
        """Return 0, as outputs are not stored. A redelivered message publishes its outputs again."""
        return 0

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:  # noqa: ARG002 - the interface's
        """Return 0, as ids are stored in the versions, which truncation deletes."""
        return 0


SMALL_DELIVERIES = 64  # streams with up to this number of deliveries are processed together
MAX_CHUNK_DELIVERIES = 2048  # the maximum number of deliveries that are processed together


class _Opened(NamedTuple):
    """A loaded stream. New streams have no header and no newest version."""

    header: Row | None
    head: Head
    newest: Newest | None


class _Stored(NamedTuple):
    """The new versions of a stream that were stored, with the data for their outcomes."""

    stream: int  # its index
    first: int  # the number of the first new version
    nows: Sequence[int]
    published: Sequence[Sequence[Published]]


@dataclass(eq=False, repr=False)
class StreamsTogether:
    """Processes messages of many streams of one handler together."""

    algorithm: StateBased
    table: MultiPartitionTable

    @classmethod
    def of(cls, algorithm: object, table: Table) -> StreamsTogether | None:
        """Return an instance, or `None` if the algorithm must process streams individually."""
        if not (isinstance(algorithm, StateBased) and isinstance(table, MultiPartitionTable)):
            return None
        is_plain = algorithm.documents is None and not algorithm.batch.is_redrive
        return cls(algorithm, table) if is_plain else None

    def prepare(self, business_ids: Sequence[str], ends: Sequence[int], envelopes: Envelopes) -> Deliveries:
        """Parse the deliveries of several streams. `ends`: the position after the last delivery of each stream."""
        bounds = zip(business_ids, [0, *ends], ends, strict=False)
        ids = [each for each, first, end in bounds for _ in range(first, end)]
        return prepare_streams(self.algorithm.handler, ids, envelopes, self.algorithm.batch.limits)

    async def process(
        self,
        business_ids: Sequence[str],
        ends: Sequence[int],
        deliveries: Deliveries,
        batch_ids: Sequence[str] | None = None,
    ) -> tuple[Outcomes, list[int]]:
        """Handle prepared deliveries. Return the outcomes of streams that were stored, and the indexes of the others.

        The caller must process the others individually. `ends`: as in `prepare`. `batch_ids`: the batch of each stream,
        if the streams belong to several batches.
        """
        name = self.algorithm.handler.name
        parts = [slice(*bounds) for bounds in zip([0, *ends], ends, strict=False)]
        usual = self._usual(business_ids, parts, deliveries)
        stored: list[_Stored] = []
        with suppress(EventStoreError):  # each stream is retried on its own, and raises there
            keys = [f"{name}-{business_ids[number]}" for number in usual]
            pages = await self.table.query_each(keys, HEADER, dead_letter_rows.LAST)
            handled = [
                (number, key, self._opened(key, rows, deliveries, parts[number]))
                for number, key, rows in zip(usual, keys, pages, strict=True)
            ]
            made, transactions = self._handle(handled, business_ids, parts, deliveries, batch_ids)
            results = await self.table.transact_each(transactions)
            stored = [each for each, result in zip(made, results, strict=True) if isinstance(result, tuple)]
        left = set(range(len(parts))).difference(each.stream for each in stored)
        return self._outcomes(stored, business_ids, parts, deliveries), sorted(left)

    def _usual(
        self, business_ids: Sequence[str], parts: Sequence[slice], deliveries: Deliveries
    ) -> Sequence[int]:
        """Return the indexes of streams with a valid key, valid messages, no id twice, and no future `enqueued_at`."""
        # Checking whole columns first is faster: most chunks have only such streams.
        messages, keys, enqueued_at = deliveries.messages, deliveries.keys, deliveries.envelopes.enqueued_at
        latest = inf if self.algorithm.batch.is_cascade else self.algorithm.clock() + FUTURE_TOLERANCE
        are_messages = Outcome not in map(type, messages)
        are_single = len(set(keys)) == len(keys)
        are_in_time = max(filter(None, enqueued_at), default=0) <= latest
        name = self.algorithm.handler.name
        return [
            number
            for number, part in enumerate(parts)
            if (are_messages or Outcome not in map(type, messages[part]))
            and (are_single or len(set(keys[part])) == part.stop - part.start)
            and (are_in_time or max(filter(None, enqueued_at[part]), default=0) <= latest)
            and is_key(f"{name}-{business_ids[number]}")
        ]

    def _opened(
        self, key: str, rows: Sequence[Row] | None, deliveries: Deliveries, part: slice
    ) -> _Opened | None:
        handler = self.algorithm.handler
        codec = handler.codec
        if rows == ():
            return _Opened(None, Head(None, codec.version), None)
        if not rows or rows[0].row_key != HEADER or is_tombstone(rows[0]):
            return None
        with suppress(StoredDataError, EventStoreError):
            header, *others = rows
            head = read_head(header.properties)
            enqueued_at = deliveries.envelopes.enqueued_at[part]
            if (
                head.state is not None
                and head.schema == codec.version
                and head.tombstone is None
                and not any(map(head.is_too_late, enqueued_at))
                and all(row.row_key.startswith(index.PREFIX) for row in others)
                and not _may_have(head, others, deliveries.keys[part])
            ):
                state = read_state(codec, head.state, key)
                return _Opened(header, head, Newest(state, head.state, head.versions, head.last_now))
        return None

    def _handle(
        self,
        opened: Sequence[tuple[int, str, _Opened | None]],
        business_ids: Sequence[str],
        parts: Sequence[slice],
        deliveries: Deliveries,
        batch_ids: Sequence[str] | None,
    ) -> tuple[list[_Stored], list[Transaction]]:
        handler, batch, clock = self.algorithm.handler, self.algorithm.batch, self.algorithm.clock
        invoker = Invoker(handler, clock, batch)
        made: list[_Stored] = []
        transactions: list[Transaction] = []
        initial: Newest | None = None

        def run(first: int) -> int:
            """Handle streams from index `first` until a handler fails. Return the index to continue from."""
            nonlocal initial
            for position, (number, key, stream) in enumerate(opened[first:], first + 1):
                if stream is None:
                    continue
                initial = initial or Newest(handler.codec.decode(handler.initial), handler.initial, 0, 0)
                begin = stream.newest or initial
                invoker.business_id = business_ids[number]
                handled = invoker.run(deliveries, parts[number], begin)
                if handled.failure is not None or handled.documents:
                    initial = None  # the handler may have mutated it
                    return position
                newest = NewestState(begin.encoded, handler.codec.version)
                batch_id = batch_ids[number] if batch_ids else batch.batch_id
                packer = Packer(deliveries, stream.head, newest, batch_id, batch.number)
                packer.extend(handled.made, handled.afters, handled.size)
                head, runs = packer.pack(clock())
                if not runs:
                    transactions.append((key, [_operation(stream.header, head)]))
                    published = handled.made.published
                    made.append(_Stored(number, stream.head.versions + 1, handled.made.nows, published))

            return len(opened)

        # Supervision allows for one call that ends its process, so a failure ends the supervised calls.
        position = 0
        while position < len(opened):
            position = invoker.supervise(partial(run, position))
        return made, transactions

    def _outcomes(
        self,
        stored: Sequence[_Stored],
        business_ids: Sequence[str],
        parts: Sequence[slice],
        deliveries: Deliveries,
    ) -> Outcomes:
        envelopes = deliveries.envelopes
        if len(stored) < len(parts):
            envelopes = Envelopes()
            for each in stored:
                envelopes.extend(deliveries.envelopes[parts[each.stream]])
        outcomes = Outcomes(envelopes, self.algorithm.handler.name)
        outcomes.business_ids = []
        for number, first, nows, published in stored:
            outcomes.processed(first, nows, published)
            outcomes.business_ids += [business_ids[number]] * len(nows)
        return outcomes


def _may_have(head: Head, index_rows: Sequence[Row], keys: Sequence[IdKey]) -> bool:
    ids = b"" if head.tail is None else head.tail.packed_ids
    if any((key if isinstance(key, bytes) else key.encode()) in ids for key in keys):
        return True
    return bool(index_rows) and any(True for _ in candidates([*map(read_index_row, index_rows)], keys))


def _operation(header: Row | None, head: Head) -> Operation:
    if header is None:
        return Operation.insert(HEADER, header_row(0, 1, head.properties()))
    return Operation.replace(HEADER, header_row(*versions_of(header), head.properties()), header.etag)
