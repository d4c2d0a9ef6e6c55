"""A service that is asked too often says when to retry: the call waits that long, and then succeeds."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator

import pytest

from eventstore import Operation, StoreUnavailableError, connect
from eventstore.backends.azure import AzureStore, client
from eventstore.backends.azure.store import AzureTable
from tests.support.table_service import ACCEPTED, CREATED, Answer, Service, entity, error, rows, served

KEY = base64.b64encode(b"a secret key").decode()


class TimedService(Service):
    """Notes when each request came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.was_asked = asyncio.Event()

    def answer(self, request: str) -> Answer | None:
        self.times.append(time.monotonic())
        self.was_asked.set()
        return super().answer(request)


@pytest.fixture
def service(run, monkeypatch) -> Iterator[TimedService]:
    monkeypatch.setattr(client, "_BACKOFF_SECONDS", 0)
    service = TimedService()
    with served(service, run):
        yield service


@pytest.fixture
def store(run, service) -> Iterator[AzureStore]:
    store = connect(f"TableEndpoint=http://127.0.0.1:{service.port}/acct;AccountName=acct;AccountKey={KEY}")
    assert isinstance(store, AzureStore)
    yield store
    run(store.close())


def busy(status, **headers) -> Answer:
    status, own, body = error(status, "TooManyRequests")
    return (status, {**own, **{name.replace("_", "-"): value for name, value in headers.items()}}, body)


def read(store):
    return AzureTable(store, "games").query("p", "a", "z")


def write(store):
    return AzureTable(store, "games").transact("p", [Operation.insert("r", {})])


def make(store):
    return store.table("games")


@pytest.mark.parametrize(
    ("call", "status", "answer"),
    [
        (read, 429, rows(entity("r"))),
        (read, 503, rows(entity("r"))),
        (write, 503, ACCEPTED),
        (make, 429, CREATED),
    ],
)
def test_a_call_waits_as_long_as_it_is_told_to(run, service, store, call, status, answer):
    service.answers = [busy(status, Retry_After="1"), answer]

    run(call(store))

    first, second = service.times
    assert second - first >= 1


def test_a_call_waits_each_time_that_it_is_told_to(run, service, store):
    service.answers = [busy(429, Retry_After="0.3"), busy(503, Retry_After="0.2"), ACCEPTED]

    run(write(store))

    first, second, third = service.times
    assert second - first >= 0.3
    assert third - second >= 0.2


def test_a_read_waits_for_milliseconds(run, service, store):
    service.answers = [busy(429, x_ms_retry_after_ms="300"), rows()]

    run(read(store))

    first, second = service.times
    assert second - first >= 0.3


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("call", [read, write])
def test_a_service_that_stays_busy_is_not_asked_for_ever(run, service, store, call, status):
    service.answers = [busy(status, Retry_After="0")] * 10

    with pytest.raises(StoreUnavailableError, match=str(status)):
        run(call(store))

    assert len(service.times) == 4


def test_a_transaction_that_is_one_too_many_is_left_to_the_caller_when_nothing_says_how_long(
    run, service, store
):
    service.answers = [busy(429)]

    with pytest.raises(StoreUnavailableError, match="429"):
        run(write(store))

    assert len(service.times) == 1


def test_one_call_that_waits_holds_up_no_other(run, service, store):
    service.answers = [busy(503, Retry_After="600"), rows(), rows()]

    async def calls():
        waiting = asyncio.create_task(read(store))
        await service.was_asked.wait()
        await read(store)
        await read(store)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])

    run(calls())

    assert len(service.times) == 3
