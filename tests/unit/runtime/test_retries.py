"""In a pause before the next attempt other tasks go on when a table is on the network."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, Table, connect, drive
from eventstore.port import pause_seconds
from runtime import Output, Processor, TableSettings
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.algorithm import Outbox, OutboxOneByOne
from runtime.algorithms.state_based.replay import Verifier
from runtime.algorithms.state_based.truncation import DAY, TruncationChoices, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.messages.parsing import Prepared, prepare
from runtime.publishing.last_hop import IdempotentDelivery, TableKeys
from runtime.publishing.publisher import Result
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


async def publish(output: Output) -> None: ...


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
    """Return how often another task of the event loop had its turn in each pause."""
    turns, seen = [0], list[int]()

    async def take_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def both() -> None:
        other = asyncio.create_task(take_turns())
        await work(failing(table, lambda: seen.append(turns[0])))
        other.cancel()

    asyncio.run(both())
    return [later - earlier for earlier, later in list(pairwise(seen))[:FAILURES]]


def a_line() -> Prepared:
    prepared = prepare(DIARIES, DIARY, write("a"))
    assert isinstance(prepared, Prepared)
    return prepared


def network_table() -> Table:
    return drive(NetworkStore("memory:").table("states"))


async def process(table: Table, algorithm: AlgorithmName = "state-based", **options: Any) -> None:
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


@pytest.mark.parametrize(
    ("work", "other"),
    [
        *(
            (partial(process, algorithm=each), "")
            for each in ("state-based", "outbox", "deduplication-store")
        ),
        (verify, ""),
        (truncate, ""),
        (partial(process, algorithm="deduplication-store"), "deduplication_store"),
        (partial(process, algorithm="tokens"), "token_store"),
    ],
)
def test_other_tasks_go_on_in_a_pause_when_a_table_is_on_the_network(work, other):
    network = network_table()
    table, options = (memory_table(), {other: network}) if other else (network, {})

    assert turns_in_pauses(table, partial(work, **options)) == [1] * FAILURES


async def use_an_outbox_alone(table: Table) -> None:
    outbox = Outbox(table=table, handler=DIARIES, retries=POLICY)
    await OutboxOneByOne(algorithm=outbox, publish=publish).process(a_line())


async def send_to_a_customer(table: Table) -> None:
    async def send() -> None: ...

    delivered = await IdempotentDelivery(TableKeys(table), retries=POLICY).deliver("c", "a", send)
    assert delivered.end is Result.SENT


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
