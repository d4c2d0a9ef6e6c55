"""Writes that are repeated because their answer was lost, and writes in parts, of which some may be stored."""

from datetime import UTC, datetime
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
    PartialWriteError,
    Partition,
    PayloadTooLargeError,
    StoreUnavailableError,
    Stream,
    Value,
)
from tests.support.streams import disturbed, event, events, events_with_ids, lost, versions

ANY, KIB = ExpectedVersion.ANY, 1024
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


# More events than a transaction takes: in parts when that is asked for, and never otherwise.


def write_parts(run, target, given, expected=0, **options):
    return run(Stream.write_in_parts(target, given, expected_version=expected, **options))


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def place(watched):
    return Partition(watched, "orders-7")


def binaries(number):
    return {f"P{index}": b"x" * 64 * KIB for index in range(number)}


@pytest.mark.parametrize(
    ("given", "transactions"),
    [
        (events_with_ids(1, 49), 1),
        (events(1, 300), 4),
        ([EventData(binaries(15)) for _ in range(7)], 3),  # a row of 960 KiB is sent as 1.25 MiB
        ([EventData({"N": n}, includes=[Include.insert(f"row-{n}", {"N": n})]) for n in range(1, 121)], 3),
    ],
    ids=["what fits", "many", "large", "with includes"],
)
def test_events_are_as_few_transactions_as_possible_and_take_their_includes_with_them(
    run, table, watched, place, given, transactions
):
    result = write_parts(run, place, iter(given))

    assert watched.counts == {"transact": transactions}
    assert versions(result) == list(range(1, len(given) + 1))
    assert run(Stream.open(place)) == result.stream
    assert [each.properties for each in run(Stream.read(place)).events] == [each.properties for each in given]
    assert len(result.includes) == sum(len(each.includes) for each in given)
    for include in result.includes:
        assert run(table.get("orders-7", include.row_key)).etag == include.etag


@pytest.mark.parametrize(
    ("provisioned", "options", "number", "counts"),
    [
        (True, {"expected": None}, 8, {"transact": 2}),  # the header takes 0.84 MiB of the 4, an event 0.67
        (
            True,
            {"expected": ANY},
            10,
            {"get": 1, "transact": 2},
        ),  # the header's properties stay where they are
        (False, {"properties": binaries(10)}, 5, {"transact": 2}),
    ],
)
def test_properties_take_room_in_each_part_only_if_they_are_given(
    run, watched, place, provisioned, options, number, counts
):
    target = run(Stream.provision(place, binaries(10))) if provisioned else place
    watched.counts.clear()

    write_parts(
        run, place if options.get("expected") else target, [EventData(binaries(8))] * number, **options
    )

    assert watched.counts == counts
    assert versions(run(Stream.read(place))) == list(range(1, number + 1))
    assert run(Stream.open(place)).properties == binaries(10)


def test_stream_properties_are_set_with_the_last_part(run, table, partition):
    async def look(name, *_call):
        if name == "transact":
            stream = await Stream.try_open(partition)
            seen.append(stream and stream.properties)

    seen: list[object] = []
    stream = run(Stream.provision(partition, {"Owner": "me"}))
    watched = Stream(disturbed(table, before=look), stream.etag, 0, 1, stream.properties)

    result = run(Stream.write_in_parts(watched, events_with_ids(1, 100), properties={"Done": True}))

    assert seen == [{"Owner": "me"}] * 3
    assert run(Stream.open(partition)) == Stream(partition, result.stream.etag, 100, 1, {"Done": True})


@pytest.mark.parametrize("expected", [3, ExpectedVersion.EMPTY])
def test_a_stream_that_is_not_as_expected_is_a_conflict_and_nothing_is_stored(
    run, partition, stream, refuses, expected
):
    with refuses(ConcurrencyConflictError):
        write_parts(run, partition, events_with_ids(1, 100), expected)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ([EventData({"P": b"x" * (64 * KIB + 1)})], PayloadTooLargeError),
        (
            [EventData({}, includes=[Include.insert(str(number), {}) for number in range(99)])],
            PayloadTooLargeError,
        ),
        (events_with_ids(1, 1), DuplicateEventError),
        ([EventData({}, includes=[Include.insert_or_replace("row", {"N": 2})])], ValueError),
    ],
    ids=["a large event", "too many includes", "an id in two parts", "a row in two parts"],
)
def test_all_parts_are_checked_before_the_first_is_sent(run, watched, place, last, error):
    first = EventData({}, includes=[Include.insert_or_replace("row", {"N": 1})])

    with pytest.raises(error):
        write_parts(run, place, [first, *events_with_ids(1, 100), *last])
    with pytest.raises(ValueError, match="at least one event"):
        write_parts(run, place, [])

    assert watched.calls == 0


@pytest.mark.parametrize(
    ("part", "arrives", "expected", "facts", "stored"),
    [
        (2, False, 0, (1, 49, 49, 200), 49),
        (2, True, 0, (1, 49, 49, 200), 98),
        (1, True, ANY, (None, 0, 49, 200), 49),
        (2, False, ANY, (1, 49, 49, 200), 49),
    ],
)
def test_a_part_with_an_unknown_outcome_says_what_is_stored_and_what_may_be(
    run, table, partition, part, arrives, expected, facts, stored
):
    with pytest.raises(PartialWriteError) as raised:
        write_parts(run, disturbed(table, **lost(part, arrives=arrives)), events_with_ids(1, 200), expected)

    assert raised.value.args == ("orders-7", *facts)
    assert isinstance(raised.value.__cause__, StoreUnavailableError)
    assert run(Stream.open(partition)).version == stored


def test_a_part_that_someone_else_is_in_the_way_of_says_what_is_stored(run, table, partition):
    async def come_between(name, *_call):
        if name == "transact" and seen.table.counts["transact"] == 3:
            await Stream.write(partition, event(0), expected_version=ANY)

    seen = disturbed(table, before=come_between)

    with pytest.raises(PartialWriteError) as raised:
        write_parts(run, seen, events_with_ids(1, 200))

    assert raised.value.args == ("orders-7", 1, 98, 0, 200)
    assert isinstance(raised.value.__cause__, ConcurrencyConflictError)


@pytest.mark.parametrize("expected", [0, ANY])
@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.thorough), 3])
@pytest.mark.parametrize("arrives", [False, True])
def test_an_idempotent_write_goes_on_where_it_stopped(run, table, partition, expected, part, arrives):
    given = events_with_ids(1, 101)

    try:
        write_parts(run, disturbed(table, **lost(part, arrives=arrives)), given, expected, idempotent=True)
        assert arrives
    except (PartialWriteError, StoreUnavailableError):
        assert not arrives
    result = write_parts(run, partition, given, expected, idempotent=True)

    assert versions(result) == list(range(1, 102))
    found = run(Stream.read(partition))
    assert [each.properties["N"] for each in found.events] == list(range(1, 102))
    assert write_parts(run, partition, given, expected, idempotent=True).repeated
