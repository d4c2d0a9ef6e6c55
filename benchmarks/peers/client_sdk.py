"""`client-sdk`: the same rows through the public asynchronous methods of azure-data-tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ResourceExistsError
from azure.data.tables import UpdateMode
from azure.data.tables.aio import TableClient

from benchmarks.peers.client import Client, Event
from benchmarks.peers.emulator import ACCOUNT, KEY, endpoint_of
from benchmarks.shooting import TABLE

HEADER = "SS-HEAD"


class ClientSdk(Client):
    """`submit_transaction`, `query_entities` and `get_entity`."""

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Open the table, and make it when it is not there."""
        credential = AzureNamedKeyCredential(ACCOUNT, KEY)
        async with TableClient(endpoint_of(self.azurite.url), TABLE, credential=credential) as self._table:
            with suppress(ResourceExistsError):
                await self._table.create_table()
            self._headers: dict[str, tuple[int, str]] = {}
            yield

    async def append(self, key: str, events: Iterable[Event]) -> None:
        """One transaction."""
        version, etag = self._headers.get(key, (0, ""))
        rows = [
            {"PartitionKey": key, "RowKey": _event(number), "Version": number, **event}
            for number, event in enumerate(events, version + 1)
        ]
        header = {"PartitionKey": key, "RowKey": HEADER, "Version": version + len(rows)}
        under = {"mode": UpdateMode.MERGE, "etag": etag, "match_condition": MatchConditions.IfNotModified}
        first = ("update", header, under) if etag else ("create", header)
        answers = await self._table.submit_transaction([first, *[("create", row) for row in rows]])
        self._headers[key] = version + len(rows), answers[0]["etag"]

    async def read(self, key: str, first: int, last: int) -> list[Any]:
        """One query."""
        found = self._table.query_entities(
            "PartitionKey eq @key and RowKey ge @first and RowKey le @last",
            parameters={"key": key, "first": _event(first), "last": _event(last)},
        )
        return [entity async for entity in found]

    async def open(self, key: str) -> None:
        """One point read."""
        await self._table.get_entity(key, HEADER)

    async def state(self, key: str) -> str:
        """Read the last event."""
        header = await self._table.get_entity(key, HEADER)
        event = await self._table.get_entity(key, _event(header["Version"]))
        return str(event["State"])


def _event(version: int) -> str:
    return f"SS-SE-{version:010d}"
