"""What workers say that they have done, summed up in the driver and shown while a job is under way."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import SparkSession

from runtime.spark.sessions.kinds import address_for_workers
from runtime.spark.sessions.progress import Watch
from runtime.spark.workers.meter import LAYOUT, MAX_ID_BYTES, Address

_TOKEN_BYTES = 16


class Done(NamedTuple):
    """How many messages are done, of how many, if that is known, and in how many streams; and which one takes long.

    `of_streams` is known where streams are worked through whatever messages they hold.
    """

    messages: int
    streams: int
    of: int | None = None
    slow: str | None = None
    of_streams: int | None = None


ShowDone = Callable[[Done], None]


@dataclass
class Extent:
    """How much there is to do, as far as it is known: messages, or else streams."""

    messages: int | None = None
    streams: int | None = None


class Counts:
    """Listens for the counts of workers, and sums them up."""

    def __init__(self, host: str) -> None:
        """Open a port. Raises `OSError` when there is none to be had."""
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.bind(place)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        port = self._socket.getsockname()[1]
        self.address = Address(host, port, secrets.token_bytes(_TOKEN_BYTES))
        self._by_partition: dict[int, tuple[int, int]] = {}
        self._slow: dict[int, str] = {}

    def close(self) -> None:
        """Close the port, and forget what has come."""
        self._socket.close()
        self._by_partition, self._slow = {}, {}

    def read(self) -> tuple[int, int]:
        """Take what has come, and return how many messages and streams are done; none once the port is closed.

        It may be closed while another thread reads: an interrupt can come before a watch is known that must be ended.
        """
        with suppress(OSError):  # nothing has come, or the port is closed
            while True:
                self._take(self._socket.recv(LAYOUT.size + MAX_ID_BYTES + 1))
        return (
            sum(messages for messages, _ in self._by_partition.values()),
            sum(streams for _, streams in self._by_partition.values()),
        )

    @property
    def slow(self) -> str | None:
        """The id of a message that takes long, None when none does as far as it was told."""
        return next(iter(self._slow.values()), None)

    def _take(self, text: bytes) -> None:
        text, message_id = text[: LAYOUT.size], text[LAYOUT.size :]
        is_whole = len(text) == LAYOUT.size and len(message_id) <= MAX_ID_BYTES
        if not is_whole or not secrets.compare_digest(text[:_TOKEN_BYTES], self.address.token):
            return
        _, partition, *counts = LAYOUT.unpack(text)
        messages, streams = counts
        before = self._by_partition.get(partition, (0, 0))
        self._by_partition[partition] = max(before, (messages, streams))
        self._slow.pop(partition, None)
        if message_id:
            self._slow[partition] = message_id.decode("utf-8", "replace")


@contextmanager
def counted(spark: SparkSession, extent: Extent, show: ShowDone | None) -> Iterator[Address | None]:
    """Give the address to which workers tell their counts, and show the sums while the block is worked through.

    Nothing is shown before a worker has told anything: on a cluster, a firewall may keep that from the driver.
    """
    if show is None:
        yield None
        return
    counts = _listening(spark)
    if counts is None:
        yield None
        return

    def look() -> None:
        messages, streams = counts.read()
        if messages or streams or counts.slow:
            show(Done(messages, streams, extent.messages, counts.slow, extent.streams))

    try:
        with Watch(look):
            yield counts.address
        look()
    finally:
        counts.close()


def _listening(spark: SparkSession) -> Counts | None:
    host = address_for_workers(spark)
    try:
        return None if host is None else Counts(host)
    except OSError:
        return None
