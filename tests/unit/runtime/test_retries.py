"""In a pause before the next attempt other tasks go on when a table is on the network."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, Table, connect, drive
from eventstore.port import pause_seconds
from runtime import Output, Processor, TableSettings
from runtime.algorithms.outbox.algorithm import Outbox, OutboxOneByOne
from runtime.algorithms.state_based.replay import Verifier
from runtime.algorithms.state_based.truncation import DAY, TruncationChoices, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.messages.parsing import Prepared, prepare
from runtime.publishing.last_hop import End, IdempotentDelivery, TableKeys
from runtime.retries import RetryPolicy
from tests.support.network_store import NetworkStore
from tests.unit.runtime import diary
from tests.unit.runtime.diary import DIARY, write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import NOW

POLICY = RetryPolicy(first=0.0, longest=0.0)
(DIARIES,) = diary.app.handlers.values()
FAILURES = 3

Work = Callable[[Table], Awaitable[object]]


class Neighbour:
    """Another task of the event loop, which counts how often it was its turn."""

    def __init__(self) -> None:
        self.turns = 0

    async def work(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def publish(output: Output) -> None:
    """Send nowhere."""


def failing(table: Table, note: Callable[[], object]) -> Table:
    """Return the table, whose first calls fail; each attempt is noted."""
    attempts: list[str] = []

    def fail(name: str, *_: object) -> None:
        attempts.append(name)
        note()
        if len(attempts) <= FAILURES:
            raise StoreUnavailableError("no answer")

    return InterceptedTable(table, before=fail)


def turns_in_pauses(table: Table, work: Work) -> list[int]:
    """Return how often the neighbour had its turn in each pause."""
    neighbour, seen = Neighbour(), list[int]()
    raced = failing(table, lambda: seen.append(neighbour.turns))

    async def both() -> None:
        other = asyncio.create_task(neighbour.work())
        await work(raced)
        other.cancel()

    asyncio.run(both())
    return [later - earlier for earlier, later in list(pairwise(seen))[:FAILURES]]


def a_line() -> Prepared:
    prepared = prepare(DIARIES, DIARY, write("a"))
    assert isinstance(prepared, Prepared)
    return prepared


def network_table() -> Table:
    return drive(NetworkStore("memory:").table("states"))


async def process(table: Table, algorithm="state-based", **options: Any) -> None:
    processor = Processor(
        diary.app, table, publish, retries=POLICY, algorithm=algorithm, settings=TableSettings(), **options
    )
    (outcome,) = await processor.process(await processor.issue(write("a")))
    assert outcome.status == "processed"


async def verify(table: Table) -> None:
    await Verifier(table, DIARIES, POLICY).verify(DIARY, [a_line()])


async def truncate(table: Table) -> None:
    rules = TruncationChoices(older_than=DAY).as_of(NOW, OpenBatches())
    await truncate_stream(table, f"Diary-{DIARY}", rules, POLICY)


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_a_consumer_on_a_table_service_goes_on_with_other_tasks_in_a_pause(algorithm):
    turns = turns_in_pauses(network_table(), lambda table: process(table, algorithm))

    assert turns == [1] * FAILURES


@pytest.mark.parametrize("work", [verify, truncate])
def test_other_work_on_a_table_service_goes_on_with_other_tasks_too(work):
    assert turns_in_pauses(network_table(), work) == [1] * FAILURES


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_one_of_two_tables_on_the_network_is_enough(algorithm):
    network = network_table()

    store = {"deduplication-store": "deduplication_store", "tokens": "token_store"}[algorithm]
    turns = turns_in_pauses(memory_table(), lambda table: process(table, algorithm, **{store: network}))

    assert turns == [1] * FAILURES


async def use_an_outbox_alone(table: Table) -> None:
    outbox = Outbox(table=table, handler=DIARIES, retries=POLICY)
    await OutboxOneByOne(algorithm=outbox, publish=publish).process(a_line())


async def send_to_a_customer(table: Table) -> None:
    async def send() -> None:
        """Send nothing."""

    delivered = await IdempotentDelivery(TableKeys(table), retries=POLICY).deliver("c", "a", send)
    assert delivered.end is End.SENT


@pytest.mark.parametrize("work", [process, use_an_outbox_alone, send_to_a_customer, verify, truncate])
def test_a_store_of_this_machine_needs_no_event_loop_to_pause(tmp_path, work):
    table = drive(connect(f"sqlite:///{tmp_path}/store.db").table("states"))
    attempts: list[None] = []

    drive(work(failing(table, lambda: attempts.append(None))))

    assert len(attempts) > FAILURES


def test_a_policy_may_have_its_own_way_to_pause():
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    table = failing(network_table(), lambda: None)
    outbox = Outbox(table=table, handler=DIARIES, retries=RetryPolicy(sleep=pause))
    drive(OutboxOneByOne(algorithm=outbox, publish=publish).process(a_line()))

    assert len(pauses) == FAILURES


def test_a_runner_that_waits_for_hours_goes_on_waiting():
    assert all(1 <= pause_seconds(failures, 0.05, 2.0) <= 2 for failures in (8, 1025, 100_000))
