"""Queues as sources, without their servers: what is received is handled, and a broker that is away is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.storage.queue import QueueMessage

from runtime.serve.messages import Received, SourceUnavailableError, open_source
from tests.unit.runtime.serve.topics import line


class AzureQueue:
    """A client whose first request returns one message, and whose second one fails."""

    is_away = False

    async def get_queue_properties(self) -> None:
        if self.is_away:
            raise ServiceRequestError("the connection was refused")

    async def receive_messages(self, **_: Any) -> AsyncIterator[QueueMessage]:
        yield QueueMessage(line("m1", "anna").decode())
        raise ServiceRequestError("the connection was lost")


def test_a_message_is_read_although_the_request_after_it_fails():
    source: Any = open_source("azurequeue://127.0.0.1:1/entries")
    source._place.client = lambda _: AzureQueue()

    async def read() -> list[Received]:
        await source.open(None)
        found: list[Received] = await source.read(100, 0)
        await source.close()
        return found

    assert [each.envelope.message_id for each in asyncio.run(read())] == ["m1"]


@pytest.mark.parametrize("url", ["azurequeue://127.0.0.1:1/entries", "amqp://127.0.0.1:1/?queue=entries"])
def test_a_source_that_is_away_at_the_start_is_waited_for(url, monkeypatch):
    monkeypatch.setattr(AzureQueue, "is_away", True)
    source: Any = open_source(url)
    source._place.client = lambda _: AzureQueue()

    with pytest.raises(SourceUnavailableError):
        asyncio.run(source.open(None))
