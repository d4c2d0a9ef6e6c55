from __future__ import annotations

import asyncio
import sys
import types

import pytest
from azure.core.exceptions import ClientAuthenticationError

from eventstore import StoreUrlError, connect
from eventstore.backends.azure import AzureStore
from eventstore.backends.azure.store import AzureTable


class Credential:
    """Stands for azure-identity's default credential on a machine where nobody is signed in."""

    def __init__(self) -> None:
        self.scopes: tuple[str, ...] = ()
        self.is_closed = False

    async def get_token(self, *scopes, **_options):
        self.scopes = scopes
        raise ClientAuthenticationError(message="DefaultAzureCredential failed: s3cr3t details")

    async def close(self):
        self.is_closed = True


@pytest.fixture
def credential(monkeypatch):
    credential = Credential()
    module = types.ModuleType("azure.identity.aio")
    module.DefaultAzureCredential = lambda: credential  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure.identity", types.ModuleType("azure.identity"))
    monkeypatch.setitem(sys.modules, "azure.identity.aio", module)
    monkeypatch.setattr("eventstore.backends.azure.store._has_identity", lambda: True)
    return credential


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("https://acct.table.core.windows.net", "https://storage.azure.com/.default"),
        ("https://acct.table.cosmos.azure.com", "https://cosmos.azure.com/.default"),
    ],
)
def test_a_failed_sign_in_is_an_error_without_details(credential, url, scope):
    async def read():
        async with connect(url) as store:
            assert isinstance(store, AzureStore)
            await AzureTable(store, "games").get("p", "r")

    with pytest.raises(StoreUrlError, match="signing in failed") as raised:
        asyncio.run(read())

    assert credential.scopes == (scope,)
    assert credential.is_closed
    assert "s3cr3t" not in str(raised.value)
    assert raised.value.__cause__ is None
