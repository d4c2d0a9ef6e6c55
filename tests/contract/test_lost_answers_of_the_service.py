"""A transaction that is lost, or whose answer is: with the client's own repetitions, against the emulator."""

from __future__ import annotations

import pytest

from eventstore import EventData, ExpectedVersion, Operation, StoreUnavailableError, Stream, connect
from eventstore.backends.azure import client
from tests.support.lossy_proxy import Fault, LossyProxy

FAULTS_AFTER = [fault for fault in Fault if fault.takes_effect]
POSITIONS = ["new", "provisioned", "read in part", "any version"]


@pytest.fixture
def proxy(run, azurite_url, monkeypatch):
    monkeypatch.setattr(client, "_BACKOFF_SECONDS", 0)
    proxy = LossyProxy(azurite_url)
    running = proxy.running()
    run(running.__aenter__())
    yield proxy
    run(running.__aexit__(None, None, None))


@pytest.fixture
def store(run, proxy):
    store = connect(proxy.url)
    yield store
    run(store.close())


def target_of(run, partition, position):
    """Return where to write, and what is expected there: a transaction that inserts, replaces or merges the header."""
    if position == "new":
        return {"target": partition, "expected_version": ExpectedVersion.NO_STREAM}
    stream = run(Stream.provision(partition, {"Owner": "me"}))
    if position == "provisioned":
        return {"target": stream}
    if position == "read in part":
        return {"target": Stream(partition, stream.etag)}
    return {"target": partition, "expected_version": ExpectedVersion.ANY}


def write(run, asked, **options):
    events = [EventData({"N": 1}, id="a"), EventData({"N": 2}, id="b")]
    target = asked["target"]
    return run(Stream.write(target, *events, expected_version=asked.get("expected_version"), **options))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("fault", FAULTS_AFTER)
def test_a_write_that_took_effect_has_an_unknown_outcome_and_is_no_conflict(
    run, proxy, partition, position, fault
):
    asked = target_of(run, partition, position)
    proxy.faults = [fault]

    with pytest.raises(StoreUnavailableError) as raised:
        write(run, asked)

    assert raised.value.outcome_unknown
    assert len(run(Stream.read(partition)).events) == 2


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("fault", FAULTS_AFTER)
def test_an_idempotent_write_knows_itself(run, proxy, partition, position, fault):
    asked = target_of(run, partition, position)
    proxy.faults = [fault]
    sent = proxy.transactions

    result = write(run, asked, idempotent=True)

    assert result.repeated
    assert result.stream == run(Stream.open(partition))
    assert [event.version for event in result.events] == [1, 2]
    # After a 503 the client sends it again by itself, after a lost connection it does not.
    assert proxy.transactions - sent == (2 if fault is Fault.BUSY_AFTER else 1)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_write_that_met_a_busy_service_is_made_by_the_repetition(run, proxy, partition, position):
    asked = target_of(run, partition, position)
    proxy.faults = [Fault.BUSY_BEFORE, Fault.BUSY_BEFORE]

    result = write(run, asked, idempotent=True)

    assert not result.repeated
    assert len(run(Stream.read(partition)).events) == 2


@pytest.mark.parametrize("position", POSITIONS)
def test_a_write_that_was_lost_has_an_unknown_outcome_and_can_be_made_again(run, proxy, partition, position):
    asked = target_of(run, partition, position)
    proxy.faults = [Fault.HANG_UP_BEFORE]

    with pytest.raises(StoreUnavailableError) as raised:
        write(run, asked, idempotent=True)
    assert raised.value.outcome_unknown

    assert not write(run, asked, idempotent=True).repeated
    assert len(run(Stream.read(partition)).events) == 2


def test_a_write_in_parts_gets_through_a_service_that_fails_all_the_time(run, proxy, partition):
    events = [EventData({"N": number}, id=str(number)) for number in range(1, 201)]
    proxy.faults = [Fault.BUSY_AFTER, Fault.HANG_UP_AFTER, Fault.BUSY_BEFORE, Fault.BUSY_AFTER] * 2

    run(Stream.write_in_parts(partition, events, expected_version=0, idempotent=True))

    found = run(Stream.read(partition))
    assert [event.properties["N"] for event in found.events] == list(range(1, 201))
    assert found.stream.version == 200


@pytest.mark.parametrize("fault", FAULTS_AFTER)
@pytest.mark.parametrize("change", [Operation.replace, Operation.merge])
def test_a_change_of_one_row_that_took_effect_has_an_unknown_outcome(run, proxy, partition, fault, change):
    table, key = partition.table, partition.key
    (etag,) = run(table.transact(key, [Operation.insert("r", {"N": 1})]))
    proxy.faults, sent = [fault], proxy.transactions

    with pytest.raises(StoreUnavailableError) as raised:
        run(table.transact(key, [change("r", {"N": 2}, etag)]))

    assert raised.value.outcome_unknown
    assert proxy.transactions - sent == (2 if fault is Fault.BUSY_AFTER else 1)
    assert run(table.get(key, "r")).properties == {"N": 2}


@pytest.mark.parametrize("fault", FAULTS_AFTER)
def test_an_insert_of_one_row_that_took_effect_has_an_unknown_outcome(run, proxy, partition, fault):
    proxy.faults, sent = [fault], proxy.transactions

    with pytest.raises(StoreUnavailableError) as raised:
        run(Stream.provision(partition))

    assert raised.value.outcome_unknown
    assert proxy.transactions - sent == (2 if fault is Fault.BUSY_AFTER else 1)
    assert run(Stream.exists(partition))


def test_a_change_of_one_row_that_was_lost_is_not_sent_again(run, proxy, partition):
    table, key = partition.table, partition.key
    (etag,) = run(table.transact(key, [Operation.insert("r", {"N": 1})]))
    proxy.faults, sent = [Fault.HANG_UP_BEFORE], proxy.transactions

    with pytest.raises(StoreUnavailableError) as raised:
        run(table.transact(key, [Operation.replace("r", {"N": 2}, etag)]))

    assert raised.value.outcome_unknown
    assert proxy.transactions - sent == 1
    assert run(table.get(key, "r")).properties == {"N": 1}
