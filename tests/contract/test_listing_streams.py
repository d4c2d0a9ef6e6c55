"""Listing the streams of a table, all of them or range by range."""

import pickle
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import (
    EventData,
    InterceptedTable,
    KeyRange,
    Operation,
    Partition,
    Stream,
    list_streams,
    split_streams,
)
from tests.support.names import new_name


async def listed(table, keys: KeyRange | str = "", header=None):
    return [stream async for stream in list_streams(table, keys, header=header)]


def keys_of(streams):
    return [stream.partition.key for stream in streams]


@pytest.fixture
def provision(run):
    async def provision_all(table, keys):
        for key in keys:
            await Stream.provision(Partition.exact(table, key), {"Key": key})

    return lambda table, keys: run(provision_all(table, keys))


def test_streams_come_in_the_order_of_their_keys_and_can_be_written(run, table, provision):
    provision(table, ["b", "c", "a"])

    streams = run(listed(table))

    assert keys_of(streams) == ["a", "b", "c"]
    assert streams == [run(Stream.open(Partition(table, key))) for key in "abc"]
    assert run(Stream.write(streams[0], EventData({"N": 1}))).stream.version == 1


def test_a_prefix_may_hold_any_character(run, table, provision):
    keys = [f"a{one}{other}" for one in SPECIAL for other in ("", "b", "😀")]
    keys += ["game-1", "game-10", "game-2", "game", "gamf", "Game-1", "gam"]
    provision(table, keys)

    for prefix in ["a", *(f"a{one}" for one in SPECIAL), "game-1", "game", "x"]:
        found = keys_of(run(listed(table, prefix)))
        assert sorted(found) == sorted(key for key in keys if key.startswith(prefix))


SPECIAL = "/\\#?%',~}.$\"| \x1f\x7f\x85\u2028é😀"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sets(st.text(st.sampled_from("ab/~}é😀"), min_size=1, max_size=4), max_size=12),
    prefix=st.text(st.sampled_from("ab/~}é😀"), max_size=2),
    parts=st.integers(1, 6),
)
def test_the_ranges_hold_each_key_once(run, store, provision, keys, prefix, parts):
    table = run(store.table(new_name()))
    provision(table, sorted(keys))
    expected = [key for key in keys if key.startswith(prefix)]

    ranges = run(split_streams(table, parts, prefix))

    assert 1 <= len(ranges) <= parts
    assert sorted(key for keys in ranges for key in keys_of(run(listed(table, keys)))) == sorted(expected)


def test_ranges_are_about_equal_and_hold_new_keys_too(run, table, provision):
    provision(table, [f"game-{number:03}" for number in range(60)])

    ranges = run(split_streams(table, 4, "game-"))
    counts = [len(run(listed(table, keys))) for keys in ranges]
    provision(table, ["game-", "game-0300", "game-999", "other"])

    assert counts == [15, 15, 15, 15]
    found = [key for keys in ranges for key in keys_of(run(listed(table, keys)))]
    assert len(found) == 63
    assert found == sorted(found)
    assert pickle.loads(pickle.dumps(ranges)) == ranges


def test_of_many_streams_few_keys_are_kept(run, provision, store):
    table = run(store.table(new_name()))
    provision(table, [one + other for one in string.ascii_letters for other in string.ascii_letters[:9]])

    ranges = run(split_streams(table, 2))

    counts = [len(run(listed(table, keys))) for keys in ranges]
    assert sum(counts) == 468
    assert abs(counts[0] - counts[1]) <= 8


def test_there_is_at_least_one_range(run, table):
    assert run(split_streams(table, 8)) == [KeyRange()]
    with pytest.raises(ValueError, match="not into 0"):
        run(split_streams(table, 0))


def test_what_is_no_stream_is_not_listed_and_named_properties_are_read_only(run, table, provision):
    run(Stream.provision(Partition(table, "a"), {"Owner": "me", "Large": b"x" * 1000}))
    provision(table, ["deleted"])
    run(Stream.delete(Partition(table, "deleted")))
    run(table.transact("other", [Operation.insert("SS-HEAD", {"Whatever": 1})]))
    run(table.transact("more", [Operation.insert("row", {"Version": 1})]))

    for header, kept in ((None, {"Owner", "Large"}), ([], set()), (["Owner"], {"Owner"})):
        (stream,) = run(listed(table, header=header))
        assert (stream.partition.key, set(stream.properties), stream.version) == ("a", kept, 0)
        assert stream.partial == (header is not None)


def test_a_thousand_streams_are_one_request(run, table, provision):
    provision(table, [f"{number:04}" for number in range(1001)])
    watched = InterceptedTable(table)

    assert len(run(listed(watched, header=[]))) == 1001
    assert watched.counts == {"scan": 2}
    run(split_streams(watched, 4))
    assert watched.counts == {"scan": 4}
