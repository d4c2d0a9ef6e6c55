"""Azure Service Bus as a source: a queue or a subscription, with or without sessions. Locks are renewed.

Messages of a session are received in order by one consumer at a time. If the lock of a message is lost, the message is
redelivered, perhaps to another consumer, which publishes the same outputs. Tested only with a fake client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, exceptions
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from runtime.errors import UsageError
from runtime.options import resolved
from runtime.serve.messages import (
    Rebalances,
    Received,
    SourceUnavailableError,
    number_of,
    parts_of,
    read_message,
    taken,
    usable_connection,
)
from runtime.serve.streams import LOG

_FORM = (
    "Service Bus is written servicebus://NAMESPACE.servicebus.windows.net/QUEUE or .../TOPIC/SUBSCRIPTION, with "
    "?sessions=N for a queue with sessions, or servicebus:///QUEUE?connection=env:NAME with a connection string."
)
_GONE = (exceptions.MessageLockLostError, exceptions.SessionLockLostError, exceptions.MessageAlreadySettled)
_RENEWED_SECONDS = 86_400
_IDLE_SECONDS = 1.0  # without messages, before another session is taken
_BUSY_SECONDS = 0.1  # short, because messages are settled between two calls
_PAGE = 100


@dataclass(eq=False)
class _Link:
    """A receiver. Calls hold `lock`, because they must not overlap."""

    receiver: ServiceBusReceiver
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    unsettled: set[object] = field(default_factory=set)  # lock tokens; a session is released once it is empty


class _Receipt(NamedTuple):
    link: _Link
    message: ServiceBusReceivedMessage


class ServiceBusSource:
    """A queue or subscription. Each concurrent session has a receiver. All receivers fill one bounded buffer."""

    origin: str | None = None

    def __init__(self, url: str) -> None:
        parts, given = parts_of(url, _FORM)
        self._entity = parts.path.strip("/").split("/")
        self._host, self._connection = parts.netloc, given.get("connection")
        has_host = parts.hostname or self._connection
        if not all(self._entity) or self._entity[2:] or "@" in parts.netloc or not has_host:
            raise UsageError(_FORM)
        self.name = f"servicebus://{parts.netloc}{parts.path}"
        self._sessions, self._prefetch = number_of(given, "sessions", 0), number_of(given, "prefetch", 1000)
        self._problem: AzureError | None = None

    async def open(self, rebalances: Rebalances) -> None:
        del rebalances
        self._client, self._renewer = self._connected(), AutoLockRenewer(_RENEWED_SECONDS)
        self._buffer: asyncio.Queue[Received] = asyncio.Queue(self._prefetch)
        self._work = [asyncio.create_task(self._receive_all()) for _ in range(self._sessions or 1)]

    def _connected(self) -> ServiceBusClient:
        if self._connection:
            with usable_connection():
                return ServiceBusClient.from_connection_string(resolved(self._connection))
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - where it is needed

        return ServiceBusClient(self._host, DefaultAzureCredential())

    async def _receive_all(self) -> None:
        """Receive with one receiver after another until cancelled."""
        while True:
            try:
                async with self._receiver() as receiver:
                    await self._receive(_Link(receiver))
            except exceptions.OperationTimeoutError:  # no session has messages
                continue
            except _GONE as error:
                LOG.warning("%s: a lock was lost: %s", self.name, error)
            except AzureError as error:
                self._problem = error
                await asyncio.sleep(_IDLE_SECONDS)

    def _receiver(self) -> ServiceBusReceiver:
        """Return a new receiver. With sessions, it takes a free session."""
        own: dict[str, Any] = {"session_id": NEXT_AVAILABLE_SESSION} if self._sessions else {}
        client = self._client
        get: Any = client.get_subscription_receiver if self._entity[1:] else client.get_queue_receiver
        with usable_connection():  # it may be for another queue
            receiver: ServiceBusReceiver = get(*self._entity, auto_lock_renewer=self._renewer, **own)
        return receiver

    async def _receive(self, link: _Link) -> None:
        """Receive until the session is idle and all its messages are settled. Never returns if sessions are off."""
        is_idle = False
        try:
            while not (self._sessions and is_idle and not link.unsettled):
                seconds = _BUSY_SECONDS if link.unsettled else _IDLE_SECONDS
                async with link.lock:
                    some = await link.receiver.receive_messages(_PAGE, seconds)
                is_idle, self._problem = not some, None
                link.unsettled |= {message.lock_token for message in some}
                for message in some:
                    await self._buffer.put(self._received(_Receipt(link, message)))
        finally:
            link.unsettled.clear()

    def _received(self, receipt: _Receipt) -> Received:
        message = receipt.message
        pairs = (map(_text, each) for each in (message.application_properties or {}).items())
        headers = {name: value for name, value in pairs if name not in {"handler", "sequence"}}
        place, id_, type_ = f"{self.name}/{message.sequence_number}", message.message_id, message.subject
        content, stamped = str(message).encode(), message.enqueued_time_utc
        return read_message(content, place, id_, type_, headers, stamped, receipt=receipt)

    async def read(self, most: int, linger: float) -> Sequence[Received]:
        for each in self._work:
            if each.done():
                each.result()  # raises its error
        found = await taken(self._buffer, most, linger)
        if not found and isinstance(self._problem, exceptions.MessagingEntityNotFoundError):
            raise UsageError(f"There is no queue {self.name}: correct --from.") from self._problem
        if not found and self._problem is not None:
            raise SourceUnavailableError(f"{self.name}: {self._problem}") from self._problem
        return found

    async def acknowledge(self, received: Sequence[Received]) -> None:
        gone = sum([await self._complete(*each.receipt) for each in received])  # one after another
        if gone:
            LOG.warning("%s messages of %s are redelivered, as their locks were lost", gone, self.name)

    async def _complete(self, link: _Link, message: ServiceBusReceivedMessage) -> bool:
        """Complete a message. Return whether its lock was lost."""
        is_gone = message.lock_token not in link.unsettled
        try:
            if not is_gone:
                async with link.lock:
                    await link.receiver.complete_message(message)
        except _GONE:
            is_gone = True
        except ServiceBusError as error:
            raise SourceUnavailableError(f"{self.name}: {error}") from error
        link.unsettled.discard(message.lock_token)
        return is_gone

    async def close(self) -> None:
        """Release all locks. Messages that were not completed are received again."""
        for each in self._work:
            each.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        with suppress(ServiceBusError):
            await self._renewer.close()
            await self._client.close()


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


source = ServiceBusSource
