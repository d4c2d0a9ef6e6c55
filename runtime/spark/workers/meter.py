"""How far workers are: each tells the driver now and then what it has done, in datagrams for which nobody waits.

Spark's accumulators reach the driver when a task ends, and a batch has few tasks. A datagram says all that a task has
done so far, so none is missed that is lost, and a task that runs twice counts once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from pyspark import TaskContext

from handlers import App
from runtime.spark.workers.deliveries import Group

LAYOUT = Struct("!16sIQQ")
"""A datagram: the token, the partition, the messages and the streams; then the id of a message that takes long."""

MAX_ID_BYTES = 255

_EVERY_SECONDS = 0.5


class Address(NamedTuple):
    """Where the driver listens, and the token by which it knows its workers."""

    host: str
    port: int
    token: bytes


class Teller:
    """Tells the driver what a task has done so far, twice a second at most."""

    def __init__(
        self, address: Address | None, clock: Callable[[], float] = time.monotonic, partition: int = -1
    ) -> None:
        self._address = address
        self._clock = clock
        self._partition = _partition() if partition < 0 else partition
        self._messages = self._streams = 0
        self._told = clock()

    @property
    def is_heard(self) -> bool:
        """Whether there is anybody to tell."""
        return self._address is not None

    def add(self, *, messages: int = 0, streams: int = 0) -> None:
        """Count what is done, and tell the driver if it is time."""
        self._messages += messages
        self._streams += streams
        if self._clock() - self._told >= _EVERY_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Tell the driver what is done so far."""
        self.tell_of("")

    def tell_of(self, message_id: str) -> None:
        """Tell the driver what is done so far, and which message takes long, if one does."""
        if self._address is None:
            return
        self._told = self._clock()
        host, port, token = self._address
        text = LAYOUT.pack(token, self._partition, self._messages, self._streams)
        text += message_id.encode("utf-8", "replace")[:MAX_ID_BYTES]
        with suppress(OSError):  # nobody waits for it
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as sender:
                sender.sendto(text, place)


class Meter:
    """Counts what the task of a fold has done: messages, and streams.

    A message that several handlers take counts once, in the first of them; with `each` it counts in each.
    """

    def __init__(
        self,
        address: Address | None,
        app: App,
        clock: Callable[[], float] = time.monotonic,
        partition: int = -1,
        *,
        each: bool = False,
    ) -> None:
        self._teller = Teller(address, clock, partition)
        routes = {name: app.routes(name) for name in app.message_types}
        self._first = {name: found[0].handler for name, found in routes.items()}
        self._has_several = not each and any(len(found) > 1 for found in routes.values())

    def add(self, group: Group) -> None:
        """Count a group that is done, and tell the driver if it is time."""
        if self._teller.is_heard:
            is_new = group.business_id is not None and not group.follows
            self._teller.add(messages=self._count(group), streams=int(is_new))

    def tell(self) -> None:
        """Tell the driver what is done so far."""
        self._teller.tell()

    def tell_of(self, message_id: str) -> None:
        """Tell the driver which message takes long."""
        self._teller.tell_of(message_id)

    def _count(self, group: Group) -> int:
        first, handler = self._first, group.handler
        if handler is None or not self._has_several:
            return len(group.envelopes)
        return sum(first.get(name, handler) == handler for name in group.envelopes.types)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
