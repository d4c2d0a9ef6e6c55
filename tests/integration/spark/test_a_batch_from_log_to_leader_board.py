"""A batch over a log with duplicates in any order: every message takes effect once, on every store."""

import json

import pytest

from tests.support.logs import generated
from tests.support.outcomes import by_status, heads, published

pytestmark = pytest.mark.connect


@pytest.mark.parametrize(
    "any_place", ["azurite", pytest.param("sqlite", marks=pytest.mark.thorough)], indirect=True
)
def test_every_message_takes_effect_once_and_a_second_batch_changes_nothing(any_place):
    # Given a log of 80 messages in 4 games, a quarter of them twice, in no order
    log = generated(any_place.folder / "log.jsonl", games=4, messages=80, duplicates=0.25, shuffle=True)

    # When a batch runs with cascade
    first = any_place.run(log, cascade=True)

    # Then each message is processed once, and each shot is counted on the leader board
    assert by_status(first) == {
        ("ShootingRange", "processed"): 80,
        ("ShootingRange", "duplicate"): 20,
        ("LeaderBoard", "processed"): 60,
    }
    outputs = published(first)
    before = heads(any_place.store, any_place.table)
    scores = [json.loads(state) for key, (_, state) in before.items() if key.startswith("LeaderBoard-")]
    hits = sum(score["number_of_hits"] for score in scores)
    misses = sum(score["number_of_misses"] for score in scores)
    assert hits + misses == 60
    assert hits == sum(1 for output in outputs if output[1] == "Hit")

    # When the same log runs as a new batch
    second = any_place.run(log, cascade=True)

    # Then all are duplicates, the outputs are the same byte for byte, and no state changed
    assert by_status(second) == {("ShootingRange", "duplicate"): 100, ("LeaderBoard", "duplicate"): 60}
    assert published(second) == outputs
    assert heads(any_place.store, any_place.table) == before


def test_a_stream_costs_one_query_and_one_transaction(any_place):
    # Given a log in which each of 20 streams has 20 messages
    from tests.support.faults import CountCalls

    log = generated(any_place.folder / "log.jsonl", games=20, messages=400)
    counter = CountCalls(str(any_place.folder))

    # When a batch runs
    any_place.run(log, wrap=counter)

    # Then each stream was read by one query and written by one transaction, and nothing else was sent
    assert counter.calls("query") == 20
    assert counter.calls("transact") == 20
    assert counter.calls("get") == counter.calls("scan") == 0
