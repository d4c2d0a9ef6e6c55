from __future__ import annotations

from eventstore import DuplicateEventError, EventData, Partition, Stream


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
