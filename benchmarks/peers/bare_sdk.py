"""`bare-sdk`: the requests of a batch, sent through the public asynchronous methods of azure-data-tables."""

from __future__ import annotations

import asyncio
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import EdmType, EntityProperty
from azure.data.tables.aio import TableClient

from benchmarks.peers.bare import BareClient, inserts_only, send_all
from benchmarks.peers.emulator import ACCOUNT, KEY, endpoint_of
from benchmarks.peers.recording import Query, Request, Transaction
from benchmarks.shooting import TABLE
from eventstore import Int64, Operation


class BareSdk(BareClient):
    """`query_entities` and `submit_transaction`."""

    @staticmethod
    def replay(url: str, in_flight: int) -> None:
        """Send what this process was given."""
        asyncio.run(_replay(endpoint_of(url), in_flight))


async def _replay(endpoint: str, in_flight: int) -> None:
    credential = AzureNamedKeyCredential(ACCOUNT, KEY)
    async with TableClient(endpoint, TABLE, credential=credential) as table:

        async def send(request: Request) -> None:
            if isinstance(request, Query):
                await _query(table, request)
            else:
                await _submit(table, inserts_only(request))

        await send_all(send, in_flight)


async def _query(table: TableClient, query: Query) -> None:
    found = table.query_entities(
        "PartitionKey eq @partition and RowKey ge @first and RowKey le @last",
        parameters={"partition": query.partition_key, "first": query.first, "last": query.last},
        select=list(query.select) if query.select is not None else None,
    )
    async for _ in found:
        pass


async def _submit(table: TableClient, transaction: Transaction) -> None:
    await table.submit_transaction(
        [("create", _entity(transaction.partition_key, operation)) for operation in transaction.operations]
    )


def _entity(partition_key: str, operation: Operation) -> dict[str, Any]:
    entity: dict[str, Any] = {"PartitionKey": partition_key, "RowKey": operation.row_key}
    for name, value in operation.properties.items():
        entity[name] = EntityProperty(int(value), EdmType.INT64) if isinstance(value, Int64) else value
    return entity
