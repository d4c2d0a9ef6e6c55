"""Azure Service Bus as a target: once within the window in which a queue or topic detects duplicates.

Business ids are session ids, so a queue with sessions keeps the order. Duplicate detection must be enabled.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import CommittedOutput, Promise, Publisher, Record, Target, TargetOptions

logging.getLogger("azure").addHandler(logging.NullHandler())  # warnings are raised as errors too
T = TypeVar("T")
_LONGEST_ID = 128


class ServiceBusTarget(Target):
    """The queues and topics of a namespace."""

    promise = Promise.ONCE_WITHIN_WINDOW
    chunk = 100

    def __init__(self, connection: str, options: TargetOptions) -> None:
        place = re.match(r"Endpoint=sb://([^/;]+)", connection, re.IGNORECASE)
        if place is None:
            raise UsageError(
                "The connection string of the Service Bus namespace is invalid: it begins with Endpoint=sb://HOST/."
            )
        entity = re.search(r"EntityPath=([^;]+)", connection, re.IGNORECASE)
        super().__init__(f"sb://{place[1]}" + (f"/{entity[1]}" if entity else ""), options)
        self.window = options.window
        self.connection = connection
        self._entity = entity[1] if entity else None

    def entity_of(self, type_: str) -> str:
        """Return the queue or topic of a type, from `--map`, the connection string, or the name of the type."""
        return self.options.names.get(type_) or self._entity or type_

    def publisher(self) -> ServiceBusPublisher:
        return ServiceBusPublisher(self)


class ServiceBusPublisher(Publisher):
    """Sends outputs in batches of Service Bus messages."""

    def __init__(self, target: ServiceBusTarget) -> None:
        self._target = target
        self._client: ServiceBusClient | None = None
        self._senders: dict[str, ServiceBusSender] = {}

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Send outputs in batches of the largest allowed size. Outputs that are too large become dead letters."""
        refused: list[Record] = []
        with _translated_errors(self._target.name):
            for entity, some in groupby(outputs, lambda each: self._target.entity_of(each.type)):
                sender = self._sender(entity)
                batch = await self._answered(sender.create_message_batch())
                for output in some:
                    message = message_of(output)
                    try:
                        batch.add_message(message)
                        continue
                    except MessageSizeExceededError:
                        await self._answered(sender.send_messages(batch))
                    batch = await self._answered(sender.create_message_batch())
                    try:
                        batch.add_message(message)
                    except MessageSizeExceededError:
                        why = "It exceeds the maximum message size of the namespace."
                        refused.append(Record.of(output, why))
                await self._answered(sender.send_messages(batch))
        return refused

    async def _answered(self, request: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wait_for(request, self._target.seconds)

    async def roll_back(self) -> None:
        await self.close()

    async def close(self) -> None:
        client, self._client, self._senders = self._client, None, {}
        if client is not None:
            await client.close()

    def _sender(self, entity: str) -> ServiceBusSender:
        if self._client is None:
            try:
                self._client = ServiceBusClient.from_connection_string(self._target.connection, retry_total=0)
            except ValueError:  # the error's text may contain the key
                raise UsageError(
                    f"The connection string of {self._target.name} is invalid: copy it again from the Azure portal."
                ) from None
        if entity not in self._senders:
            self._senders[entity] = self._client.get_queue_sender(entity)  # also works for topics
        return self._senders[entity]


def message_of(output: CommittedOutput) -> ServiceBusMessage:
    """Convert an output to a message."""
    properties: dict[Any, Any] = {**output.headers, "handler": output.handler, "sequence": output.sequence}
    return ServiceBusMessage(
        output.body,
        message_id=short_id(output.message_id),
        session_id=short_id(output.business_id),
        subject=output.type,
        content_type="application/json",
        application_properties=properties,
    )


def short_id(text: str) -> str:
    """Return an id, or the digest of an id that is too long for Service Bus."""
    return text if len(text) <= _LONGEST_ID else sha256(text.encode()).hexdigest()


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ServiceBusError as error:
        may_succeed = getattr(error, "_retryable", False)
        kind = TargetUnavailableError if may_succeed else TargetError
        raise kind(f"{name}: {type(error).__name__}: {error.message}") from error
    except (OSError, TimeoutError) as error:
        raise TargetUnavailableError(f"{name}: {type(error).__name__}: {error}") from error
