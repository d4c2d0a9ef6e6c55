"""Ids of events, and which error is raised when several apply."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    EventId,
    Include,
    IncludeConflictError,
    PayloadTooLargeError,
    Stream,
)


def event(event_id=None):
    return EventData({"N": 1}, id=event_id)


def test_an_event_with_an_id_has_a_row_that_marks_the_id_as_used(run, partition, contents):
    run(Stream.write(partition, event("first"), event(), event("a/b"), expected_version=0))

    marks = [(row.row_key, row.properties) for row in contents() if row.row_key.startswith("SS-UID-")]
    assert marks == [("SS-UID-a/b", {"Version": 3}), ("SS-UID-first", {"Version": 1})]


def test_events_without_an_id_have_no_such_row(run, partition, contents):
    run(Stream.write(partition, event(), event(), expected_version=0))

    assert len(contents()) == 3


def test_a_known_id_is_refused_and_named(run, partition, refuses):
    stream = run(Stream.write(partition, event("known"), expected_version=0)).stream

    with refuses(DuplicateEventError) as raised:
        run(Stream.write(stream, event("new"), event("known")))

    assert raised.value.event_id == "known"
    assert raised.value.stream == "orders-7"


def test_two_events_of_one_write_cannot_have_one_id(run, partition, refuses):
    with refuses(DuplicateEventError, match="'twice'"):
        run(Stream.write(partition, event("twice"), event("twice"), expected_version=0))


def test_an_id_can_be_a_uuid_or_an_event_id():
    uuid = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")

    assert event(uuid).id == event(EventId(str(uuid))).id == EventId("6f9619ff-8b86-d011-b42d-00cf4fc964ff")


def test_an_id_is_not_empty():
    with pytest.raises(ValueError, match="empty"):
        event("")


def test_49_events_with_ids_fit_into_one_write_and_50_do_not(run, partition, refuses):
    stream = run(Stream.write(partition, *(event(f"id-{n}") for n in range(49)), expected_version=0)).stream

    with refuses(PayloadTooLargeError):
        run(Stream.write(stream, *(event(f"more-{n}") for n in range(50))))


@pytest.fixture
def streams(run, partition):
    """Give a stale and the current value of a stream that has the id "known" and the row "there"."""
    first = run(
        Stream.write(
            partition, EventData({}, id="known"), includes=[Include.insert("there", {})], expected_version=0
        )
    )
    second = run(Stream.write(first.stream, EventData({})))
    return first.stream, second.stream


def test_the_header_comes_before_a_duplicate_and_an_include(run, streams, refuses):
    stale, _ = streams

    with refuses(ConcurrencyConflictError):
        run(Stream.write(stale, EventData({}, id="known"), includes=[Include.insert("there", {})]))


def test_a_duplicate_comes_before_an_include(run, streams, refuses):
    _, current = streams

    with refuses(DuplicateEventError):
        run(Stream.write(current, EventData({}, id="known"), includes=[Include.insert("there", {})]))


def test_an_include_of_an_event_waits_for_the_ids_of_later_events(run, streams, refuses):
    _, current = streams
    first = EventData({}, id="new", includes=[Include.insert("there", {})])

    with refuses(DuplicateEventError):
        run(Stream.write(current, first, EventData({}, id="known")))


def test_an_include_comes_last(run, streams, refuses):
    _, current = streams

    with refuses(IncludeConflictError):
        run(Stream.write(current, EventData({}, id="new"), includes=[Include.insert("there", {})]))


def test_a_stale_etag_of_an_include_is_that_rows_conflict(run, streams, refuses):
    _, current = streams

    with refuses(IncludeConflictError, match="'there'.*has been changed"):
        run(Stream.write(current, EventData({}), includes=[Include.replace("there", {}, 'W/"stale"')]))
