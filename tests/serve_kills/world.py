"""Brokers as a campaign uses them, and the consumers that it kills."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import aio_pika
from azure.storage.queue import QueueClient
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.plugins.azurite import running_azurite
from tests.plugins.kafka import KafkaServer, running_cluster, running_kafka
from tests.plugins.rabbitmq import running_rabbitmq
from tests.support.campaigns import ROOT
from tests.support.topics import committed

SESSION_SECONDS = 1.5
EMULATOR = "devstoreaccount1"
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Those of Azurite, which are documented."""


class Published(NamedTuple):
    message_id: str
    body: dict[str, Any]


class KafkaBroker:
    is_exact = True

    def __init__(self, *servers: KafkaServer, are_killed: bool = False) -> None:
        servers[0].make_topics("entries", "Added")
        self.server = servers[0]
        self.nodes: Sequence[KafkaServer] = servers if are_killed else ()
        address = ",".join(each.address for each in servers)
        session = f"session.timeout.ms={SESSION_SECONDS * 1000:.0f}&heartbeat.interval.ms=300"
        self.target = f"kafka://{address}"
        self.source = f"{self.target}/entries?group=accounts&{session}&transaction.timeout.ms=1000"
        self._own: dict[str, Any] = {"bootstrap.servers": address, "log_level": 0}
        self._producer = Producer(
            {**self._own, "enable.idempotence": True}
        )  # else a restart changes the order
        self._group = Consumer({**self._own, "group.id": "accounts"})

    def send(self, messages: Sequence[dict[str, Any]]) -> None:
        for each in messages:
            headers = {"message_id": each["message_id"], "type": "Add"}
            self._producer.produce(
                "entries", json.dumps(each["body"]), each["body"]["account"], headers=headers
            )
        self._producer.flush(30)

    def is_idle(self) -> bool:
        partitions = [TopicPartition("entries", number) for number in range(3)]
        try:
            committed = self._group.committed(partitions, timeout=10)
            return all(each.offset == self._end(each) for each in committed)
        except KafkaException:  # as long as the broker starts
            return False

    def _end(self, partition: TopicPartition) -> int:
        _, end = self._group.get_watermark_offsets(partition, timeout=10)
        return int(end) or -1001  # nothing is committed of an empty one

    def published(self) -> list[Published]:
        return [
            Published(dict(each.headers() or ())["message_id"].decode(), json.loads(each.value() or b""))
            for each in committed(self._own["bootstrap.servers"], "Added")
        ]


class AzureQueues:
    is_exact = False
    nodes: Sequence[KafkaServer] = ()

    def __init__(self, authority: str) -> None:
        url = f"http://{authority}/{EMULATOR}"
        self._queues = {
            name: QueueClient(url, name, credential={"account_name": EMULATOR, "account_key": EMULATOR_KEY})
            for name in ("entries", "added")
        }
        for each in self._queues.values():
            each.create_queue()
        self.source = f"azurequeue://{authority}/entries?visibility=6&prefetch=128"
        self.target = f"azurequeue://{authority}"

    def close(self) -> None:
        for each in self._queues.values():
            each.close()

    def send(self, messages: Sequence[dict[str, Any]]) -> None:
        for each in messages:
            self._queues["entries"].send_message(json.dumps(each))

    def is_idle(self) -> bool:
        return not self._queues["entries"].get_queue_properties().approximate_message_count

    def published(self) -> list[Published]:
        found: list[Any] = []
        while some := list(self._queues["added"].receive_messages(max_messages=32, visibility_timeout=3600)):
            found += [json.loads(each.content) for each in some]
        return [Published(each["message_id"], each["body"]) for each in found]


class RabbitQueues:
    is_exact = False
    nodes: Sequence[KafkaServer] = ()

    def __init__(self, url: str) -> None:
        self.source, self.target = f"{url}?queue=entries&prefetch=300", url
        self._sent = set[tuple[str, int]]()
        self._found: list[Published] = []
        self._runner = asyncio.Runner()
        self._runner.run(self._open(url))

    async def _open(self, url: str) -> None:
        self._connection = await aio_pika.connect(url)
        self._channel = await self._connection.channel()
        for name in ("entries", "Added"):
            await self._channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})

    def send(self, messages: Sequence[dict[str, Any]]) -> None:
        self._sent |= {(each["body"]["account"], each["body"]["number"]) for each in messages}
        self._runner.run(self._send(messages))

    async def _send(self, messages: Sequence[dict[str, Any]]) -> None:
        for each in messages:
            sent = aio_pika.Message(
                json.dumps(each["body"]).encode(), message_id=each["message_id"], type=each["type"]
            )
            await self._channel.default_exchange.publish(sent, "entries")

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def is_idle(self) -> bool:
        """Return whether all outputs are there: the queue does not count messages that are prefetched."""
        there = {(each.body["account"], each.body["number"]) for each in self.published()}
        return self._runner.run(self._count()) == 0 and self._sent <= there

    async def _count(self) -> int:
        queue = await self._channel.declare_queue("entries", passive=True)
        return queue.declaration_result.message_count or 0

    def published(self) -> list[Published]:
        self._runner.run(self._read())
        return self._found

    async def _read(self) -> None:
        queue = await self._channel.get_queue("Added")
        while message := await queue.get(fail=False, no_ack=True):
            self._found.append(Published(message.message_id or "", json.loads(message.body)))


Broker = KafkaBroker | AzureQueues | RabbitQueues
"""A broker sends messages and returns outputs, both in order for each account, and tells if all is acknowledged.

If it `is_exact`, each output is promised once, otherwise copies are equal. `nodes` are killed, too.
"""


@contextmanager
def running(name: str) -> Iterator[Broker]:
    if name.startswith("kafka"):
        with running_cluster() if "-3-" in name else running_kafka() as found:
            servers = [found] if isinstance(found, KafkaServer) else found
            yield KafkaBroker(*servers, are_killed=name.endswith("killed"))
    elif name == "azurequeue":
        with running_azurite("queue") as authority, closing(AzureQueues(authority)) as queues:
            yield queues
    else:
        with running_rabbitmq() as url, closing(RabbitQueues(url)) as queues:
            yield queues


BROKERS = {
    name: partial(running, name)
    for name in ("kafka", "kafka-1-killed", "kafka-3-killed", "azurequeue", "amqp")
}


class Served:
    def __init__(self, broker: Broker, store: Path, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "runtime", "serve", "--app", "tests.serve_kills.apps:app"]
        command += ["--from", broker.source, "--publish", broker.target, "--store", f"sqlite:///{store}"]
        command += ["--table", "accounts", "--fold", "7", *options]  # folds are cut otherwise after each kill
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


def entries(chance: Random, accounts: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield messages, in order for each account, and now and then one that was sent before."""
    sent: list[dict[str, Any]] = []
    last = [0] * accounts
    while len(sent) < count:
        account = chance.randrange(accounts)
        last[account] += 1
        body = {"account": f"account-{account}", "number": last[account]}
        message = {"message_id": f"{account}-{last[account]}", "type": "Add", "body": body}
        sent.append(message)
        yield message
        while chance.random() < 0.2:
            yield sent[-1 if chance.random() < 0.5 else chance.randrange(len(sent))]


def differences(sent, published, *, is_exact) -> list[str]:
    """Return what is lost, twice, out of order, or two outputs under one id."""
    wrong = []
    bodies: dict[str, dict[str, Any]] = {}
    first: dict[str, list[int]] = {}
    for each in published:
        if each.message_id in bodies:
            if is_exact:
                wrong.append(f"twice: {each.body}")
            if each.body != bodies[each.message_id]:
                wrong.append(f"another body under {each.message_id}: {bodies[each.message_id]}, {each.body}")
            continue
        bodies[each.message_id] = each.body
        first.setdefault(each.body["account"], []).append(each.body["number"])
        if is_exact and each.body["count"] != each.body["number"]:
            wrong.append(f"handled out of order: {each.body}")
    expected = {each["message_id"]: each["body"] for each in sent}
    there = {f"{each['account'].removeprefix('account-')}-{each['number']}" for each in bodies.values()}
    wrong += [f"lost: {body}" for id_, body in expected.items() if id_ not in there]
    if len(bodies) != len(there):
        wrong.append(f"{len(bodies)} ids of {len(there)} outputs")
    for account, numbers in first.items():
        if is_exact and numbers != sorted(numbers):
            wrong.append(f"published out of order: {account}")
    return wrong
