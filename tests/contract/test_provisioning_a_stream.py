from __future__ import annotations

from eventstore import ConcurrencyConflictError, EventData, Stream


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
