from __future__ import annotations

from dataclasses import replace

import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    Include,
    IncludeConflictError,
    InterceptedTable,
    Operation,
    Partition,
    PayloadTooLargeError,
    Stream,
    StreamTruncatedError,
)


@pytest.fixture
def stream(run, partition):
    events = [EventData({"N": number}, id=f"id-{number}") for number in range(1, 9)]
    return run(Stream.write(partition, *events, expected_version=0, properties={"Owner": "me"})).stream


def versions(found):
    return [event.version for event in found.events]


def test_events_before_the_watermark_are_gone_with_their_ids(run, partition, stream, contents):
    cut = run(Stream.truncate(stream, 6))

    assert (cut.version, cut.first_version, cut.properties) == (8, 6, {"Owner": "me"})
    assert run(Stream.open(partition)) == cut
    assert [row.row_key for row in contents()] == [
        "SS-HEAD",
        *(f"SS-SE-000000000{version}" for version in (6, 7, 8)),
        *(f"SS-UID-id-{version}" for version in (6, 7, 8)),
    ]
    assert contents()[0].properties == {"Version": 8, "FirstVersion": 6, "Owner": "me"}


@pytest.mark.parametrize(
    ("asked", "expected", "is_end"),
    [
        ((1, 1000), [6, 7, 8], True),
        ((1, 2), [6, 7], False),
        ((1, 1), [6], False),
        ((4, 2), [6, 7], False),
        ((7, None), [7, 8], True),
        ((9, None), [], True),
    ],
)
def test_a_read_begins_at_the_watermark(run, stream, asked, expected, is_end):
    run(Stream.truncate(stream, 6))

    found = run(Stream.read(stream.partition, *asked))

    assert versions(found) == expected
    assert found.is_end_of_stream == is_end


def test_all_events_can_be_cut(run, partition, stream):
    cut = run(Stream.truncate(stream, 9))

    found = run(Stream.read(partition))
    assert (found.events, found.stream) == ((), cut)
    assert run(Stream.write(cut, EventData({"N": 9}))).events[0].version == 9


def test_truncating_can_set_the_properties_in_the_same_transaction(run, partition, stream):
    cut = run(Stream.truncate(stream, 3, {"Owner": "you"}))

    assert cut.properties == {"Owner": "you"}
    assert run(Stream.open(partition)) == cut


def test_later_writes_keep_the_watermark(run, partition, stream):
    cut = run(Stream.truncate(stream, 3))
    written = run(Stream.write(cut, EventData({"N": 9}), properties={"Owner": "you"})).stream
    changed = run(Stream.set_properties(written, {}))
    merged = run(Stream.write(Stream(partition, changed.etag, 9, 3), EventData({"N": 10}))).stream

    assert run(Stream.open(partition)).first_version == 3
    assert versions(run(Stream.read(partition))) == list(range(3, 11))
    assert merged.first_version == 3


def test_a_changed_stream_is_not_truncated(run, stream, refuses):
    run(Stream.write(stream, EventData({"N": 9})))

    with refuses(ConcurrencyConflictError):
        run(Stream.truncate(stream, 6))


def test_every_truncation_changes_the_header(run, stream, refuses):
    run(Stream.truncate(stream, 6))

    with refuses(ConcurrencyConflictError):
        run(Stream.write(stream, EventData({"N": 9})))


@pytest.mark.parametrize("first_version", [0, 2, 10])
def test_the_watermark_moves_forward_and_not_past_the_end(run, stream, refuses, first_version):
    cut = run(Stream.truncate(stream, 3))

    with refuses(ValueError, match="cannot be cut"):
        run(Stream.truncate(cut, first_version))


def test_a_transient_stream_cannot_be_truncated(run, partition, refuses):
    with refuses(ValueError, match="transient"):
        run(Stream.truncate(Stream(partition), 1))


def test_truncating_again_at_the_same_version_changes_nothing(run, stream, contents):
    cut = run(Stream.truncate(stream, 6))
    before = contents()

    assert run(Stream.truncate(cut, 6)) == cut
    assert contents() == before


def test_cut_events_cannot_be_read(run, stream):
    cut = run(Stream.truncate(stream, 6))

    with pytest.raises(StreamTruncatedError) as raised:
        run(Stream.read_events(cut, 4, 8))
    assert (raised.value.stream, raised.value.version) == ("orders-7", 4)


def test_a_value_read_before_the_truncation_shows_what_is_missing(run, stream):
    run(Stream.truncate(stream, 6))

    with pytest.raises(StreamTruncatedError) as raised:
        run(Stream.read_events(stream, 5, 8))
    assert raised.value.version == 5


def test_leftovers_below_the_watermark_count_as_cut(run, table, partition, stream):
    cut = run(Stream.truncate(stream, 6))
    run(table.transact(partition.key, [Operation.insert(partition.event(2), {"Version": 2, "N": 2})]))

    assert versions(run(Stream.read(partition))) == [6, 7, 8]
    with pytest.raises(StreamTruncatedError):
        run(Stream.read_events(cut, 2, 2))


LONG = 230
FIRST_TRANSACTION = 3
CALLS = 6


def rows(count, **properties):
    return [Include.insert(f"row-{number:02}", properties) for number in range(count)]


def test_more_includes_than_a_transaction_takes_are_refused_before_anything_is_sent(run, stream):
    watched = InterceptedTable(stream.partition.table)
    seen = replace(stream, partition=Partition(watched, "orders-7"))

    with pytest.raises(PayloadTooLargeError):
        run(Stream.truncate(seen, 6, includes=rows(100)))

    assert watched.calls == 0


def test_all_includes_are_changed_with_the_first_transaction_or_none(run, stream, refuses):
    missing = Include.delete("missing", "*")

    with refuses(IncludeConflictError):
        run(Stream.truncate(stream, 6, includes=[*rows(98), missing]))

    assert run(Stream.truncate(stream, 6, includes=rows(99))).first_version == 6


def test_large_includes_leave_the_deletions_to_the_next_transaction(run, stream, contents):
    event_rows = [row.row_key for row in contents()]
    watched = InterceptedTable(stream.partition.table)
    seen = replace(stream, partition=Partition(watched, "orders-7"))
    texts = {f"T{number}": "x" * 32_000 for number in range(16)}  # 0.49 MiB as sent
    rest = Include.insert("rest", {f"T{number}": "x" * 28_500 for number in range(3)})  # leaves some 1 KiB

    run(Stream.truncate(seen, 6, includes=[*rows(8, **texts), rest]))

    assert watched.counts == {"query": 2, "transact": 2}
    assert len(contents()) == len(event_rows) - 2 * 5 + 9


@pytest.fixture
def long_stream(run, partition):
    stream = Stream(partition)
    for start in range(1, LONG, 49):
        events = [EventData({"N": number}, id=f"id-{number}") for number in range(start, start + 49)]
        stream = run(Stream.write(stream, *events)).stream
    return stream


class CrashedError(Exception):
    """Stands for the death of the process."""


def crash(at, *, before):
    def strike(_name, _key, number, *_result):
        if number == at:
            raise CrashedError

    return {"before" if before else "after": strike}


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_crash_at_any_call_leaves_a_stream_that_can_be_read_and_truncated_again(
    run, long_stream, contents, call, before
):
    stream, partition = long_stream, long_stream.partition
    crashing = Partition(InterceptedTable(partition.table, **crash(call, before=before)), partition.key)

    with pytest.raises(CrashedError):
        run(Stream.truncate(replace(stream, partition=crashing), 150, {"Cut": True}))

    found = run(Stream.read(partition, slice_size=None))
    took_effect = call - 1 if before else call
    expected = 150 if took_effect >= FIRST_TRANSACTION else 1
    assert found.stream.first_version == expected
    assert versions(found) == list(range(expected, stream.version + 1))

    cut = run(Stream.truncate(found.stream, 150, {"Cut": True}))

    assert run(Stream.open(partition)) == cut
    assert versions(run(Stream.read(partition, slice_size=None))) == list(range(150, stream.version + 1))
    assert len(contents()) == 1 + 2 * (stream.version - 149)


def test_a_truncation_without_a_crash_takes_as_many_calls_as_were_crashed_at(run, table, long_stream):
    watched = InterceptedTable(table)

    run(Stream.truncate(replace(long_stream, partition=Partition(watched, "orders-7")), 150))

    assert watched.calls == CALLS
    assert watched.counts["query"] == FIRST_TRANSACTION - 1


def test_a_writer_in_the_middle_of_a_long_truncation_stops_it(run, table, long_stream):
    partition = long_stream.partition

    async def write(name, _key, number):
        if (name, number) == ("transact", FIRST_TRANSACTION + 1):
            await Stream.write(await Stream.open(partition), EventData({"N": 0}))

    watched = Partition(InterceptedTable(table, before=write), partition.key)
    with pytest.raises(ConcurrencyConflictError):
        run(Stream.truncate(replace(long_stream, partition=watched), 150))

    found = run(Stream.read(partition, slice_size=None))
    assert versions(found) == list(range(150, long_stream.version + 2))
