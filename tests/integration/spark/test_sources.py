"""The data sources of Spark give what is read without Spark, and pass conditions on to the store."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan
from pyspark.sql.types import StructType

from eventstore import connect
from runtime.clock import to_datetime
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.spark import register_data_sources
from runtime.spark.scan import TableSource
from runtime.tables import read_batches, read_letters, read_state, read_versions
from runtime.tables.reader import TableKind
from runtime.tables.streams import StreamQuery
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.worker import NOW, ToldClock, Worker

pytestmark = pytest.mark.connect

SECRET = "AccountName=me;AccountKey=c2VjcmV0"


@pytest.fixture(scope="module")
def diaries(tmp_path_factory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('diaries')}/store.db"

    async def write_all() -> None:
        async with connect(url) as store:
            table = await store.table("states")
            record = await Ledger(table, ToldClock()).begin("night", "a log", "out")
            batch = BatchContext("night", number=record.number)
            for number in range(5):
                worker = Worker(table, batch=batch, clock=ToldClock(NOW + number), business_id=f"d-{number}")
                lines = [write(f"line {line}", f"m-{line}", diary=f"d-{number}") for line in range(3)]
                await worker.handle(*lines, misbehave("fail", diary=f"d-{number}"))

    asyncio.run(write_all())
    return url


def source(url: str, kind: TableKind, *, pushes: bool = True, **options: Any) -> TableSource:
    made = type("Source", (TableSource,), {"kind": kind, "pushes": pushes})
    source: TableSource = made({"store": url, "table": "states", **options})
    return source


def reader(url: str, kind: TableKind, **options: Any) -> Any:
    made = source(url, kind, **options)
    return made.reader(made.schema())


def load(spark: SparkSession, name: str, store: str, **options: str) -> DataFrame:
    reader: Any = spark.read.format(f"consistent-{name}")
    found: DataFrame = reader.options(store=store, table="states", numPartitions="2", **options).load()
    return found


@pytest.mark.thorough
def test_versions_of_a_stream_are_read_and_the_store_is_not_shown(spark, diaries, capfd):
    register_data_sources(spark)
    versions = load(spark, "versions", diaries).where("handler = 'Diary' and business_id = 'd-3'")

    assert sorted(row.version for row in versions.collect()) == [1, 2, 3]

    versions.explain(extended=True)
    explained = capfd.readouterr().out
    assert "BatchScan consistent-versions" in explained
    assert diaries not in explained


@pytest.mark.thorough
def test_states_are_read_as_of_a_time(spark, diaries):
    register_data_sources(spark)
    moment = to_datetime(NOW + 1).isoformat()

    states = load(spark, "state", diaries, asOf=moment).select("business_id").collect()

    assert sorted(row.business_id for row in states) == ["d-0", "d-1"]


@pytest.mark.thorough
def test_all_columns_of_each_format_are_those_that_are_read_without_spark(spark, diaries):
    register_data_sources(spark, push_filters=False)
    readers: dict[str, Any] = {
        "state": read_state,
        "versions": read_versions,
        "batches": read_batches,
        "letters": read_letters,
    }

    for name, read in readers.items():
        found, expected = load(spark, name, diaries).toArrow(), read(diaries, "states")
        assert found.column_names == expected.column_names
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_ranges_of_a_table_hold_each_version_once_and_a_stream_is_one_partition(diaries):
    read = reader(diaries, TableKind.VERSIONS, numPartitions="3")
    parts = [list(read.read(part)) for part in read.partitions()]

    assert len(parts) == 3
    found = [each for part in parts for batch in part for each in batch["business_id"].to_pylist()]
    assert sorted(found) == sorted(f"d-{number}" for number in range(5) for _ in range(3))

    list(read.pushFilters([EqualTo(("handler",), "Diary"), EqualTo(("business_id",), "d-1")]))
    (part,) = read.partitions()
    assert sum(batch.num_rows for batch in read.read(part)) == 3


@pytest.mark.parametrize(
    ("kind", "filters", "query"),
    [
        (TableKind.VERSIONS, [EqualTo(("handler",), "Diary")], StreamQuery("Diary")),
        (TableKind.STATE, [EqualTo(("business_id",), "d-1")], StreamQuery(None, "d-1")),
        (TableKind.STATE, [EqualTo(("version",), 3)], StreamQuery()),
        (TableKind.VERSIONS, [GreaterThan(("now",), to_datetime(NOW))], StreamQuery(since=NOW)),
        (TableKind.LETTERS, [EqualTo(("business_id",), "d-1")], StreamQuery()),
        (TableKind.LETTERS, [EqualTo(("stream",), "d-1")], StreamQuery(None, "d-1")),
        (TableKind.BATCHES, [EqualTo(("batch",), "night")], StreamQuery()),
    ],
)
def test_conditions_narrow_what_is_read_and_spark_checks_them_again(diaries, kind, filters, query):
    read = reader(diaries, kind)

    assert read.pushFilters(filters) == filters
    assert replace(read._request.query, columns=None) == query


def test_without_pushed_filters_there_is_nothing_that_spark_refuses(diaries):
    read = reader(diaries, TableKind.STATE, pushes=False)

    assert type(read).pushFilters is DataSourceReader.pushFilters


def test_columns_that_the_schema_or_the_option_leaves_out_are_not_read(diaries):
    whole = source(diaries, TableKind.VERSIONS)
    option = source(diaries, TableKind.VERSIONS, columns="version, handler")
    for made, schema, names in [
        (whole, StructType([whole.schema()["handler"]]), ["handler"]),
        (option, option.schema(), ["version", "handler"]),
    ]:
        read: Any = made.reader(schema)
        assert [batch.schema.names for batch in read.read(read.partitions()[0])] == [names]


def test_a_secret_is_resolved_where_the_reader_is_made_and_not_shown(monkeypatch):
    monkeypatch.setenv(
        "STORE_OF_TEST", f"DefaultEndpointsProtocol=https;{SECRET};EndpointSuffix=core.windows.net"
    )
    made = source("env:STORE_OF_TEST", TableKind.STATE)

    read: Any = made.reader(made.schema())

    assert SECRET in read._place[0]
    assert not [text for text in (repr(read), str(read), repr(made), made.name()) if "c2VjcmV0" in text]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tabel": "x"}, "consistent-state has no option tabel: it has store, table"),
        ({"table": ""}, "consistent-state needs the option table."),
        ({"store": "memory:x"}, "A memory: store exists in one process only"),
        ({"app": "samples.nothing:app"}, "The option app does not name an App"),
        ({"columns": "handler,headlines"}, "There is no column headlines. Choose from handler"),
        ({"numPartitions": "many"}, "numPartitions is 'many': use a number"),
    ],
)
def test_options_that_cannot_be_are_refused(diaries, options, sentence):
    made = source(options.pop("store", diaries), TableKind.STATE, **options)

    with pytest.raises(UsageError, match=sentence):
        made.reader(made.schema())
