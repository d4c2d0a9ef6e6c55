from __future__ import annotations

import pytest

from eventstore import EventData, Stream, StreamNotFoundError


def test_opening_gives_the_stream_as_it_was_written(run, partition):
    written = run(
        Stream.write(partition, EventData({"N": 1}), expected_version=0, properties={"Owner": "me"})
    ).stream

    opened = run(Stream.open(partition))

    assert opened == written
    assert (opened.version, opened.first_version, opened.properties) == (1, 1, {"Owner": "me"})
    assert run(Stream.try_open(partition)) == written


def test_opening_a_stream_that_is_not_there_is_an_error(run, partition):
    with pytest.raises(StreamNotFoundError, match="orders-7"):
        run(Stream.open(partition))


def test_trying_to_open_a_stream_that_is_not_there_gives_none(run, partition):
    assert run(Stream.try_open(partition)) is None


def test_a_stream_value_can_be_restored_from_its_parts(run, partition):
    opened = run(Stream.provision(partition))

    restored = Stream(partition, etag=opened.etag, version=opened.version)
    result = run(Stream.write(restored, EventData({"N": 1})))

    assert run(Stream.open(partition)).etag == result.stream.etag
