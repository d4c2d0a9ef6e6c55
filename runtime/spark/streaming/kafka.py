"""Kafka topics as a streaming DataFrame. The offsets in the checkpoint include the ids of the topics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import ClassVar
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from runtime.errors import LogError, UsageError
from runtime.messages.records import Decoding
from runtime.spark.logs.kafka import SCHEMA, KafkaLog, Lane, Limits, Offsets, Range, check, cut, read_range

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError as missing:
    raise UsageError("A stream of topics needs Spark 4.2 or newer.") from missing

_IDLE_SECONDS = 0.1
Marks = dict[str, int | str]  # for each TOPIC/PARTITION an offset, and for each TOPIC its id


def stream_of(spark: SparkSession, url: str, decoding: Decoding) -> DataFrame:
    """Return the messages of topics as a streaming DataFrame. Raises `UsageError` and `LogError`."""
    log = KafkaLog(url, decoding)
    if "to" in log.place.own:
        raise UsageError("A stream has no end: remove `to` from the URL, or run a batch.")
    # As an attribute the settings stay out of plans, which show options.
    name = f"kafka-{uuid4().hex}"
    source = type("TopicSource", (TopicSource,), {"log": log, "short_name": name})
    spark.dataSource.register(source)
    return spark.readStream.format(name).load()


class TopicSource(DataSource):
    """The data source of one stream."""

    log: ClassVar[KafkaLog]
    short_name: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.short_name

    def schema(self) -> StructType:
        """Return the columns of a log."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> TopicReader:  # noqa: ARG002, N802 - Spark's
        """Return the reader of the stream."""
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
        """Remember the offsets at which the query ends."""
        self._target = self._log.limits()

    def latestOffset(self, start: Marks, limit: ReadLimit) -> Marks:  # noqa: N802
        """Return the offsets at which the next micro-batch ends."""
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
        """Yield the messages of one input partition."""
        return read_range(self._log.place, self._log.decoding, partition.value)


def _name(lane: Lane) -> str:
    return f"{lane[0]}/{lane[1]}"


def _marks(offsets: Offsets, limits: Limits) -> Marks:
    return {**limits.ids, **{_name(lane): offset for lane, offset in sorted(offsets.items())}}
