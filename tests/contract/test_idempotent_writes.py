"""A write that is repeated: because its answer was lost, or because the caller does not know any more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from uuid import UUID

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    ExpectedVersion,
    Include,
    IncludeConflictError,
    Int64,
    InterceptedTable,
    Operation,
    Partition,
    StoreUnavailableError,
    Stream,
    Value,
)

ALL_TYPES: dict[str, Value] = {
    "Text": "text",
    "Flag": True,
    "Number": 7,
    "Big": Int64(7),
    "Real": 7.5,
    "At": datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "Guid": UUID(int=7),
    "Bytes": b"\x00\xff",
}


def event(number: int, properties: Mapping[str, Value] = MappingProxyType({}), id: str = "") -> EventData:  # noqa: A002
    return EventData({"N": number, **properties}, id=id or f"id-{number}")


def write(run, target, *events, expected=None, **options):
    return run(Stream.write(target, *events, expected_version=expected, idempotent=True, **options))


@pytest.fixture
def stream(run, partition):
    """Give a stream with two events."""
    return run(Stream.write(partition, event(1), event(2), expected_version=0)).stream


@pytest.mark.parametrize("expected", [2, ExpectedVersion.ANY])
def test_the_first_time_it_is_a_write_like_any_other(run, partition, stream, expected):
    result = write(run, partition, event(3, ALL_TYPES), expected=expected)

    assert not result.repeated
    assert result.stream.version == 3


@pytest.mark.parametrize("expected", [2, ExpectedVersion.ANY])
def test_a_repeated_write_gives_the_recorded_events_and_changes_nothing(
    run, partition, stream, refuses, contents, expected
):
    events = event(3, ALL_TYPES), event(4)
    first = write(run, partition, *events, expected=expected)
    before = contents()

    again = write(run, partition, *events, expected=expected)

    assert again.repeated
    assert (again.stream, again.events) == (first.stream, first.events)
    assert contents() == before


def test_a_stream_that_has_gone_on_is_given_as_it_is_now(run, partition, stream):
    newest = run(Stream.write(stream, EventData({"N": 3}))).stream

    again = write(run, partition, event(1), event(2), expected=ExpectedVersion.NO_STREAM)

    assert again.repeated
    assert again.stream == newest
    assert [recorded.version for recorded in again.events] == [1, 2]


def test_a_stream_value_that_was_written_with_is_recognised(run, stream):
    write(run, stream, event(3))

    assert write(run, stream, event(3)).repeated


@pytest.mark.parametrize(
    "other",
    [
        {"Number": Int64(7)},
        {"Number": True},
        {"Real": 7.500000001},
        {"Text": "Text"},
        {"Bytes": b"\x00\xfe"},
        {"At": datetime(2020, 1, 2, 3, 4, 5, 678902, tzinfo=UTC)},
        {"More": 1},
    ],
)
@pytest.mark.parametrize(
    ("expected", "error"), [(2, ConcurrencyConflictError), (ExpectedVersion.ANY, DuplicateEventError)]
)
def test_the_same_id_with_other_contents_is_refused(run, partition, stream, refuses, expected, error, other):
    write(run, stream, event(3, ALL_TYPES))

    with refuses(error):
        write(run, partition, event(3, {**ALL_TYPES, **other}), expected=expected)


def test_a_property_that_is_missing_is_another_content(run, partition, stream, refuses):
    write(run, stream, event(3, {"More": 1}))

    with refuses(ConcurrencyConflictError):
        write(run, partition, event(3), expected=2)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([event(1)], 2),
        ([event(2)], 0),
        ([event(1), event(3)], 0),
        ([event(2), event(1)], 0),
        ([event(1), event(2), event(3)], 0),
        ([event(3), event(1)], 2),
        ([event(1, id="other-1"), event(2, id="other-2")], 0),
        ([event(2)], ExpectedVersion.NO_STREAM),
        ([event(2)], ExpectedVersion.EMPTY),
    ],
    ids=[
        "at a later version",
        "at an earlier version",
        "one is new",
        "in another order",
        "one is missing at the end",
        "the first is new",
        "with other ids",
        "after others in a stream that was not to be there",
        "after others in a stream that was to be empty",
    ],
)
def test_events_that_do_not_all_stand_where_they_would_be_written_are_refused(
    run, partition, stream, refuses, events, expected
):
    with refuses((ConcurrencyConflictError, DuplicateEventError)):
        write(run, partition, *events, expected=expected)


def test_on_any_version_events_that_stand_apart_are_refused(run, partition, stream, refuses):
    run(Stream.write(stream, event(3)))

    with refuses(DuplicateEventError):
        write(run, partition, event(1), event(3), expected=ExpectedVersion.ANY)


def test_a_stream_value_says_where_its_events_are_to_stand(run, partition, stream, refuses):
    run(Stream.write(stream, event(3), event(4)))

    with refuses(ConcurrencyConflictError):
        write(run, stream, event(4))


def test_what_was_cut_away_is_not_recognised_by_its_id_alone(run, table, partition, refuses):
    alike = [EventData({"N": 1}, id=event_id) for event_id in ("a", "b")]
    stream = run(Stream.write(partition, *alike, expected_version=0)).stream
    run(Stream.truncate(stream, 2))
    # As a truncation that crashed leaves it.
    run(table.transact("orders-7", [Operation.insert("SS-UID-a", {"Version": 1})]))

    with refuses(ConcurrencyConflictError):
        write(run, partition, alike[0], expected=0)


def test_events_that_were_cut_away_are_not_recognised(run, partition, stream, refuses):
    run(Stream.truncate(stream, 2))

    with refuses(ConcurrencyConflictError):
        write(run, partition, event(1), event(2), expected=0)


def test_events_of_a_deleted_stream_are_not_recognised(run, partition, stream, refuses):
    run(Stream.delete(stream))

    with refuses(ConcurrencyConflictError):
        write(run, partition, event(1), event(2), expected=0)


def test_all_events_need_an_id(run, partition, refuses):
    with refuses(ValueError, match="needs all ids"):
        write(run, partition, event(1), EventData({"N": 2}), expected=0)


def test_a_refused_include_is_refused(run, stream, refuses):
    with refuses(IncludeConflictError):
        write(run, stream, event(3), includes=[Include.replace("missing", {}, "*")])


def lose_answer(calls):
    """Lose the answers to some transactions, by their number: they took effect."""

    def lose(name, _partition_key, _number, _result):
        if name == "transact" and next(count) in calls:
            message = "the connection was lost"
            raise StoreUnavailableError(message, outcome_unknown=True)

    count = iter(range(1, 1000))
    return lose


@pytest.mark.parametrize("expected", [2, ExpectedVersion.ANY, None])
def test_a_write_whose_answer_was_lost_is_recognised(run, table, partition, stream, expected):
    watched = Partition(InterceptedTable(table, after=lose_answer({1})), partition.key)
    target = watched if expected else Stream(watched, stream.etag, stream.version)

    result = write(run, target, event(3), event(4), expected=expected)

    assert result.repeated
    assert result.stream.version == 4
    assert run(Stream.open(partition)).etag == result.stream.etag


def test_a_lost_answer_of_a_new_stream_is_recognised(run, table, partition):
    watched = Partition(InterceptedTable(table, after=lose_answer({1})), partition.key)

    assert write(run, watched, event(1), expected=ExpectedVersion.NO_STREAM).repeated


def test_without_the_option_a_lost_answer_is_an_unknown_outcome(run, table, partition, stream):
    watched = Partition(InterceptedTable(table, after=lose_answer({1})), partition.key)

    with pytest.raises(StoreUnavailableError) as raised:
        run(Stream.write(watched, event(3), expected_version=2))

    assert raised.value.outcome_unknown
    assert run(Stream.open(partition)).version == 3


def test_a_write_that_never_arrived_stays_an_unknown_outcome(run, table, partition, stream, refuses):
    def fail(name, _partition_key, _number):
        if name == "transact":
            message = "the connection was lost"
            raise StoreUnavailableError(message, outcome_unknown=True)

    watched = Partition(InterceptedTable(table, before=fail), partition.key)

    with refuses(StoreUnavailableError):
        write(run, watched, event(3), expected=2)


def test_a_write_that_surely_did_not_take_place_is_not_looked_up(run, table, partition, stream):
    def fail(name, _partition_key, _number):
        if name == "transact":
            message = "the service is not there"
            raise StoreUnavailableError(message)

    watched = InterceptedTable(table, before=fail)

    with pytest.raises(StoreUnavailableError):
        write(run, Partition(watched, partition.key), event(3), expected=2)

    assert watched.counts == {"get": 1, "transact": 1}


def test_another_writer_with_the_same_ids_and_other_contents_is_a_conflict(
    run, table, partition, stream, refuses
):
    """Two copies of a message race: the loser finds its id, and the winner's clock."""

    async def be_faster(name, _partition_key, _number):
        if name == "transact":
            await Stream.write(stream, event(3, {"Clock": 1}))

    watched = Partition(InterceptedTable(table, before=be_faster), partition.key)

    with pytest.raises(ConcurrencyConflictError):
        write(run, watched, event(3, {"Clock": 2}), expected=2)

    assert run(Stream.read(partition, 3)).events[0].properties["Clock"] == 1


def test_recognition_costs_two_requests_and_one_for_each_event(run, table, partition):
    watched = InterceptedTable(table)
    watched_partition = Partition(watched, partition.key)
    events = [event(number) for number in range(1, 6)]
    write(run, watched_partition, *events, expected=0)
    assert watched.counts == {"transact": 1}

    write(run, watched_partition, *events, expected=0)

    assert watched.counts == {"transact": 2, "get": 5, "query": 1}
