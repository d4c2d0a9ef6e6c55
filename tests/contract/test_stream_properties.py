from __future__ import annotations

import pytest

from eventstore import ConcurrencyConflictError, EventData, Stream


@pytest.fixture
def stream(run, partition):
    return run(Stream.provision(partition, {"Owner": "me", "Limit": 3}))


def test_setting_the_properties_replaces_all_of_them(run, partition, stream):
    changed = run(Stream.set_properties(stream, {"Owner": "you", "Nothing": None}))

    assert changed.properties == {"Owner": "you"}
    assert changed.etag != stream.etag
    assert run(Stream.open(partition)) == changed


def test_setting_the_properties_of_a_changed_stream_is_a_conflict(run, stream, refuses):
    run(Stream.set_properties(stream, {"Owner": "you"}))

    with refuses(ConcurrencyConflictError):
        run(Stream.set_properties(stream, {"Owner": "she"}))


def test_a_transient_stream_has_no_properties_to_set(run, partition, refuses):
    with refuses(ValueError, match="transient"):
        run(Stream.set_properties(Stream(partition), {"Owner": "me"}))


def test_a_write_can_replace_the_properties_in_the_same_transaction(run, partition, stream):
    result = run(Stream.write(stream, EventData({"N": 1}), properties={"Owner": "you"}))

    assert result.stream.properties == {"Owner": "you"}
    assert run(Stream.open(partition)) == result.stream


def test_a_write_without_properties_keeps_them(run, partition, stream):
    written = run(Stream.write(stream, EventData({"N": 1}))).stream

    assert written.properties == {"Owner": "me", "Limit": 3}
    assert run(Stream.open(partition)) == written


def test_a_write_with_a_value_whose_properties_were_not_read_keeps_them(run, partition, stream):
    unread = Stream(partition, stream.etag, stream.version)

    written = run(Stream.write(unread, EventData({"N": 1}))).stream

    assert written.properties is None
    assert run(Stream.open(partition)).properties == {"Owner": "me", "Limit": 3}


def test_a_transient_stream_brings_its_properties(run, partition):
    transient = Stream(partition, properties={"Owner": "me"})

    run(Stream.write(transient, EventData({"N": 1})))

    assert run(Stream.open(partition)).properties == {"Owner": "me"}


@pytest.mark.parametrize("name", ["Version", "FirstVersion", "Tombstone", "ETag", "Timestamp"])
def test_names_that_the_store_needs_are_refused(run, partition, stream, refuses, name):
    with refuses(ValueError, match=name):
        run(Stream.set_properties(stream, {name: 1}))
    with refuses(ValueError, match=name):
        run(Stream.write(stream, EventData({"N": 1}), properties={name: 1}))
    with refuses(ValueError, match=name):
        run(Stream.provision(partition, {name: 1}))
    with refuses(ValueError, match=name):
        run(Stream.truncate(stream, 1, {name: 1}))


def test_properties_of_a_stream_value_cannot_be_changed(stream):
    with pytest.raises(TypeError):
        stream.properties["Owner"] = "you"
    with pytest.raises(AttributeError):
        stream.version = 7
