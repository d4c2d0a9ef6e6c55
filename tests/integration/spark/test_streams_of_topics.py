"""Topics of a real broker as a stream: epochs go by offsets, and what changes under a checkpoint stops the query."""

import time
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions

from runtime.errors import UsageError
from runtime.spark import run_stream
from runtime.spark.logs.kafka import KafkaLog
from runtime.spark.streaming import open_source
from tests.integration.spark.conftest import Place
from tests.support.logs import fire, message_id, start
from tests.support.outcomes import statuses
from tests.support.streaming import outcomes, stream
from tests.support.topics import OF_TWO_GAMES, ROWS, Topic

pytestmark = pytest.mark.thorough


def test_each_start_takes_what_is_new_and_a_later_partition_from_its_beginning(topic: Topic, place: Place):
    topic.send(ROWS)
    assert stream(place, topic.url) == [0]
    assert stream(place, topic.url) == []

    for done in topic.admin.create_partitions([NewPartitions(topic.name, 3)]).values():
        done.result()
    deadline = time.monotonic() + 30
    while len(KafkaLog(topic.url).limits().first) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    topic.send([fire(4, 1)], partition=2)
    topic.send([fire(5, 1)], partition=1)
    assert stream(place, topic.url) == [1]

    assert statuses(outcomes(place)) == {message_id(number): ["processed"] for number in range(1, 6)}


def test_a_micro_batch_has_no_more_messages_than_asked_for(topic: Topic, place: Place):
    topic.send([start(number, 40) for number in range(1, 8)])

    assert stream(place, f"{topic.url}?max=3") == [0, 1, 2]

    assert len(statuses(outcomes(place))) == 7


def test_an_epoch_that_was_stopped_is_repeated_with_its_offsets(topic: Topic, place: Place, monkeypatch):
    topic.send(ROWS)
    monkeypatch.setattr("runtime.spark.batch.Rounds._commit", lambda *_, **__: 1 / 0)
    with pytest.raises(Exception, match="division"):
        stream(place, topic.url)
    monkeypatch.undo()
    topic.send([fire(4, 1)])

    assert stream(place, topic.url) == [0, 1]

    epochs = outcomes(place).select("batch_id", "message_id").collect()
    assert {row.message_id for row in epochs if row.batch_id == "shots-0"} == set(map(message_id, (1, 2, 3)))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda topic: topic.delete_before(4), "were deleted by the retention"),
        (Topic.make_again, "was recreated since"),
    ],
)
def test_a_topic_that_lost_messages_or_was_made_again_stops_the_query(
    topic: Topic, place: Place, harm, sentence
):
    topic.send(ROWS)
    stream(place, topic.url)
    topic.send([fire(4, 1), fire(5, 1)])
    harm(topic)
    topic.send(OF_TWO_GAMES)

    with pytest.raises(Exception, match=sentence):
        stream(place, topic.url)

    # A new query begins with what is left; what was handled before is a duplicate
    stream(place, topic.url, query="again", checkpoint=str(place.folder / "again"))


def wait_for(place: Place, batch_id: str) -> None:
    deadline = time.monotonic() + 60
    while not (place.folder / "out" / f"batch_id={batch_id}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_query_that_runs_takes_what_comes(topic: Topic, place: Place):
    where: Any = {"store": place.store, "table": place.table, "out": place.out}
    given: Any = {"query": "shots", "checkpoint": str(place.folder / "checkpoint"), "partitions": 2}
    query = run_stream(open_source(place.spark, f"{topic.url}?from=latest"), place.app, **where, **given)
    try:
        wait_for(place, "shots-0")  # of no messages
        topic.send(ROWS)
        wait_for(place, "shots-1")
    finally:
        query.stop()
    assert set(statuses(outcomes(place))) == {message_id(number) for number in (1, 2, 3)}


def test_a_stream_has_no_end(place: Place):
    with pytest.raises(UsageError, match="A stream has no end"):
        open_source(place.spark, "kafka://127.0.0.1:1/shots?to=latest")
