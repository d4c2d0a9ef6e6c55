"""Kafka, or Event Hubs through its Kafka endpoint, as a target: exactly once for readers with `read_committed`.

One transaction sends a slice, and a marker to another topic. The marker shows that the slice must not be sent again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from runtime.clock import to_microseconds
from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing import publisher
from runtime.publishing.publisher import CommittedOutput, Promise, Record, SliceName, Target, TargetOptions

MARKERS = "consistent-slices"
"""The marker topic, keyed by slice name. It must retain all keys, so compact it rather than expire records."""

TRANSACTION_SECONDS = 60  # until the broker aborts the transaction of a dead producer

# By default librdkafka logs to standard error. Errors are raised anyway.
_QUIET = logging.getLogger("librdkafka")
_QUIET.addHandler(logging.NullHandler())

_BROKER = re.compile(r"([^\s:/]+|\[[0-9a-fA-F:]+\])(:\d+)?")
_FORM = (
    "The URL of the Kafka cluster is invalid. Write kafka://HOST:PORT or kafka://USER:PASSWORD@HOST:PORT?setting=value "
    "with %25 for %, %2F for / and %20 for a blank in the user or password."
)


@dataclass(frozen=True)
class Topics:
    """The contents of a Kafka URL: the cluster, the topics, and the parameters."""

    name: str  # the URL of the cluster without secrets
    topics: Sequence[str]
    settings: Mapping[str, Any] = field(repr=False)
    own: Mapping[str, str]  # the parameters that are not for librdkafka

    @classmethod
    def read(cls, url: str, form: str, names: Collection[str]) -> Topics:
        """Parse a URL. Its parameters in `names` become `own`, and all others become `settings`.

        Raises `UsageError`, with `form` as its text if the URL cannot be parsed.
        """
        try:
            parts = urlsplit(url)
        except ValueError:  # the error's text may contain the password
            raise UsageError(form) from None
        given = dict(parse_qsl(parts.query))
        own = {name: given.pop(name) for name in names if name in given}
        cluster = KafkaTarget(f"kafka://{parts.netloc}?{urlencode(given)}", TargetOptions())
        topics = list(filter(None, parts.path.strip("/").split(",")))
        return cls(cluster.name, topics, cluster.settings, own)


def headers_of(output: CommittedOutput) -> dict[str, str | bytes | None]:
    """Return the headers of an output's Kafka record: those of the output, and its fields such as `message_id`."""
    return {
        **output.headers,
        "message_id": output.message_id,
        "type": output.type,
        "handler": output.handler,
        "sequence": str(output.sequence),
        "enqueued_at": str(to_microseconds(output.enqueued_at)),
    }


@contextmanager
def unwrapped_errors() -> Iterator[None]:
    """Context manager that raises the `KafkaException` in a `SystemError`, as confluent-kafka wraps a fatal error."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if not isinstance(cause, KafkaException):
            raise
        raise cause from None


@contextmanager
def accepted(name: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Context manager that raises `UsageError` if librdkafka refuses the settings of a client created inside."""
    try:
        yield
    except KafkaException as refused:
        # The text may contain a secret value.
        names = ", ".join(each for each in settings if each in refused.args[0].str())
        raise UsageError(
            f"{name}: librdkafka refuses a setting{f' ({names})' if names else ''}. Correct the URL."
        ) from None


Sent = Callable[[KafkaError | None, Message], None]
"""Called when a record is delivered, or has failed with an error."""


def produce(  # noqa: PLR0917 - the parts of a record
    producer: Producer, topic: str, key: str, value: str, headers: dict[str, str | bytes | None], sent: Sent
) -> None:
    """Queue a record for sending. Blocks while the queue is full. `sent` is called when the record is sent or fails."""
    while True:
        try:
            producer.produce(topic, value.encode(), key.encode(), headers=headers, on_delivery=sent)
            break
        except BufferError:
            producer.poll(1.0)


class Markers:
    """Looks up slices in the marker topic, which names the committed slices."""

    def __init__(self, settings: Mapping[str, Any], seconds: float) -> None:
        own = {**settings, "group.id": MARKERS, "enable.auto.commit": False}
        reading = {**own, "isolation.level": "read_committed", "enable.partition.eof": True}
        reading["auto.offset.reset"] = "earliest"  # if the first markers have expired
        self._ends = Consumer({**own, "isolation.level": "read_uncommitted"}, logger=_QUIET)
        self._committed = Consumer(reading, logger=_QUIET)
        self._seconds = seconds
        self._reached: dict[int, int] = {}
        self._known: set[str] = set()

    def have(self, name: str) -> bool:
        """Return whether a slice has a marker. Waits for the end of open transactions, which hide later markers."""
        seconds = self._seconds
        partitions = self._ends.list_topics(MARKERS, timeout=seconds).topics[MARKERS].partitions
        ends = {
            each: self._ends.get_watermark_offsets(TopicPartition(MARKERS, each), timeout=seconds)[1]
            for each in partitions
        }
        if not self._reached:
            self._reached = dict.fromkeys(ends, 0)
            self._committed.assign([TopicPartition(MARKERS, each, 0) for each in ends])
        deadline = time.monotonic() + 3 * TRANSACTION_SECONDS
        while any(self._reached[each] < end for each, end in ends.items()):
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - that is its public name
            record = self._committed.poll(1.0)
            if record is None:
                continue
            error = record.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - as above
                raise KafkaException(error)
            partition, offset = record.partition() or 0, record.offset() or 0
            self._reached[partition] = max(self._reached[partition], offset if error else offset + 1)
            if error is None:
                self._known.add((record.key() or b"").decode())
        return name in self._known

    def close(self) -> None:
        self._ends.close()
        self._committed.close()


_LOOKS, _PAUSE_SECONDS = 20, 0.25  # checks for a topic that the cluster may be creating

_TEMPORARY = {
    KafkaError._TIMED_OUT,  # noqa: SLF001 - that is its public name
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError._FENCED,  # noqa: SLF001 - by another runner: the lease tells which one sends the slice
}


class KafkaTarget(Target):
    """A Kafka cluster: `kafka://USER:PASSWORD@HOST:PORT,HOST:PORT?setting=value`, with settings of librdkafka."""

    promise = Promise.EXACTLY_ONCE

    def __init__(self, url: str, options: TargetOptions) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:  # the error's text may contain the password
            raise UsageError(_FORM) from None
        credentials, _, brokers = parts.netloc.rpartition("@")
        if not all(map(_BROKER.fullmatch, brokers.split(","))) or parts.path.strip("/") or parts.fragment:
            raise UsageError(_FORM)
        super().__init__(f"kafka://{brokers}", options)
        self.settings: dict[str, Any] = {"bootstrap.servers": brokers, **dict(parse_qsl(parts.query))}
        if credentials:
            user, _, password = credentials.partition(":")
            default = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
            secret = {"sasl.username": unquote(user), "sasl.password": unquote(password)}
            self.settings = {**default, **self.settings, **secret}
        with accepted(self.name, self.settings):  # without brokers, as it is not used
            Producer({**self.settings, "bootstrap.servers": ""}, logger=_QUIET)

    def topic_of(self, type_: str) -> str:
        return self.options.names.get(type_, type_)

    async def prepare(self, types: Collection[str]) -> None:
        """Check that the topics exist. Retries for five seconds, because some clusters create topics on demand."""
        topics = sorted({MARKERS, *map(self.topic_of, types)})
        with _translated_errors(self.name):
            producer = Producer(self.settings, logger=_QUIET)
            for topic in topics:
                for _ in range(_LOOKS):
                    found = await asyncio.to_thread(producer.list_topics, topic, timeout=self.seconds)
                    error = found.topics[topic].error
                    if error is None:
                        break
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    raise UsageError(
                        f"{self.name} has no topic {topic}: {error.str()}. Create it, or choose another with --map."
                    )

    def publisher(self) -> KafkaPublisher:
        return KafkaPublisher(self)


class KafkaPublisher(publisher.ThreadedPublisher):
    """Sends each slice in one transaction, with a separate producer for each slice."""

    def __init__(self, target: KafkaTarget) -> None:
        super().__init__()
        self._target = target
        self._producer: Producer | None = None
        self._markers: Markers | None = None
        self._name: SliceName | None = None
        self._failed: KafkaError | None = None

    @publisher.in_thread
    def open(self, name: SliceName) -> bool:
        """Fence other producers of the slice, and begin a transaction. Return False if the slice has a marker."""
        with _translated_errors(self._target.name):
            own = {
                "transactional.id": f"consistent-{name}",
                "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            }
            producer = Producer({**self._target.settings, **own}, logger=_QUIET)
            # Aborts the transaction of another producer with the same id, dead or alive.
            producer.init_transactions(self._target.seconds)
            self._markers = self._markers or Markers(self._target.settings, self._target.seconds)
            if self._markers.have(str(name)):
                return False
            producer.begin_transaction()
            self._producer, self._name, self._failed = producer, name, None
            return True

    @publisher.in_thread
    def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Send outputs with the business id as key, so outputs of one object keep their order."""
        refused = []
        with _translated_errors(self._target.name):
            producer = self._begun()
            for each in outputs:
                topic = self._target.topic_of(each.type)
                try:
                    produce(producer, topic, each.business_id, each.body, headers_of(each), self._sent)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                        raise
                    refused.append(Record.of(each, error.args[0].str()))
                producer.poll(0)
        return refused

    def _sent(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error

    @publisher.in_thread
    def commit(self) -> None:
        with _translated_errors(self._target.name):
            produce(self._begun(), MARKERS, str(self._name), "", {}, self._sent)
            self._begun().flush(self._target.seconds)
            if self._failed is not None:
                raise KafkaException(self._failed)
            self._begun().commit_transaction(self._target.seconds)
            self._producer = None

    @publisher.in_thread
    def roll_back(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with suppress(KafkaException):  # fenced or unreachable: the broker aborts the transaction
                producer.abort_transaction(self._target.seconds)

    async def close(self) -> None:
        await self.roll_back()
        if self._markers is not None:
            await asyncio.to_thread(self._markers.close)
        await super().close()

    def _begun(self) -> Producer:
        if self._producer is None:
            raise TargetUnavailableError(f"{self._target.name}: no transaction is open.")
        return self._producer


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    try:
        with unwrapped_errors():
            yield
    except KafkaException as error:
        cause = error.args[0]
        may_succeed = cause.retriable() or cause.txn_requires_abort() or cause.code() in _TEMPORARY
        kind = TargetUnavailableError if may_succeed else TargetError
        hint = ""
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # a broker does not say which record is too large
            hint = ". Add the brokers' ?message.max.bytes=N to the URL, so that larger outputs become dead letters."
        raise kind(f"{name}: {cause.str()}{hint}") from error
