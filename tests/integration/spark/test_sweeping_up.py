"""A sweep publishes what nobody else is going to: of batches that were given up, and of single messages."""

import asyncio
from contextlib import suppress

import pytest

from eventstore import connect
from runtime import BatchFailedError, Envelope, Processor, UsageError
from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import BatchOptions
from runtime.ledger.ledger import Ledger
from runtime.spark import Batch
from samples.shooting_range import app
from tests.integration.spark.conftest import NIGHT
from tests.support.logs import OTHER_GAME, fire, start, write_lines
from tests.support.outcomes import Left, by_status, left, published

ALGORITHM: AlgorithmName = "deduplication-store"
THIRD_GAME = "00000000-0000-4000-8000-000000000003"


def die_before_the_commit(place, name, rows) -> str:
    """Run a batch until all is stored and nothing is committed, and return its log."""

    def stop(step: str) -> None:
        if step == "Round 0: committing outcomes":
            raise BatchFailedError("It stops here.")

    log = write_lines(place.folder / f"{name}.jsonl", rows)
    with pytest.raises(BatchFailedError):
        place.run(log, batch_id=name, algorithm=ALGORITHM, clock=NIGHT, partitions=2, step=stop)
    return log


async def leave_a_single_message_and_give_a_batch_up(place) -> None:
    async with connect(place.store) as store:
        table = await store.table(place.table)

        async def publish(_):
            raise ConnectionError("nobody listens")

        processor = Processor(app, table, publish, clock=NIGHT, algorithm=ALGORITHM)
        for row in (start(21, 5, THIRD_GAME), fire(22, 5, THIRD_GAME)):
            with suppress(ConnectionError):
                await processor.process(Envelope.of(row["message_id"], row["type"], row["body"]))
        await Ledger(table, NIGHT).abandon("given-up")


def test_it_publishes_what_was_given_up_and_leaves_alone_what_may_go_on(place):
    # Given a batch that was given up, one that died and may go on, and a single message whose worker died
    die_before_the_commit(place, "given-up", [start(1, 5), fire(2, 5), fire(3, 6)])
    waiting = die_before_the_commit(place, "waiting", [start(11, 5, OTHER_GAME), fire(12, 5, OTHER_GAME)])
    asyncio.run(leave_a_single_message_and_give_a_batch_up(place))
    assert left(place.store, place.table).unfinished == 6

    # When what they have left is swept up
    options = BatchOptions(algorithm=ALGORITHM, cascade=True, partitions=2, clock=NIGHT)
    batch = Batch(place.spark, app, place.store, place.table, place.out, options)
    swept = batch.sweep(batch_id="sweep")

    # Then the outputs of the first and the last are published, were handled, and nothing of them is left
    assert by_status(swept.outcomes) == {("ShootingRange", "duplicate"): 4, ("LeaderBoard", "processed"): 3}
    assert len(published(swept.outcomes)) == 3
    assert left(place.store, place.table).unfinished == 2
    assert batch.sweep(batch_id="sweep").was_published

    # ... and the second goes on as if nothing had been
    resumed = place.run(waiting, batch_id="waiting", algorithm=ALGORITHM, clock=NIGHT, partitions=2)
    assert by_status(resumed) == {("ShootingRange", "processed"): 2}
    assert len(published(resumed)) == 1
    assert left(place.store, place.table) == Left({"ShootingRange": 7, "LeaderBoard": 3}, 0, 0)


def test_state_based_there_is_nothing_to_sweep(place):
    with pytest.raises(UsageError, match="no outputs are stored that could be swept"):
        Batch(place.spark, app, place.store, place.table, place.out).sweep()
