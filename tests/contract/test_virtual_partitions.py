from __future__ import annotations

import pytest

from eventstore import DuplicateEventError, EventData, Operation, Partition, Stream


def test_both_spellings_are_one_place(run, table, contents):
    run(Stream.write(Partition(table, "orders-7|items"), EventData({"N": 1}, id="i"), expected_version=0))

    assert [row.row_key for row in contents()] == [
        "items|SS-HEAD",
        "items|SS-SE-0000000001",
        "items|SS-UID-i",
    ]
    assert run(Stream.read(Partition(table, "orders-7", "items"))).has_events


def test_streams_in_one_partition_are_independent(run, table):
    first, second, whole = (Partition(table, key) for key in ("orders-7|a", "orders-7|b", "orders-7"))
    for number, partition in enumerate((first, second, whole), 1):
        run(Stream.write(partition, EventData({"N": number}, id="same id"), expected_version=0))
    run(Stream.write(first, EventData({"N": 9}), expected_version=1))

    assert [event.properties["N"] for event in run(Stream.read(first)).events] == [1, 9]
    assert [event.properties["N"] for event in run(Stream.read(second)).events] == [2]
    assert [event.properties["N"] for event in run(Stream.read(whole)).events] == [3]


def test_ids_are_those_of_their_own_stream(run, table, refuses):
    first, second = Partition(table, "orders-7|a"), Partition(table, "orders-7|b")
    run(Stream.write(first, EventData({"N": 1}, id="i"), expected_version=0))
    stream = run(Stream.write(second, EventData({"N": 1}, id="i"), expected_version=0)).stream

    with refuses(DuplicateEventError) as raised:
        run(Stream.write(stream, EventData({"N": 2}, id="i")))

    assert (raised.value.stream, raised.value.event_id) == ("orders-7|b", "i")


def test_truncating_one_stream_leaves_its_siblings_alone(run, table):
    first, second = Partition(table, "orders-7|a"), Partition(table, "orders-7|ab")
    for partition in (first, second):
        events = [EventData({"N": number}, id=f"i{number}") for number in (1, 2, 3)]
        run(Stream.write(partition, *events, expected_version=0))

    run(Stream.truncate(run(Stream.open(first)), 3))

    assert len(run(Stream.read(first)).events) == 1
    assert len(run(Stream.read(second)).events) == 3


def test_a_separator_in_the_key_of_an_exact_partition_does_not_split_it(run, table, contents):
    exact = Partition.exact(table, "orders|7")
    run(Stream.write(exact, EventData({"N": 1}), expected_version=0))

    assert [row.row_key for row in contents("orders|7")] == ["SS-HEAD", "SS-SE-0000000001"]
    assert run(Stream.try_read(Partition(table, "orders|7"))) is None


@pytest.mark.parametrize("cut", [lambda s: Stream.truncate(s, 3), Stream.delete])
@pytest.mark.parametrize("prefix", ["", "a|"])
def test_cutting_a_stream_takes_nothing_of_those_whose_prefix_is_like_it(run, table, contents, cut, prefix):
    def place(beginning):
        return Partition.exact(table, "orders-7", beginning)

    events = [EventData({"N": number}, id=f"i{number}") for number in (1, 2)]
    stream = run(Stream.write(place(prefix), *events, expected_version=0)).stream
    for beginning in (f"{prefix}SS", f"{prefix}b|", f"{prefix}UID-|"):
        run(Stream.write(place(beginning), *events, expected_version=0))

    run(cut(stream))

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
    assert [event.properties for event in found.events] == [{"N": 1}]
    run(Stream.write(found.stream, EventData({"N": 2})))
    assert [row.row_key for row in contents()] == [
        "7SS-HEAD",
        "7SS-SE-0000000001",
        "7SS-SE-0000000002",
        "7SS-UID-i",
    ]
    run(Stream.delete(theirs))
    assert [row.row_key for row in contents()] == ["7SS-HEAD"]
