"""Kafka, and Event Hubs by its Kafka endpoint, on librdkafka (confluent-kafka).

If source and target are the same cluster, outputs and offsets are committed in one transaction. The brokers refuse the
transaction of a consumer that lost its partitions meanwhile, by the generation of its group. For any other target, all
replicas confirm the outputs before the offsets are committed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka import Consumer as Client

from runtime.errors import RuntimeFailure, TargetUnavailableError, UsageError
from runtime.messages.records import Decode
from runtime.publishing.publisher import CommittedOutput
from runtime.publishing.targets.kafka import (
    _QUIET,
    Topics,
    accepted,
    headers_of,
    produce,
    unwrapped_errors,
)
from runtime.serve.messages import (
    Lane,
    Rebalances,
    Received,
    Settlement,
    Source,
    SourceUnavailableError,
    read_message,
)

T = TypeVar("T")

_FORM = "A source in Kafka is written kafka://HOST:PORT/TOPIC,TOPIC?group=NAME, with librdkafka's settings after it."
_SECONDS = 10.0  # until a response
_POLL_SECONDS = 0.02  # short, because commits and other calls of the client wait meanwhile
_TRANSACTION_MS = 10_000
"""The brokers end the transaction of a dead consumer after this time. Until then, its partitions wait."""

_READING = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 16_384,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}
# A consumer would warn of these settings.
_OF_PRODUCERS = ("transaction.timeout.ms", "linger.ms", "compression.type")


def _parsed(url: str) -> Topics:
    return Topics.read(url, _FORM, ("group",))


class KafkaSource:
    """A member of a consumer group. One thread reads, and another thread commits."""

    decode: Decode | None = None

    def __init__(self, url: str) -> None:
        self.place = place = _parsed(url)
        self.name, self.group = place.name, place.own.get("group", "")
        if not place.topics or not self.group:
            raise UsageError(_FORM)
        self.origin: str | None = None
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._new: dict[tuple[str, int], Lane] = {}  # lanes with an unknown base
        self._found: list[Received] = []  # deliveries that wait until the bases are known
        self._is_paused: bool | None = None  # None if unknown, as after an assignment
        self._reading, self._committing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        given = {name: value for name, value in place.settings.items() if name not in _OF_PRODUCERS}
        self._is_down = False
        own = {"group.id": self.group, "error_cb": self._noted}
        with accepted(self.name, given):
            self.client = Client({**_READING, **given, **own}, logger=_QUIET)

    async def open(self, rebalances: Rebalances) -> None:
        """Check the topics, set `origin` from the id of the cluster, and join the group. Raises like `Source.open`."""
        self._rebalances, topics = rebalances, self.place.topics
        metadata = await self._call(self._reading, partial(self.client.list_topics, timeout=_SECONDS))
        missing = [topic for topic in topics if topic not in metadata.topics]
        if missing:
            raise UsageError(f"{self.name} has no topic {', '.join(missing)}.")
        self.origin = self.origin_in(metadata.cluster_id)
        subscribe = partial(
            self.client.subscribe,
            on_assign=self._assigned,
            on_revoke=lambda _, partitions: rebalances.revoked(self._taken(partitions)),
            on_lost=lambda _, partitions: rebalances.lost(self._taken(partitions)),
        )
        await self._call(self._reading, partial(subscribe, topics))

    def origin_in(self, cluster: str | None) -> str:
        """Return the `origin` of this group in the cluster with this id."""
        return f"kafka:{cluster}/{quote(self.group, safe='')}"

    async def read(self, most: int, linger: float) -> Sequence[Received]:
        return await self._call(self._reading, partial(self._read, most, linger))

    async def acknowledge(self, received: Sequence[Received]) -> None:
        commit = partial(self.client.commit, offsets=offsets_behind(received), asynchronous=False)
        await self._call(self._committing, commit)

    async def close(self) -> None:
        with suppress(SourceUnavailableError):
            await self._call(self._reading, self.client.close)
        for thread in (self._reading, self._committing):
            thread.shutdown(wait=False)

    async def _call(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await _in(thread, work, self.name, SourceUnavailableError)

    def _read(self, most: int, linger: float) -> list[Received]:
        if self._is_down:
            self.client.list_topics(timeout=1.0)  # raises until a broker answers
            self._is_down = False
        self._learn_bases()
        self._found += self._polled(most, linger)
        self._learn_bases()  # of lanes that were assigned meanwhile
        found, self._found = self._found, []
        return found

    def _polled(self, most: int, linger: float) -> list[Received]:
        client, is_paused = self.client, most == 0
        if is_paused is not self._is_paused:
            (client.pause if is_paused else client.resume)(client.assignment())
            self._is_paused = is_paused
        first = client.poll(_POLL_SECONDS)
        if first is None:
            return []
        # Look up the lane before reading more: meanwhile the partition may be lost, and assigned again.
        found = [] if first.error() else [self._received(first)]
        records = client.consume(most - 1, linger) if most > 1 else []
        found += [self._received(each) for each in records if not each.error()]
        errors = [error for each in (first, *records) if (error := each.error())]
        if errors and not found:  # a lasting error is read again, but records are not
            raise KafkaException(errors[0])
        return [each for each in found if each is not None]

    def _learn_bases(self) -> None:
        """Ask for the committed offsets of new lanes. Without them, copies cannot be told from other deliveries."""
        if self._new:
            asked = [TopicPartition(*place) for place in self._new]
            for each in self.client.committed(asked, timeout=_SECONDS):
                if each.error is not None:
                    raise KafkaException(each.error)
                self._new[each.topic, each.partition].base = max(each.offset, 0)
            self._new = {}

    def _noted(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - that is its public name
            self._is_down = True

    def _received(self, record: Message) -> Received | None:
        """Return the delivery in a record, or None if the record has no value or its partition was revoked."""
        topic, partition, offset = record.topic() or "", record.partition() or 0, record.offset() or 0
        value, lane = record.value(), self._lanes.get((topic, partition))
        if value is None or lane is None:
            return None
        given: Any = record.headers() or ()
        headers = {name: (each or b"").decode("utf-8", "replace") for name, each in given}
        kind, time = record.timestamp()
        stamped = None if kind == TIMESTAMP_NOT_AVAILABLE else time * 1000
        place = f"{topic}/{partition}/{offset}"
        return read_message(value, place, None, None, headers, stamped, self.decode, lane=lane, offset=offset)

    def _assigned(self, client: Client, partitions: list[TopicPartition]) -> None:
        lanes = {
            (each.topic, each.partition): Lane(
                f"{each.topic}/{each.partition}", end=partial(_end, client, each)
            )
            for each in partitions
        }
        self._lanes |= lanes
        self._new |= lanes
        self._is_paused = None
        self._rebalances.assigned(lanes.values())

    def _taken(self, partitions: Iterable[TopicPartition]) -> list[Lane]:
        lanes = [self._lanes.pop((each.topic, each.partition), None) for each in partitions]
        return [lane for lane in lanes if lane is not None]


def _end(client: Client, partition: TopicPartition) -> int | None:
    """Return the offset after a partition's last message as of the last fetch, or None if unknown. Costs no request."""
    with suppress(KafkaException, RuntimeError):  # RuntimeError: the client is closed
        found: tuple[int, int] = client.get_watermark_offsets(partition, cached=True)
        return found[1] if found[1] >= 0 else None
    return None


def offsets_behind(received: Iterable[Received]) -> list[TopicPartition]:
    """Return the offsets to commit after deliveries have been handled: one for each partition."""
    # The last delivery of each lane counts.
    ends = {each.lane.name: each.offset + 1 for each in received if each.lane is not None}
    places = [(*name.rpartition("/")[::2], end) for name, end in ends.items()]
    return [TopicPartition(topic, int(partition), end) for topic, partition, end in places]


@dataclass(eq=False, slots=True)
class _Worker:
    """A thread with a producer of its own. A thread that does not answer is given up, but may go on at any time."""

    may_have_committed: bool = False
    is_given_up: bool = False
    producer: Producer | None = None
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))


class KafkaSettlement(Settlement):
    """Sends outputs to the topic in the URL, or to topics by type, from one thread.

    If the source is on the same cluster, sends in transactions, which also commit the source's offsets.
    """

    def __init__(self, url: str, source: Source | None, names: Mapping[str, str]) -> None:
        self._place = place = _parsed(url)
        super().__init__(place.name, source, self._send_all, self._close, self._open)
        self._names = names
        self._worker = _Worker()
        self._transactions: dict[str, Any] = {}
        self._group = source if isinstance(source, KafkaSource) else None
        self._is_compared = self._group is None or self._group.place.name == place.name
        if self._group is not None:
            given = {**self._group.place.settings, **place.settings}
            instance = given.get("group.instance.id") or uuid.uuid4().hex
            self._transactions["transactional.id"] = f"consistent-serve-{self._group.group}-{instance}"
            self._transactions["transaction.timeout.ms"] = given.get(
                "transaction.timeout.ms", _TRANSACTION_MS
            )

    async def settle(self, outputs: Sequence[CommittedOutput], received: Sequence[Received]) -> None:
        """Send outputs and commit the offsets of deliveries, in one transaction if the source is on the same cluster.

        For another source, send the outputs first, and then acknowledge the deliveries.
        """
        if outputs and not self._is_compared:
            await self._call(self._compare)
        if self._group is None or not outputs:
            await super().settle(outputs, received)
        else:
            await self._call(partial(self._transact, self._group.client, outputs, received))

    async def _send_all(self, outputs: Sequence[CommittedOutput]) -> None:
        await self._call(lambda worker: self._send(self._begun(worker), outputs))

    async def _call(self, work: Callable[[_Worker], object]) -> None:
        worker = self._worker
        try:
            async with asyncio.timeout(2 * _SECONDS):
                await _in(worker.thread, partial(work, worker), self.name, TargetUnavailableError)
        except TimeoutError as error:
            # After a restart of the broker, librdkafka waited longer than its time-out. The next producer has the same
            # id, so the brokers fence this producer if it resumes.
            worker.is_given_up, self._worker = True, _Worker(may_have_committed=True)
            raise TargetUnavailableError(f"{self.name} does not answer.") from error

    async def _open(self) -> None:
        """Connect early, so the first outputs need not wait for the connection."""
        with suppress(TargetUnavailableError):  # the first outputs connect again
            await self._call(self._compare)
            await self._call(self._begun)

    async def _close(self) -> None:
        self._worker.producer = None  # the broker aborts a transaction that is open
        self._worker.thread.shutdown(wait=False)

    def _compare(self, _: _Worker) -> None:
        """Compare the clusters of target and source by their ids, because one cluster has many URLs."""
        if not self._is_compared and self._group is not None:
            found = Producer({**self._place.settings}, logger=_QUIET).list_topics(timeout=_SECONDS).cluster_id
            if not found or self._group.origin_in(found) != self._group.origin:
                self._group = None
        self._is_compared = True

    def _transact(
        self, group: Client, outputs: Sequence[CommittedOutput], received: Sequence[Received], worker: _Worker
    ) -> None:
        producer, offsets = self._begun(worker), offsets_behind(received)
        if worker.may_have_committed:  # the response was lost, and the transaction has ended by now
            found = group.committed(offsets, timeout=_SECONDS)
            worker.may_have_committed = False
            if all(each.offset >= wanted.offset for each, wanted in zip(found, offsets, strict=True)):
                return
        try:
            producer.begin_transaction()
            self._send(producer, outputs)
            metadata = group.consumer_group_metadata()
            # The brokers fence by this metadata, except if it was read between two memberships. The lanes are lost
            # before the next membership begins, so this order of checks leaves no gap.
            if not group.memberid() or any(each.is_lost for each in received):
                producer.abort_transaction(_SECONDS)
                raise TargetUnavailableError(f"{self.name}: the partitions belong to another consumer.")
            producer.send_offsets_to_transaction(offsets, metadata, _SECONDS)
            worker.may_have_committed = True
            producer.commit_transaction(_SECONDS)
            worker.may_have_committed = False
        except KafkaException as error:
            # The next producer with this id makes the brokers end the transaction, one way or the other.
            worker.producer = None
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(_SECONDS)
                worker.producer, worker.may_have_committed = producer, False
            raise

    @unwrapped_errors()
    def _send(self, producer: Producer, outputs: Sequence[CommittedOutput]) -> None:
        failures, topics = list[KafkaError](), self._place.topics

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for each in outputs:
            topic = topics[0] if topics else self._names.get(each.type, each.type)
            produce(producer, topic, each.business_id, each.body, headers_of(each), delivered)
        late = producer.flush(_SECONDS)
        failed = failures[0] if failures else KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - that is its public name
        if late or failures:
            raise KafkaException(failed)

    def _begun(self, worker: _Worker) -> Producer:
        if worker.producer is None:
            own = {} if self._group is None else self._transactions
            settings = {**self._place.settings, "enable.idempotence": True, **own}
            producer = Producer(settings, logger=_QUIET)
            if self._group is not None:
                producer.init_transactions(_SECONDS)
            if worker.is_given_up:  # this call fenced the successor, which sends the outputs
                raise TargetUnavailableError(f"{self.name} did not answer.")
            worker.producer = producer
        return worker.producer


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T], name: str, kind: type[RuntimeFailure]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    except KafkaException as error:
        raise kind(f"{name}: {error.args[0].str()}") from error


source, settlement = KafkaSource, KafkaSettlement
