"""Sending one slice: what is not noted as sent goes to the target, chunk by chunk, while the claim is renewed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from runtime.errors import LeaseLostError
from runtime.publishing.claims import Claim
from runtime.publishing.publisher import Promise, Publisher, SliceName, Target
from runtime.publishing.records import Publication
from runtime.publishing.slices import Slices
from runtime.publishing.tally import Tally
from runtime.publishing.tasks import while_renewed
from runtime.retries import until_available


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
        attempt = partial(self._attempt, publisher, claim)
        work = until_available(self.attempts, attempt, roll_back=publisher.roll_back)
        try:
            await while_renewed(claim.renew, every, work)
        except LeaseLostError:
            await publisher.roll_back()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell of
                await publisher.roll_back()
                await claim.release()
            raise

    async def _attempt(self, publisher: Publisher, claim: Claim) -> None:
        """Send what is not noted as sent of a slice, and end it."""
        is_transactional = self.target.promise is Promise.EXACTLY_ONCE
        position, sent = 0 if is_transactional else claim.position, 0
        if await publisher.open(SliceName(self.publication.marker, claim.number)):
            outputs = islice(self.cut.outputs(claim.number), position, None)
            while chunk := list(islice(outputs, self.target.chunk)):
                position += len(chunk)
                sent += len(chunk)
                records = await publisher.send(chunk)
                if records or not is_transactional:
                    await claim.note(position, records)
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
