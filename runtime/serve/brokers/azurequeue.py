"""Azure Storage Queues: envelopes in JSON, as text or base64. Messages in progress stay invisible.

If the invisibility of a message expires, other consumers receive it too. All of them publish the same outputs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.queue import QueueMessage, StorageErrorCode, TextBase64EncodePolicy
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.file_systems import EMULATOR_ACCOUNT, EMULATOR_KEY
from runtime.options import resolved
from runtime.publishing.publisher import CommittedOutput
from runtime.serve.messages import (
    Rebalances,
    Received,
    Settlement,
    Source,
    SourceUnavailableError,
    number_of,
    parts_of,
    read_message,
    usable_connection,
    written,
)
from runtime.serve.streams import LOG

_FORM = (
    "A queue is written azurequeue://ACCOUNT.queue.core.windows.net/QUEUE, azurequeue://HOST:PORT/QUEUE for Azurite, "
    "or azurequeue:///QUEUE?connection=env:NAME with a connection string in an environment variable."
)
_LOCAL = {"127.0.0.1", "localhost", "::1"}
_PAGE = 32  # the maximum number of messages in a response
_REQUESTS = 8  # made concurrently
_IDLE_SECONDS = 0.5  # between two requests to an empty queue
_GONE = {StorageErrorCode.MESSAGE_NOT_FOUND, StorageErrorCode.POP_RECEIPT_MISMATCH}
_BUSY = {408, 429, 500, 502, 503, 504, None}


class _Place:
    """The parts of a URL, and the clients of the account."""

    def __init__(self, url: str) -> None:
        parts, self.given = parts_of(url, _FORM)
        self.queue = parts.path.strip("/")
        if "/" in self.queue or "@" in parts.netloc or not (parts.hostname or "connection" in self.given):
            raise UsageError(_FORM)
        self.name = f"azurequeue://{parts.netloc}/{self.queue}"
        self._host, self._is_local = parts.netloc, parts.hostname in _LOCAL
        self._service = self._connected()
        self._clients: dict[str, QueueClient] = {}

    def client(self, queue: str) -> QueueClient:
        """Return the client of a queue. All clients share their connections."""
        if queue not in self._clients:
            encode = TextBase64EncodePolicy() if self.given.get("base64") == "1" else None
            self._clients[queue] = self._service.get_queue_client(queue, message_encode_policy=encode)
        return self._clients[queue]

    def _connected(self) -> QueueServiceClient:
        if "connection" in self.given:
            with usable_connection():
                return QueueServiceClient.from_connection_string(resolved(self.given["connection"]))
        if self._is_local:
            key = {"account_name": EMULATOR_ACCOUNT, "account_key": EMULATOR_KEY}
            return QueueServiceClient(f"http://{self._host}/{EMULATOR_ACCOUNT}", credential=key)
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - where it is needed

        return QueueServiceClient(f"https://{self._host}", credential=DefaultAzureCredential())

    async def close(self) -> None:
        await self._service.close()


@dataclass(eq=False)
class _Lease:
    """A message that is invisible to other consumers. Each renewal changes its receipt, which `lock` guards."""

    message: QueueMessage
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class AzureQueueSource:
    """A queue. The prefetch is bounded, since the lease of each waiting message is renewed."""

    origin: str | None = None

    def __init__(self, url: str) -> None:
        self._place = place = _Place(url)
        if not place.queue:
            raise UsageError(_FORM)
        self.name = place.name
        self._visibility = number_of(place.given, "visibility", 30)  # seconds
        self._prefetch = number_of(place.given, "prefetch", 512)
        self._leases: set[_Lease] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def open(self, rebalances: Rebalances) -> None:
        del rebalances
        self._client = self._place.client(self._place.queue)
        try:
            await self._client.get_queue_properties()
        except ResourceNotFoundError as error:
            raise UsageError(f"There is no queue {self.name}: correct --from.") from error
        except AzureError as error:
            raise SourceUnavailableError(f"{self.name}: {error}") from error
        self._requests = asyncio.Semaphore(_REQUESTS)
        self._renewing = asyncio.create_task(self._renew())

    async def read(self, most: int, linger: float) -> Sequence[Received]:
        del linger  # a request takes that long anyway
        found: list[Received] = []
        try:
            while (room := min(most - len(found), self._prefetch - len(self._leases), _PAGE)) > 0:
                before = len(found)
                async for each in self._client.receive_messages(
                    messages_per_page=room, max_messages=room, visibility_timeout=self._visibility
                ):
                    found.append(self._received(each))  # noqa: PERF401 - a later request may fail
                if len(found) - before < room:
                    break
        except AzureError as error:
            if not found:
                raise SourceUnavailableError(f"{self.name}: {error}") from error
        if not found:
            await asyncio.sleep(_IDLE_SECONDS if room > 0 else 0.02)
        return found

    def _received(self, message: QueueMessage) -> Received:
        text = str(message.content).encode()
        if not text.lstrip().startswith(b"{"):
            with suppress(binascii.Error, ValueError):
                text = base64.b64decode(text, validate=True)
        lease = _Lease(message)
        self._leases.add(lease)
        return read_message(text, f"{self.name}/{message.id}", stamped=message.inserted_on, receipt=lease)

    async def acknowledge(self, received: Sequence[Received]) -> None:
        gone = sum(await asyncio.gather(*(self._delete(each.receipt) for each in received)))
        if gone:
            LOG.warning("%s messages of %s were visible again before they were done", gone, self.name)

    async def _delete(self, lease: _Lease) -> bool:
        """Delete a message. Return whether it had become visible, so that another consumer may have received it."""
        is_gone = False
        async with self._requests, lease.lock:
            try:
                await self._client.delete_message(lease.message)
            except AzureError as error:
                is_gone = getattr(error, "error_code", None) in _GONE
                if not is_gone:
                    raise SourceUnavailableError(f"{self.name}: {error}") from error
            self._leases.discard(lease)
        return is_gone

    async def waiting(self) -> int:
        try:
            return (await self._client.get_queue_properties()).approximate_message_count or 0
        except AzureError as error:
            raise SourceUnavailableError(f"{self.name}: {error}") from error

    async def _renew(self) -> None:
        """Renew all leases, three times per visibility timeout."""
        while True:
            await asyncio.sleep(self._visibility / 3)
            await asyncio.gather(*map(self._renew_one, list(self._leases)))

    async def _renew_one(self, lease: _Lease) -> None:
        async with self._requests, lease.lock:
            if lease in self._leases:
                seconds = self._visibility
                # A later renewal succeeds in time, or the message is received again.
                with suppress(AzureError):
                    renewed = await self._client.update_message(lease.message, visibility_timeout=seconds)
                    lease.message.pop_receipt = renewed.pop_receipt

    async def close(self) -> None:
        """Stop renewing. Undeleted messages become visible again after their visibility timeout."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self._place.close()


source = AzureQueueSource


def settlement(url: str, source: Source | None, names: Mapping[str, str]) -> Settlement:
    """Return the settlement that sends to the queue in the URL, or without one to a queue for each type.

    Sends the outputs of each business object in order, and those of different objects concurrently. `names` maps a type
    to a queue, by default the name of the type in lower case. The settlement acknowledges messages of `source`.
    """
    place = _Place(url)

    async def send(outputs: Sequence[CommittedOutput]) -> None:
        by_object: dict[str, list[CommittedOutput]] = {}
        for output in outputs:
            by_object.setdefault(output.business_id, []).append(output)
        requests = asyncio.Semaphore(_REQUESTS)

        async def in_order(some: Sequence[CommittedOutput]) -> None:
            async with requests:
                for each in some:
                    queue = place.queue or names.get(each.type, each.type.lower())
                    await place.client(queue).send_message(written(each).decode())

        work: list[Any] = [in_order(some) for some in by_object.values()]
        try:
            await asyncio.gather(*work)
        except AzureError as error:
            is_busy = getattr(error, "status_code", None) in _BUSY
            raise (TargetUnavailableError if is_busy else TargetError)(f"{place.name}: {error}") from error

    return Settlement(place.name, source, send, place.close)
