import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventstore import connect
from eventstore.backends.azure import AzureStore
from tests.support.table_service import Service


@pytest.fixture
def run() -> Iterator[Callable[[Any], Any]]:
    """Run a coroutine in the event loop of the test."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def store_at(run) -> Iterator[Callable[[Service], AzureStore]]:
    """Connect to a service that is played."""
    stores = []

    def store_at(service: Service) -> AzureStore:
        store = connect(
            f"TableEndpoint=http://127.0.0.1:{service.port}/acct;AccountName=acct;AccountKey=c2VjcmV0"
        )
        assert isinstance(store, AzureStore)
        stores.append(store)
        return store

    yield store_at
    for store in stores:
        run(store.close())
