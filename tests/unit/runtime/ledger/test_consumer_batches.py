"""Consumer batches: outputs of single messages are noted as published late and in bulk, and never too early."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, Table, drive
from runtime import Envelope, Output, Processor, TableSettings, UsageError
from runtime.algorithms.state_based.truncation import HeldBy, Truncated, TruncationChoices, truncate_stream
from runtime.ledger.ledger import INPUT, BatchStatus, ConsumerBatches, Ledger
from tests.unit.runtime import diary
from tests.unit.runtime.diary import write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, made_by

OLD = NOW - 10 * DAY
MINUTE = timedelta(minutes=1)


class Consumer:
    """A consumer of a queue, whose clock goes on by half a minute for each message, and whose publishing may fail."""

    def __init__(self, table: Table) -> None:
        self.clock = ToldClock(OLD)
        self.fails = False
        options: dict[str, Any] = {"clock": self.clock, "retries": PATIENCE, "settings": TableSettings()}
        self.processor = Processor(diary.app, table, self.publish, acknowledge_every=MINUTE, **options)

    async def publish(self, _: Output) -> None:
        if self.fails:
            raise ConnectionError("nobody listens")

    def handle(self, *lines: str) -> None:
        for line in lines:
            drive(self.processor.process(message(line)))
            self.clock.now += 30_000_000

    def fail(self, line: str) -> None:
        self.fails = True
        with pytest.raises(ConnectionError):
            self.handle(line)
        self.fails = False
        self.clock.now += 30_000_000

    def flush(self) -> int:
        return drive(self.processor.flush())


def message(line: str) -> Envelope:
    return write(line, enqueued_at=OLD)


def statuses(table: Table) -> list[BatchStatus]:
    """Return the statuses of the batches of a table, in the order in which they began."""
    found = drive(Ledger(table, ToldClock()).batches(limit=99))
    assert {record.input for record in found} <= {INPUT}
    return [record.status for record in sorted(found, key=lambda record: record.number or 0)]


def truncate(table: Table) -> Truncated:
    rules = TruncationChoices(older_than=DAY).as_of(NOW, drive(Ledger(table, ToldClock()).open_batches()))
    truncated = drive(truncate_stream(table, "Diary-d-1", rules, PATIENCE))
    assert truncated is not None
    return truncated


STARTED, PUBLISHED = BatchStatus.STARTED, BatchStatus.PUBLISHED


def test_a_batch_ends_with_the_first_message_after_its_time_or_when_the_consumer_stops(table):
    consumer = Consumer(table)

    consumer.handle("a", "b")
    assert statuses(table) == [STARTED]
    assert (truncate(table).versions, truncate(table).held) == (0, HeldBy.UNACKNOWLEDGED)

    consumer.handle("c")
    assert statuses(table) == [PUBLISHED, STARTED]
    assert truncate(table).versions == 2
    assert made_by(table) == ["c"]

    assert consumer.flush() == 0
    assert statuses(table) == [PUBLISHED, PUBLISHED]
    assert truncate(table).held is None


def test_a_consumer_that_died_leaves_its_batch_open_until_it_is_abandoned(table):
    # Given a consumer that died before it published, and another one that goes on
    Consumer(table).fail("lost")
    other = Consumer(table)
    other.handle("a", "b", "c")
    other.flush()
    assert statuses(table) == [STARTED, PUBLISHED, PUBLISHED]

    # Then its version stays, and the message gives its outputs
    assert truncate(table).held is HeldBy.UNACKNOWLEDGED
    (outcome,) = drive(other.processor.process(message("lost")))
    assert outcome.outputs

    # ... until the operator knows that everything was redelivered
    (dead,) = [each for each in drive(Ledger(table, ToldClock()).batches(9)) if each.number == 1]
    drive(Ledger(table, ToldClock()).abandon(dead.batch_id))
    assert truncate(table).versions == 3


def test_a_message_that_failed_holds_its_batch_until_the_consumer_has_handled_it(table):
    consumer = Consumer(table)
    consumer.fail("a")
    consumer.handle("b", "c", "d")
    assert statuses(table) == [STARTED, STARTED]
    assert consumer.flush() == 1

    consumer.handle("a")
    assert consumer.flush() == 0

    assert set(statuses(table)) == {PUBLISHED}


def test_a_batch_does_not_end_while_a_message_of_it_is_being_handled(table):
    # Given a message whose publishing waits, and another after the time of its batch
    consumer = Consumer(table)

    async def overtaken() -> None:
        waiting, released = asyncio.Event(), asyncio.Event()

        async def publish(_: Output) -> None:
            if not waiting.is_set():
                waiting.set()
                await released.wait()

        (await consumer.processor._ready())["Diary"].publish = publish  # type: ignore[attr-defined]
        first = asyncio.create_task(consumer.processor.process(message("slow")))
        await waiting.wait()
        consumer.clock.now += 120_000_000
        await consumer.processor.process(message("quick"))
        assert await consumer.processor.flush() == 1
        released.set()
        await first

    asyncio.run(overtaken())

    assert statuses(table) == [PUBLISHED, PUBLISHED]


def test_a_ledger_that_does_not_answer_costs_no_message(table):
    # Given that the first batch cannot be ended when its time is over
    broken: list[bool] = []

    def fail(name: str, partition_key: str, *_: object) -> None:
        if broken and name == "transact" and partition_key == "_batches" and broken.pop():
            raise StoreUnavailableError("it is away")

    consumer = Consumer(InterceptedTable(table, before=fail))
    consumer.handle("a")
    broken[:] = [True, False]  # the second batch begins, and the first does not end
    consumer.clock.now += 120_000_000
    consumer.handle("b")
    assert statuses(table) == [STARTED, STARTED]

    assert consumer.flush() == 0
    assert statuses(table) == [PUBLISHED, PUBLISHED]


def test_it_costs_requests_for_each_batch_and_none_for_a_message():
    table = InterceptedTable(memory_table())
    consumer = Consumer(table)
    costs = []
    for line in "abcd":
        table.counts.clear()
        consumer.handle(line)
        costs.append(dict(table.counts))

    assert costs[1] == costs[3] == {"query": 1, "transact": 1, "barrier": 1}
    assert sum(costs[0].values()) <= 3 + 3
    assert sum(costs[2].values()) <= 3 + 5


def test_other_algorithms_have_no_batches_and_without_an_interval_there_are_none(table):
    publish = Consumer(table).publish
    with pytest.raises(UsageError, match="omit it with outbox"):
        Processor(diary.app, table, publish, algorithm="outbox", acknowledge_every=MINUTE)

    processor = Processor(diary.app, table, publish)
    drive(processor.process(message("a")))

    assert (drive(processor.flush()), statuses(table)) == (0, [])


class SlowTable(InterceptedTable):
    async def _call(self, name: str, partition_key: str, call: Any) -> Any:
        await asyncio.sleep(0)  # another message goes on
        return await super()._call(name, partition_key, call)


def test_messages_that_leave_at_once_end_each_batch_once_and_a_cancelled_end_is_made_up_for(table):
    async def run():
        clock = ToldClock(OLD)
        batches = ConsumerBatches(Ledger(SlowTable(table), clock), clock, map(str, range(9)).__next__, 10)

        async def enter():
            clock.now += 20
            return await batches.enter()

        first, second, third = [await enter() for _ in range(3)]
        batches.fail(first, "m")
        batches.fail(second, "m")
        third.running += 1
        await asyncio.gather(batches.leave(third, "m"), batches.leave(third, "k"))

        fourth, fifth = [await enter() for _ in range(2)]
        leaving = asyncio.create_task(batches.leave(fourth, "x"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        await batches.leave(fifth, "y")
        return await batches.flush()

    assert asyncio.run(run()) == 0
    assert statuses(table) == [PUBLISHED] * 5
