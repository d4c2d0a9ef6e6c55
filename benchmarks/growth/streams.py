"""Series of streams: long ones and many, with a history, under a policy, with copies, and one that grows."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from benchmarks.games import Turn, by_game, game_id, routed_batches
from benchmarks.growth.folding import Cost, Folding, Series, SizeBySize, expect, total
from benchmarks.shooting import HANDLER
from eventstore import Row, Table, drive
from eventstore.limits import prepare_row
from runtime.algorithms.state_based.truncation import DAY, RetentionRules, truncate_stream
from runtime.clock import to_microseconds
from runtime.ledger.batch import OpenBatches
from runtime.retries import RetryPolicy
from runtime.versions.stream import versions
from samples.shooting_range.log import BEGIN

PER_STREAM = 10
_AT_LEAST = 1_000


class MessagesPerStream(SizeBySize):
    """Puts the same number of messages into fewer and fewer streams."""

    title = "The same messages in fewer, longer streams"
    quantity = "messages per stream"

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold all messages into new streams of this length."""
        messages = list(routed_batches(by_game(range(self.plan.messages // size), range(size))))
        folding = Folding(folder / "store.db", counted=counted)
        cost = expect(folding.fold(messages), Counter(processed=self.plan.messages // size * size))
        if counted:
            folding.check(messages)
        return cost


class StreamsPerBatch(SizeBySize):
    """Puts more and more streams into a batch, each with the same number of new messages."""

    title = "More streams in a batch, each with 10 messages"
    quantity = "streams per batch"

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold a batch of so many new streams; where they are few, one batch after another."""
        times = max(1, min(_AT_LEAST, self.plan.messages) // (size * PER_STREAM))
        folding = Folding(folder / "store.db", counted=counted)
        batches = [
            list(routed_batches(by_game(range(number * size, (number + 1) * size), range(PER_STREAM))))
            for number in range(times)
        ]
        cost = total(folding.fold(messages) for messages in batches)
        if counted:
            folding.check(each for messages in batches for each in messages)
        return expect(cost, Counter(processed=times * size * PER_STREAM))


class SmallAppends(Series):
    """Runs many batches of 1 to 10 messages on one stream; a size is the number of batches that there were.

    The cost at a size is that of the batches since the size before. Its facts are what the stream is by then: rows,
    bytes for each message, and the time to read its whole history, for each message.
    """

    title = "Batches of 1 to 10 messages, one after another, on one stream"
    quantity = "batches so far"

    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Run all batches once."""
        folder.mkdir(parents=True)
        folding = Folding(folder / "store.db", counted=counted)
        batch, turn = 0, 0
        for size in self.plan.sizes:
            costs: list[Cost] = []
            while batch < size:
                end = turn + 1 + (batch * 7) % self.plan.messages
                messages = list(routed_batches(by_game([0], range(turn, end))))
                costs.append(expect(folding.fold(messages), Counter(processed=end - turn)))
                batch, turn = batch + 1, end
            yield size, total([*costs, nothing(_stand(folding, turn))])
        if counted:
            folding.check(routed_batches(by_game([0], range(turn))))


def nothing(facts: Mapping[str, float]) -> Cost:
    """Return no cost, with facts."""
    return Cost(0, 0, 0, {}, facts=facts)


def _stand(folding: Folding, messages: int) -> Mapping[str, float]:
    table = folding.connection.table
    began = time.perf_counter()
    kept = drive(versions(table, HANDLER.name, game_id(0))) or []
    seconds = time.perf_counter() - began
    if len(kept) != messages:
        raise AssertionError("A read of the whole history gives all versions.")
    rows: list[Row] = list(drive(table.query(f"{HANDLER.name}-{game_id(0)}", "", "~")).rows)
    stored = sum(prepare_row(row.properties)[1] for row in rows)
    return {
        "rows": len(rows),
        "bytes_per_message": stored / messages,
        "read_microseconds": seconds / messages * 1e6,
    }


_PER_STREAM = 500
"""More than a tail takes: the known versions are in runs, as most are."""


class Duplicates(SizeBySize):
    """Replaces more and more of a batch's messages with copies of stored ones."""

    title = "A batch of which a share are duplicates"
    quantity = "duplicates in the batch (%)"
    most = 2.0

    def prepare(self) -> None:
        """Store the messages that will be redelivered."""
        folding = Folding(self.folder / "before.db", counted=False)
        expect(folding.fold(list(routed_batches(self._batch(0)))), Counter(processed=self._messages))
        folding.settle()

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold a batch with this share, in percent, in each stream."""
        shutil.copy(self.folder / "before.db", folder / "store.db")
        new = _PER_STREAM * (100 - size) // 100
        messages = list(routed_batches(self._batch(new)))
        folding = Folding(folder / "store.db", counted=counted)
        processed = new * self._streams
        ends = Counter(processed=processed, duplicate=self._messages - processed)
        cost = expect(folding.fold(messages), ends)
        if counted:
            folding.check(routed_batches(self._all(new)))
        return cost

    @property
    def _streams(self) -> int:
        return max(1, self.plan.messages // _PER_STREAM)

    @property
    def _messages(self) -> int:
        return self._streams * _PER_STREAM

    def _batch(self, new: int) -> Iterator[Turn]:
        """Give each stream the last of its stored messages again, and then new ones."""
        return ((game, turn) for game in range(self._streams) for turn in range(new, new + _PER_STREAM))

    def _all(self, new: int) -> Iterator[Turn]:
        return ((game, turn) for game in range(self._streams) for turn in range(_PER_STREAM + new))


_BATCH = 10_000
"""How many messages at a time made the history."""


class History(SizeBySize):
    """Adds messages to a stream that keeps more and more versions."""

    title = "New messages for a stream with a history"
    quantity = "versions kept in the stream"

    def prepare(self) -> None:
        """Make the longest history, and keep a copy at each size on the way."""
        folding = Folding(self.folder / "growing.db", counted=False)
        done = 0
        for size in sorted(self.plan.sizes):
            for messages in _history(done, size):
                expect(folding.fold(messages), Counter(processed=sum(each.num_rows for each in messages)))
            done = size
            folding.settle()
            shutil.copy(folding.file, self._copy(size))

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold one batch of messages onto a copy of the history."""
        shutil.copy(self._copy(size), folder / "store.db")
        messages = list(routed_batches(by_game([0], range(size, size + self.plan.messages))))
        folding = Folding(folder / "store.db", counted=counted)
        cost = expect(folding.fold(messages), Counter(processed=self.plan.messages))
        if counted:
            folding.check(routed_batches(by_game([0], range(size + self.plan.messages))))
        return cost

    def _copy(self, size: int) -> Path:
        return self.folder / f"{size}.db"


def _history(first: int, end: int) -> Iterator[list[pa.RecordBatch]]:
    for start in range(first, end, _BATCH):
        yield list(routed_batches(by_game([0], range(start, min(start + _BATCH, end)))))


POLICY = RetentionRules(older_than=30 * DAY, keep_last=1)
_MESSAGES_A_DAY = 10


class UnderPolicy(Series):
    """Runs a batch each day on one stream, and a truncation by the policy after it; a size is the number of days.

    The cost at a size is that of the batches since the size before. Its facts are what the stream is by then: versions,
    rows, and bytes.
    """

    title = "A batch and a truncation each day: 30 days are kept"
    quantity = "days so far"

    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Run all days once."""
        folder.mkdir(parents=True)
        now = to_microseconds(BEGIN)
        folding = Folding(folder / "store.db", counted=counted, clock=lambda: now)
        day = 0
        for size in self.plan.sizes:
            costs: list[Cost] = []
            while day < size:
                now += DAY
                turns = range(day * _MESSAGES_A_DAY, (day + 1) * _MESSAGES_A_DAY)
                messages = list(routed_batches(by_game([0], turns)))
                costs.append(expect(folding.fold(messages), Counter(processed=_MESSAGES_A_DAY)))
                _truncate(folding.connection.table, now)
                day += 1
            yield size, total([*costs, nothing(_stand_of_day(folding.connection.table))])


def _truncate(table: Table, now: int) -> None:
    rules = POLICY.as_of(now, OpenBatches())
    drive(truncate_stream(table, f"{HANDLER.name}-{game_id(0)}", rules, RetryPolicy()))


def _stand_of_day(table: Table) -> Mapping[str, float]:
    kept = drive(versions(table, HANDLER.name, game_id(0))) or []
    rows: list[Row] = list(drive(table.query(f"{HANDLER.name}-{game_id(0)}", "", "~")).rows)
    stored = sum(prepare_row(row.properties)[1] for row in rows)
    return {"rows": len(rows), "versions": len(kept), "stored_bytes": stored}
