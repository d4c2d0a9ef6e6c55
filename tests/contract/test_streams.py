"""Opening, provisioning and restoring a stream, its properties, and streams that share a partition."""

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    InterceptedTable,
    Operation,
    Partition,
    Stream,
    Value,
)
from tests.support.streams import event, events, events_with_ids, versions

OWNED: dict[str, Value | None] = {"Owner": "me", "Limit": 3}


@pytest.fixture
def stream(run, partition):
    return run(Stream.provision(partition, OWNED))


def test_other_rows_in_the_partition_are_no_stream(run, table, partition):
    run(table.transact(partition.key, [Operation.insert("SS-SE-0000000001", {"Version": 1})]))
    run(Stream.provision(Partition(table, partition.key, "other")))

    assert not run(Stream.exists(partition))


@pytest.mark.parametrize("properties", [None, {**OWNED, "Nothing": None}])
def test_a_new_stream_is_at_version_0_has_one_row_and_is_not_provisioned_again(
    run, partition, contents, refuses, properties
):
    stream = run(Stream.provision(partition, properties))

    kept = OWNED if properties else {}
    assert (stream.version, stream.properties) == (0, kept)
    (header,) = contents()
    found = (header.row_key, header.etag, header.properties)
    assert found == ("SS-HEAD", stream.etag, {"Version": 0, **kept})
    assert run(Stream.exists(partition))
    run(Stream.write(Partition(partition.table, "orders-8"), event(1), expected_version=0))
    for place in (partition, Partition(partition.table, "orders-8")):
        with refuses(ConcurrencyConflictError, match="exists already"):
            run(Stream.provision(place, {"Owner": "you"}))


def test_setting_the_properties_replaces_all_of_them_and_a_write_keeps_or_replaces_them(
    run, partition, stream, refuses
):
    changed = run(Stream.set_properties(stream, {"Owner": "you", "Nothing": None}))

    assert changed.properties == {"Owner": "you"}
    assert changed.etag != stream.etag
    assert run(Stream.open(partition)) == changed
    with refuses(ConcurrencyConflictError):
        run(Stream.set_properties(stream, {"Owner": "she"}))
    with refuses(ValueError, match="transient"):
        run(Stream.set_properties(Stream(partition), {"Owner": "me"}))
    for given, kept in ((None, {"Owner": "you"}), (OWNED, OWNED)):
        changed = run(Stream.write(changed, event(1), properties=given)).stream
        assert changed.properties == kept
        assert changed == run(Stream.open(partition)) == run(Stream.try_open(partition))
    other = Partition(partition.table, "orders-8")
    run(Stream.write(Stream(other, properties={"Owner": "me"}), event(1)))
    assert run(Stream.open(other)).properties == {"Owner": "me"}


@pytest.mark.parametrize("name", ["Version", "FirstVersion", "Tombstone", "ETag", "Timestamp"])
def test_names_that_the_store_needs_are_refused(run, partition, stream, refuses, name):
    for write in (
        Stream.set_properties(stream, {name: 1}),
        Stream.write(stream, event(1), properties={name: 1}),
        Stream.provision(partition, {name: 1}),
        Stream.truncate(stream, 1, {name: 1}),
    ):
        with refuses(ValueError, match=name):
            run(write)


# A value that was kept elsewhere, as its parts.


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def cut(run, watched):
    """Give a stream with eight events, of which the first five have been cut away."""
    place = Partition(watched, "orders-7")
    written = run(Stream.write(place, *events(1, 8), expected_version=0, properties=OWNED)).stream
    cut = run(Stream.truncate(written, 6))
    watched.counts.clear()
    return cut


def restored(stream, **known):
    return Stream(stream.partition, stream.etag, stream.version, **known)


@pytest.mark.parametrize("known", [{}, {"properties": OWNED}, {"first_version": 6}])
def test_a_write_with_a_restored_value_keeps_what_is_not_known(run, watched, cut, known):
    written = run(Stream.write(restored(cut, **known), event(9))).stream
    run(Stream.write(written, event(10)))

    assert watched.counts == {"transact": 2}
    assert written.properties == known.get("properties")
    found = run(Stream.read(cut.partition))
    assert (found.stream.first_version, versions(found)) == (6, [6, 7, 8, 9, 10])
    assert found.stream.properties == OWNED
    run(Stream.write(restored(found.stream, properties={"Owner": "you"}), event(11)))
    assert run(Stream.open(cut.partition)).properties == {"Owner": "you", "Limit": 3}


REPLACING = [
    lambda stream: Stream.set_properties(stream, {"Owner": "you"}),
    lambda stream: Stream.write(stream, event(9), properties={"Owner": "you"}),
    lambda stream: Stream.truncate(stream, 6, {"Owner": "you"}),
]


@pytest.mark.parametrize("replace", REPLACING)
@pytest.mark.parametrize(
    ("known", "price"),
    [({}, 1), ({"properties": {"Limit": 3}}, 1), ({"first_version": 6}, 0)],
)
def test_replacing_the_properties_keeps_the_watermark_and_asks_for_it_when_it_is_not_known(
    run, watched, cut, refuses, replace, known, price
):
    run(replace(restored(cut, **known)))

    assert watched.counts["get"] == price
    found = run(Stream.read(cut.partition))
    assert (found.stream.first_version, versions(found)[:3]) == (6, [6, 7, 8])
    assert found.stream.properties == {"Owner": "you"}
    with refuses(ValueError, match="3"):
        run(Stream.truncate(restored(found.stream), 3))
    run(Stream.write(found.stream, event(0)))
    with refuses(ConcurrencyConflictError):
        run(replace(restored(cut)))


# Virtual partitions.


def test_streams_in_one_partition_are_independent(run, table, refuses):
    places = [Partition(table, key) for key in ("orders-7|a", "orders-7|ab", "orders-7")]
    for number, place in enumerate(places):
        stream = run(Stream.write(place, event(number, id="same id"), expected_version=0)).stream
        with refuses(DuplicateEventError) as raised:
            run(Stream.write(stream, event(9, id="same id")))
        assert (raised.value.stream, raised.value.event_id) == (str(place), "same id")
    cut = run(Stream.write(places[0], event(9), expected_version=1)).stream
    run(Stream.truncate(cut, 2))

    found = [run(Stream.read(place, ids=True)).events for place in places]
    assert [[each.properties["N"] for each in one] for one in found] == [[9], [1], [2]]
    assert [str(one[0].id) for one in found] == ["None", "same id", "same id"]


@pytest.mark.parametrize("cut_it", [lambda stream: Stream.truncate(stream, 3), Stream.delete])
@pytest.mark.parametrize("prefix", ["", "a|"])
def test_cutting_a_stream_takes_nothing_of_those_whose_prefix_is_like_it(
    run, table, contents, cut_it, prefix
):
    def write(beginning):
        place = Partition.exact(table, "orders-7", beginning)
        return run(Stream.write(place, *events_with_ids(1, 2), expected_version=0)).stream

    stream = write(prefix)
    for beginning in (f"{prefix}SS", f"{prefix}b|", f"{prefix}UID-|"):
        write(beginning)

    run(cut_it(stream))

    assert len(contents()) == 1 + 3 * 5


def test_a_prefix_without_a_separator_is_a_place_of_its_own(run, table, contents):
    """So Streamstone writes a partition that is given in three arguments."""
    rows = {
        "7SS-HEAD": {"Version": 1},
        "7SS-SE-0000000001": {"Version": 1, "N": 1},
        "7SS-UID-i": {"Version": 1},
    }
    run(table.transact("orders-7", [Operation.insert(key, values) for key, values in rows.items()]))
    theirs = Partition.exact(table, "orders-7", "7")

    assert run(Stream.try_read(Partition(table, "orders-7", "7"))) is None
    found = run(Stream.read(theirs))
    assert [each.properties for each in found.events] == [{"N": 1}]
    run(Stream.write(found.stream, EventData({"N": 2})))
    assert [row.row_key for row in contents()] == sorted([*rows, "7SS-SE-0000000002"])
    run(Stream.delete(theirs))
    assert [row.row_key for row in contents()] == ["7SS-HEAD"]
