"""Process many small streams with one query and one commit.

If objects get only a few messages per batch, loading and storing dominate. Only simple streams are handled together:
each message is new, its handler succeeds, and the versions fit the tail. `StateBased.process` handles all others one by
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple

from eventstore import EventStoreError, Operation, Row, Table
from eventstore.header import HEADER, header_row, is_tombstone, versions_of
from eventstore.port import MultiPartitionTable, Transaction
from handlers import Published
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.algorithms.state_based.decide import FUTURE_TOLERANCE, Invoker
from runtime.algorithms.state_based.transaction import Newest
from runtime.errors import StoredDataError
from runtime.messages.envelope import Envelopes, IdKey
from runtime.messages.outcome import Outcome, Outcomes
from runtime.messages.parsing import Deliveries, prepare_streams
from runtime.versions import dead_letters, index
from runtime.versions.head import Head, read_head
from runtime.versions.index import candidates, read_index_row
from runtime.versions.readable import read_state
from runtime.versions.stream import NewestState, Packer, is_key, stream_key

SMALL_DELIVERIES = 64  # streams with at most as many deliveries are processed together
MAX_CHUNK_DELIVERIES = 2048  # of all streams together


class _Opened(NamedTuple):
    """A loaded stream. New streams have no header and no newest version."""

    header: Row | None
    head: Head
    newest: Newest | None


class _Stored(NamedTuple):
    """The stored versions of a stream, and the data of their outcomes."""

    stream: int  # the index among the streams
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
        """Return a processor for an algorithm, or `None` if the algorithm must process streams one by one."""
        if not (isinstance(algorithm, StateBased) and isinstance(table, MultiPartitionTable)):
            return None
        is_plain = algorithm.documents is None and not algorithm.batch.is_redrive
        return cls(algorithm, table) if is_plain else None

    def prepare(self, business_ids: Sequence[str], ends: Sequence[int], envelopes: Envelopes) -> Deliveries:
        """Parse the deliveries of several streams; each stream ends before one of the positions `ends`."""
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
        """Handle prepared deliveries.

        Return the outcomes of the stored streams, and the indexes of the streams left for `StateBased.process`. Such a
        stream may have been stored too. Costs one query and one commit in total. `batch_ids`: the batch of each stream,
        if it is not that of the algorithm.
        """
        name = self.algorithm.handler.name
        parts = [slice(*bounds) for bounds in zip([0, *ends], ends, strict=False)]
        usual = self._usual(business_ids, parts, deliveries)
        stored: list[_Stored] = []
        with suppress(EventStoreError):  # each stream is retried on its own, and raises there
            keys = [stream_key(name, business_ids[number]) for number in usual]
            pages = await self.table.query_each(keys, HEADER, dead_letters.LAST)
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
        """Return the indexes of the streams with only valid messages, one delivery each, and none from the future."""
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
        """Return a stream to which versions can be appended, or `None` for a stream to process on its own."""
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
        """Handle the messages of opened streams. Return the new versions, and the transactions that store these."""
        handler, batch, clock = self.algorithm.handler, self.algorithm.batch, self.algorithm.clock
        invoker = Invoker(handler, clock, batch)
        made: list[_Stored] = []
        transactions: list[Transaction] = []
        initial: Newest | None = None

        def run(first: int) -> int:
            """Handle streams from `first` on, until a handler fails. Return the position after the failed stream."""
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
                packed = packer.pack(clock())
                if not packed.runs:
                    head = packer.head_after(stream.head, packed)
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
    """Return whether any message may be a duplicate: its id occurs in the tail, or its hash in the index."""
    ids = b"" if head.tail is None else head.tail.packed_ids
    if any((key if isinstance(key, bytes) else key.encode()) in ids for key in keys):
        return True
    return bool(index_rows) and any(True for _ in candidates([*map(read_index_row, index_rows)], keys))


def _operation(header: Row | None, head: Head) -> Operation:
    if header is None:
        return Operation.insert(HEADER, header_row(0, 1, head.properties()))
    return Operation.replace(HEADER, header_row(*versions_of(header), head.properties()), header.etag)
