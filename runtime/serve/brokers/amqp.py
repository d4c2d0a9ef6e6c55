"""RabbitMQ by AMQP 0-9-1 (aio-pika), with publisher confirms and a bounded prefetch.

When a connection ends, the broker redelivers unacknowledged messages, perhaps to another consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlunsplit

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelNotFoundEntity,
    ProbableAuthenticationError,
    PublishError,
)

from runtime.errors import TargetError, TargetUnavailableError, UsageError
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
    taken,
)
from runtime.serve.streams import LOG

_FORM = "RabbitMQ is written amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME&prefetch=N, as a target ?exchange=NAME."
_LOST = (AMQPError, ConnectionError, RuntimeError)
"""Errors of a connection that has ended; aiormq raises some as `RuntimeError`."""


class _Place:
    """The parts of a URL, and the connection to the broker."""

    def __init__(self, url: str) -> None:
        parts, self.given = parts_of(url, _FORM)
        if not parts.hostname:
            raise UsageError(_FORM)
        self._url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        self.name = f"{parts.scheme}://{parts.hostname}:{parts.port or 5672}{parts.path}"
        self.connection: AbstractRobustConnection | None = None

    async def channel(self) -> Any:  # noqa: ANN401 - aio-pika's, of several kinds
        self.connection = self.connection or await aio_pika.connect_robust(self._url, reconnect_interval=1)
        return await self.connection.channel(on_return_raises=True)

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.connected.is_set()

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(*_LOST):
                await connection.close()


class RabbitSource:
    """A queue. The broker pushes up to `prefetch` messages before it waits for acknowledgements."""

    origin: str | None = None

    def __init__(self, url: str) -> None:
        self._place = _Place(url)
        self._queue = self._place.given.get("queue", "")
        self._prefetch = number_of(self._place.given, "prefetch", 1000)
        if not self._queue:
            raise UsageError(_FORM)
        self.name = f"{self._place.name}{self._queue}"

    async def open(self, rebalances: Rebalances) -> None:
        del rebalances
        self._messages: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        try:
            channel = await self._place.channel()
            await channel.set_qos(prefetch_count=self._prefetch)
            self._opened = await channel.get_queue(self._queue)
            await self._opened.consume(self._messages.put)
        except ChannelNotFoundEntity as error:
            raise UsageError(f"There is no queue {self.name}: correct --from.") from error
        except (AuthenticationError, ProbableAuthenticationError) as error:
            raise UsageError(f"{self.name} refuses the user: {error}") from error
        except _LOST as error:
            # An open connection would renew the subscription of this attempt beside the next one.
            await self._place.close()
            raise SourceUnavailableError(f"{self.name}: {error}") from error

    async def read(self, most: int, linger: float) -> Sequence[Received]:
        found = await taken(self._messages, most, linger)
        if not found and not self._place.is_connected:
            raise SourceUnavailableError(f"{self.name}: the connection has ended.")
        return [self._received(each) for each in found]

    def _received(self, message: AbstractIncomingMessage) -> Received:
        headers = {name: str(each) for name, each in message.headers.items() if not name.startswith("x-")}
        headers.pop("business_id", None)
        place, id_, type_ = f"{self.name}/{message.delivery_tag}", message.message_id, message.type
        return read_message(message.body, place, id_, type_, headers, message.timestamp, receipt=message)

    async def acknowledge(self, received: Sequence[Received]) -> None:
        lost = 0
        for each in received:
            try:
                await each.receipt.ack()
            except _LOST as error:
                lost += 1
                if not self._place.is_connected:
                    raise SourceUnavailableError(f"{self.name}: {error}") from error
        if lost:
            LOG.warning("%s messages of %s are redelivered, as their connection has ended", lost, self.name)

    async def waiting(self) -> int:
        try:
            return (await self._opened.declare()).message_count or 0
        except _LOST as error:
            raise SourceUnavailableError(f"{self.name}: {error}") from error

    async def close(self) -> None:
        await self._place.close()


source = RabbitSource


def settlement(url: str, source: Source | None, names: Mapping[str, str]) -> Settlement:
    """Return a settlement that sends outputs to the URL's exchange, or to queues if it names none, with confirms.

    It acknowledges messages of `source`. `names` maps a type to a routing key or queue, by default the type's name.
    """
    place, exchanges = _Place(url), list[Any]()

    async def send(outputs: Sequence[CommittedOutput]) -> None:
        try:
            if not exchanges:
                channel, name = await place.channel(), place.given.get("exchange")
                exchanges.append(await channel.get_exchange(name) if name else channel.default_exchange)
            await asyncio.gather(*map(publish, outputs))
        except PublishError as error:
            raise TargetError(f"{place.name} routes an output to no queue: {error}") from error
        except _LOST as error:
            raise TargetUnavailableError(f"{place.name}: {error}") from error

    async def publish(output: CommittedOutput) -> None:
        message = aio_pika.Message(
            output.body.encode(),
            message_id=output.message_id,
            type=output.type,
            content_type="application/json",
            timestamp=output.enqueued_at,
            headers={**output.headers, "business_id": output.business_id},
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await exchanges[0].publish(message, names.get(output.type, output.type))

    return Settlement(place.name, source, send, place.close)
