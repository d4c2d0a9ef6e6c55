"""The scenarios by which the state-based algorithm was first shown to work, one message after another."""

import asyncio
import json
from uuid import UUID

from eventstore import connect
from runtime import Envelope
from runtime.versions.stream import summaries
from tests.support.consumer import Consumer
from tests.support.logs import GAME


def message(number, type_, **body):
    return Envelope.of(str(UUID(int=number)), type_, json.dumps({"game_id": GAME, **body}))


def start(number, position):
    return message(number, "StartNewRound", position=position)


def fire(number, position):
    return message(number, "FireAt", position=position)


def play(store_url, table, *messages):
    """Handle messages one after another; return the score and all that was published."""

    async def run():
        async with connect(store_url) as store:
            opened = await store.table(table)
            consumer = Consumer(opened)
            await consumer.handle(*messages)
            heads = {each.handler: json.loads(each.head.state or b"") async for each in summaries(opened)}
            return heads.get("LeaderBoard"), consumer.published

    return asyncio.run(run())


def test_a_shot_that_is_delivered_twice_hits_once(store_url, table):
    score, published = play(store_url, table, start(1, 1), fire(2, 1), fire(2, 1))
    assert score == {"number_of_hits": 1, "number_of_misses": 0}
    assert published[0] == published[1]


def test_a_late_copy_of_a_shot_still_hits_the_target_where_it_was(store_url, table):
    # The target has moved on: a copy handled on the latest state would miss
    score, published = play(store_url, table, start(1, 1), fire(2, 1), start(3, 2), fire(2, 1))
    assert score == {"number_of_hits": 1, "number_of_misses": 0}
    assert [output.type for output in published] == ["Hit", "Hit"]
    assert published[0] == published[1]


def test_a_copy_delivered_after_many_versions_is_handled_on_its_own(store_url, table):
    # Each shot is followed by a move of the target; then all copies come, the last first
    rounds = [(start(2 * n, n), fire(2 * n + 1, n)) for n in range(1, 12)]
    messages = [each for pair in rounds for each in pair]
    score, published = play(store_url, table, *messages, *(shot for _, shot in reversed(rounds)))
    assert score == {"number_of_hits": 11, "number_of_misses": 0}
    assert published[11:] == published[:11][::-1]


def test_a_hit_that_is_delivered_twice_counts_once(store_url, table):
    hit = message(9, "Hit", id=GAME)
    score, _ = play(store_url, table, hit, hit)
    assert score == {"number_of_hits": 1, "number_of_misses": 0}
