"""A topic of its own for a test, and what is sent to it."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, TopicPartition

from tests.plugins.kafka import KafkaServer
from tests.support.campaigns import wait_until
from tests.support.logs import fire, start

ROWS = [start(1, 40), fire(2, 45), fire(3, 40)]
OF_TWO_GAMES = [*ROWS, fire(4, 1)]


@dataclass
class Topic:
    server: KafkaServer
    name: str

    @property
    def url(self) -> str:
        return f"kafka://{self.server.address}/{self.name}"

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.server.address})

    def send(self, rows: Iterable[dict[str, Any]], partition: int = 0, **settings: Any) -> None:
        self.produce(lambda each: each.update(), rows, partition, **settings)

    def produce(self, change, rows, partition=0, **settings) -> None:
        producer = Producer({"bootstrap.servers": self.server.address, **settings})
        for row in rows:
            record = {
                "value": row["body"].encode(),
                "key": json.loads(row["body"])["game_id"],
                "headers": {"message_id": row["message_id"], "type": row["type"]},
            }
            change(record)
            producer.produce(self.name, partition=partition, **record)
        assert producer.flush(10) == 0

    def delete_before(self, offset: int) -> None:
        for done in self.admin.delete_records([TopicPartition(self.name, 0, offset)]).values():
            done.result()

    def make(self, partitions: int = 2, **config: str) -> None:
        """Make it, without a retention: some tests send what is old."""
        wanted = NewTopic(self.name, partitions, 1, config={"retention.ms": "-1", **config})
        for made in self.admin.create_topics([wanted]).values():
            made.result()

    def make_again(self, partitions: int = 2) -> None:
        for done in self.admin.delete_topics([self.name]).values():
            done.result()
        deadline = time.monotonic() + 30
        while self.name in self.admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
            time.sleep(0.1)
        self.make(partitions)


def is_whole(brokers: str, topic: str) -> bool:
    """Return whether no record is hidden from `read_committed` by a transaction that lacks its end marker."""
    ends = []
    for level in ("read_uncommitted", "read_committed"):
        reader = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "isolation.level": level})
        try:
            partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in partitions]
            ends.append([reader.get_watermark_offsets(each, timeout=10)[1] for each in places])
        except KafkaException:  # a broker was killed before, and another one becomes the leader
            return False
        finally:
            reader.close()
    return ends[0] == ends[1]


def committed(brokers: str, topic: str) -> list[Any]:
    """Return the records of a topic that a reader with `read_committed` sees, once all transactions have ended.

    The brokers confirm a commit before its marker is in each partition.
    """
    if not wait_until(lambda: is_whole(brokers, topic), 60):
        raise TimeoutError("An open transaction hides records.")
    settings = {"group.id": "reader", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": brokers, "log_level": 0, **settings})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found, ended = list[Any](), set[int | None]()  # after a change of the leader a partition ends again
        while len(ended) < len(partitions):
            record = consumer.poll(30)
            assert record is not None
            if (error := record.error()) is None:
                found.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(record.partition())
            else:  # a broker was killed before
                assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
        return found
    finally:
        consumer.close()
