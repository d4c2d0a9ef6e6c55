"""The same log gives the same with each algorithm, on each store, and nothing is left when a batch has ended."""

import asyncio

import pytest

from eventstore import connect
from eventstore.backends.azure import account_of
from runtime.batch_options import BatchOptions, TablePlace
from runtime.ledger.ledger import Ledger
from tests.integration.spark.conftest import NIGHT
from tests.support.outcomes import Left, by_status, entities, left, without_tokens


@pytest.mark.parametrize(
    ("algorithm", "states", "other"),
    [
        ("outbox", "sqlite", None),
        pytest.param("deduplication-store", "azurite", "sqlite", marks=pytest.mark.thorough),
        pytest.param("tokens", "sqlite", "azurite", marks=pytest.mark.thorough),
    ],
)
def test_it_gives_what_a_state_based_batch_gives_and_the_log_again_gives_nothing(
    place, night, request, algorithm, states, other
):
    # Given a table of states, and maybe one of ids or tokens in another account
    account = account_of(request.getfixturevalue("azurite_url"))
    secret = f"AccountName={account.name};AccountKey={account.key};TableEndpoint={account.endpoint}"
    stores = {"sqlite": place.store, "azurite": secret}
    place.store = stores[states]
    elsewhere = TablePlace(stores[other], f"{place.table}other") if other else None
    log = place.issue(night.log, place=elsewhere).out if algorithm == "tokens" else night.log
    options = {
        "algorithm": algorithm,
        "deduplication_store": elsewhere if algorithm == "deduplication-store" else None,
        "token_store": elsewhere if algorithm == "tokens" else None,
        "cascade": True,
        "clock": NIGHT,
        "partitions": 2,
    }

    # When a batch runs over the log
    outcomes = place.run(log, batch_id="night", **options)

    # Then it gives what a state-based one gives, and nothing is left
    assert without_tokens(outcomes) == night.outcomes
    assert entities(place.store, place.table) == night.states
    where = (elsewhere.store, elsewhere.table) if elsewhere else None
    assert left(place.store, place.table, where) == Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)

    # ... and the account's key stands nowhere
    (record,) = batches(place)
    assert record.algorithm.startswith(algorithm)
    logs = [file.read_text() for file in place.folder.parent.glob("spark*/spark.log")]
    shown = [repr(record), repr(BatchOptions(**options)), *logs]
    assert logs
    assert not any(account.key in text for text in shown)

    # ... and another one over the same log gives duplicates without outputs, and changes nothing
    again = place.run(log, batch_id="again", **options)
    assert by_status(again) == {("ShootingRange", "duplicate"): 72}
    assert again.selectExpr("sum(size(outputs))").first()[0] == 0
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table, where) == Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)


def batches(place):
    async def read():
        async with connect(place.store) as store:
            return await Ledger(await store.table(place.table), NIGHT).batches(9)

    return asyncio.run(read())
