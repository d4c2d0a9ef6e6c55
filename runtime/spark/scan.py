"""Scan a table by key ranges on all workers: with a function that returns JSON documents, or as a Spark data source."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from pkgutil import resolve_name
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eventstore import KeyRange, Table, connect
from eventstore.connect import portable_url
from eventstore.stream import split_keys
from handlers import App
from runtime.batch_options import TablePlace
from runtime.errors import BatchFailedError, StoredDataError, UsageError
from runtime.maintenance.statistics import object_keys
from runtime.spark.session import cores_of, failing_as, job_settings
from runtime.spark.worker.connection import Connection, check_scope, open_table
from runtime.spark.worker.job import rare_collections
from runtime.spark.worker.outcomes import rows_of
from runtime.tables import reader
from runtime.tables.reader import Request, TableKind, moment
from runtime.tables.streams import StreamQuery
from runtime.versions.properties import Damaged, collecting, error_location, report

RANGES_OF_A_CORE = 4
FOUND = "found"
FOUND_SCHEMA = f"{FOUND} string"

Documents = Iterator[Sequence[Any]]  # lists of JSON values
Job = Callable[[Connection, Iterable[KeyRange]], Documents]
"""Called on a worker, with the key ranges of its task."""


@dataclass(frozen=True)
class Task:
    """What a Spark task executes: a job of this library, and the tables that it scans."""

    job: Job
    place: TablePlace = field(repr=False)
    other: TablePlace | None = field(default=None, repr=False)

    def results(self, ranges: Iterable[KeyRange]) -> Documents:
        return self.job(open_table(self.place.store, self.place.table, self.other, make=False), ranges)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan the given ranges, and yield JSON documents."""
        ranges = (KeyRange(**row) for row in rows_of(batches))
        for documents in self.results(ranges):
            yield pa.RecordBatch.from_pydict({FOUND: pa.array(map(json.dumps, documents), pa.string())})


def scanned(spark: SparkSession, task: Task, ranges: Sequence[KeyRange]) -> DataFrame:
    """Return a DataFrame of JSON documents, in the column `found`. Each action on the DataFrame repeats the scan."""
    keys = spark.createDataFrame(list(map(astuple, ranges)), "prefix string, first string, before string")
    return keys.repartition(len(ranges)).mapInArrow(task.run, FOUND_SCHEMA)


def documents_of(found: DataFrame) -> Iterator[Any]:
    """Run a scan, and return its parsed JSON documents. Raises `BatchFailedError` if Spark fails."""
    with failing_as(BatchFailedError):
        rows = found.collect()
    return (json.loads(row[FOUND]) for row in rows)


def scan(
    spark: SparkSession,
    place: TablePlace,
    function: Callable[[Table, KeyRange], Coroutine[Any, Any, Any]],
    merge: Callable[[Any], object],
    *,
    prefix: str = "",
) -> None:
    """Call `function` on workers for key ranges of streams and entities, and `merge` here with each `document()`.

    There are four ranges per core, with about the same number of objects, only those whose key begins with `prefix`.
    Splitting costs two requests for every 1,000 objects.

    Raises `UsageError` if workers would not see the same store, `TableNotFoundError` for a missing table, and
    `BatchFailedError` if Spark fails. Raises `StoredDataError` for a corrupt stream after all ranges, or collects it
    for an enclosing `collecting` block.
    """

    def document(connection: Connection, keys: KeyRange) -> object:
        with error_location(connection.table):
            return connection.run(function(connection.table, keys)).document()

    scan_with(spark, place, document, merge, prefix=prefix)


def scan_with(
    spark: SparkSession,
    place: TablePlace,
    document: Callable[[Connection, KeyRange], object],
    merge: Callable[[Any], object],
    *,
    other: TablePlace | None = None,
    prefix: str = "",
) -> None:
    """Scan like `scan`. `document` gets a connection to the table and any `other` table, and returns a JSON value."""

    def job(connection: Connection, ranges: Iterable[KeyRange]) -> Documents:
        for keys in ranges:
            damaged = Damaged()
            with collecting(damaged):
                result = document(connection, keys)
            yield [{"result": result, "damaged": list(map(str, damaged.errors))}]

    connection = open_table(place.store, place.table, other, make=False, spark=spark)
    parts = RANGES_OF_A_CORE * cores_of(spark)
    ranges = connection.run(split_keys(object_keys(connection.table, prefix), parts, prefix))
    task = Task(job, place.for_workers(), other and other.for_workers())
    with job_settings(spark):
        for found in documents_of(scanned(spark, task, ranges)):
            for problem in found["damaged"]:
                report(StoredDataError(problem))
            merge(found["result"])


_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_REQUIRED = ("store", "table")
_COMMON = (*_REQUIRED, "columns", "numPartitions")
_OF_STREAMS = ("handler", "businessId", "since", "until", "app")
_OPTIONS: Mapping[TableKind, Sequence[str]] = {
    TableKind.STATE: (*_COMMON, *_OF_STREAMS, "asOf", "batchId"),
    TableKind.VERSIONS: (*_COMMON, *_OF_STREAMS, "readChangeFeed", "changeStartBatchId", "changeEndBatchId"),
    TableKind.BATCHES: _COMMON,
    TableKind.LETTERS: (*_COMMON, "handler", "businessId"),
}


def register_data_sources(spark: SparkSession, *, push_filters: bool = True) -> None:
    """Register the formats `consistent-state`, `-versions`, `-batches` and `-letters` in a session.

        register_data_sources(spark)
        versions = spark.read.format("consistent-versions").options(store=url, table="games").load()

    `push_filters`: push conditions on handler, business id and time down to the store, from Spark 4.1 on.
    This sets `spark.sql.python.filterPushdown.enabled` for all Python data sources of the session.
    """
    pushes = push_filters and hasattr(DataSourceReader, "pushFilters")
    if pushes:
        spark.conf.set(_PUSHDOWN, "true")
    for kind in TableKind:
        spark.dataSource.register(_source(kind, pushes=pushes))


def letters(spark: SparkSession, *, store: str, table: str) -> DataFrame:
    """Return the waiting dead letters of a table as a lazy DataFrame, with the columns of a message log.

    Other columns describe the rejection, such as `reason`, `error` and `tries` (docs/tables.md). `stream` has the
    business id. If `packed` is true, the body is msgpack in hexadecimal digits.
    """
    source = _source(TableKind.LETTERS, pushes=False)
    spark.dataSource.register(source)
    return spark.read.format(source.name()).options(store=store, table=table).load()


def _source(kind: TableKind, *, pushes: bool) -> type[TableSource]:
    return type(f"{kind.capitalize()}Source", (TableSource,), {"kind": kind, "pushes": pushes})


class TableSource(DataSource):
    """The Spark data source for one kind of table. The driver resolves a URL like `env:NAME`."""

    kind: ClassVar[TableKind] = TableKind.STATE
    pushes: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        return f"consistent-{cls.kind}"

    def schema(self) -> StructType:
        """Return the selected columns, by default all."""
        return from_arrow_schema(self._request().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = self._request().with_columns(schema.fieldNames())
        store, table = portable_url(self.options["store"]), self.options["table"]
        check_scope(connect(store).scope, "local")
        parts = self.options.get("numPartitions") or str(RANGES_OF_A_CORE * (os.cpu_count() or 1))
        if not parts.isdecimal() or not int(parts):
            raise UsageError(f"The option numPartitions is {parts!r}: use a number from 1.")
        return (PushingReader if self.pushes else Reader)((store, table), request, int(parts))

    def _request(self) -> Request:
        options, kind = self.options, self.kind
        known = {name.lower() for name in _OPTIONS[kind]}
        for name in options:
            if name.lower() not in known:
                raise UsageError(f"{self.name()} has no option {name}: it has {', '.join(_OPTIONS[kind])}.")
        for name in _REQUIRED:
            if not options.get(name):
                raise UsageError(f"{self.name()} needs the option {name}.")
        feed = options.get("readChangeFeed") or "false"
        if feed.lower() not in ("true", "false"):
            raise UsageError(f"The option readChangeFeed is {feed!r}: use true or false.")
        since, until = moment(options.get("since")), moment(options.get("until"))
        request = Request(
            kind,
            StreamQuery(options.get("handler"), options.get("businessId"), since, until),
            moment(options.get("asOf")),
            options.get("batchId"),
            feed.lower() == "true",
            options.get("changeStartBatchId"),
            options.get("changeEndBatchId"),
            _app(options.get("app")),
        )
        columns = options.get("columns")
        return request if columns is None else request.with_columns(list(map(str.strip, columns.split(","))))


class Reader(DataSourceReader):
    """Reads a table by key ranges. The table's location may contain a secret, and is never shown."""

    def __init__(self, place: tuple[str, str], request: Request, parts: int) -> None:
        self._place = place
        self._request = request
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        return list(map(InputPartition, reader.split(*self._place, self._request, self._parts)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with rare_collections():
            yield from reader.scan(*self._place, self._request, partition.value)


class PushingReader(Reader):
    """Narrows its request by a query's conditions on handler, business id and time."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Narrow the request by conditions. Return all conditions, so that Spark checks each row again."""
        if self._request.kind is not TableKind.BATCHES:
            for each in filters:
                self._narrow(type(each).__name__, ".".join(each.attribute), getattr(each, "value", None))
        return filters

    def _narrow(self, relation: str, column: str, value: object) -> None:
        """Narrow the request by a condition. Leave conditions that no row meets to Spark."""
        query = self._request.query
        with suppress(UsageError):
            found = self._narrowed(query, relation, column, value)
            may_lack = self._request.may_lack_handler or found.handler != query.handler
            self._request = replace(self._request, query=found, may_lack_handler=may_lack)

    def _narrowed(self, query: StreamQuery, relation: str, column: str, value: object) -> StreamQuery:
        match column, relation, value:
            case "handler", "EqualTo", str() if query.handler is None:
                query = replace(query, handler=value)
            case (("business_id" | "stream"), "EqualTo", str()) if query.business_id is None:
                if (column == "stream") is (self._request.kind is TableKind.LETTERS):
                    query = replace(query, business_id=value)
            case (("now" | "refused_at"), ("GreaterThan" | "GreaterThanOrEqual" | "EqualTo"), datetime()):
                query = replace(query, since=moment(value) if query.since is None else query.since)
            case (("now" | "refused_at"), ("LessThan" | "LessThanOrEqual"), datetime()):
                query = replace(query, until=moment(value) if query.until is None else query.until)
        return query


def _app(name: str | None) -> App | None:
    if name is None:
        return None
    try:
        app = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"The option app does not name an App: {error}.") from error
    if not isinstance(app, App):
        raise UsageError(f"{name} is not an App: name one as MODULE:ATTRIBUTE.")
    return app
