"""How many connections the calls of one Azure store take, counted by the other side."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import pytest

from eventstore import EventStoreError, Operation, connect
from eventstore.backends.azure import AzureStore, client
from eventstore.backends.azure.client import account_of
from eventstore.backends.azure.store import AzureTable
from tests.support.names import new_name
from tests.support.relay import relayed
from tests.support.table_service import (
    CREATED,
    WRITTEN,
    Answer,
    Service,
    entity,
    error,
    row,
    rows,
    served,
)

CALLS, MOST_CONNECTIONS = 300, 100
KEY = base64.b64encode(b"a secret key").decode()


class Echo(Service):
    """Answers a read with the row that it asked for, and a transaction with one ETag."""

    def answer(self, request: str) -> Answer:
        asked = re.search(r"RowKey='(.*?)'", unquote(request))
        return row(entity(asked[1])) if asked else WRITTEN


@pytest.fixture(autouse=True)
def _no_pauses_that_count(monkeypatch):
    # Else a pause of the machine could let connections grow too old to be used again.
    monkeypatch.setattr(client, "_KEEP_ALIVE_SECONDS", 600)
    monkeypatch.setattr(client, "_BACKOFF_SECONDS", 0)


@contextmanager
def connected(run, endpoint, name="acct", key=KEY) -> Iterator[AzureStore]:
    store = connect(f"TableEndpoint={endpoint};AccountName={name};AccountKey={key}")
    assert isinstance(store, AzureStore)
    try:
        yield store
    finally:
        run(store.close())


def at_the(service):
    return f"http://127.0.0.1:{service.port}/acct"


async def all_at_once(calls):
    return await asyncio.gather(*calls)


def test_many_reads_at_once_share_a_bounded_number_of_connections(run):
    with served(Echo(), run) as service, connected(run, at_the(service)) as store:
        table = AzureTable(store, "games")

        found = run(all_at_once([table.get("p", f"row-{number}") for number in range(CALLS)]))

        assert [row.row_key for row in found] == [f"row-{number}" for number in range(CALLS)]
        assert len(service.requests) == CALLS
        assert 1 < service.connections <= MOST_CONNECTIONS


def test_many_transactions_at_once_share_a_bounded_number_of_connections(run):
    with served(Echo(), run) as service, connected(run, at_the(service)) as store:
        table = AzureTable(store, "games")

        etags = run(
            all_at_once(
                [table.transact(f"p{number}", [Operation.insert("r", {})]) for number in range(CALLS)]
            )
        )

        assert etags == [('W/"one"',)] * CALLS
        assert 1 < service.connections <= MOST_CONNECTIONS


def test_many_calls_at_once_to_the_emulator_share_a_bounded_number_of_connections(run, azurite_url):
    account = account_of(azurite_url)
    with (
        relayed(account.endpoint, run) as relay,
        connected(run, relay.endpoint, account.name, account.key) as store,
    ):
        table = run(store.table(new_name()))
        writes = [
            table.transact(f"p{number}", [Operation.insert("r", {"N": number})]) for number in range(CALLS)
        ]

        run(all_at_once(writes))
        found = run(all_at_once([table.get(f"p{number}", "r") for number in range(CALLS)]))

        assert [row.properties for row in found] == [{"N": number} for number in range(CALLS)]
        assert 1 < relay.connections <= MOST_CONNECTIONS


def test_calls_one_after_the_other_take_one_connection(run):
    with served(Service(), run) as service, connected(run, at_the(service)) as store:
        service.answers = [
            CREATED,
            WRITTEN,
            rows(entity("r")),
            error(409, "EntityAlreadyExists"),
            error(404, "TableNotFound"),
            error(403, "AuthenticationFailed"),
            error(503, "ServerBusy"),
            rows(),
            WRITTEN,
        ]

        table = run(store.table("games"))
        for call in (write, read, write, read, write, read, write):
            try:
                run(call(table))
            except EventStoreError:
                continue

        assert service.answers == []
        assert service.connections == 1


def test_a_connection_that_the_service_closes_is_replaced(run):
    status, headers, body = WRITTEN
    with served(Service(), run) as service, connected(run, at_the(service)) as store:
        table = AzureTable(store, "games")
        service.answers = [(status, {**headers, "Connection": "close"}, body), WRITTEN, rows()]

        assert run(write(table)) == run(write(table)) == ('W/"one"',)
        assert run(read(table)).rows == ()

        assert service.connections == 2


async def write(table):
    return await table.transact("p", [Operation.insert("r", {})])


async def read(table):
    return await table.query("p", "a", "z")
