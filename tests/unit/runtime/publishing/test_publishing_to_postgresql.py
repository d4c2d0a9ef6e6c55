"""A batch in a PostgreSQL database: each output once, and of two transactions of a slice one is let in."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from runtime.errors import TargetError
from runtime.publishing.publisher import SliceName
from runtime.publishing.runner import PublishOptions
from runtime.publishing.targets.choice import open_target
from tests.publishing.servers import postgres_server
from tests.support.done_batches import outcome, output

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def server():
    with postgres_server() as url:
        yield url


@pytest.fixture
def database(server):
    with psycopg.connect(server) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return server


def query(database, statement):
    with psycopg.connect(database) as connection:
        return connection.execute(statement).fetchall()


def test_each_output_is_in_the_table_of_its_type(batch, database):
    done = batch.publish(database, names={"Hit": "public.hits"})

    assert done.outputs == 24
    ids = query(database, 'SELECT message_id FROM hits UNION ALL SELECT message_id FROM "Missed"')
    assert sorted(row[0] for row in ids) == sorted(batch.ids)
    assert query(
        database, "SELECT body->>'number', headers->>'trace' FROM hits WHERE message_id = 'g1-2'"
    ) == [("2", "g1-2")]


def test_two_runners_at_once_share_the_slices(make, database):
    batch = make(20, 4)
    options = PublishOptions(slices=8)

    async def both():
        return await asyncio.gather(batch.published(database, options), batch.published(database, options))

    first, second = asyncio.run(both())

    assert first.slices + second.slices == 8
    count = query(database, 'SELECT (SELECT count(*) FROM "Hit") + (SELECT count(*) FROM "Missed")')
    assert count == [(80,)]


def test_a_transaction_of_the_same_slice_waits_and_then_finds_the_marker(batch, database):
    target = open_target(database)

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


def test_text_that_it_cannot_store_is_a_dead_letter(make_of, database):
    batch = make_of([[outcome("g\x00", output("bad", 1)), outcome("g", output("good", 2))]])

    done = batch.publish(database, PublishOptions(slices=1))

    assert [(each.message_id, each.why[:30]) for each in done.refused] == [
        ("bad", "PostgreSQL has no text with th")
    ]
    assert query(database, 'SELECT message_id FROM "Hit"') == [("good",)]


def test_a_database_that_is_not_there_is_told_without_its_password(batch):
    with pytest.raises(TargetError, match=r"127\.0\.0\.1:9") as told:
        batch.publish("postgresql://user:hunter2@127.0.0.1:9/games", PublishOptions(attempts=1))

    assert "hunter2" not in str(told.value)
