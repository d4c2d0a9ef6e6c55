"""A scan by ranges of keys, and data sources: they find what one process finds, and pass conditions on to the store."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan, LessThan
from pyspark.sql.types import StructType

from eventstore import KeyRange, Operation, connect
from runtime import Envelope, Processor
from runtime.batch_options import TablePlace
from runtime.clock import to_datetime
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableOwner, TableSettings
from runtime.maintenance.check import Checked, check_table
from runtime.maintenance.statistics import TableCount, count_objects
from runtime.spark import register_data_sources
from runtime.spark.outbox import evict
from runtime.spark.scan import TableSource, scan
from runtime.tables import read_batches, read_letters, read_state, read_versions
from runtime.tables.reader import TableKind
from runtime.tables.streams import StreamQuery
from samples.shooting_range import app
from tests.integration.spark.conftest import NIGHT
from tests.support.logs import fire, generated
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.worker import NOW, ToldClock, Worker

pytestmark = pytest.mark.connect

GAMES = [f"00000000-0000-4000-8000-{number:012}" for number in range(10)]


def on(place, work):
    async def opened():
        async with connect(place.store) as store:
            return await work(await store.table(place.table))

    return asyncio.run(opened())


async def publish(_):
    """Publish nothing."""


def play(place, algorithm, ids=None):
    """Fire twice in each game, with an outbox."""

    async def played(table):
        async with connect((ids or place).store) as store:
            seen = await store.table(ids.table) if ids else None
            processor = Processor(
                app, table, publish, clock=NIGHT, algorithm=algorithm, deduplication_store=seen
            )
            for number, game in enumerate(GAMES):
                for row in (fire(2 * number, 5, game), fire(2 * number + 1, 6, game)):
                    await processor.process(Envelope.of(row["message_id"], row["type"], row["body"]))

    on(place, played)


def by_ranges(place, function, merge, prefix=""):
    scan(place.spark, at(place), function, merge, prefix=prefix)


@pytest.mark.thorough
@pytest.mark.parametrize("prefix", ["", "ShootingRange-", "Nobody-"])
def test_a_scan_counts_the_same_in_one_process_and_by_ranges(place, prefix):
    place.run(generated(place.folder / "log.jsonl", games=10, messages=60), cascade=True, clock=NIGHT)
    play(place, "outbox")
    alone = on(place, lambda table: count_objects(table, KeyRange(prefix)))

    found = TableCount()
    by_ranges(place, count_objects, found.merge, prefix)

    assert same(found.document()) == same(alone.document())


def same(document):
    """Return a document in whose lists the order does not count."""
    if isinstance(document, dict):
        return {name: same(each) for name, each in document.items()}
    return sorted(map(repr, document)) if isinstance(document, list) else document


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "is_elsewhere"),
    [("outbox", False), ("deduplication-store", False), ("deduplication-store", True)],
)
def test_as_much_is_forgotten_by_ranges_as_in_one_process(place, algorithm, is_elsewhere):
    if algorithm == "outbox":
        with pytest.raises(UsageError, match="omit it with outbox"):
            evict(place.spark, app, at(place), timedelta(), algorithm=algorithm, ids=at(place))
    # Given two stores in which the same was played
    other = place.beside("other")
    ids = [each.beside("ids") if is_elsewhere else None for each in (place, other)]
    for each, seen in zip((place, other), ids, strict=True):
        play(each, algorithm, seen)

    # When one forgets by ranges, and the other in one process
    def evicted(older_than, *, dry_run=False):
        return evict(
            place.spark, app, at(place), older_than,
            algorithm=algorithm, ids=ids[0] and at(ids[0]), dry_run=dry_run,
        )  # fmt: skip

    async def alone(table):
        async with connect((ids[1] or other).store) as store:
            seen = await store.table(ids[1].table) if ids[1] else None
            processor = Processor(app, table, publish, algorithm=algorithm, deduplication_store=seen)
            return await processor.evict(timedelta())

    # Then nothing goes that is too young, a dry run leaves all, and both forget the same
    assert evicted(timedelta(weeks=9999)) == 0
    assert evicted(timedelta(), dry_run=True) == 2 * len(GAMES)
    assert evicted(timedelta()) == on(other, alone) == 2 * len(GAMES)
    assert evicted(timedelta()) == 0
    assert on(place, count_objects).document() == on(other, count_objects).document()


def at(place):
    return TablePlace(place.store, place.table)


def test_a_damaged_table_is_checked_and_repaired_alike_in_one_process_and_by_ranges(place):
    # Given a table in which a truncation has left a row of one stream, and the tail of another is damaged
    place.run(generated(place.folder / "log.jsonl", games=4, messages=16), clock=NIGHT)

    async def damage(table):
        keys = sorted([row.partition_key for row in (await table.scan("SS-HEAD")).rows])
        await table.transact(keys[0], [Operation.insert("SS-SE-0000000000", {"Data": b"left"})])
        await table.transact(keys[-1], [Operation.merge("SS-HEAD", {"Tail": b"?"}, "*")])
        return keys[0], keys[-1]

    first, last = on(place, damage)

    def check_by_ranges(*, repair=False):
        checked = Checked()
        check = partial(check_table, repair=repair)
        by_ranges(place, check, lambda document: checked.update(Checked.of(document)))
        return checked

    # When it is checked in one process and by ranges, both find the same
    alone, found = on(place, check_table), check_by_ranges()
    assert (found.rows, found.streams) == (alone.rows, alone.streams)
    assert {fault.stream for fault in found.faults} == {first, last}
    assert sorted(found.faults, key=str) == sorted(alone.faults, key=str)

    # And what can be repaired is, on the workers
    repaired = check_by_ranges(repair=True)
    assert {fault.stream for fault in repaired.repaired} == {first}
    assert {fault.stream for fault in on(place, check_table).faults} == {last}


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


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("handler",), "Nope")],
        [EqualTo(("handler",), "a-b"), EqualTo(("handler",), "Nope")],
        [GreaterThan(("now",), to_datetime(NOW)), LessThan(("now",), to_datetime(NOW - 1))],
    ],
)
def test_conditions_that_no_row_meets_are_no_errors(diaries, monkeypatch, filters):
    async def owned(_):
        return TableSettings(TableOwner("app", frozenset({"Diary"})))

    monkeypatch.setattr(TableSettings, "of", owned)
    read = reader(diaries, TableKind.VERSIONS)

    assert read.pushFilters(filters) == filters
    assert [list(read.read(part)) for part in read.partitions()]


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
