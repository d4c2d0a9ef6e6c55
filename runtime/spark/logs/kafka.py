"""Logs and streams in Kafka: ranges of offsets, which workers read through librdkafka. Needs no jar.

A batch is identified by its offsets and the ids of its topics. A compacted topic may lose records of a range.
Therefore its messages identify the batch too. A stream keeps its offsets and the ids of its topics in its checkpoint.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from datetime import datetime
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from runtime.clock import to_microseconds
from runtime.errors import LogError, MissingExtraError, UsageError
from runtime.messages.records import AS_JSON, Decode, Decoding, read_record
from runtime.options import resolved
from runtime.spark.logs.normalise import UNREAD

try:
    from confluent_kafka import (
        TIMESTAMP_NOT_AVAILABLE,
        Consumer,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

    from runtime.publishing.targets.kafka import _QUIET, Topics
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"Kafka needs {missing.name}: pip install 'consistent-messaging[kafka]'."
    ) from missing

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:  # before Spark 4.2
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

_FORM = (
    "A log in Kafka is written kafka://HOST:PORT/TOPIC,TOPIC?from=X&to=Y, where X and Y are earliest, latest, a time "
    "such as 2026-01-31T12:00:00Z, or the offset of each partition: 0:120,1:98, with several topics TOPIC/0:120."
)
_SECONDS = 30.0  # for an answer
_IDLE_SECONDS = 0.1
_ELECTING = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
# A broker that restarts is waited for. These names are public.
_PASSING = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
_PIECE = 200_000  # offsets that a task reads
_ROWS = 1024
_TEXT = pa.string()
ARROW = pa.schema(
    [
        *((name, _TEXT) for name in ("message_id", "type", "body", "business_id")),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.timestamp("us", "UTC")),
        ("headers", pa.map_(_TEXT, _TEXT)),
        (UNREAD, _TEXT),
    ]
)
SCHEMA = from_arrow_schema(ARROW)

_OFFSETS = re.compile(r"([\w.-]+/)?\d+:\d+(,.*)?")
_RECORDED = re.compile(r"([\w.-]+)/(\d+):(\d+)-(\d+)(?=[,\w./:-]* of the topics )")

T = TypeVar("T")
Lane = tuple[str, int]  # topic and partition
Offsets = Mapping[Lane, int]


class Limits(NamedTuple):
    """The readable offsets of topics, and the topic ids. A topic that is deleted and created again has another id."""

    first: Offsets
    last: Offsets
    ids: Mapping[str, str]


class Range(NamedTuple):
    """Offsets of a partition, from `start` to just before `end`."""

    topic: str
    partition: int
    start: int
    end: int


class KafkaLog:
    """The topics in a URL, as a log. Raises `UsageError` for an invalid URL, and `LogError` for Kafka errors."""

    def __init__(self, url: str, decoding: Decoding = AS_JSON) -> None:
        self.place = Topics.read(resolved(url), _FORM, ("from", "to", "max"))
        if not self.place.topics or not self.place.own.get("max", "1").isdecimal():
            raise UsageError(_FORM)
        self.decoding = decoding
        decoding.decoder()

    def __str__(self) -> str:
        return f"{self.place.name}/{','.join(self.place.topics)}"

    def __getstate__(self) -> object:
        return {name: each for name, each in vars(self).items() if name != "_admin"}

    def limits(self) -> Limits:
        """Return each partition's first readable offset, the offset after its last readable record, and topic ids."""
        asked = TopicCollection(list(self.place.topics))
        topics = self._answers(partial(self._admin.describe_topics, asked, request_timeout=_SECONDS))
        lanes = [(name, each.id) for name, topic in topics.items() for each in topic.partitions]
        bounds: Any = OffsetSpec
        first, last = (self._offsets(lanes, each) for each in (bounds.earliest(), bounds.latest()))
        return Limits(first, last, {name: str(topic.topic_id) for name, topic in topics.items()})

    def offsets(self, bound: str, limits: Limits) -> Offsets:
        """Return each partition's offset at a bound such as `latest`. Raises `UsageError` if the bound is invalid."""
        if bound in ("earliest", "latest"):
            return limits.first if bound == "earliest" else limits.last
        if _OFFSETS.fullmatch(bound):
            return self._explicit(bound, limits.first)
        try:
            moment = to_microseconds(datetime.fromisoformat(bound)) // 1000
        except (ValueError, TypeError):
            raise UsageError(f"{bound!r} is no bound. {_FORM}") from None
        found = self._offsets(limits.first, OffsetSpec.for_timestamp(moment))
        return {lane: limits.last[lane] if offset < 0 else offset for lane, offset in found.items()}

    def _explicit(self, bound: str, lanes: Iterable[Lane]) -> Offsets:
        lanes, given = set(lanes), {}
        for each in bound.split(","):
            match = re.fullmatch(r"(?:([\w.-]+)/)?(\d{1,9}):(\d{1,18})", each)
            if match is None or (match[1] is None and len(self.place.topics) > 1):
                raise UsageError(f"{each!r} is no offset of a partition. {_FORM}")
            given[match[1] or self.place.topics[0], int(match[2])] = int(match[3])
        odd = sorted(lanes ^ given.keys())
        if odd:
            raise UsageError(
                f"{bound} must name each partition of {self} once: see {', '.join(f'{a}/{b}' for a, b in odd)}."
            )
        return given

    def ranges(self, recorded: str = "") -> tuple[Sequence[Range], str]:
        """Return the ranges of offsets to read, and a text that identifies them.

        `recorded`: the input of a batch to resume. Its offsets are used, unless the URL has offsets. Raises `LogError`
        if some offsets were deleted, or do not exist yet.
        """
        limits, known = self.limits(), _RECORDED.findall(recorded)
        if {topic for topic, *_ in known} != set(self.place.topics):
            known = []  # the ledger refuses them
        bounds: list[Offsets] = []
        for place, (name, usual) in enumerate((("from", "earliest"), ("to", "latest"))):
            bound = self.place.own.get(name, usual)
            if known and not _OFFSETS.fullmatch(bound):
                bounds.append({(topic, int(number)): int(ends[place]) for topic, number, *ends in known})
            elif known:
                bounds.append(self._explicit(bound, [(topic, int(number)) for topic, number, *_ in known]))
            else:
                bounds.append(self.offsets(bound, limits))
        start, end = bounds
        found = [Range(*lane, at, max(at, end.get(lane, at))) for lane, at in sorted(start.items())]
        for each in found:
            check(each, limits, self.place.topics)
        ids = ",".join(f"{name}={id_}" for name, id_ in sorted(limits.ids.items()))
        return found, f"offsets {','.join(f'{t}/{p}:{a}-{b}' for t, p, a, b in found)} of the topics {ids}"

    def is_compacted(self) -> bool:
        """Return whether compaction may remove records of a topic, or True if the broker does not tell."""
        asked = [ConfigResource(ResourceType.TOPIC, each) for each in self.place.topics]
        try:
            configs = [each.result() for each in self._admin.describe_configs(asked).values()]
        except KafkaException:
            return True
        return any("compact" in (each["cleanup.policy"].value or "") for each in configs)

    def rows(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        pieces = list(cut(ranges))
        numbers = spark.range(0, len(pieces), 1, max(len(pieces), 1))
        return numbers.mapInArrow(partial(_read_pieces, self.place, self.decoding, pieces), SCHEMA)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(dict(self.place.settings), logger=_QUIET)

    def _offsets(self, lanes: Iterable[Lane], wanted: OffsetSpec) -> Offsets:
        asked = {TopicPartition(*lane): wanted for lane in lanes}
        level = IsolationLevel.READ_COMMITTED
        ask = partial(self._admin.list_offsets, asked, isolation_level=level, request_timeout=_SECONDS)
        return {(each.topic, each.partition): found.offset for each, found in self._answers(ask).items()}

    def _answers(self, ask: Callable[[], Mapping[T, Future[Any]]]) -> Mapping[T, Any]:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return {key: each.result() for key, each in ask().items()}
            except KafkaException as error:
                cause = error.args[0]
                # The leader of a new partition, or after a broker died, is known after a while.
                if cause.code() in _ELECTING and time.monotonic() < deadline:
                    time.sleep(_IDLE_SECONDS)
                    continue
                is_missing = cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                what = "does not have all of these topics" if is_missing else "cannot be read"
                raise LogError(f"{self} {what}: {cause.str()}.") from error


def cut(ranges: Iterable[Range]) -> Iterator[Range]:
    """Cut ranges into pieces for tasks. An empty range has no pieces."""
    for topic, partition, start, end in ranges:
        for at in range(start, end, _PIECE):
            yield Range(topic, partition, at, min(at + _PIECE, end))


def check(wanted: Range, limits: Limits, topics: Sequence[str]) -> None:
    """Raise `LogError` if offsets of a range were deleted, or cannot be read yet."""
    lane, first = f"{wanted.topic}/{wanted.partition}", limits.first.get(wanted[:2], 0)
    last = limits.last.get(wanted[:2], 0)
    if wanted.end > last:
        raise LogError(
            f"{lane} ends at offset {last}, before the requested offset {wanted.end}: a transaction is open there, the "
            "records are not written yet, or the topic was recreated."
        )
    if first > wanted.start and wanted.end > wanted.start:
        rest = f"{wanted.partition if len(topics) == 1 else lane}:{first}"
        raise LogError(
            f"The offsets {wanted.start} to {first - 1} of {lane} were deleted by the retention of the topic. Messages "
            f"that no batch has handled are lost. To handle the rest, abandon the batch if there is one (consistent "
            f"batches --abandon ID), and run a new one with from={rest} for this partition; a stream needs a new query "
            "and checkpoint."
        )


def _consumer(place: Topics) -> Consumer:
    own = {
        "group.id": "consistent-batches",  # never joined
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 16_384,
    }
    return Consumer({**place.settings, **own}, logger=_QUIET)


def _read_pieces(
    place: Topics, decoding: Decoding, pieces: Sequence[Range], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch["id"].to_pylist()):
        yield from read_range(place, decoding, pieces[number])


def read_range(place: Topics, decoding: Decoding, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of a range that have a value. Raises `LogError` if records cannot be read."""
    decode = decoding.decoder()
    try:
        with closing(_consumer(place)) as client:
            for records in _records(client, place, wanted):
                rows = [_row(each, decode) for each in records if each.value() is not None]
                yield pa.RecordBatch.from_pylist(rows, ARROW)
    except KafkaException as error:
        raise LogError(f"{place.name} cannot be read: {error.args[0].str()}.") from error


def _records(client: Consumer, place: Topics, wanted: Range) -> Iterator[Sequence[Any]]:
    lane, at = TopicPartition(*wanted[:3]), wanted.start

    def check_start() -> None:
        low = client.get_watermark_offsets(lane, timeout=_SECONDS)[0]
        check(
            wanted._replace(start=at), Limits({wanted[:2]: low}, {wanted[:2]: wanted.end}, {}), place.topics
        )

    check_start()
    client.assign([lane])
    deadline = time.monotonic() + _SECONDS
    while at < wanted.end:
        found: Sequence[Any] = client.consume(_ROWS, 1.0)
        before = at
        for error in filter(None, (each.error() for each in found)):
            if error.code() not in _PASSING and not error.retriable():
                check_start()  # which tells why, if they were deleted meanwhile
                raise KafkaException(error)
        # The end of a partition is behind the marks of transactions.
        offsets = [each.offset() + (each.error() is None) for each in found if each.offset() is not None]
        at = max([at, *offsets])
        yield [each for each in found if each.error() is None and each.offset() < wanted.end]
        if at > before:
            deadline = time.monotonic() + _SECONDS
        elif time.monotonic() > deadline:
            raise LogError(f"{place.name} does not answer: {wanted.topic}/{wanted.partition} is at {at}.")


def _row(record: Any, decode: Decode | None) -> Mapping[str, Any]:  # noqa: ANN401 - of confluent_kafka
    headers = {name: (each or b"").decode("utf-8", "replace") for name, each in record.headers() or ()}
    kind, stamp = record.timestamp()
    stamped = None if kind == TIMESTAMP_NOT_AVAILABLE else stamp * 1000
    place = f"{record.topic()}/{record.partition()}/{record.offset()}"
    found, problem = read_record(record.value(), place, headers, stamped, decode)
    return {
        **found._asdict(),
        "sequence": record.offset() if found.sequence is None else found.sequence,
        "headers": list((headers if problem else found.headers or {}).items()),
        UNREAD: problem,
    }


Marks = dict[str, int | str]  # for each TOPIC/PARTITION an offset, and for each TOPIC its id


def stream_of(spark: SparkSession, url: str, decoding: Decoding) -> DataFrame:
    """Return a streaming DataFrame of topics. Raises `UsageError` for an invalid URL, or if Spark is older than 4.2."""
    if SupportsTriggerAvailableNow is object:
        raise UsageError("A stream of topics needs Spark 4.2 or newer.")
    log = KafkaLog(url, decoding)
    if "to" in log.place.own:
        raise UsageError("A stream has no end: remove `to` from the URL, or run a batch.")
    # As an attribute the settings stay out of plans, which show options.
    name = f"kafka-{uuid4().hex}"
    source = type("TopicSource", (TopicSource,), {"log": log, "short_name": name})
    spark.dataSource.register(source)
    return spark.readStream.format(name).load()


class TopicSource(DataSource):
    """The data source of topics. `stream_of` registers a new subclass, with its own `log` and name, at each call."""

    log: ClassVar[KafkaLog]
    short_name: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.short_name

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> TopicReader:  # noqa: ARG002, N802 - Spark's
        return TopicReader(self.log)


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches. A partition that is added to a topic later is read from its start."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self._target: Limits | None = None

    def initialOffset(self) -> Marks:  # noqa: N802 - Spark's, as below
        """Return the offsets at which a new query begins."""
        limits = self._log.limits()
        return _marks(self._log.offsets(self._log.place.own.get("from", "earliest"), limits), limits)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the maximum number of messages of a micro-batch."""
        most = self._log.place.own.get("max")
        return ReadAllAvailable() if most is None else ReadMaxRows(int(most))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the present ends of the topics: the query reads up to them, then ends."""
        self._target = self._log.limits()

    def latestOffset(self, start: Marks, limit: ReadLimit) -> Marks:  # noqa: N802
        """Return the offsets at which the next micro-batch ends, or `start` if there are no new records."""
        limits = self._target or self._log.limits()
        begun = {lane: int(start.get(_name(lane), 0)) for lane in limits.last}
        behind = {lane: max(end - begun[lane], 0) for lane, end in limits.last.items()}
        total = sum(behind.values())
        if not total:
            time.sleep(_IDLE_SECONDS)  # Spark asks a hundred times a second
            return start
        most = min(total, limit.max_rows) if isinstance(limit, ReadMaxRows) else total
        shares = {lane: min(each, max(1, each * most // total)) for lane, each in behind.items()}
        return _marks({lane: begun[lane] + each for lane, each in shares.items()}, limits)

    def partitions(self, start: Marks, end: Marks) -> Sequence[InputPartition]:
        """Return the pieces of a micro-batch. Raises `LogError` for a topic that was deleted and created again."""
        limits, ranges = self._log.limits(), []
        for topic, id_ in limits.ids.items():
            if {start.get(topic, id_), end.get(topic, id_)} != {id_}:
                raise LogError(
                    f"The topic {topic} was recreated since the checkpoint was written. Give query and "
                    "checkpoint new names."
                )
        for lane in limits.first:
            if _name(lane) in end:
                ranges.append(Range(*lane, int(start.get(_name(lane), 0)), int(end[_name(lane)])))
                check(ranges[-1], limits, self._log.place.topics)
        return list(map(InputPartition, cut(ranges)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._log.place, self._log.decoding, partition.value)


def _name(lane: Lane) -> str:
    return f"{lane[0]}/{lane[1]}"


def _marks(offsets: Offsets, limits: Limits) -> Marks:
    return {**limits.ids, **{_name(lane): offset for lane, offset in sorted(offsets.items())}}
