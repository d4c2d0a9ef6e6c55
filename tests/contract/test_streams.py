"""Opening, provisioning and looking for a stream, and its properties."""

from __future__ import annotations

import pytest

from eventstore import ConcurrencyConflictError, EventData, Operation, Partition, Stream, StreamNotFoundError


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


def test_a_new_stream_is_at_version_0_and_has_one_row(run, partition, contents):
    stream = run(Stream.provision(partition))

    assert (stream.version, stream.properties) == (0, {})
    (header,) = contents()
    assert (header.row_key, header.etag, header.properties) == ("SS-HEAD", stream.etag, {"Version": 0})


def test_a_new_stream_can_have_properties(run, partition, contents):
    stream = run(Stream.provision(partition, {"Owner": "me", "Limit": 3, "Nothing": None}))

    assert stream.properties == {"Owner": "me", "Limit": 3}
    assert contents()[0].properties == {"Version": 0, "Owner": "me", "Limit": 3}


def test_a_stream_that_is_there_is_not_provisioned_again(run, partition, refuses):
    run(Stream.provision(partition, {"Owner": "me"}))

    with refuses(ConcurrencyConflictError, match="exists already"):
        run(Stream.provision(partition, {"Owner": "you"}))


def test_a_stream_that_was_written_is_not_provisioned(run, partition, refuses):
    run(Stream.write(partition, EventData({"N": 1}), expected_version=0))

    with refuses(ConcurrencyConflictError):
        run(Stream.provision(partition))


def test_there_is_no_stream_before_it_is_written(run, partition):
    assert not run(Stream.exists(partition))


def test_a_provisioned_stream_exists(run, partition):
    run(Stream.provision(partition))

    assert run(Stream.exists(partition))


def test_a_written_stream_exists(run, partition):
    run(Stream.write(partition, EventData({"N": 1}), expected_version=0))

    assert run(Stream.exists(partition))


def test_other_rows_in_the_partition_are_no_stream(run, table, partition):
    run(table.transact(partition.key, [Operation.insert("SS-SE-0000000001", {"Version": 1})]))
    run(Stream.provision(Partition(table, partition.key, "other")))

    assert not run(Stream.exists(partition))


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
