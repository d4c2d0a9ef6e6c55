"""The ledger on a table service: drivers that begin at once get different numbers, and nothing is lost."""

import asyncio
from itertools import count

import pytest

from eventstore import Table, connect
from runtime.errors import BatchRefusedError
from runtime.ledger.ledger import Ledger
from tests.support.names import new_name


def test_drivers_begin_publish_list_and_prune(azurite_url):
    async def on_table() -> None:
        async with connect(azurite_url) as store:
            await _drive(await store.table(new_name()))

    asyncio.run(on_table())


async def _drive(table: Table) -> None:
    # Given eight drivers that begin at once
    times = count(1_700_000_000_000_000, 1_000)
    ledger = Ledger(table, lambda: next(times))
    begun = await asyncio.gather(*[ledger.begin(f"batch-{number}", "a log", "/out") for number in range(8)])
    assert {record.number for record in begun} == set(range(1, 9))

    # When one is resumed and publishes, and another is abandoned
    again = await ledger.begin("batch-0", "a log", "/out")
    assert again == await ledger.get("batch-0")
    await ledger.publish(again)
    await ledger.abandon("batch-1")
    with pytest.raises(BatchRefusedError, match="is published and cannot be abandoned"):
        await ledger.abandon("batch-0")

    # Then the others are open, and listed first
    still_open = [record.number for record in begun if record.batch_id not in ("batch-0", "batch-1")]
    found = await ledger.open_batches()
    assert found.next == 9
    assert set(still_open) == found.numbers
    listed = [record.batch_id for record in await ledger.batches(9)]
    assert listed[-2:] == ["batch-1", "batch-0"]
    assert len(listed) == 8

    # ... and pruning forgets those two
    assert await ledger.prune(next(times)) == 2
    assert await ledger.prune(next(times)) == 0
    assert (await ledger.begin("batch-0", "a log", "/out")).number == 9
