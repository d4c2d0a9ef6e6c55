"""A store in memory in place of the one that a url names, for the workers of a test."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from runtime.spark.worker import connection
from runtime.spark.worker import connection as concurrency
from tests.support.network_store import NetworkStore


@pytest.fixture
def network_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # Its calls take no time, however busy the machine is: slower ones would lower the concurrency limit.
    monkeypatch.setattr(concurrency, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    store = NetworkStore("memory:")
    monkeypatch.setattr(connection, "connect", lambda url: store)
    connections: dict[tuple[int, int, str, str], connection.Connection] = {}
    monkeypatch.setattr(connection, "_connections", connections)
    yield store.url
    for opened in connections.values():
        opened.close()
