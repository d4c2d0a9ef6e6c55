"""Cutting away the oldest events of a stream, and deleting all of it: first the header tells it, then rows go."""

from dataclasses import replace

import pytest

from eventstore import (
    ConcurrencyConflictError,
    ExpectedVersion,
    Include,
    IncludeConflictError,
    InterceptedTable,
    Operation,
    Partition,
    PayloadTooLargeError,
    StoreUnavailableError,
    Stream,
    StreamDeletedError,
    StreamNotFoundError,
    StreamTruncatedError,
    list_streams,
)
from tests.support.streams import collect, disturbed, event, events_with_ids, lost, versions, write_all


@pytest.fixture
def stream(run, partition):
    """Give a stream with 8 events, and an included row."""
    mine = Include.insert("mine", {"V": 1})
    written = Stream.write(
        partition, *events_with_ids(1, 8), expected_version=0, properties={"Owner": "me"}, includes=[mine]
    )
    return run(written).stream


def seen_through(stream, table):
    return replace(stream, partition=Partition(table, "orders-7"))


def test_events_before_the_watermark_are_gone_with_their_ids(run, partition, stream, contents):
    cut = run(Stream.truncate(stream, 6))

    assert (cut.version, cut.first_version, cut.properties) == (8, 6, {"Owner": "me"})
    assert run(Stream.open(partition)) == cut
    assert [row.row_key for row in contents()] == [
        "SS-HEAD",
        *(f"SS-SE-000000000{version}" for version in (6, 7, 8)),
        *(f"SS-UID-id-{version}" for version in (6, 7, 8)),
        "mine",
    ]
    assert contents()[0].properties == {"Version": 8, "FirstVersion": 6, "Owner": "me"}


@pytest.mark.parametrize(
    ("read", "asked", "expected", "is_end"),
    [
        (Stream.read, (1, 1000), [6, 7, 8], True),
        (Stream.read, (1, 2), [6, 7], False),
        (Stream.read, (1, 1), [6], False),
        (Stream.read, (4, 2), [6, 7], False),
        (Stream.read, (7, None), [7, 8], True),
        (Stream.read, (9, None), [], True),
        (Stream.read_backwards, (7,), [7, 6], True),
        (Stream.read_backwards, (5,), [], True),
    ],
)
@pytest.mark.parametrize("leftover", [False, True])
def test_a_read_ends_at_the_watermark(run, stream, read, asked, expected, is_end, leftover):
    place = stream.partition
    run(Stream.truncate(stream, 6))
    if leftover:
        run(place.table.transact(place.key, [Operation.insert(place.event(5), {"Version": 5, "N": 5})]))

    found = run(read(place, *asked))

    assert (versions(found), found.is_end_of_stream) == (expected, is_end)


def test_all_events_can_be_cut_with_other_properties_and_rows_in_the_same_transaction(
    run, partition, stream, contents
):
    cut = run(Stream.truncate(stream, 9, {"Owner": "you"}, [Include.delete("mine", "*")]))
    before = contents()

    assert cut.properties == {"Owner": "you"}
    assert run(Stream.open(partition)) == cut == run(Stream.truncate(cut, 9))  # once more changes nothing
    assert [row.row_key for row in before] == ["SS-HEAD"]
    assert contents() == before
    run(Stream.truncate(cut, 9, includes=[Include.insert("mine", {})]))
    assert [row.row_key for row in contents()] == ["SS-HEAD", "mine"]
    assert versions(run(Stream.write(run(Stream.open(partition)), event(9)))) == [9]


def test_later_writes_keep_the_watermark(run, partition, stream):
    cut = run(Stream.truncate(stream, 3))
    written = run(Stream.write(cut, event(9), properties={"Owner": "you"})).stream
    changed = run(Stream.set_properties(written, {}))
    merged = run(Stream.write(Stream(partition, changed.etag, 9, 3), event(10))).stream

    found = run(Stream.read(partition))
    assert (found.stream.first_version, versions(found)) == (3, list(range(3, 11)))
    assert merged.first_version == 3


def test_a_truncation_under_a_stale_etag_and_a_write_after_one_are_conflicts(run, stream, refuses):
    run(Stream.truncate(stream, 6))

    for stale in (Stream.write(stream, event(9)), Stream.truncate(stream, 6)):
        with refuses(ConcurrencyConflictError):
            run(stale)


def test_the_watermark_moves_forward_and_not_past_the_end_of_a_stream_that_is_there(run, stream, refuses):
    cut = run(Stream.truncate(stream, 3))

    for first_version in (0, 2, 10):
        with refuses(ValueError, match="cannot begin"):
            run(Stream.truncate(cut, first_version))
    for cut_it in (Stream.truncate(Stream(stream.partition), 1), Stream.delete(Stream(stream.partition))):
        with refuses(ValueError, match="transient"):
            run(cut_it)


@pytest.mark.parametrize("value", ["before", "after"])
def test_cut_events_cannot_be_read_whatever_value_is_held(run, stream, value):
    cut = run(Stream.truncate(stream, 6))

    with pytest.raises(StreamTruncatedError) as raised:
        run(Stream.read_events(stream if value == "before" else cut, 4, 8))
    assert (raised.value.stream, raised.value.version) == ("orders-7", 4)


# What is included is all in the first transaction.


def rows(count, **properties):
    return [Include.insert(f"row-{number:02}", properties) for number in range(count)]


def test_all_includes_are_changed_with_the_first_transaction_or_none(run, table, stream, refuses):
    watched = InterceptedTable(table)
    with pytest.raises(PayloadTooLargeError):
        run(Stream.truncate(seen_through(stream, watched), 6, includes=rows(100)))
    assert watched.calls == 0

    with refuses(IncludeConflictError):
        run(Stream.truncate(stream, 6, includes=[*rows(98), Include.delete("missing", "*")]))

    assert run(Stream.truncate(stream, 6, includes=rows(99))).first_version == 6


def test_large_includes_leave_the_deletions_to_the_next_transaction(run, table, stream, contents):
    before = len(contents())
    watched = InterceptedTable(table)
    texts = {f"T{number}": "x" * 32_000 for number in range(16)}  # 0.49 MiB as sent
    rest = Include.insert("rest", {f"T{number}": "x" * 28_500 for number in range(3)})  # leaves some 1 KiB

    run(Stream.truncate(seen_through(stream, watched), 6, includes=[*rows(8, **texts), rest]))

    assert watched.counts == {"query": 2, "transact": 2}
    assert len(contents()) == before - 2 * 5 + 9


# A long truncation takes several transactions, and may be broken off at any call.

FIRST_TRANSACTION, CALLS = 3, 6


@pytest.fixture
def long_stream(run, partition):
    return run(write_all(partition, events_with_ids(1, 245)))


class CrashedError(Exception):
    """Stands for the death of the process."""


@pytest.mark.parametrize("hook", ["before", "after"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_crash_at_any_call_leaves_a_stream_that_can_be_read_and_truncated_again(
    run, table, long_stream, contents, call, hook
):
    def strike(_name, _key, number, *_result):
        if number == call:
            raise CrashedError

    stream, partition = long_stream, long_stream.partition
    crashing = seen_through(stream, InterceptedTable(table, **{hook: strike}))
    with pytest.raises(CrashedError):
        run(Stream.truncate(crashing, 150, {"Cut": True}))

    found = run(Stream.read(partition))
    took_effect = call - 1 if hook == "before" else call
    expected = 150 if took_effect >= FIRST_TRANSACTION else 1
    assert found.stream.first_version == expected
    assert versions(found) == list(range(expected, stream.version + 1))

    cut = run(Stream.truncate(found.stream, 150, {"Cut": True}))

    assert run(Stream.open(partition)) == cut
    assert versions(run(Stream.read(partition))) == list(range(150, stream.version + 1))
    assert len(contents()) == 1 + 2 * (stream.version - 149)


def test_a_truncation_without_a_crash_takes_as_many_calls_as_were_crashed_at(run, table, long_stream):
    watched = InterceptedTable(table)
    run(Stream.truncate(seen_through(long_stream, watched), 150))
    assert (watched.calls, watched.counts["query"]) == (CALLS, FIRST_TRANSACTION - 1)


def test_a_writer_in_the_middle_of_a_long_truncation_stops_it(run, table, long_stream):
    async def write(name, _key, number):
        if (name, number) == ("transact", FIRST_TRANSACTION + 1):
            await Stream.write(await Stream.open(long_stream.partition), event(0))

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.truncate(seen_through(long_stream, InterceptedTable(table, before=write)), 150))

    found = run(Stream.read(long_stream.partition))
    assert versions(found) == list(range(150, long_stream.version + 2))


# Deleting.


@pytest.mark.parametrize("by", ["value", "partition"])
def test_a_tombstone_and_the_callers_rows_stay(run, stream, contents, by):
    run(Stream.delete(stream if by == "value" else stream.partition))

    assert [(row.row_key, row.properties) for row in contents()] == [
        ("SS-HEAD", {"Version": 8, "FirstVersion": 9, "Tombstone": True}),
        ("mine", {"V": 1}),
    ]
    assert not run(Stream.exists(stream.partition))
    assert run(collect(list_streams(stream.partition.table))) == []


@pytest.mark.parametrize(
    "look",
    [
        Stream.open,
        Stream.try_open,
        Stream.read,
        Stream.try_read,
        Stream.read_backwards,
        Stream.read_last,
        lambda partition: Stream.read(partition, select=["N"]),
        lambda partition: Stream.read(partition, 2),
        lambda partition: Stream.read_last(partition, select=["N"]),
        lambda partition: collect(Stream.iterate(partition)),
    ],
)
def test_whoever_looks_is_told(run, stream, look):
    run(Stream.delete(stream))

    with pytest.raises(StreamDeletedError) as raised:
        run(look(stream.partition))
    assert raised.value.stream == "orders-7"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        *[
            (
                lambda it, version=expected: Stream.write(it.partition, event(9), expected_version=version),
                error,
            )
            for expected, error in [
                (0, ConcurrencyConflictError),
                (ExpectedVersion.NO_STREAM, ConcurrencyConflictError),
                (ExpectedVersion.EMPTY, StreamDeletedError),
                (ExpectedVersion.ANY, StreamDeletedError),
                (8, StreamDeletedError),
            ]
        ],
        (lambda it: Stream.provision(it.partition), ConcurrencyConflictError),
        (lambda it: Stream.write(it, event(9)), ConcurrencyConflictError),
        (lambda it: Stream.set_properties(it, {}), ConcurrencyConflictError),
        (lambda it: Stream.truncate(it, 2), ConcurrencyConflictError),
        (Stream.delete, ConcurrencyConflictError),
    ],
)
def test_nothing_is_written_in_its_place(run, stream, refuses, change, error):
    run(Stream.delete(stream))

    with refuses(error):
        run(change(stream))


def test_a_stream_that_was_written_meanwhile_is_not_deleted_and_deleting_again_changes_nothing(
    run, stream, refuses, contents
):
    run(Stream.write(stream, event(9)))
    with refuses(ConcurrencyConflictError):
        run(Stream.delete(stream))

    run(Stream.delete(stream.partition))
    before = contents()
    run(Stream.delete(stream.partition))
    assert contents() == before


def test_an_empty_stream_is_deleted_and_a_missing_one_is_not(run, partition, contents, refuses):
    with refuses(StreamNotFoundError):
        run(Stream.delete(partition))

    run(Stream.delete(run(Stream.provision(partition, {"Owner": "me"}))))

    assert [row.properties for row in contents()] == [{"Version": 0, "FirstVersion": 1, "Tombstone": True}]


@pytest.mark.parametrize("transaction", [1, 2, 3])
@pytest.mark.parametrize("arrives", [False, True])
def test_a_deletion_that_was_broken_off_is_finished(run, table, partition, contents, transaction, arrives):
    run(write_all(partition, events_with_ids(1, 140)))

    with pytest.raises(StoreUnavailableError):
        run(Stream.delete(disturbed(table, **lost(transaction, arrives=arrives))))
    if transaction > 1 or arrives:
        assert not run(Stream.exists(partition))
    else:
        assert len(run(Stream.read(partition)).events) == 140
    run(Stream.delete(partition))

    assert [row.row_key for row in contents()] == ["SS-HEAD"]
