"""Epochs: how a consumer of single messages says, late and in bulk, that their outputs are published.

An epoch is a batch that a consumer begins in the ledger for itself. Versions of the single messages that it handles
record its number. Once all of them have published their outputs, and a new epoch has begun, the epoch is noted as
published: one transaction for thousands of messages. Until then truncation keeps its versions. A consumer that dies
leaves its epoch open: the queue delivers again what it had not acknowledged, and when that is done the epoch can be
abandoned (`consistent batches --abandon`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from eventstore import StoreUnavailableError
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord
from runtime.clock import Clock
from runtime.errors import BatchRefusedError, RetriesExhaustedError

INPUT = "single messages of a consumer"
"""What the ledger has as the input of an epoch."""

_NOWHERE = "-"


@dataclass(slots=True, eq=False)
class Epoch:
    """One epoch: how many of its messages are being handled, and which failed and may have unpublished outputs."""

    record: BatchRecord
    began_at: int
    running: int = 0
    failed: set[Hashable] = field(default_factory=set)

    @property
    def number(self) -> int:
        """The number that versions record."""
        return self.record.number

    @property
    def is_done(self) -> bool:
        """Whether all outputs of its versions are published."""
        return not self.running and not self.failed


class Epochs:
    """The epochs of one consumer, each of which lasts at least so many microseconds.

    `new_id` draws an id that nobody else draws.
    """

    def __init__(self, ledger: Ledger, clock: Clock, new_id: Callable[[], str], length: int) -> None:
        self._ledger = ledger
        self._clock = clock
        self._new_id = new_id
        self._length = length
        self._current: Epoch | None = None
        self._former: list[Epoch] = []

    async def enter(self) -> Epoch:
        """Return the epoch for a message that is to be handled now.

        Costs nothing but for the first message of an epoch, which begins it: two or three requests.
        """
        epoch = self._current
        if epoch is None or self._clock() - epoch.began_at >= self._length:
            epoch = await self._begin()
        epoch.running += 1
        return epoch

    async def leave(self, epoch: Epoch, message: Hashable | None) -> None:
        """Note that a message that was handled in an epoch has published its outputs, and end former epochs.

        None stands for a message that made no version. Costs nothing, or two requests for each epoch that can end.
        """
        epoch.running -= 1
        for each in (*self._former, epoch):
            each.failed.discard(message)
        await self._end_former()

    def fail(self, epoch: Epoch, message: Hashable) -> None:
        """Note that a message may have a version in an epoch whose outputs are unpublished.

        The epoch can end once this consumer has handled the message to its end.
        """
        epoch.running -= 1
        epoch.failed.add(message)

    async def flush(self) -> int:
        """End all epochs that can end, the present one too, and return how many stay open."""
        self._retire()
        await self._end_former()
        return len(self._former)

    async def _begin(self) -> Epoch:
        record = await self._ledger.begin(f"consumer-{self._new_id()}", INPUT, _NOWHERE)
        epoch = Epoch(record, self._clock())
        self._retire()
        self._current = epoch
        return epoch

    def _retire(self) -> None:
        """Let nobody enter the present epoch any more."""
        if self._current is not None:
            self._former.append(self._current)
            self._current = None

    async def _end_former(self) -> None:
        for epoch in [each for each in self._former if each.is_done]:
            self._former.remove(epoch)
            try:
                await self._ledger.publish(epoch.record)
            except (StoreUnavailableError, RetriesExhaustedError):
                self._former.append(epoch)  # the outputs are published all the same; it is tried again later
            except BatchRefusedError:
                continue  # the operator has abandoned it
