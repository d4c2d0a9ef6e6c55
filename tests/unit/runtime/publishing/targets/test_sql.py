"""A batch in a database: each output once, in the table of its type, with a marker for each slice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from runtime.errors import TargetError, UsageError
from runtime.publishing.publisher import PublishOptions, SliceName
from runtime.publishing.targets.choice import open_target
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


@pytest.fixture
def postgres(server):
    def query(statement):
        with psycopg.connect(server) as connection:
            return connection.execute(statement).fetchall()

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
    assert database.query(f"SELECT {values} FROM hits WHERE message_id = 'g1-2'") in (
        [("2", "g1-2")],
        [(2, "g1-2")],
    )
    assert len(database.query("SELECT * FROM consistent_slices")) == 3


def test_what_was_sent_is_not_sent_again(batch, database):
    batch.publish(database.url)
    before = database.query('SELECT * FROM "Hit"')

    again = batch.publish(database.url)

    assert (again.slices, again.outputs) == (0, 0)
    assert database.query('SELECT * FROM "Hit"') == before


def test_a_marker_keeps_a_slice_out_although_the_table_knows_nothing_of_it(batch, database):
    batch.publish(database.url)
    publisher = open_target(database.url).publisher()
    (publication, number), *_ = database.query("SELECT publication, slice FROM consistent_slices")

    async def opened():
        try:
            return await publisher.open(SliceName(publication, number))
        finally:
            await publisher.close()

    assert not asyncio.run(opened())


def test_two_runners_at_once_share_the_slices(make, database):
    batch, options = make(20, 4), PublishOptions(slices=8)

    async def both():
        return await asyncio.gather(*(batch.published(database.url, options) for _ in range(2)))

    first, second = asyncio.run(both())

    assert first.slices + second.slices == 8
    assert database.ids("Hit", "Missed") == sorted(batch.ids)


def test_a_publication_goes_on_with_its_number_of_slices(batch, sqlite):
    batch.publish(sqlite.url, PublishOptions(slices=2))

    with pytest.raises(UsageError, match="begun with 2 slices"):
        batch.publish(sqlite.url, PublishOptions(slices=5))


def test_a_name_that_no_table_can_have_is_refused_before_anything_is_sent(batch, sqlite):
    with pytest.raises(UsageError, match="--map Hit=NAME"):
        batch.publish(sqlite.url, names={"Hit": 'a"; drop table x'})

    assert sqlite.query("SELECT * FROM sqlite_master") == []


def test_a_slice_that_fails_is_rolled_back_and_goes_on_once_the_cause_is_mended(batch, sqlite):
    sqlite.query('CREATE TABLE "Hit" (message_id TEXT PRIMARY KEY)')

    with pytest.raises(TargetError, match="no column"):
        batch.publish(sqlite.url)
    assert sqlite.ids("Missed") == []

    sqlite.query('DROP TABLE "Hit"')
    batch.publish(sqlite.url)
    assert sqlite.ids("Hit", "Missed") == sorted(batch.ids)


def test_types_that_are_not_asked_for_stay(batch, sqlite):
    done = batch.publish(sqlite.url, PublishOptions(types=["Missed"]))

    assert done.outputs == len(sqlite.ids("Missed")) == 12
    assert sqlite.query("SELECT name FROM sqlite_master WHERE name = 'Hit'") == []


@pytest.mark.thorough
def test_a_transaction_of_the_same_slice_waits_and_then_finds_the_marker(postgres):
    target = open_target(postgres.url)

    async def both():
        await target.prepare([])
        first, second = target.publisher(), target.publisher()
        assert await first.open(SliceName("p", 0))
        waiting = asyncio.create_task(second.open(SliceName("p", 0)))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        await first.commit()
        is_new = await waiting
        await first.close()
        await second.close()
        return is_new

    assert not asyncio.run(both())


@pytest.mark.thorough
def test_text_that_postgresql_cannot_store_is_a_dead_letter(make_of, postgres):
    batch = make_of([[outcome("g\x00", output("bad", 1)), outcome("g", output("good", 2))]])

    done = batch.publish(postgres.url, PublishOptions(slices=1))

    assert [each.message_id for each in done.refused] == ["bad"]
    assert postgres.ids("Hit") == ["good"]


def test_a_database_that_is_not_there_is_told_without_its_password(batch):
    with pytest.raises(TargetError, match=r"127\.0\.0\.1:9") as told:
        batch.publish("postgresql://user:hunter2@127.0.0.1:9/games", PublishOptions(attempts=1))

    assert "hunter2" not in str(told.value)
