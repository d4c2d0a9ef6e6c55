"""Tables of a storage account: one request for each call of the port."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Sequence
from operator import itemgetter
from urllib.parse import quote
from weakref import WeakKeyDictionary

from eventstore.backends.azure.account import Account, account_of
from eventstore.backends.azure.client import Answer, Client
from eventstore.backends.azure.entities import decode
from eventstore.backends.azure.transactions import (
    BATCH_HEADERS,
    Refusal,
    RowRequest,
    TransactionWriter,
    etags_or_refusal,
    refusal,
)
from eventstore.backends.naming import table_name
from eventstore.errors import (
    EventStoreError,
    PayloadTooLargeError,
    RowChangedError,
    RowError,
    RowExistsError,
    RowNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
    TableNotFoundError,
)
from eventstore.keys import escape, escape_bound
from eventstore.limits import prepare
from eventstore.port import Operation, Page, Row, Scope, Store, Table

_ROW_ERRORS: dict[str, type[RowError]] = {
    "EntityAlreadyExists": RowExistsError,
    "EntityNotFound": RowNotFoundError,
    "ResourceNotFound": RowNotFoundError,
    "UpdateConditionNotSatisfied": RowChangedError,
    "ConditionNotMet": RowChangedError,
}
_TOO_LARGE = frozenset(
    {
        "RequestBodyTooLarge",
        "EntityTooLarge",
        "PropertyValueTooLarge",
        "TooManyProperties",
        "KeyValueTooLarge",
    }
)
_NO_ROW = frozenset({"ResourceNotFound", "EntityNotFound"})
_NO_TABLE = frozenset({"TableNotFound", "TableBeingDeleted", "ResourceNotFound"})
_FORBIDDEN = frozenset({401, 403})
# Time-out, too many requests, retry with: Cosmos DB says so inside the answer to a transaction, which nobody repeats.
_PASSING = frozenset({408, 429, 449})
_KEY_PROPERTIES = ("PartitionKey", "RowKey", "Timestamp")


class AzureTable(Table):
    """A table of a storage account."""

    scope: Scope = "network"

    def __init__(self, store: AzureStore, name: str) -> None:
        self._store = store
        self._name = self.name = name
        self.store_url = store.url
        account = store.account
        self._writer = TransactionWriter(account.endpoint, name, is_cosmos=account.is_cosmos)

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        return await self._row(escape(partition_key), escape(row_key), None)

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        stored_key = escape(partition_key)
        if first and first == last:
            row = await self._row(stored_key, escape(first), select)
            return Page(() if row is None else (row,))
        clauses = [("PartitionKey", "eq", stored_key), *_range("RowKey", first, last)]
        return await self._page(clauses, select, continuation)

    async def scan(
        self,
        row_key: str | None,
        first: str = "",
        last: str | None = None,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        clauses = _range("PartitionKey", first, last)
        if row_key is not None:
            clauses = [("RowKey", "eq", escape(row_key)), *clauses]
        return await self._page(clauses, select, continuation)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        prepared = prepare(partition_key, operations)
        stored_key = escape(partition_key)
        row_keys = [escape(operation.row_key) for operation in operations]
        if len(operations) == 1:
            request = self._writer.row_request(stored_key, row_keys[0], operations[0], prepared[0])
            if request is not None:
                return await self._write_row(request, operations)
        body = self._writer.body(stored_key, row_keys, operations, prepared)
        answer = await self._store.client().write("POST", "/$batch", body, BATCH_HEADERS)
        if answer.status != 202:  # noqa: PLR2004 - Accepted: the answers to the operations are inside
            raise self._explained(refusal(answer.status, answer.body))
        result = etags_or_refusal(answer.body, len(operations))
        if isinstance(result, Refusal):
            raise self._refused(result, operations, answer)
        return result

    async def barrier(self) -> None:
        """Return at once: the service answers when a write is durable."""

    async def make(self) -> None:
        """Make the table when it is not there."""
        try:
            answer = await self._store.client().create_table(self._name)
        except StoreUrlError:
            # Some signatures allow to use a table and not to make one.
            await self.check()
            return
        if answer is None:
            return
        refused = refusal(answer.status, answer.body)
        if refused.code == "TableBeingDeleted":
            raise StoreUnavailableError(f"The table {self._name} is being deleted.")
        raise self._explained(refused)

    async def check(self) -> None:
        """Raise `TableNotFoundError` when the table is not there. Costs one request."""
        await self._page([("PartitionKey", "eq", ""), ("RowKey", "eq", "")], (), None)

    async def _write_row(self, request: RowRequest, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Carry out a transaction of one operation."""
        answer = await self._store.client().write(request.method, request.path, request.body, request.headers)
        if answer.status >= 300:  # noqa: PLR2004 - what HTTP calls success is below
            raise self._refused(refusal(answer.status, answer.body), operations, answer)
        return (answer.headers["ETag"],)

    async def _row(self, partition_key: str, row_key: str, select: Sequence[str] | None) -> Row | None:
        """Read one row by its stored keys: a service that is asked by a filter may look through the table."""
        keys = f"PartitionKey='{quote(partition_key, safe='')}',RowKey='{quote(row_key, safe='')}'"
        answer = await self._store.client().get(f"/{self._name}({keys})?{_select(select)}".rstrip("?"))
        if answer.status == 200:  # noqa: PLR2004 - OK
            return decode(json.loads(answer.body))
        refused = refusal(answer.status, answer.body)
        if refused.code not in _NO_ROW:
            raise self._explained(refused)
        if self._store.account.is_cosmos:
            # It says the same of a table that is not there.
            await self.check()
        return None

    async def _page(
        self, clauses: Sequence[tuple[str, str, str]], select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        wanted = f"$filter={_filter(clauses)}" if clauses else ""
        options = "&".join(filter(None, [wanted, _select(select), (continuation or "").removeprefix("&")]))
        answer = await self._store.client().get(f"/{self._name}()?{options}")
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise self._explained(refusal(answer.status, answer.body))
        entities = json.loads(answer.body)["value"]
        if self._store.account.is_cosmos:
            # It promises no order.
            entities.sort(key=itemgetter("PartitionKey", "RowKey"))
        rows = [decode(entity) for entity in entities]
        return Page(tuple(rows), _continuation(answer))

    def _refused(self, refused: Refusal, operations: Sequence[Operation], answer: Answer) -> EventStoreError:
        row_error = _ROW_ERRORS.get(refused.code)
        if row_error is None or self._is_of_the_table(refused):
            return self._explained(refused)
        if answer.was_repeated:
            return StoreUnavailableError(
                f"{self._store.url} failed, and refused the transaction when it was sent again: "
                "the first attempt may have been carried out.",
                outcome_unknown=True,
            )
        # Azure Storage leaves out that it was the first operation.
        index = refused.index or 0
        return row_error(operations[index].row_key, index)

    def _is_of_the_table(self, refused: Refusal) -> bool:
        """Tell whether Cosmos DB misses the table: it says so as of a row, but names no operation."""
        is_missing = refused.code == "ResourceNotFound" and refused.index is None
        return is_missing and self._store.account.is_cosmos

    def _explained(self, refused: Refusal) -> EventStoreError:
        what = f"{self._store.url} refused a request for the table {self._name}: {refused.code or refused.status}."
        if refused.status == 413 or refused.code in _TOO_LARGE:  # noqa: PLR2004 - Payload Too Large
            return PayloadTooLargeError(what)
        if refused.code in _NO_TABLE:
            return TableNotFoundError(self._name, self._store.url)
        if refused.status in _FORBIDDEN:
            return StoreUrlError(
                f"{self._store.url} refused the credentials ({refused.status} {refused.code})."
            )
        if refused.status in _PASSING or refused.status >= 500:  # noqa: PLR2004 - the service's own failures
            return StoreUnavailableError(what, outcome_unknown=True)
        return EventStoreError(what)


class AzureStore(Store):
    """The tables of one storage account."""

    scope: Scope = "network"

    def __init__(self, account: Account) -> None:
        if account.signing == "identity" and not _has_identity():
            raise StoreUrlError(
                "A store url without a key or signature needs azure-identity: "
                "pip install 'consistent-messaging[azure]'."
            )
        self.url = account.endpoint
        self.account = account
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    @classmethod
    def connect(cls, url: str) -> AzureStore:
        """Return the store behind a url or connection string. Raises `StoreUrlError`."""
        return cls(account_of(url))

    async def table(self, name: str, *, make: bool = True) -> AzureTable:
        table = AzureTable(self, table_name(name))
        await (table.make() if make else table.check())
        return table

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and client.pid == os.getpid():
            await client.close()

    def client(self) -> Client:
        """Return the client of this event loop and process."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or client.pid != os.getpid():
            for ended in [other for other in self._clients if other.is_closed()]:
                del self._clients[ended]
            client = self._clients[loop] = Client(self.account)
        return client


def _has_identity() -> bool:
    return importlib.util.find_spec("azure.identity") is not None


def _range(name: str, first: str, last: str | None) -> list[tuple[str, str, str]]:
    if first and first == last:
        return [(name, "eq", escape_bound(first))]
    clauses = [(name, "ge", escape_bound(first))] if first else []
    if last is not None:
        clauses.append((name, "le", escape_bound(last)))
    return clauses


def _select(select: Sequence[str] | None) -> str:
    """Return the part of a query that names the properties to read, "" for all."""
    if select is None:
        return ""
    # No property has another name, and the service would read a comma as the end of one.
    names = [name for name in select if name.isidentifier()]
    return f"$select={quote(','.join(dict.fromkeys((*_KEY_PROPERTIES, *names))))}"


def _filter(clauses: Sequence[tuple[str, str, str]]) -> str:
    # A stored key has no quote that could end the text early: it is escaped.
    return quote(
        " and ".join(f"{name} {comparison} '{value}'" for name, comparison, value in clauses), safe=""
    )


def _continuation(answer: Answer) -> str | None:
    """Return the rest of a url that asks for the next page; an empty page can have one too."""
    query = ""
    for name in ("NextPartitionKey", "NextRowKey"):
        value = answer.headers.get(f"x-ms-continuation-{name}")
        if value:
            query += f"&{name}={quote(value, safe='')}"
    return query or None
