"""A batch in an SQLite file: each output once, in the table of its type, with a marker for each slice."""

from __future__ import annotations

import asyncio

import pytest

from runtime.errors import TargetError, UsageError
from runtime.publishing.publisher import SliceName
from runtime.publishing.runner import PublishOptions
from runtime.publishing.targets.choice import open_target
from tests.unit.runtime.publishing.conftest import query


@pytest.fixture
def file(tmp_path):
    return tmp_path / "published.db"


def ids(file, table):
    return {row[0] for row in query(file, f'SELECT message_id FROM "{table}"')}


def test_each_output_is_in_the_table_of_its_type(batch, file):
    done = batch.publish(f"sqlite:///{file}", names={"Hit": "hits"})

    assert (done.slices, done.outputs) == (3, 24)
    assert ids(file, "hits") | ids(file, "Missed") == batch.ids
    row = query(file, "SELECT * FROM hits WHERE message_id = 'g1-2'")[0]
    assert row == (
        "g1-2", "Hit", "g1", "ShootingRange", '{"number": 2}', 2, "2026-03-01T12:00:02+00:00", '{"trace": "g1-2"}', "b1"
    )  # fmt: skip
    assert len(query(file, "SELECT * FROM consistent_slices")) == 3


def test_what_was_sent_is_not_sent_again(batch, file):
    batch.publish(f"sqlite:///{file}")
    query_before = query(file, 'SELECT * FROM "Hit"')

    again = batch.publish(f"sqlite:///{file}")

    assert (again.slices, again.outputs) == (0, 0)
    assert query(file, 'SELECT * FROM "Hit"') == query_before


def test_a_marker_keeps_a_slice_out_although_the_table_knows_nothing_of_it(batch, file):
    batch.publish(f"sqlite:///{file}")
    with_markers = open_target(f"sqlite:///{file}").publisher()
    (publication, number), *_ = query(file, "SELECT publication, slice FROM consistent_slices")

    async def opened():
        try:
            return await with_markers.open(SliceName(publication, number))
        finally:
            await with_markers.close()

    assert not asyncio.run(opened())


def test_two_runners_at_once_share_the_slices(make, file):
    batch = make(30, 6)
    options = PublishOptions(slices=12)

    async def both():
        url = f"sqlite:///{file}"
        return await asyncio.gather(batch.published(url, options), batch.published(url, options))

    first, second = asyncio.run(both())

    assert first.slices + second.slices == 12
    assert ids(file, "Hit") | ids(file, "Missed") == batch.ids


def test_a_publication_goes_on_with_its_number_of_slices(batch, file):
    batch.publish(f"sqlite:///{file}", PublishOptions(slices=2))

    with pytest.raises(UsageError, match="begun with 2 slices"):
        batch.publish(f"sqlite:///{file}", PublishOptions(slices=5))


def test_a_name_that_no_table_can_have_is_refused_before_anything_is_sent(batch, file):
    with pytest.raises(UsageError, match="--map Hit=NAME"):
        batch.publish(f"sqlite:///{file}", names={"Hit": 'a"; drop table x'})

    assert not file.exists()


def test_a_slice_that_fails_is_rolled_back_and_goes_on_once_the_cause_is_mended(batch, file):
    query(file, 'CREATE TABLE "Hit" (message_id TEXT PRIMARY KEY)')

    with pytest.raises(TargetError, match="no column"):
        batch.publish(f"sqlite:///{file}")
    assert query(file, 'SELECT count(*) FROM "Missed"') == [(0,)]

    query(file, 'DROP TABLE "Hit"')
    batch.publish(f"sqlite:///{file}")
    assert ids(file, "Hit") | ids(file, "Missed") == batch.ids


def test_types_that_are_not_asked_for_stay(batch, file):
    done = batch.publish(f"sqlite:///{file}", PublishOptions(types=["Missed"]))

    assert done.outputs == len(ids(file, "Missed")) == 12
    assert query(file, "SELECT name FROM sqlite_master WHERE name = 'Hit'") == []
