"""Writes that are repeated because their answer was lost."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    ExpectedVersion,
    Include,
    IncludeConflictError,
    Int64,
    Operation,
    StoreUnavailableError,
    Stream,
    Value,
)
from tests.support.streams import disturbed, event, lost, versions

ANY = ExpectedVersion.ANY
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
ONE, TWO, FOUR = event(1, id="id-1"), event(2, id="id-2"), event(4, id="id-4")
THREE = event(3, ALL_TYPES, id="id-3")


def write(run, target, *given, expected=None, **options):
    return run(Stream.write(target, *given, expected_version=expected, idempotent=True, **options))


@pytest.fixture
def stream(run, partition):
    """Give a stream with two events."""
    return run(Stream.write(partition, ONE, TWO, expected_version=0)).stream


@pytest.mark.parametrize("expected", [2, ANY, ExpectedVersion.EXISTS, None])
def test_a_repeated_write_gives_the_recorded_events_and_changes_nothing(
    run, partition, stream, contents, expected
):
    target = partition if expected else stream
    first = write(run, target, THREE, FOUR, expected=expected)
    before = contents()

    again = write(run, target, THREE, FOUR, expected=expected)

    assert (first.repeated, again.repeated) == (False, True)
    assert (again.stream, again.events) == (run(Stream.open(partition)), first.events)
    assert [(each.id, each.etag) for each in again.events] == [(each.id, each.etag) for each in first.events]
    assert all(each.time for each in again.events)
    assert contents() == before


def test_a_stream_that_has_gone_on_is_given_as_it_is_now(run, partition, stream):
    newest = run(Stream.write(stream, event(3))).stream

    again = write(run, partition, ONE, TWO, expected=ExpectedVersion.NO_STREAM)

    assert (again.repeated, again.stream, versions(again)) == (True, newest, [1, 2])


@pytest.mark.parametrize(
    "other",
    [
        {**ALL_TYPES, "Number": Int64(7)},
        {**ALL_TYPES, "Number": True},
        {**ALL_TYPES, "Real": 7.500000001},
        {**ALL_TYPES, "Text": "Text"},
        {**ALL_TYPES, "Bytes": b"\x00\xfe"},
        {**ALL_TYPES, "At": datetime(2020, 1, 2, 3, 4, 5, 678902, tzinfo=UTC)},
        {**ALL_TYPES, "More": 1},
        {},
    ],
)
@pytest.mark.parametrize(("expected", "error"), [(2, ConcurrencyConflictError), (ANY, DuplicateEventError)])
def test_the_same_id_with_other_contents_is_refused(run, partition, stream, refuses, expected, error, other):
    write(run, stream, THREE)

    with refuses(error):
        write(run, partition, event(3, other, id="id-3"), expected=expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([ONE], 2),
        ([TWO], 0),
        ([ONE, THREE], 0),
        ([TWO, ONE], 0),
        ([ONE, TWO, THREE], 0),
        ([THREE, ONE], 2),
        ([TWO, THREE], ANY),
        ([event(1, id="other-1"), event(2, id="other-2")], 0),
        ([TWO], ExpectedVersion.NO_STREAM),
        ([TWO], ExpectedVersion.EMPTY),
        ([TWO], None),
    ],
)
def test_events_that_do_not_all_stand_where_they_would_be_written_are_refused(
    run, partition, stream, refuses, given, expected
):
    run(Stream.write(stream, event(3)))
    target = partition if expected is not None else stream
    with refuses((ConcurrencyConflictError, DuplicateEventError)):
        write(run, target, *given, expected=expected)


async def leave_an_id(partition, stream):
    """Cut as a truncation that crashed does: the id of an event is left."""
    await Stream.truncate(stream, 2)
    await partition.table.transact("orders-7", [Operation.insert("SS-UID-id-1", {"Version": 1})])


@pytest.mark.parametrize(
    "cut",
    [lambda _, stream: Stream.truncate(stream, 2), lambda _, stream: Stream.delete(stream), leave_an_id],
)
@pytest.mark.parametrize("given", [[ONE, TWO], [ONE]])
def test_events_that_were_cut_away_are_not_recognised(run, partition, stream, refuses, cut, given):
    run(cut(partition, stream))

    with refuses(ConcurrencyConflictError):
        write(run, partition, *given, expected=0)


def test_all_events_need_an_id_and_a_refused_include_is_refused(run, partition, stream, refuses):
    with refuses(ValueError, match="id for each event"):
        write(run, partition, ONE, event(2), expected=0)
    with refuses(IncludeConflictError):
        write(run, stream, THREE, includes=[Include.replace("missing", {}, "*")])


@pytest.mark.parametrize("expected", [2, ANY, None])
def test_a_write_whose_answer_was_lost_is_recognised(run, table, partition, stream, expected):
    watched = disturbed(table, **lost())
    target = watched if expected else Stream(watched, stream.etag, stream.version)

    result = write(run, target, THREE, FOUR, expected=expected)

    assert (result.repeated, result.stream.version) == (True, 4)
    assert run(Stream.open(partition)).etag == result.stream.etag


@pytest.mark.parametrize(("idempotent", "arrives"), [(False, True), (True, False), (False, False)])
def test_a_lost_write_has_an_unknown_outcome_unless_it_is_recognised(
    run, table, partition, stream, idempotent, arrives
):
    watched = disturbed(table, **lost(arrives=arrives))

    with pytest.raises(StoreUnavailableError) as raised:
        run(Stream.write(watched, THREE, expected_version=2, idempotent=idempotent))

    assert raised.value.outcome_unknown
    assert run(Stream.open(partition)).version == 2 + arrives


def test_an_outcome_stays_unknown_if_the_store_answers_no_more(run, table, stream):
    def fail(name, *_call):
        if name == "transact" or watched.table.counts["transact"]:
            raise StoreUnavailableError("the service is not there", outcome_unknown=name == "transact")

    watched = disturbed(table, after=fail)
    with pytest.raises(StoreUnavailableError) as raised:
        run(Stream.write(watched, THREE, expected_version=2, idempotent=True))
    assert raised.value.outcome_unknown


def test_an_outcome_stays_unknown_if_the_stream_is_deleted_and_an_id_is_left(run, table, partition, stream):
    async def lose_and_delete(name, *_call):
        if name == "transact":
            await Stream.delete(partition)
            await table.transact("orders-7", [Operation.insert("SS-UID-id-3", {"Version": 3})])
            raise StoreUnavailableError("the connection was lost", outcome_unknown=True)

    with pytest.raises(StoreUnavailableError) as raised:
        write(run, disturbed(table, after=lose_and_delete), THREE, expected=2)
    assert raised.value.outcome_unknown


def test_a_write_that_surely_did_not_take_place_is_not_looked_up(run, table, stream):
    def fail(name, *_call):
        if name == "transact":
            raise StoreUnavailableError("the service is not there")

    watched = disturbed(table, before=fail)

    with pytest.raises(StoreUnavailableError):
        write(run, watched, THREE, expected=2)

    assert watched.table.counts == {"get": 1, "transact": 1}


def test_another_writer_with_the_same_ids_and_other_contents_is_a_conflict(run, table, partition, stream):
    """Two copies of a message race: the loser finds its id, and the winner's clock."""

    async def be_faster(name, *_call):
        if name == "transact":
            await Stream.write(stream, event(3, {"Clock": 1}, id="id-3"))

    with pytest.raises(ConcurrencyConflictError):
        write(run, disturbed(table, before=be_faster), event(3, {"Clock": 2}, id="id-3"), expected=2)

    assert run(Stream.read(partition, 3)).events[0].properties["Clock"] == 1
