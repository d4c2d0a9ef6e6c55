"""A store that is slower than the log: the work that is under way stays bounded, and so does what is held in memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator

import pyarrow as pa

from benchmarks.games import by_game, routed_batches
from eventstore import InterceptedTable, Table
from runtime.ledger.batch import BatchContext
from runtime.messages.outcome import Outcome
from runtime.spark.worker import connection as buffer
from runtime.spark.worker import job as deliveries
from runtime.spark.worker import outcomes as writing
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app

STREAMS = 40
TURNS = 5
ROWS_IN_A_BATCH = 10
IN_FLIGHT = 4


class SlowTable:
    """Lets no call of a stream go on before as many streams wait as may be under way, or as there are left.

    So every bound is reached: were there none, all streams would be under way before the first ends.
    """

    def __init__(self, may_wait: int) -> None:
        self.under_way: set[str] = set()
        self.ended: set[str] = set()
        self.most_under_way = 0
        self._may_wait = may_wait
        self._waiting: list[asyncio.Future[None]] = []

    def around(self, table: Table) -> Table:
        return InterceptedTable(table, before=self._before, after=self._after)

    async def _before(self, name: str, partition_key: str, number: int) -> None:
        self.under_way.add(partition_key)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if len(self._waiting) >= min(self._may_wait, STREAMS - len(self.ended)):
            self._waiting.pop(0).set_result(None)
        await waiting

    def _after(self, name: str, partition_key: str, number: int, result: object) -> None:
        if name == "transact":
            self.under_way.remove(partition_key)
            self.ended.add(partition_key)
            # The last ones have nobody to wait for.
            if self._waiting and len(self._waiting) >= min(self._may_wait, STREAMS - len(self.ended)):
                self._waiting.pop(0).set_result(None)


class PulledLog:
    """Gives batches of deliveries, and remembers how many streams were given beyond those that had ended."""

    def __init__(self, slow: SlowTable | None = None) -> None:
        self.pulled = 0
        self.most_ahead = 0
        self._slow = slow

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in in_small_batches(routed_batches(by_game(range(STREAMS), range(TURNS)))):
            self.pulled += batch.num_rows
            ended = len(self._slow.ended) if self._slow else 0
            self.most_ahead = max(self.most_ahead, self.pulled - ended * TURNS)
            yield batch


def in_small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_IN_A_BATCH):
            yield batch.slice(start, ROWS_IN_A_BATCH)


def statuses(batches: Iterable[pa.RecordBatch]) -> list[str]:
    return [status for batch in batches for status in batch.column("status").to_pylist()]


def test_a_slow_store_holds_up_the_reading_of_the_log(network_store):
    slow = SlowTable(IN_FLIGHT)
    log = PulledLog(slow)
    job = FoldJob(app, network_store, "games", BatchContext("night"), in_flight=IN_FLIGHT, wrap=slow.around)

    done = statuses(job.fold(log.batches()))

    assert done == ["processed"] * (STREAMS * TURNS)
    assert slow.most_under_way == IN_FLIGHT
    # Those under way, the one that is being put together, and what came in the same Arrow batch as its end.
    assert log.most_ahead <= (IN_FLIGHT + 1) * TURNS + ROWS_IN_A_BATCH


def test_parts_of_one_long_stream_wait_for_each_other(network_store, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 10)
    under_way: list[str] = []
    most: list[int] = []

    async def before(name: str, partition_key: str, number: int) -> None:
        if name == "query":
            under_way.append(partition_key)
            most.append(len(under_way))
        await asyncio.sleep(0)  # others may go on

    def after(name: str, partition_key: str, number: int, result: object) -> None:
        if name == "transact":
            under_way.remove(partition_key)

    job = FoldJob(
        app,
        network_store,
        "games",
        BatchContext("night"),
        in_flight=IN_FLIGHT,
        wrap=lambda table: InterceptedTable(table, before, after),
    )

    done = statuses(job.fold(in_small_batches(routed_batches(by_game([0], range(100))))))

    assert done == ["processed"] * 100
    assert most == [1] * 10


def test_an_embedded_store_holds_up_the_reading_of_the_log_until_a_commit(tmp_path):
    under_way: set[str] = set()
    most: list[int] = []
    log = PulledLog()

    def before(name: str, partition_key: str, number: int) -> None:
        under_way.add(partition_key)
        most.append(len(under_way))

    def after(name: str, partition_key: str, number: int, result: object) -> None:
        if name == "transact":
            under_way.remove(partition_key)
            ended.append(number)
            ahead.append(log.pulled - len(ended) * TURNS)

    ended: list[int] = []
    ahead: list[int] = []
    job = FoldJob(
        app,
        f"sqlite:///{tmp_path}/store.db",
        "games",
        BatchContext("night"),
        in_flight=IN_FLIGHT,
        wrap=lambda table: InterceptedTable(table, before, after),
    )

    assert statuses(job.fold(log.batches())) == ["processed"] * (STREAMS * TURNS)
    assert max(most) == IN_FLIGHT
    assert len(ahead) == STREAMS
    assert max(ahead) <= IN_FLIGHT * TURNS + ROWS_IN_A_BATCH


def test_outcomes_that_nobody_takes_hold_up_the_reading_of_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MAX_ROWS", 20)
    log = PulledLog()
    job = FoldJob(app, f"sqlite:///{tmp_path}/store.db", "games", BatchContext("night"), in_flight=IN_FLIGHT)

    batches = job.fold(log.batches())
    taken = 0
    for batch in batches:
        taken += batch.num_rows
        assert log.pulled <= taken + (IN_FLIGHT + 1) * TURNS + ROWS_IN_A_BATCH

    assert taken == STREAMS * TURNS


def test_a_long_group_gives_its_outcomes_in_several_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MAX_ROWS", 30)
    job = FoldJob(app, f"sqlite:///{tmp_path}/store.db", "games", BatchContext("night"))

    batches = list(job.fold(routed_batches(by_game([0], range(100)))))

    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
    assert [version for batch in batches for version in batch.column("version").to_pylist()] == list(
        range(1, 101)
    )


def test_nothing_of_a_group_is_kept_when_it_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 20)
    monkeypatch.setattr(buffer, "LARGE_BYTES", 19 * deliveries.DELIVERY_BYTES)
    monkeypatch.setattr(writing, "MAX_ROWS", 20)
    groups: list[int] = []
    outcomes: list[int] = []

    def pulled() -> Iterator[pa.RecordBatch]:
        for batch in in_small_batches(routed_batches(by_game([0], range(100)))):
            groups.append(living(deliveries.Group))
            yield batch

    def before(name: str, partition_key: str, number: int) -> None:
        if name == "query":
            outcomes.append(living(Outcome))

    job = FoldJob(
        app,
        f"sqlite:///{tmp_path}/store.db",
        "games",
        BatchContext("night"),
        wrap=lambda table: InterceptedTable(table, before),
    )
    gc.collect()
    gc.freeze()  # what there is already is not counted
    try:
        assert len(statuses(job.fold(pulled()))) == 100
    finally:
        gc.unfreeze()
    # While a group is put together there is no other, and while one is handled there are no outcomes of another.
    assert max(groups) == 1
    assert outcomes == [0] * 5


def living(kind: type) -> int:
    return sum(isinstance(each, kind) for each in gc.get_objects())
