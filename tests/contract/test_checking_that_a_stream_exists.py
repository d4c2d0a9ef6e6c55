from __future__ import annotations

from eventstore import EventData, Operation, Partition, Stream


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
