"""What the bare clients have in common: they send a batch's requests again, and know nothing of handlers.

The requests of each stream go out in their order, and those of several streams at once: by as many processes as Spark
has workers, with as many streams under way in each as a batch has. Durable as far as the table service is.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from benchmarks.azurite import Azurite
from benchmarks.contender import Contender
from benchmarks.contenders.stored import stored_states
from benchmarks.logs import Log
from benchmarks.peers.recording import Request, Streams, Transaction, recorded
from benchmarks.processes import own_process
from benchmarks.shooting import TABLE, States
from eventstore import Verb, connect

Send = Callable[[Request], Awaitable[None]]

_loaded: dict[str, Streams] = {}
"""The streams that a process of a client has been given for the next turn."""


class BareClient(Contender):
    """Sends the requests of a batch."""

    durability = "the same rows in the table service; no handlers, no fold"
    azurite: Azurite

    @staticmethod
    @abstractmethod
    def replay(url: str, in_flight: int) -> None:
        """Send what this process was given."""

    def start(self) -> None:
        """Start the processes that will send."""
        self._processes = [own_process() for _ in range(self.setting.cores)]

    def prepare(self, log: Log, folder: Path) -> None:
        """Start an Azurite with an empty table, and deal the streams out to the processes."""
        self.azurite = Azurite(folder)
        asyncio.run(make_table(self.azurite.url))
        streams = recorded(log, self.setting)
        self._facts = _describe(streams)
        for number, process in enumerate(self._processes):
            process.submit(load, streams[number :: len(self._processes)]).result()

    def work(self) -> None:
        """Send everything."""
        in_flight = self.setting.in_flight
        ends = [process.submit(self.replay, self.azurite.url, in_flight) for process in self._processes]
        for end in ends:
            end.result()

    def states(self) -> States:
        """Read the states from Azurite."""
        return stored_states(self.azurite.url)

    def facts(self) -> Mapping[str, float]:
        """Return how many requests were sent, and how many rows in them."""
        return self._facts

    def finish(self) -> None:
        """Stop the Azurite."""
        self.azurite.stop()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.shutdown()


async def send_all(send: Send, in_flight: int) -> None:
    """Send the loaded requests: one after another within a stream, `in_flight` streams at once."""
    streams = iter(_loaded["streams"])

    async def work() -> None:
        for requests in streams:
            for request in requests:
                await send(request)

    await asyncio.gather(*(work() for _ in range(in_flight)))


def inserts_only(request: Transaction) -> Transaction:
    """Return the transaction. Raises `NotImplementedError` for anything but inserts, the rows of new streams."""
    if any(operation.verb is not Verb.INSERT for operation in request.operations):
        message = (
            "The bare clients can only insert: give each stream fewer messages, so that it takes one write."
        )
        raise NotImplementedError(message)
    return request


def load(streams: Streams) -> None:
    """Give this process what it will send."""
    _loaded["streams"] = streams


async def make_table(url: str) -> None:
    """Make the table of a batch."""
    async with connect(url) as store:
        await store.table(TABLE)


def _describe(streams: Streams) -> Mapping[str, float]:
    requests = [request for stream in streams for request in stream]
    transactions = [request for request in requests if isinstance(request, Transaction)]
    values = [
        value
        for transaction in transactions
        for operation in transaction.operations
        for value in operation.properties.values()
    ]
    return {
        "queries": len(requests) - len(transactions),
        "transactions": len(transactions),
        "rows": sum(len(transaction.operations) for transaction in transactions),
        "property_bytes": sum(len(value) if isinstance(value, bytes | str) else 8 for value in values),
    }
