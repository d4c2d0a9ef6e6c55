"""A consumer of Kafka whose broker answers late, on a fake of librdkafka's clients."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from runtime.errors import TargetUnavailableError
from runtime.messages.envelope import Envelope
from runtime.publishing.publisher import CommittedOutput
from runtime.serve.brokers import kafka
from runtime.serve.messages import Lane, Received, SourceUnavailableError

BROKER = "kafka://127.0.0.1:9"


def source_at(client: Any) -> kafka.KafkaSource:
    source = kafka.KafkaSource(f"{BROKER}/entries?group=accounts")
    source.client = client
    return source


@dataclass
class Broker:
    """Answers a call of the first producer late: when the next producer has fenced it, or when all is sent."""

    late: str
    sent: list[str] = field(default_factory=list)
    committed: int = 0
    cluster: str | None = None
    log: list[str] = field(default_factory=list)
    answer: Event = field(default_factory=Event)
    producers: int = 0
    threads: list[ThreadPoolExecutor] = field(default_factory=list)

    def producer(self, *_: Any, **__: Any) -> Producer:
        self.producers += 1
        return Producer(self, self.producers == 1)

    def thread(self, workers: int) -> ThreadPoolExecutor:
        self.threads.append(ThreadPoolExecutor(workers))
        return self.threads[-1]

    def client(self) -> Any:
        return SimpleNamespace(
            committed=lambda *_, **__: [TopicPartition("entries", 0, self.committed)],
            commit=lambda **_: self.log.append("acknowledged"),
            consumer_group_metadata=object,
            memberid=lambda: "this one",
        )

    def answer_the_first(self) -> None:
        self.answer.set()
        self.threads[0].submit(lambda: None).result(60)  # when it has gone on to its end


@dataclass
class Producer:
    broker: Broker
    is_first: bool
    waiting: list[str] = field(default_factory=list)
    offset: int = 0

    def wait(self, call: str) -> None:
        if self.is_first and call == self.broker.late:
            assert self.broker.answer.wait(60)

    def init_transactions(self, _: float) -> None:
        self.wait("init")
        if not self.is_first and self.broker.late == "commit":
            self.broker.answer_the_first()

    def begin_transaction(self) -> None:
        self.waiting = []

    def produce(self, *_: Any, headers: dict[str, str], **__: Any) -> None:
        self.waiting.append(headers["message_id"])

    def flush(self, _: float) -> int:
        return 0

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(cluster_id=self.broker.cluster)

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], *_: Any) -> None:
        self.offset = offsets[0].offset

    def commit_transaction(self, _: float) -> None:
        self.broker.sent += self.waiting
        self.broker.committed = self.offset
        self.broker.log.append("committed")
        self.wait("commit")


def handled(lane: Lane, offset: int) -> tuple[list[CommittedOutput], list[Received]]:
    """Return the output of a delivery, and the delivery."""
    output = CommittedOutput(f"m{offset}", "Added", "{}", "a", "Accounts", 0, datetime.now(UTC))
    return [output], [Received(Envelope(f"e{offset}", "Add", "{}"), 2, lane=lane, offset=offset)]


@pytest.mark.parametrize("late", ["init", "commit"])
def test_a_thread_that_was_given_up_sends_nothing_again_and_neither_does_its_successor(late, monkeypatch):
    broker, lane = Broker(late), Lane("entries/0")
    source = source_at(broker.client())
    for name, fake in (
        ("Producer", broker.producer),
        ("ThreadPoolExecutor", broker.thread),
        ("_SECONDS", 0.05),
    ):
        monkeypatch.setattr(kafka, name, fake)

    # When a consumer waits in vain, gives the thread up, and publishes from another one
    async def publish() -> None:
        settlement = kafka.KafkaSettlement(BROKER, source, {})
        for offset in (0, 1):
            while lane.base == offset:
                with suppress(TargetUnavailableError):
                    await settlement.settle(*handled(lane, offset))
                    lane.base += 1

    asyncio.run(publish())
    broker.answer_the_first()

    # Then each output is sent once, and no offset goes back
    assert (broker.sent, broker.committed) == (["m0", "m1"], 2)


def test_nothing_is_delivered_before_the_brokers_tell_what_was_acknowledged():
    # Given a partition that is assigned while they do not tell its committed offset
    place = TopicPartition("entries", 0, 7)
    answers = [[place], KafkaException(KafkaError(KafkaError._TIMED_OUT))]
    record = SimpleNamespace(
        error=lambda: None, topic=lambda: "entries", partition=lambda: 0, offset=lambda: 9,
        value=lambda: b"", headers=lambda: None, timestamp=lambda: (0, 0),
    )  # fmt: skip
    records = [record]

    def poll(_: float) -> Any:
        if records:
            subscribed["on_assign"](client, [TopicPartition("entries", 0)])
        return records.pop() if records else None

    def committed(*_: Any, **__: Any) -> Any:
        if isinstance(answer := answers.pop(), Exception):
            raise answer
        return answer

    subscribed = dict[str, Any]()
    client = SimpleNamespace(
        list_topics=lambda **_: SimpleNamespace(topics=["entries"], cluster_id="cluster"),
        subscribe=lambda _, **given: subscribed.update(given),
        poll=poll, committed=committed, resume=lambda _: None, assignment=list,
    )  # fmt: skip
    source = source_at(client)

    async def read() -> list[Any]:
        await source.open(SimpleNamespace(assigned=list))
        with pytest.raises(SourceUnavailableError):
            await source.read(1, 0)
        return [*await source.read(1, 0)]

    (received,) = asyncio.run(read())
    assert (received.offset, received.lane.base) == (9, 7)


@pytest.mark.parametrize(("cluster", "log"), [("one", ["committed"]), ("two", ["acknowledged"])])
def test_a_cluster_is_the_same_by_its_id_and_not_by_its_url(cluster, log, monkeypatch):
    broker = Broker("", cluster=cluster)
    source = source_at(broker.client())
    source.origin = "kafka:one/accounts"
    monkeypatch.setattr(kafka, "Producer", broker.producer)

    settlement = kafka.KafkaSettlement("kafka://localhost:9", source, {})
    asyncio.run(settlement.settle(*handled(Lane("entries/0"), 0)))

    assert broker.log == log
