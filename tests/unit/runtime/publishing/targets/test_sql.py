"""A batch in a database: each output once, in the table of its type, with a marker for each slice."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from eventstore import Operation, connect
from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import PublishOptions, SliceName, TargetOptions
from runtime.publishing.records import PARTITION, SLICE, rows_of
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.sql import SqlitePublisher
from tests.publishing.servers import postgres_server
from tests.support.done_batches import outcome, output
from tests.unit.runtime.publishing import conftest


@dataclass
class Database:
    """A database, and what it answers to a statement."""

    url: str
    query: Callable[[str], list[Any]]

    def ids(self, *tables: str) -> list[str]:
        """Return the ids in some tables, sorted."""
        return sorted(row[0] for table in tables for row in self.query(f'SELECT message_id FROM "{table}"'))


@pytest.fixture(scope="module")
def server():
    with postgres_server() as url:
        yield url


@pytest.fixture
def sqlite(tmp_path):
    file = tmp_path / "published.db"
    return Database(f"sqlite:///{file}", lambda statement: conftest.query(file, statement))


def test_a_store_is_no_target_under_any_name(tmp_path):
    async def make() -> None:
        async with connect(f"sqlite:///{tmp_path}/store.db") as store:
            await store.table("games")

    asyncio.run(make())
    (tmp_path / "linked.db").hardlink_to(tmp_path / "store.db")
    target = open_target(f"sqlite:///{tmp_path}/linked.db", TargetOptions())

    with pytest.raises(UsageError, match="is a store"):
        asyncio.run(target.prepare(["Hit"]))


@pytest.fixture
def postgres(server):
    def query(statement):
        with psycopg.connect(server) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    with psycopg.connect(server) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return Database(server, query)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.thorough)])
def database(request):
    return request.getfixturevalue(request.param)


def test_each_output_is_in_the_table_of_its_type(batch, database):
    done = batch.publish(database.url, names={"Hit": "hits"})

    assert (done.slices, done.outputs) == (3, 24)
    assert database.ids("hits", "Missed") == sorted(batch.ids)
    columns = "message_id, type, business_id, handler, sequence, batch_id"
    assert database.query(f"SELECT {columns} FROM hits WHERE message_id = 'g1-2'") == [
        ("g1-2", "Hit", "g1", "ShootingRange", 2, "b1")
    ]
    values = "body->>'number', headers->>'trace'"
    (found,) = database.query(f"SELECT {values} FROM hits WHERE message_id = 'g1-2'")
    assert (str(found[0]), found[1]) == ("2", "g1-2")
    assert len(database.query("SELECT * FROM consistent_slices")) == 3


def test_a_marker_keeps_a_slice_out_although_the_table_knows_nothing_of_it(batch, database):
    batch.publish(database.url)
    assert batch.publish(database.url).slices == 0
    database.query('DROP TABLE "Hit"')

    async def forget_slices(table):
        async for row in rows_of(table, SLICE):
            await table.transact(PARTITION, [Operation.delete(row.row_key)])

    batch.on_table(forget_slices)
    again = batch.publish(database.url)

    assert (again.slices, again.outputs, database.ids("Hit")) == (3, 0, [])


def test_a_publication_goes_on_with_its_number_of_slices(batch, sqlite):
    batch.publish(sqlite.url, PublishOptions(slices=2))

    with pytest.raises(UsageError, match="begun with 2 slices"):
        batch.publish(sqlite.url, PublishOptions(slices=5))


def test_a_slice_that_fails_is_rolled_back_and_goes_on_once_the_cause_is_mended(batch, sqlite):
    sqlite.query('CREATE TABLE "Hit" (message_id TEXT PRIMARY KEY)')

    with pytest.raises(TargetError, match="no column"):
        batch.publish(sqlite.url)
    assert sqlite.ids("Missed") == []

    sqlite.query('DROP TABLE "Hit"')
    batch.publish(sqlite.url)
    assert sqlite.ids("Hit", "Missed") == sorted(batch.ids)


@asynccontextmanager
async def two_publishers(target):
    await target.prepare([])
    async with AsyncExitStack() as stack:
        publishers = target.publisher(), target.publisher()
        for each in publishers:
            stack.push_async_callback(each.close)
        yield publishers


@pytest.mark.thorough
def test_a_transaction_of_the_same_slice_waits_and_then_finds_the_marker(postgres):
    target = open_target(postgres.url)

    async def both():
        async with two_publishers(target) as (first, second):
            assert await first.open(SliceName("p", 0))
            waiting = asyncio.create_task(second.open(SliceName("p", 0)))
            await asyncio.wait([waiting], timeout=0.3)
            assert not waiting.done()
            await first.commit()
            return await waiting

    assert not asyncio.run(both())


@pytest.mark.thorough
def test_a_database_that_answers_no_more_is_unavailable(postgres):
    target = open_target(postgres.url, TargetOptions(timeout=timedelta(seconds=1)))

    async def waits():
        async with two_publishers(target) as (first, second):
            assert await first.open(SliceName("p", 0))
            with pytest.raises(TargetUnavailableError, match="did not answer within 1 s"):
                await second.open(SliceName("p", 0))  # waits for the first one
            await first.roll_back()
            assert await second.open(SliceName("p", 0))

    asyncio.run(waits())


def test_a_row_that_an_attempt_was_refused_and_the_next_one_sends_is_no_letter(batch, sqlite, monkeypatch):
    sqlite.query(TABLE + "CHECK (business_id <> 'g1'))")

    async def die(_: object) -> None:
        raise SystemError("killed before the commit")

    with monkeypatch.context() as killed:
        killed.setattr(SqlitePublisher, "commit", die)
        with pytest.raises(SystemError):
            batch.publish(sqlite.url)
    sqlite.query('DROP TABLE "Hit"')

    assert batch.publish(sqlite.url, PublishOptions(slices=3, take_over=True)).refused == []
    assert sqlite.ids("Hit", "Missed") == sorted(batch.ids)


BODY = "body TEXT, sequence INTEGER, enqueued_at TEXT, headers TEXT, batch_id TEXT"
TABLE = (
    f'CREATE TABLE "Hit" (message_id TEXT PRIMARY KEY, type TEXT, business_id TEXT, handler TEXT, {BODY}, '
)
ABORTING = """CREATE TRIGGER never BEFORE INSERT ON "Hit" WHEN NEW.business_id = 'odd'
    BEGIN SELECT RAISE(ABORT, 'never'); END"""
RAISING = """CREATE FUNCTION never() RETURNS TRIGGER LANGUAGE plpgsql AS
    $$BEGIN IF NEW.business_id = 'odd' THEN RAISE EXCEPTION 'never'; END IF; RETURN NEW; END$$"""
NUMBER = "number INTEGER NOT NULL GENERATED ALWAYS AS"
REFUSING = {
    "check": [f"{TABLE} CHECK (business_id <> 'odd'))"],
    "unique": [f"{TABLE} UNIQUE (sequence))"],
    "sqlite: not null": [f"{TABLE} {NUMBER} (json_extract(body, '$.number')) STORED)"],
    "sqlite: an expression": [f"{TABLE} CHECK (business_id <> 'odd' OR json(business_id)))"],
    "sqlite: a trigger": [f"{TABLE} x TEXT)", ABORTING],
    "postgres: not null": [f"{TABLE} {NUMBER} ((body::json->>'number')::int) STORED)"],
    "postgres: jsonb": [TABLE.replace("body TEXT", "body JSONB") + "x TEXT)"],
    "postgres: a trigger": [
        f"{TABLE} x TEXT)",
        RAISING,
        'CREATE TRIGGER never BEFORE INSERT ON "Hit" FOR EACH ROW EXECUTE FUNCTION never()',
    ],
    "postgres: a type": [TABLE.replace("sequence INTEGER", "sequence SMALLINT") + "x TEXT)"],
    "postgres: an index": [f"{TABLE} x TEXT)", 'CREATE INDEX odd ON "Hit" (headers)'],
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.thorough if "postgres" in kind else ()) for kind in REFUSING],
)
def test_a_row_that_the_database_refuses_is_a_letter_and_holds_back_no_other(request, make_of, kind):
    database = request.getfixturevalue("postgres" if kind.startswith("postgres") else "sqlite")
    for statement in REFUSING[kind]:
        database.query(statement)
    odd = output("odd", 40_000 if kind.endswith("type") else 4, body=r'{"number": null, "x": "\u0000"}')
    odd["headers"] = [("trace", "".join(map(chr, range(0x4E00, 0x8E00))))]
    rows = [outcome(f"g{number}", output(f"g{number}", number)) for number in range(9)]
    batch = make_of([[*rows, outcome("odd", odd)]])
    options = PublishOptions(slices=2)

    done, again = batch.publish(database.url, options), batch.publish(database.url, options)

    refused = done.refused
    # In a unique column either of two may be refused.
    assert [each.message_id for each in refused] in ([["odd"], ["g4"]] if kind == "unique" else [["odd"]])
    assert refused[0].why
    assert (done.outputs, again.outputs, again.refused) == (9, 0, refused)
    assert sorted([*database.ids("Hit"), refused[0].message_id]) == sorted(batch.ids)
    database.query('DROP TABLE "Hit"')
    assert batch.redriven(database.url, options).outputs == 1
    assert database.ids("Hit") == [refused[0].message_id]
    assert batch.publish(database.url, options).refused == []


TWO_TYPES = [[outcome("g", output("a", 1, "Hit"), output("b", 2, "hit"))]]


@pytest.mark.parametrize("there", ["Hit", "hit", None])
def test_types_that_differ_in_their_case_are_two_tables_or_refused(make_of, sqlite, there):
    batch = make_of(TWO_TYPES)
    if there:  # by an earlier batch
        sqlite.query(f'CREATE TABLE "{there}" (message_id TEXT)')

    with pytest.raises(UsageError, match=r"--map [Hh]it=NAME"):
        batch.publish(sqlite.url)
    sqlite.query(f'DROP TABLE IF EXISTS "{there}"')
    batch.publish(sqlite.url, names={"hit": "small"})

    assert (sqlite.ids("Hit"), sqlite.ids("small")) == (["a"], ["b"])


@pytest.mark.thorough
def test_postgresql_tells_types_apart_by_their_case_and_cannot_store_every_text(make_of, postgres):
    batch = make_of([[*TWO_TYPES[0], outcome("g\x00", output("bad", 1))]])

    done = batch.publish(postgres.url, PublishOptions(slices=1))

    assert (postgres.ids("Hit"), postgres.ids("hit")) == (["a"], ["b"])
    assert [each.message_id for each in done.refused] == ["bad"]


@pytest.mark.parametrize(
    "name", ["consistent_slices", "Consistent_Slices", "public.consistent_slices", 'a"; drop table x']
)
def test_a_name_that_no_table_of_outputs_can_have_is_refused_before_anything_is_sent(batch, sqlite, name):
    with pytest.raises(UsageError, match="--map Hit=NAME"):
        batch.publish(sqlite.url, names={"Hit": name})

    assert sqlite.query("SELECT * FROM sqlite_master") == []


@pytest.mark.parametrize(
    ("there", "type_"),
    [
        ('CREATE VIEW "Hit" AS SELECT 1', "Hit"),
        ('CREATE TABLE "Hit" (message_id TEXT PRIMARY KEY)', "Hit"),
        ('CREATE TABLE t (x TEXT); CREATE INDEX "Hit" ON t (x)', "Hit"),
        ("", "games.Hit"),
        ("", "sqlite_x"),
        ("", "pg_class"),
    ],
)
def test_a_table_that_is_for_something_else_stops_the_batch_and_names_the_map(
    make_of, database, there, type_
):
    for statement in filter(None, there.split(";")):
        database.query(statement)
    batch, is_postgres = make_of([[outcome("g", output("a", 1, type_))]]), "postgresql" in database.url

    if (type_, is_postgres) in {("sqlite_x", True), ("pg_class", False)}:
        assert batch.publish(database.url).outputs == 1
        return
    with pytest.raises(TargetError, match="--map"):
        batch.publish(database.url, PublishOptions(attempts=1))
    assert batch.publish(database.url, names={type_: "hits"}).outputs == 1


@pytest.mark.parametrize("door", ["publish", "redriven"])
def test_the_first_connection_is_tried_again_as_often_as_any(make_of, sqlite, door):
    for statement in REFUSING["check"]:
        sqlite.query(statement)
    batch = make_of([[outcome("odd", output("odd", 1))]])
    if door == "redriven":
        batch.publish(sqlite.url)

    def target(failures):
        found = batch.target(sqlite.url)
        prepare, answers = found.prepare, iter([TargetUnavailableError("down")] * failures)

        async def prepared(types):
            if error := next(answers, None):
                raise error
            await prepare(types)

        found.prepare = prepared
        return found

    work = getattr(batch, door)
    with pytest.raises(TargetUnavailableError):
        work(target(2), PublishOptions(attempts=2))
    assert len(work(target(2), PublishOptions(attempts=3)).refused) == 1


def test_a_file_that_is_locked_is_waited_for_as_long_as_is_said(batch, sqlite):
    batch.publish(sqlite.url)
    with closing(sqlite3.connect(sqlite.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        options = PublishOptions(attempts=2, types=["Hit"])
        with pytest.raises(TargetUnavailableError, match="locked"):
            batch.publish(sqlite.url, options, timeout=timedelta(seconds=0.2))

    assert time.monotonic() - began < 10


def test_a_database_that_is_not_there_is_told_without_its_password(batch):
    with pytest.raises(TargetError, match=r"127\.0\.0\.1:9") as told:
        batch.publish("postgresql://user:hunter2@127.0.0.1:9/games", PublishOptions(attempts=1))

    assert "hunter2" not in str(told.value)
