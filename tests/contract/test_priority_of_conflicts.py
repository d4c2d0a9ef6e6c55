from __future__ import annotations

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    Include,
    IncludeConflictError,
    Stream,
)


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
