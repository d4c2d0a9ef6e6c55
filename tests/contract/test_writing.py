"""Writing events: versions and what is expected of them, ids, conflicts, and their order."""

from concurrent.futures import ThreadPoolExecutor
from typing import cast
from uuid import UUID

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    EventId,
    ExpectedVersion,
    Include,
    IncludeConflictError,
    InterceptedTable,
    Operation,
    Partition,
    PayloadTooLargeError,
    RecordedEvent,
    Stream,
    Value,
)
from eventstore.port import FIRST_SECONDS, LONGEST_BLOCKING_SECONDS, LONGEST_SECONDS
from eventstore.sync import BlockingStore
from eventstore.writing import ANY_ATTEMPTS
from tests.support.streams import event, events, versions

ANY, NO_STREAM, EMPTY, EXISTS = ExpectedVersion


def test_events_are_numbered_from_1_and_each_is_a_row(run, partition, contents):
    result = run(Stream.write(partition, event(10), event(20), expected_version=0))

    assert result.events == (RecordedEvent(1, {"N": 10}), RecordedEvent(2, {"N": 20}))
    assert result.stream.version == 2
    assert [(row.row_key, row.properties) for row in contents()] == [
        ("SS-HEAD", {"Version": 2}),
        ("SS-SE-0000000001", {"Version": 1, "N": 10}),
        ("SS-SE-0000000002", {"Version": 2, "N": 20}),
    ]


# What stands in the partition, and what is expected there.


@pytest.fixture(params=["no stream", "empty", "written"])
def place(request, run, partition):
    """Give a partition without a stream, with an empty one, and with one of two events."""
    if request.param == "empty":
        run(Stream.provision(partition, {"Owner": "me"}))
    if request.param == "written":
        run(Stream.write(partition, *events(1, 2), expected_version=0, properties={"Owner": "me"}))
    return request.param


FITTING: dict[str, list[object]] = {
    "no stream": [NO_STREAM, 0, ANY],
    "empty": [EMPTY, ANY, EXISTS],
    "written": [2, ANY, EXISTS],
}
VERSION = {"no stream": 0, "empty": 0, "written": 2}


@pytest.mark.parametrize("expected", [*ExpectedVersion, 0, 1, 2, 100], ids=str)
def test_a_write_is_made_where_the_stream_is_as_expected(run, partition, refuses, place, expected, pauses):
    if expected not in FITTING[place]:
        with refuses(ConcurrencyConflictError, match="orders-7"):
            run(Stream.write(partition, *events(3, 4), expected_version=expected))
        assert pauses == []  # a stream that is expected to exist is not waited for
        return

    result = run(Stream.write(partition, *events(3, 4), expected_version=expected))

    assert versions(result) == [VERSION[place] + 1, VERSION[place] + 2]
    opened = run(Stream.open(partition))
    assert opened.etag == result.stream.etag
    assert opened.properties == ({} if place == "no stream" else {"Owner": "me"})


@pytest.mark.parametrize(
    ("target", "given", "expected", "error"),
    [
        ("partition", [], 0, ValueError),
        ("partition", [event(1)], None, ValueError),
        ("partition", [event(1)], -1, ValueError),
        ("partition", [event(1)], "1", TypeError),
        ("partition", [event(1)], 1.0, TypeError),
        ("partition", [[event(1)]], 0, TypeError),
        ("partition", [{"N": 1}], 0, TypeError),
        ("partition", ["event"], 0, TypeError),
        ("stream", [event(1)], 0, ValueError),
        ("text", [event(1)], 0, TypeError),
    ],
)
def test_what_cannot_be_a_write_is_refused(run, partition, refuses, target, given, expected, error):
    targets = {"partition": partition, "stream": Stream(partition), "text": cast("Partition", "orders-7")}

    with refuses(error):
        run(Stream.write(targets[target], *given, expected_version=expected))


# Whoever holds another header than the one that is there gets a conflict.


async def write_it(stream):
    await Stream.write(stream, event(1))


async def delete_its_header(stream):
    await stream.partition.table.transact("orders-7", [Operation.delete("SS-HEAD")])


async def make_it_anew(stream):
    await delete_its_header(stream)
    await Stream.provision(stream.partition)


async def put_a_row_in_its_way(stream):
    await stream.partition.table.transact("orders-7", [Operation.insert("SS-SE-0000000001", {})])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (write_it, "has been changed"),
        (delete_its_header, "does not exist"),
        (make_it_anew, "been changed"),
        (put_a_row_in_its_way, "SS-SE-0000000001"),
    ],
)
def test_a_value_of_a_stream_that_was_changed_is_a_conflict(run, partition, refuses, change, told):
    stream = run(Stream.provision(partition))
    run(change(stream))

    with refuses(ConcurrencyConflictError, match=told):
        run(Stream.write(stream, event(1)))
    if change is write_it:
        with refuses(ConcurrencyConflictError, match="exists already"):
            run(Stream.write(Stream(partition), event(1)))


# Whatever the version: the write is made again when someone else was faster.


@pytest.mark.parametrize("expected", [ANY, EXISTS])
def test_a_write_on_whatever_version_is_made_again(run, table, partition, expected):
    async def be_faster(name, _partition_key, _number):
        if name == "transact" and watched.counts["transact"] <= 3:
            await Stream.write(partition, event(0), expected_version=ANY)

    run(Stream.provision(partition))
    watched = InterceptedTable(table, before=be_faster)

    result = run(Stream.write(Partition(watched, partition.key), event(1), expected_version=expected))

    assert result.stream.version == 4
    assert watched.counts == {"get": 4, "transact": 4}


def test_writers_on_any_version_pause_longer_and_longer(run, table, partition, pauses):
    async def be_faster(name, _partition_key, _number):
        if name == "transact":
            await Stream.write(partition, event(0), expected_version=ANY)

    watched = InterceptedTable(table, before=be_faster)

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(Partition(watched, partition.key), event(1), expected_version=ANY))

    assert watched.counts == {"get": ANY_ATTEMPTS, "transact": ANY_ATTEMPTS}
    assert len(pauses) == ANY_ATTEMPTS - 1
    longest = LONGEST_SECONDS if table.scope == "network" else LONGEST_BLOCKING_SECONDS
    for failures, seconds in enumerate(pauses):
        most = min(longest, FIRST_SECONDS * 2**failures)
        assert most / 2 <= seconds <= most


@pytest.mark.parametrize("writers", [16, pytest.param(80, marks=pytest.mark.thorough)])
def test_many_writers_on_any_version_all_succeed_twice(store_url, table_name, writers):
    """Threads, so that writers to the SQLite file and in memory are in each other's way too."""

    def write_twice(number):
        for turn in (1, 2):
            store.write(place, EventData({"Writer": number, "Turn": turn}), expected_version=ANY)

    with BlockingStore(store_url) as store, ThreadPoolExecutor(writers) as pool:
        place = Partition(store.table(table_name), "orders-7")
        for done in [pool.submit(write_twice, number) for number in range(writers)]:
            done.result()
        found = store.read(place)

    written = [(recorded.properties["Writer"], recorded.properties["Turn"]) for recorded in found.events]
    assert sorted(written) == [(number, turn) for number in range(writers) for turn in (1, 2)]


# Ids.


def test_an_id_has_a_row_that_marks_it_as_used_and_a_known_one_is_refused(run, partition, contents, refuses):
    given = event(1, id="known"), event(2), event(3, id="a/b")
    stream = run(Stream.write(partition, *given, expected_version=0)).stream

    marks = [(row.row_key, row.properties) for row in contents() if row.row_key.startswith("SS-UID-")]
    assert marks == [("SS-UID-a/b", {"Version": 3}), ("SS-UID-known", {"Version": 1})]
    for ids in (("new", "known"), ("twice", "twice")):
        with refuses(DuplicateEventError) as raised:
            run(Stream.write(stream, *[event(2, id=each) for each in ids]))
        assert (raised.value.stream, raised.value.event_id) == ("orders-7", ids[1])


def test_an_id_can_be_text_a_uuid_or_an_event_id_and_is_not_empty():
    uuid = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")

    assert EventData(id=uuid).id == EventData(id=EventId(str(uuid))).id == EventId(str(uuid))
    with pytest.raises(ValueError, match="empty"):
        EventData(id="")


@pytest.fixture
def streams(run, partition):
    """Give a stale and the current value of a stream that has the id "known" and the row "there"."""
    there = Include.insert("there", {})
    first = run(Stream.write(partition, event(1, id="known"), includes=[there], expected_version=0)).stream
    return {"stale": first, "current": run(Stream.write(first, event(2))).stream}


THERE = Include.insert("there", {})


@pytest.mark.parametrize(
    ("value", "given", "include", "error"),
    [
        ("stale", [event(3, id="known")], THERE, ConcurrencyConflictError),
        ("current", [event(3, id="known")], THERE, DuplicateEventError),
        ("current", [EventData(id="new", includes=[THERE]), event(4, id="known")], None, DuplicateEventError),
        ("current", [event(3, id="new")], THERE, IncludeConflictError),
        ("current", [event(3)], Include.replace("there", {}, 'W/"stale"'), IncludeConflictError),
    ],
)
def test_of_several_conflicts_the_header_comes_first_then_ids_then_includes(
    run, streams, refuses, value, given, include, error
):
    with refuses(error):
        run(Stream.write(streams[value], *given, includes=[include] if include else []))


# Limits.


@pytest.mark.parametrize("expected", [0, 1, ANY])
@pytest.mark.parametrize("given", [events(1, 100), [event(1), event(2, {"Large": b"x" * 65537})]])
def test_a_write_over_a_limit_is_refused_before_the_stream_is_opened(run, partition, expected, given):
    watched = InterceptedTable(partition.table)

    with pytest.raises(PayloadTooLargeError):
        run(Stream.write(Partition(watched, partition.key), *given, expected_version=expected))

    assert watched.counts["get"] == watched.counts["query"] == 0
    assert not run(Stream.exists(partition))


# Rows that are changed in one transaction with a stream.

KEPT: dict[str, Value] = {"V": 1, "Kept": "k"}


@pytest.fixture
def with_row(run, table, partition):
    run(table.transact(partition.key, [Operation.insert("there", KEPT)]))
    return run(Stream.provision(partition))


@pytest.fixture
def rows(contents):
    return lambda: {row.row_key: row for row in contents() if not row.row_key.startswith("SS-")}


def include_in(run, stream, *includes):
    return run(Stream.write(stream, event(1), includes=includes))


@pytest.mark.parametrize(
    ("include", "after"),
    [
        (Include.insert("new", {"V": 2}), {"there": KEPT, "new": {"V": 2}}),
        (Include.replace("there", {"V": 2}, "*"), {"there": {"V": 2}}),
        (Include.merge("there", {"V": 2}, "*"), {"there": {"V": 2, "Kept": "k"}}),
        (Include.delete("there", "*"), {}),
        (Include.insert_or_merge("there", {"V": 2}), {"there": {"V": 2, "Kept": "k"}}),
        (Include.insert_or_merge("new", {"V": 2}), {"there": KEPT, "new": {"V": 2}}),
        (Include.insert_or_replace("there", {"V": 2}), {"there": {"V": 2}}),
        (Include.insert_or_replace("new", {"V": 2}), {"there": KEPT, "new": {"V": 2}}),
    ],
)
def test_a_row_is_changed_with_the_event(run, with_row, rows, include, after):
    result = include_in(run, with_row, include)

    assert {key: row.properties for key, row in rows().items()} == after
    changed = rows().get(include.row_key)
    assert result.includes[0].etag == (changed.etag if changed else "")
    if changed:
        again = include_in(run, result.stream, Include.replace(include.row_key, {"V": 3}, changed.etag))
        assert rows()[include.row_key].etag == again.includes[0].etag


@pytest.mark.parametrize(
    "include",
    [
        Include.insert("there", {"V": 2}),
        Include.replace("missing", {"V": 2}, "*"),
        Include.replace("there", {"V": 2}, 'W/"stale"'),
        Include.delete("missing", "*"),
        Include.delete("there", 'W/"stale"'),
    ],
)
def test_an_include_that_is_refused_undoes_the_write(run, with_row, refuses, include):
    with refuses(IncludeConflictError) as raised:
        include_in(run, with_row, Include.insert("new", {}), include)

    assert (raised.value.stream, raised.value.row_key) == ("orders-7", include.row_key)


def test_includes_of_events_and_of_the_write_come_in_order(run, with_row):
    first = EventData({"N": 1}, includes=[Include.insert("a", {"V": 1})])
    second = EventData({"N": 2}, includes=[Include.insert("b", {"V": 2})])
    result = run(Stream.write(with_row, first, second, includes=[Include.insert("c", {"V": 3})]))

    found = [(include.row_key, include.properties) for include in result.includes]
    assert found == [("a", {"V": 1}), ("b", {"V": 2}), ("c", {"V": 3})]


@pytest.mark.parametrize(
    "key", ["SS-HEAD", "SS-SE-0000000001", "SS-UID-x", "sibling|SS-HEAD", "a|b|SS-SE-0000000009"]
)
def test_a_row_of_a_stream_cannot_be_included(run, with_row, refuses, key):
    with refuses(ValueError, match="belongs to a stream"):
        include_in(run, with_row, Include.insert_or_replace(key, {}))
