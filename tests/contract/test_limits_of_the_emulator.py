"""What Azurite takes and refuses when nothing is checked before: that the limits are where they are said to be."""

import pytest

from eventstore import EventStoreError
from eventstore.backends import azure as azure_store
from eventstore.backends.azure import AzureTable
from eventstore.keys import escape, escape_bound
from eventstore.limits import MAX_TRANSACTION_BYTES
from tests.support.payloads import (
    AT_A_LIMIT,
    KIB,
    OVER_A_LIMIT,
    PARTITION_KEY,
    TAKEN_BY_THE_EMULATOR,
    transaction_of,
)

pytestmark = pytest.mark.parametrize("store_url", ["azurite"], indirect=True)


@pytest.fixture
def unchecked(monkeypatch):
    """Send whatever is asked for."""
    monkeypatch.setattr(
        azure_store, "prepare", lambda _, operations: [dict(each.properties) for each in operations]
    )
    monkeypatch.setattr("eventstore.keys.MAX_KEY_UNITS", 10 * KIB)
    yield
    for remembered in (escape, escape_bound):  # what is too long was taken, and must not be in the next test
        remembered.cache_clear()


@pytest.mark.parametrize("limit", AT_A_LIMIT)
def test_what_is_at_a_limit_is_taken(run, table, contents, unchecked, limit):
    run(table.transact(PARTITION_KEY, AT_A_LIMIT[limit]))

    assert len(contents()) == len(AT_A_LIMIT[limit])


@pytest.mark.parametrize("limit", set(OVER_A_LIMIT) - TAKEN_BY_THE_EMULATOR - {"bytes of a transaction"})
def test_what_is_over_a_limit_by_one_is_refused(run, table, refuses, unchecked, limit):
    with refuses(EventStoreError):
        run(table.transact(PARTITION_KEY, OVER_A_LIMIT[limit]))


@pytest.mark.parametrize("limit", TAKEN_BY_THE_EMULATOR)
def test_some_limits_are_those_of_the_real_service_only(run, table, contents, unchecked, limit):
    run(table.transact(PARTITION_KEY, OVER_A_LIMIT[limit]))

    assert len(contents()) == 1


def sent_bytes(table: AzureTable, operations):
    prepared = [dict(operation.properties) for operation in operations]
    row_keys = [operation.row_key for operation in operations]
    url = f"{table._store.url}/{table.name}"
    return len(azure_store.transaction(url, PARTITION_KEY, row_keys, operations, prepared, is_cosmos=False))


def test_4_mib_are_taken_and_a_byte_more_is_refused(run, table, refuses, unchecked):
    shorter = MAX_TRANSACTION_BYTES - sent_bytes(table, transaction_of(MAX_TRANSACTION_BYTES))
    at, over = (transaction_of(MAX_TRANSACTION_BYTES + shorter + more) for more in (0, 1))
    assert sent_bytes(table, at) == MAX_TRANSACTION_BYTES

    with refuses(EventStoreError):
        run(table.transact(PARTITION_KEY, over))
    assert run(table.transact(PARTITION_KEY, at))
