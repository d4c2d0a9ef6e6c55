"""More events than a transaction takes: written in parts when that is asked for, and never otherwise."""

from __future__ import annotations

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    ExpectedVersion,
    Include,
    InterceptedTable,
    PartialWriteError,
    Partition,
    PayloadTooLargeError,
    StoreUnavailableError,
    Stream,
)

KIB = 1024


def numbered(first, last, **properties):
    return [EventData({"N": number, **properties}, id=f"id-{number}") for number in range(first, last + 1)]


def write(run, target, events, expected=0, **options):
    return run(Stream.write_in_parts(target, events, expected_version=expected, **options))


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def partition(watched):
    return Partition(watched, "orders-7")


def test_what_fits_is_one_transaction(run, watched, partition):
    result = write(run, partition, numbered(1, 49))

    assert watched.counts == {"transact": 1}
    assert result.stream.version == 49


def test_many_events_are_as_few_transactions_as_possible(run, watched, partition):
    result = write(run, partition, (EventData({"N": number}) for number in range(1, 301)))

    assert watched.counts == {"transact": 4}
    assert [event.version for event in result.events] == list(range(1, 301))
    assert run(Stream.open(partition)) == result.stream
    assert [event.properties["N"] for event in run(Stream.read(partition)).events] == list(range(1, 301))


def test_large_events_are_as_few_transactions_as_possible(run, watched, partition):
    large = {f"P{number}": b"x" * 64 * KIB for number in range(15)}

    write(run, partition, [EventData(large) for _ in range(7)])

    # A row of 960 KiB is sent as 1.25 MiB.
    assert watched.counts == {"transact": 3}


def binaries(number):
    return {f"P{index}": b"x" * 64 * KIB for index in range(number)}


def test_there_is_room_for_the_streams_properties_in_each_part(run, watched, partition):
    stream = run(Stream.provision(partition, binaries(10)))

    run(Stream.write_in_parts(stream, [EventData(binaries(8))] * 8))

    # The header takes 0.84 MiB of the 4, an event 0.67.
    assert watched.counts == {"transact": 1 + 2}
    assert run(Stream.open(partition)).properties == binaries(10)


@pytest.mark.parametrize("expected", [1, ExpectedVersion.ANY])
def test_stored_properties_take_no_room(run, watched, partition, expected):
    run(Stream.write(partition, EventData({}), expected_version=0, properties=binaries(10)))
    watched.counts.clear()

    write(run, partition, [EventData(binaries(8))] * 10, expected)

    assert watched.counts == {"get": 1, "transact": 2}
    assert run(Stream.open(partition)).properties == binaries(10)


def test_new_properties_take_room(run, watched, partition):
    write(run, partition, [EventData(binaries(8))] * 5, properties=binaries(10))

    assert watched.counts == {"transact": 2}
    assert [event.version for event in run(Stream.read(partition)).events] == [1, 2, 3, 4, 5]
    assert run(Stream.open(partition)).properties == binaries(10)


def test_stream_properties_are_set_with_the_last_part(run, table, partition):
    async def look(name, _partition_key, _number):
        if name == "transact":
            stream = await Stream.try_open(Partition(table, "orders-7"))
            seen.append(stream and stream.properties)

    seen: list[object] = []
    watched = Partition(InterceptedTable(table, before=look), "orders-7")
    stream = run(Stream.provision(partition, {"Owner": "me"}))

    result = run(
        Stream.write_in_parts(
            Stream(watched, stream.etag, 0, 1, stream.properties), numbered(1, 100), properties={"Done": True}
        )
    )

    assert seen == [{"Owner": "me"}] * 3
    assert result.stream.properties == {"Done": True}
    assert run(Stream.open(partition)) == Stream(partition, result.stream.etag, 100, 1, {"Done": True})


def test_events_take_their_includes_with_them(run, partition, table):
    events = [
        EventData({"N": number}, includes=[Include.insert(f"row-{number}", {"N": number})])
        for number in range(1, 121)
    ]

    result = write(run, partition, events)

    assert len(result.includes) == 120
    for include in result.includes:
        assert run(table.get("orders-7", include.row_key)).etag == include.etag


@pytest.mark.parametrize("expected", [3, ExpectedVersion.EMPTY])
def test_a_stream_that_is_not_as_expected_is_a_conflict_and_nothing_is_stored(
    run, partition, refuses, expected
):
    run(Stream.write(partition, EventData({"N": 0}), expected_version=0))

    with refuses(ConcurrencyConflictError):
        write(run, partition, numbered(1, 100), expected)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([*numbered(1, 100), EventData({"P": b"x" * (64 * KIB + 1)})], PayloadTooLargeError),
        (
            [
                *numbered(1, 100),
                EventData({}, includes=[Include.insert(str(number), {}) for number in range(99)]),
            ],
            PayloadTooLargeError,
        ),
        ([*numbered(1, 100), *numbered(1, 1)], DuplicateEventError),
        (
            [
                EventData({}, includes=[Include.insert_or_replace("row", {"N": n})] if n in (0, 150) else [])
                for n in range(160)
            ],
            ValueError,
        ),
        ([], ValueError),
    ],
    ids=[
        "a large event in a later part",
        "an event with too many includes",
        "an id in two parts",
        "a row in two parts",
        "no event",
    ],
)
def test_all_parts_are_checked_before_the_first_is_sent(run, watched, partition, events, error):
    with pytest.raises(error):
        write(run, partition, events)

    assert watched.calls == 0


def fail_at(number, *, after=False):
    def fail(name, _partition_key, _number, *_result):
        if name == "transact" and next(count) == number:
            message = "the connection was lost"
            raise StoreUnavailableError(message, outcome_unknown=True)

    count = iter(range(1, 1000))
    return {"after" if after else "before": fail}


@pytest.mark.parametrize("took_effect", [False, True])
def test_a_part_with_an_unknown_outcome_says_what_is_stored_and_what_may_be(
    run, table, partition, took_effect
):
    disturbed = Partition(InterceptedTable(table, **fail_at(2, after=took_effect)), "orders-7")

    with pytest.raises(PartialWriteError) as r:
        write(run, disturbed, numbered(1, 200))

    error = r.value
    assert (error.first_version, error.stored, error.uncertain, error.total) == (1, 49, 49, 200)
    assert isinstance(error.__cause__, StoreUnavailableError)
    assert run(Stream.open(partition)).version == (98 if took_effect else 49)


def test_a_part_that_someone_else_is_in_the_way_of_says_what_is_stored(run, table, partition):
    async def come_between(name, _partition_key, _number):
        if name == "transact" and disturbed.counts["transact"] == 3:
            await Stream.write(partition, EventData({"By": "other"}), expected_version=ExpectedVersion.ANY)

    disturbed = InterceptedTable(table, before=come_between)

    with pytest.raises(PartialWriteError) as raised:
        write(run, Partition(disturbed, "orders-7"), numbered(1, 200))

    error = raised.value
    assert (error.first_version, error.stored, error.uncertain, error.total) == (1, 98, 0, 200)
    assert isinstance(error.__cause__, ConcurrencyConflictError)
    assert run(Stream.open(partition)).version == 99


def test_of_any_version_the_first_that_is_stored_is_told(run, table, partition):
    run(Stream.write(partition, EventData({"N": 0}), expected_version=0))
    disturbed = Partition(InterceptedTable(table, **fail_at(2)), "orders-7")

    with pytest.raises(PartialWriteError, match="versions 2 to 50") as raised:
        write(run, disturbed, numbered(1, 200), ExpectedVersion.ANY)

    assert (raised.value.first_version, raised.value.stored) == (2, 49)


def test_a_first_part_with_an_unknown_outcome_may_be_stored(run, table, partition):
    disturbed = Partition(InterceptedTable(table, **fail_at(1, after=True)), "orders-7")

    with pytest.raises(PartialWriteError) as raised:
        write(run, disturbed, numbered(1, 200), ExpectedVersion.ANY)

    error = raised.value
    assert (error.first_version, error.stored, error.uncertain, error.total) == (None, 0, 49, 200)


@pytest.mark.parametrize("expected", [0, ExpectedVersion.ANY])
@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.thorough), 3])
@pytest.mark.parametrize("took_effect", [False, True])
def test_an_idempotent_write_goes_on_where_it_stopped(run, table, partition, expected, part, took_effect):
    disturbed = Partition(InterceptedTable(table, **fail_at(part, after=took_effect)), "orders-7")
    events = numbered(1, 101)

    try:
        write(run, disturbed, events, expected, idempotent=True)
        assert took_effect
    except (PartialWriteError, StoreUnavailableError):
        assert not took_effect
    result = write(run, partition, events, expected, idempotent=True)

    assert result.stream.version == 101
    assert [event.version for event in result.events] == list(range(1, 102))
    found = run(Stream.read(partition, slice_size=None))
    assert [event.properties["N"] for event in found.events] == list(range(1, 102))
    assert write(run, partition, events, expected, idempotent=True).repeated


def test_a_write_in_one_go_is_never_split(run, partition, refuses):
    with refuses(PayloadTooLargeError):
        run(Stream.write(partition, *numbered(1, 50), expected_version=0))
