"""Sending one slice: what is not noted as sent goes to the target, chunk by chunk, while the claim is renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from eventstore.backoff import pause_seconds
from runtime.errors import LeaseLostError, TargetUnavailableError
from runtime.publishing.claims import Claim
from runtime.publishing.publisher import Publisher, Refused, SliceName, Target
from runtime.publishing.records import Publication
from runtime.publishing.slices import CommittedOutput, Slices
from runtime.publishing.tally import Tally
from runtime.publishing.tasks import while_renewed

_IN_DOUBT = (
    "It was about to be sent when the process ended: whether it was is not known, and it is not sent again."
)


@dataclass
class Sender:
    """Sends slices of a publication that are claimed, and counts what it has sent."""

    publication: Publication
    cut: Slices
    target: Target
    attempts: int
    lease: timedelta
    tally: Tally
    slices: int = 0
    outputs: int = 0

    async def send(self, publisher: Publisher, claim: Claim) -> None:
        """Send a slice while the claim on it is renewed; leave it to whoever has claimed it since."""
        every = self.lease.total_seconds() / 3
        try:
            await while_renewed(claim.renew, every, self._send(publisher, claim))
        except LeaseLostError:
            await publisher.roll_back()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell of
                await publisher.roll_back()
                await claim.release()
            raise

    async def _send(self, publisher: Publisher, claim: Claim) -> None:
        failures = 0
        while True:
            try:
                return await self._attempt(publisher, claim)
            except TargetUnavailableError:
                failures += 1
                if failures >= self.attempts:
                    raise
                await publisher.roll_back()
                await asyncio.sleep(pause_seconds(failures, 0.1, 10.0))

    async def _attempt(self, publisher: Publisher, claim: Claim) -> None:
        """Send what is not noted as sent of a slice, and end it."""
        position = 0 if self.target.promise.is_transactional else claim.record.position
        sent = 0
        if await publisher.open(SliceName(self.publication.marker, claim.number)):
            await self._give_up_what_is_in_doubt(claim)
            for chunk in self._chunks(claim.number, position):
                position += len(chunk)
                sent += len(chunk)
                await self._send_chunk(publisher, claim, chunk, position)
                self._show(claim, position)
            await publisher.commit()
        else:
            position = max(position, self.cut.counts.get(claim.number, 0))
        await claim.finish(position)
        self.slices += 1
        self.outputs += sent
        self._show(claim, position)

    def _show(self, claim: Claim, position: int) -> None:
        self.tally.put(claim.number, position)
        self.tally.show()

    async def _send_chunk(
        self, publisher: Publisher, claim: Claim, chunk: Sequence[CommittedOutput], position: int
    ) -> None:
        promise = self.target.promise
        if promise.is_noted_before:
            await claim.note(position, in_doubt=len(chunk))
        refused = await publisher.send(chunk)
        if refused or not (promise.is_noted_before or promise.is_transactional):
            await claim.note(position, refused=refused)

    async def _give_up_what_is_in_doubt(self, claim: Claim) -> None:
        if claim.record.in_doubt:
            position = claim.record.position
            lost = islice(self.cut.outputs(claim.number), position - claim.record.in_doubt, position)
            refused = [Refused.of(each, _IN_DOUBT) for each in lost]
            await claim.note(position, refused=refused)

    def _chunks(self, number: int, position: int) -> Iterator[list[CommittedOutput]]:
        outputs = islice(self.cut.outputs(number), position, None)
        return iter(partial(_next_chunk, outputs, self.target.chunk), [])


def _next_chunk(outputs: Iterator[CommittedOutput], length: int) -> list[CommittedOutput]:
    return list(islice(outputs, length))
