"""Group commit: what several streams write to a store of this machine is committed together.

The most of what an append costs there is the transaction of the file around it. So each stream is processed until it
would write, and then waits; when enough of them wait, or nothing else can go on, one commit has all their transactions,
and only then do they get their answers. Each transaction is carried out or refused by itself. Nothing is locked while
handlers run.

When the commit itself fails, each of its streams gets that error, as after a lost answer, and from then on goes on
alone: a store that stays unavailable is given up as soon as if there were one stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Generic, TypeVar

from eventstore import EventStoreError, InterceptedTable, Operation, StoreUnavailableError, Table, drive
from eventstore.port import CommitsTogether, Transaction, TransactionResult
from runtime.spark.workers.concurrency import Wait

T = TypeVar("T")
Work = Coroutine[Any, Any, T]


class Pending:
    """A transaction that waits for a commit. Awaiting it gives what `transact` gives."""

    __slots__ = ("table", "transaction")

    def __init__(self, table: CommitsTogether, transaction: Transaction) -> None:
        self.table = table
        self.transaction = transaction

    def __await__(self) -> Generator[Pending, tuple[str, ...], tuple[str, ...]]:
        return (yield self)


class GroupCommit:
    """Runs coroutines whose transactions are committed together; those of all others are committed at once."""

    def __init__(self) -> None:
        self.is_collecting = False

    def around(self, table: Table) -> Table:
        """Return a table whose transactions wait for a commit, when they are those of coroutines that run here."""
        return _CollectedTable(table, table, self) if isinstance(table, CommitsTogether) else table

    def run_all(self, work: Iterable[Work[T] | Wait], most: int) -> Iterator[T]:
        """Run coroutines, at most so many at once, and give their results as they end.

        The next coroutine is asked for only when there is room for it, and when a `Wait` before it has ended. When one
        raises, the others are closed.
        """
        streams: _Streams[T] = _Streams(self)
        may_wait = most
        try:
            for each in work:
                if each is Wait.FOR_ONE:
                    yield from streams.until_one_ends()
                elif each is Wait.FOR_ALL:
                    yield from streams.until_fewer_wait(1)
                elif each is Wait.FOR_NEXT:
                    may_wait = 1
                else:
                    yield from streams.begin(each)
                    yield from streams.until_fewer_wait(may_wait)
                    may_wait = most
            yield from streams.until_fewer_wait(1)
        finally:
            streams.close()

    def step(self, work: Work[T], answer: TransactionResult | None) -> Pending:
        """Run a coroutine until its next transaction, and return that. Raises `StopIteration` when it ends."""
        self.is_collecting = True
        try:
            pending = work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
        finally:
            self.is_collecting = False
        if not isinstance(pending, Pending):
            raise TypeError("The coroutine waits for something else than a store of this machine.")
        return pending


class _Streams(Generic[T]):
    """The coroutines that wait for a commit, in the order in which they came to it."""

    def __init__(self, group: GroupCommit) -> None:
        self._group = group
        self._waiting: deque[tuple[Work[T], Pending]] = deque()
        self._ended: deque[T] = deque()

    def begin(self, work: Work[T]) -> Iterator[T]:
        """Run a coroutine until it waits or ends."""
        self._go_on(work, None)
        yield from self._results()

    def until_one_ends(self) -> Iterator[T]:
        """Commit, again if need be, until one has ended."""
        before = len(self._waiting)
        while self._waiting and len(self._waiting) == before:
            yield from self._commit()

    def until_fewer_wait(self, number: int) -> Iterator[T]:
        """Commit, again if need be, until fewer than so many wait."""
        while len(self._waiting) >= number:
            yield from self._commit()

    def close(self) -> None:
        """Close those that wait."""
        while self._waiting:
            work, _ = self._waiting.popleft()
            work.close()

    def _commit(self) -> Iterator[T]:
        """Commit all that is pending, and let each go on that waited for it."""
        for answer in _answers([pending for _, pending in self._waiting]):
            work, _ = self._waiting.popleft()
            if isinstance(answer, StoreUnavailableError):
                self._go_on_alone(work, answer)
            else:
                self._go_on(work, answer)
            yield from self._results()

    def _go_on(self, work: Work[T], answer: TransactionResult | None) -> None:
        try:
            self._waiting.append((work, self._group.step(work, answer)))
        except StopIteration as end:
            self._ended.append(end.value)

    def _go_on_alone(self, work: Work[T], answer: TransactionResult) -> None:
        """Run a coroutine to its end, with commits of its own."""
        try:
            while True:
                pending = self._group.step(work, answer)
                (answer,) = _answers([pending])
        except StopIteration as end:
            self._ended.append(end.value)

    def _results(self) -> Iterator[T]:
        while self._ended:
            yield self._ended.popleft()  # and keep nothing of it


def _answers(waiting: Sequence[Pending]) -> list[TransactionResult]:
    """Return what became of each transaction, after one commit for each table."""
    answers: dict[Pending, TransactionResult] = {}
    for table in dict.fromkeys(pending.table for pending in waiting):
        together = [pending for pending in waiting if pending.table is table]
        answers.update(zip(together, _commit(table, together), strict=True))
    return [answers[pending] for pending in waiting]


def _commit(table: CommitsTogether, together: Sequence[Pending]) -> list[TransactionResult]:
    try:
        return drive(table.transact_each([pending.transaction for pending in together]))
    except EventStoreError as error:
        return [copy(error) for _ in together]


class _CollectedTable(InterceptedTable):
    """A table whose transactions wait for a commit while they are collected."""

    def __init__(self, table: Table, commits: CommitsTogether, group: GroupCommit) -> None:
        super().__init__(table)
        self._commits = commits
        self._group = group

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        if self._group.is_collecting:
            return await Pending(self._commits, (partition_key, operations))
        return await super().transact(partition_key, operations)
