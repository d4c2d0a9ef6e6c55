"""A batch in Kafka's topics: one transaction a slice, with its marker, on librdkafka's mock brokers."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from runtime.errors import TargetUnavailableError, UsageError
from runtime.publishing.publisher import PublishOptions, SliceName
from runtime.publishing.targets import kafka
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.kafka import MARKERS, KafkaTarget
from tests.publishing.cases import records
from tests.publishing.servers import kafka_brokers


@pytest.mark.thorough
def test_each_output_is_in_the_topic_of_its_type_in_order_and_a_slice_with_a_marker_is_not_sent(batch):
    with kafka_brokers() as brokers:
        url = f"kafka://{brokers}"
        done = batch.publish(url, names={"Hit": "hits"})
        hits, missed = records(brokers, "hits"), records(brokers, "Missed")

        async def opened(number):
            publisher = open_target(url).publisher()
            try:
                return await publisher.open(SliceName(done.publication.marker, number))
            finally:
                await publisher.close()

        is_new = [asyncio.run(opened(number)) for number in (0, 1, 2, 3)]

    assert sorted(hits + missed) == sorted(batch.ids)
    for game in range(6):
        for topic in (hits, missed):
            ours = [each for each in topic if each.startswith(f"g{game}-")]
            assert ours == sorted(ours)
    assert is_new == [False, False, False, True]


def test_a_slice_is_not_sent_again_when_older_markers_have_expired():
    # Given a marker topic whose first records the brokers no longer keep
    with kafka_brokers() as brokers:
        filler = Producer({"bootstrap.servers": brokers, "log_level": 0})
        for partition in filler.list_topics(MARKERS, timeout=30).topics[MARKERS].partitions:
            for _ in range(9):  # the mock keeps some five megabytes
                filler.produce(MARKERS, b"-" * 900_000, b"old", partition)
                filler.flush()
        target = open_target(f"kafka://{brokers}")

        async def opened() -> bool:
            publisher = target.publisher()
            try:
                is_new = await publisher.open(SliceName("published", 0))
                if is_new:
                    await publisher.commit()
                return is_new
            finally:
                await publisher.close()

        assert [asyncio.run(opened()) for _ in range(2)] == [True, False]


def test_a_runner_whose_slice_was_taken_over_leaves_it_to_the_other_one(batch, monkeypatch):
    # Given a runner whose slice another one takes over and sends before the commit, so that the brokers fence it
    url, opened = "kafka://127.0.0.1:9", list[float]()

    def flush(_: float) -> int:
        if len(opened) == 1:
            batch.publish(url, PublishOptions(slices=1, take_over=True))
            raise SystemError("_sent") from KafkaException(KafkaError(KafkaError._FENCED))
        return 0

    async def nothing(*_: object) -> None: ...

    producer = Mock(flush=flush, init_transactions=opened.append)
    monkeypatch.setattr(kafka, "Producer", Mock(return_value=producer))
    monkeypatch.setattr(kafka, "Markers", Mock(return_value=Mock(have=Mock(return_value=False))))
    monkeypatch.setattr(KafkaTarget, "prepare", nothing)

    # Then it ends without an error, and fences nobody by opening the slice again
    batch.publish(url, PublishOptions(slices=1))
    assert len(opened) == 2


def test_settings_and_credentials_may_stand_in_the_url():
    target = open_target("kafka://$user:p%40ss@broker:9093?security.protocol=SASL_PLAINTEXT")

    assert isinstance(target, KafkaTarget)
    assert target.settings == {
        "bootstrap.servers": "broker:9093", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "$user", "sasl.password": "p@ss",
    }  # fmt: skip
    assert (target.name, target.identity) == ("kafka://broker:9093", "kafka://broker:9093 []")
    with pytest.raises(UsageError, match="kafka://HOST:PORT"):
        open_target("kafka://")


def test_what_was_not_begun_cannot_be_committed():
    publisher = open_target("kafka://127.0.0.1:9").publisher()

    async def committed():
        try:
            await publisher.commit()
        finally:
            await publisher.close()

    with pytest.raises(TargetUnavailableError, match="no transaction is open"):
        asyncio.run(committed())
