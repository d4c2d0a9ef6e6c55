"""Spark data sources for the tables of a store: `consistent-state`, `-versions`, `-batches` and `-letters`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pkgutil import resolve_name
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eventstore import connect
from eventstore.connect import portable_url
from handlers import App
from runtime.errors import UsageError
from runtime.spark.worker.connection import check_scope
from runtime.spark.worker.job import rare_collections
from runtime.tables.reader import Request, TableKind, moment, scan, split
from runtime.tables.streams import StreamQuery

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_PARTS_OF_A_CORE = 4
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

    `push_filters`: push conditions on handler, business id and time down to the store. This sets
    `spark.sql.python.filterPushdown.enabled` for all Python data sources of the session. Spark 4.0 lacks it.
    """
    pushes = push_filters and hasattr(DataSourceReader, "pushFilters")
    if pushes:
        spark.conf.set(_PUSHDOWN, "true")
    for kind in TableKind:
        spark.dataSource.register(_source(kind, pushes=pushes))


def letters(spark: SparkSession, *, store: str, table: str) -> DataFrame:
    """Return the dead letters of a table as a lazy DataFrame: the columns of a log, and more.

    `stream` is the business id. A `packed` body is hexadecimal msgpack.
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
        parts = self.options.get("numPartitions") or str(_PARTS_OF_A_CORE * (os.cpu_count() or 1))
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
        return list(map(InputPartition, split(*self._place, self._request, self._parts)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with rare_collections():
            yield from scan(*self._place, self._request, partition.value)


class PushingReader(Reader):
    """Narrows its request by conditions on handler, business id and time."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Narrow the request by conditions. Return all conditions, so that Spark checks each row again."""
        if self._request.kind is not TableKind.BATCHES:
            for each in filters:
                self._narrow(type(each).__name__, ".".join(each.attribute), getattr(each, "value", None))
        return filters

    def _narrow(self, relation: str, column: str, value: object) -> None:
        query = self._request.query
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
        self._request = replace(self._request, query=query)


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
