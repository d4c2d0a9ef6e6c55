"""Signatures of limited rights, checked by Azurite."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import (
    TableSasPermissions,
    generate_table_sas,
)

from eventstore import Partition, StoreUrlError, Stream, connect
from eventstore.backends.azure import account_of
from tests.support.names import new_name

pytestmark = pytest.mark.parametrize("store_url", ["azurite"], indirect=True)


@pytest.fixture
def account(store_url):
    return account_of(store_url)


@pytest.fixture
def key(account):
    return AzureNamedKeyCredential(account.name, account.key)


@pytest.fixture
def signed(account, run):
    """Connect with a signature."""
    stores = []

    def connected(signature):
        store = connect(f"TableEndpoint={account.endpoint};SharedAccessSignature={signature}")
        stores.append(store)
        return store

    yield connected
    for store in stores:
        run(store.close())


def test_a_signature_that_reads_one_table_opens_it_and_does_no_more(run, key, signed, table):
    run(Stream.provision(Partition(table, "there")))
    rights = TableSasPermissions(read=True)
    signature = generate_table_sas(
        key, table.name, permission=rights, expiry=datetime.now(UTC) + timedelta(hours=1)
    )
    store, wrong = signed(signature), signed(signature.replace("sig=", "sig=AAAA"))

    opened = run(store.table(table.name))

    assert run(Stream.exists(Partition(opened, "there")))
    for forbidden in (
        Stream.provision(Partition(opened, "new")),
        store.table(new_name()),
        wrong.table(table.name),
    ):
        with pytest.raises(StoreUrlError, match="refused the credentials"):
            run(forbidden)
