"""Batches whose clocks jump: forth by years, and back again, from one call to the next, in each process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import SystemRandom

from eventstore import connect
from eventstore.port import pages
from runtime.algorithms.outbox.entity import ENTITY, read_entity
from runtime.algorithms.state_based.truncation import DAY
from runtime.batch_options import TablePlace
from runtime.clock import Clock
from runtime.versions.stream import summaries
from tests.faults.compared import Found, wait_for
from tests.faults.world import NOW, World

_BACK, _FORTH = 30 * DAY, 3650 * DAY
"""Not back to before the messages were sent: those are dead letters then, as they should be."""

_TIME = re.compile(r"datetime\.datetime\([^)]*\)")


@dataclass(frozen=True)
class JumpingClock:
    """A clock that shows another time whenever it is looked at."""

    def __call__(self) -> int:
        return NOW() + SystemRandom().randint(-_BACK, _FORTH)


class OutOfTime(World):
    """A batch with such clocks. What has a time in it is compared without."""

    def clock(self) -> Clock:
        """Return the clock of a driver and its workers."""
        return JumpingClock()

    def look(self) -> Found:
        """Return the states, the outcomes and the files."""
        found = super().look()
        outcomes = [_TIME.sub("a time", each) for each in found.outcomes]
        states = dict(wait_for(self.place.store, _states(self.place)))
        return Found(states, sorted(outcomes), found.files)


async def _states(place: TablePlace) -> list[tuple[tuple[str, str], str]]:
    async with connect(place.store) as store:
        table = await store.table(place.table)
        streams = [
            ((each.key, "stream"), repr((each.head.versions, each.head.state)))
            async for each in summaries(table)
        ]
        rows = [row async for page in pages(lambda **given: table.scan(ENTITY, **given)) for row in page.rows]
        entities = [read_entity(row) for row in rows]
        return streams + [
            ((row.partition_key, "entity"), repr((entity.version, entity.state, len(entity.outbox))))
            for row, entity in zip(rows, entities, strict=True)
        ]
