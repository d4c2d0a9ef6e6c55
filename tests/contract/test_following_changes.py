"""Following a table by its headers: each pass gives the streams that have changed since the one before."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from eventstore import EventData, ExpectedVersion, InterceptedTable, Partition, Stream, changes, split_streams

ANY = ExpectedVersion.ANY


@pytest.fixture
def write(run, table):
    """Append an event to each of some streams."""

    def write(*keys):
        for key in keys:
            run(Stream.write(Partition.exact(table, key), EventData({"N": 1}), expected_version=ANY))

    return write


@pytest.fixture
def follow(run, table):
    """Make a pass; return the versions of the streams that it gives, and its position."""

    def follow(after=None, **options):
        async def collect():
            feed = changes(options.pop("table", table), after, **options)
            found = {change.stream.partition.key: change.stream.version async for change in feed}
            return found, feed.position

        return run(collect())

    return follow


def test_the_first_pass_gives_all_streams_and_the_next_ones_what_has_changed(write, follow):
    write("a", "b", "c")

    first, position = follow()
    second, position = follow(position)
    write("b", "d")
    third, position = follow(position)
    write("b")
    fourth, position = follow(position)
    fifth, _ = follow(position)

    assert first == {"a": 1, "b": 1, "c": 1}
    assert (second, third, fourth, fifth) == ({}, {"b": 2, "d": 1}, {"b": 3}, {})


def test_a_table_may_be_empty_at_first(write, follow):
    first, position = follow()
    write("a")
    second, position = follow(position)
    third, _ = follow(position)

    assert (first, second, third) == ({}, {"a": 1}, {})


def test_a_pass_whose_position_was_not_kept_is_repeated(write, follow):
    write("a")
    _, position = follow()
    write("b")

    assert follow(position)[0] == follow(position)[0] == {"b": 1}


def test_the_position_moves_when_all_changes_were_taken(run, table, write, follow):
    write("a", "b")
    _, position = follow()
    write("a", "b")

    async def take_one():
        feed = changes(table, position)
        change = await anext(aiter(feed))
        return change.stream.partition.key, feed.position

    assert run(take_one()) == ("a", position)
    assert follow(position)[0] == {"a": 2, "b": 2}


def test_what_changes_during_a_pass_comes_with_the_next_at_the_latest(table, write, follow):
    async def change(name, _key, number, _result):
        if (name, number) == ("scan", 2):
            for key in ("a", "new"):
                await Stream.write(Partition(table, key), EventData({"N": 2}), expected_version=ANY)

    write("a", "b")

    first, position = follow(table=InterceptedTable(table, after=change))
    second, _ = follow(position)

    assert first == {"a": 1, "b": 1}
    assert second == {"a": 2, "new": 1}


def test_every_change_counts_truncation_properties_and_deletion(run, table, write, follow):
    write("cut", "cut", "set", "gone", "same")
    _, position = follow()
    run(Stream.truncate(run(Stream.open(Partition(table, "cut"))), 2))
    run(Stream.set_properties(run(Stream.open(Partition(table, "set"))), {"Owner": "me"}))
    run(Stream.delete(Partition(table, "gone")))

    async def collect():
        return [change async for change in changes(table, position)]

    found = {change.stream.partition.key: change for change in run(collect())}
    assert {key: change.is_deleted for key, change in found.items()} == {
        "cut": False,
        "gone": True,
        "set": False,
    }
    assert found["cut"].stream.first_version == 2
    for change in found.values():
        assert change.time.tzinfo is UTC


def test_the_new_events_are_read_with_the_stream_that_is_given(run, table, write):
    write("a")

    async def read():
        return [
            await Stream.read_events(change.stream, 1, change.stream.version)
            async for change in changes(table)
        ]

    ((event,),) = run(read())
    assert event.properties == {"N": 1}


def test_readers_share_the_work_by_ranges(run, table, write, follow):
    keys = [f"k{number}" for number in range(10)]
    write(*keys)
    ranges = run(split_streams(table, 3, "k"))
    passes = [follow(keys=each) for each in ranges]

    assert sorted(key for found, _ in passes for key in found) == keys
    write("k0", "k9", "other")
    again = [follow(position, keys=each)[0] for each, (_, position) in zip(ranges, passes, strict=True)]
    assert again == [{"k0": 2}, {}, {"k9": 2}]


def test_a_pass_costs_a_request_for_each_1000_streams_and_the_first_twice_that(table, write, follow):
    write("a", "b")
    watched = InterceptedTable(table)

    _, position = follow(table=watched)
    assert watched.counts == {"scan": 2}
    follow(position, table=watched)
    assert watched.counts == {"scan": 3}


@pytest.mark.parametrize("position", ["", "x", "{}", "[1, 2]", '["2020", null, 7]', '[null, null, "?"]'])
def test_a_position_that_is_none_is_refused(follow, position):
    with pytest.raises(ValueError, match="No position of a pass"):
        follow(position, overlap=timedelta(0))
