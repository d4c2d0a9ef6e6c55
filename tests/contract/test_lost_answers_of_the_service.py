"""A transaction that is lost, or whose answer is: with the client's own repetitions, on servers."""

import pytest

from eventstore import ExpectedVersion, Operation, StoreUnavailableError, Stream, connect
from eventstore.backends import azure
from tests.support.lossy_proxy import Fault, LossyProxy
from tests.support.postgresql import PostgresProxy
from tests.support.streams import events_with_ids, versions

FAULTS_AFTER = [fault for fault in Fault if fault.takes_effect]
POSITIONS = ["new", "provisioned", "read in part", "any version"]


@pytest.fixture(params=["azurite", "postgresql"])
def proxy(run, request, monkeypatch):
    monkeypatch.setattr(azure, "_BACKOFF_SECONDS", 0)
    kind = LossyProxy if request.param == "azurite" else PostgresProxy
    proxy = kind(request.getfixturevalue(f"{request.param}_url"))
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
    target, expected = asked["target"], asked.get("expected_version")
    return run(Stream.write(target, *events_with_ids(1, 2), expected_version=expected, **options))


def times_sent(proxy, fault):
    """Return how often the client sends it by itself: after a 503 again, after a lost connection not."""
    return 2 if fault is Fault.BUSY_AFTER and isinstance(proxy, LossyProxy) else 1


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("fault", FAULTS_AFTER)
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_write_that_took_effect_has_an_unknown_outcome_and_knows_itself(
    run, proxy, partition, position, fault, idempotent
):
    asked = target_of(run, partition, position)
    proxy.faults, sent = [fault], proxy.transactions

    if idempotent:
        result = write(run, asked, idempotent=True)
        assert (result.repeated, versions(result)) == (True, [1, 2])
        assert result.stream == run(Stream.open(partition))
    else:
        with pytest.raises(StoreUnavailableError) as raised:
            write(run, asked)
        assert raised.value.outcome_unknown

    assert proxy.transactions - sent == times_sent(proxy, fault)
    assert len(run(Stream.read(partition)).events) == 2


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("faults", [[Fault.BUSY_BEFORE] * 2, [Fault.HANG_UP_BEFORE]])
def test_a_write_that_did_not_arrive_is_made_by_a_repetition(run, proxy, partition, position, faults):
    asked = target_of(run, partition, position)
    proxy.faults = list(faults)

    if faults == [Fault.HANG_UP_BEFORE]:
        with pytest.raises(StoreUnavailableError) as raised:
            write(run, asked, idempotent=True)
        assert raised.value.outcome_unknown

    assert not write(run, asked, idempotent=True).repeated
    assert len(run(Stream.read(partition)).events) == 2


@pytest.mark.parametrize("fault", [*FAULTS_AFTER, Fault.HANG_UP_BEFORE])
@pytest.mark.parametrize("change", [Operation.replace, Operation.merge, Operation.insert])
def test_a_change_of_one_row_has_an_unknown_outcome(run, proxy, partition, fault, change):
    table, key = partition.table, partition.key
    etags = run(table.transact(key, [Operation.insert("r", {"N": 1})])) if change != Operation.insert else ()
    proxy.faults, sent = [fault], proxy.transactions

    with pytest.raises(StoreUnavailableError) as raised:
        run(table.transact(key, [change("r", {"N": 2}, *etags)]))

    assert raised.value.outcome_unknown
    assert proxy.transactions - sent == times_sent(proxy, fault)
    row = run(table.get(key, "r"))
    before = {"N": 1} if etags else None
    assert (row and row.properties) == ({"N": 2} if fault.takes_effect else before)
