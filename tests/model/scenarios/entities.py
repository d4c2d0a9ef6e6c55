"""Entities: what the algorithms share that keep a business state and its outbox in one row."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from eventstore import Table, drive
from runtime.algorithms.algorithm import Algorithm, Publish
from runtime.algorithms.outbox.entity import ENTITY, Entity, read_entity
from runtime.algorithms.state_based.truncation import DAY
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output
from runtime.messages.parsing import prepare
from tests.model import invariants
from tests.model.calls import SteppedTable, publish
from tests.model.contents import Snapshot
from tests.model.facts import Invariant, View
from tests.model.histories import Job
from tests.model.letters import committed_letters
from tests.model.processes import NOW, Process
from tests.model.scribe import BOOK, app
from tests.model.versions import Handled, Place, Version, refused_of

SCRIBE = app.handlers["Scribe"]
KEY = f"Scribe-{BOOK}"
STATES, OTHER = "states", "other"

Make = Callable[[Callable[[str], Table], Publish, Process], Algorithm]
"""Makes an algorithm for the scribe, of tables by their names, in a process."""

Leftovers = Callable[[View, Snapshot, Entity], str | None]
"""Says what is left over, though it should not be, of the tables and the entity once all is done and swept."""


@dataclass(frozen=True, slots=True)
class EntityScenario:
    """Copies of messages wait in a queue; each delivery is handled by an algorithm in a process of its own.

    `replies` are the ids of messages that are replies.
    """

    name: str
    jobs: Sequence[Job]
    invariants: Sequence[Invariant]
    earlier: Sequence[Job] = ()
    replies: Collection[str] = ()

    def committed(self, snapshot: Snapshot) -> Mapping[Hashable, Any]:
        """Return the version that the entity has, and the letters. Each line is the id of the message that wrote it."""
        letters = committed_letters(snapshot)
        entity = entity_in(snapshot)
        if entity is None or not entity.version:
            return letters
        lines = tuple(json.loads(entity.state)["lines"])
        kind = "Reply" if lines[-1] in self.replies else "Write"
        version = Version(lines[-1], kind, entity.last_now, lines[:-1], lines)
        return {Place("Scribe", entity.version): version, **letters}

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Leave all limits as they are."""


def entity_in(snapshot: Snapshot) -> Entity | None:
    """Return the entity of the book, None before it is first written."""
    row = snapshot.tables.get(STATES, {}).get(KEY, {}).get(ENTITY)
    return None if row is None else read_entity(row)


def deliver(make: Make, message: Envelope, copies: int = 1) -> Job:
    """Return the job of handling a message, which is delivered so many times."""
    return Job(message.message_id, partial(_process, make, message), copies)


def sweep(make: Make) -> Job:
    """Return the job of finishing what is found unfinished."""
    return Job("sweep", partial(_sweep, make))


def evict(make: Make, older_than: timedelta) -> Job:
    """Return the job of forgetting the ids of messages that were handled so long ago."""
    return Job("evict", partial(_evict, make, older_than))


def holding(make: Make, leftovers: Leftovers, *more: Invariant) -> Sequence[Invariant]:
    """Return what must hold of an algorithm, with what may be left over of it."""
    garbage = Invariant("NoGarbage", partial(_left_over, make, leftovers))
    return (*_OF_ENTITIES, *more, garbage)


def nothing_pending(_: View, __: Snapshot, entity: Entity) -> str | None:
    """Say that something of the entity is not finished."""
    return f"{entity.pending} entries of {KEY} are not finished" if entity.pending else None


def no_entries(_: View, __: Snapshot, entity: Entity) -> str | None:
    """Say that entries are left in the outbox."""
    return f"the outbox of {KEY} still has {len(entity.outbox)} entries" if entity.outbox else None


_OF_ENTITIES = (
    invariants.CONSISTENT_OUTPUT,
    invariants.AT_MOST_ONE_STATE_CHANGE,
    invariants.NO_LOST_UPDATE,
    invariants.NO_GHOST,
    invariants.DONE_WHEN_ACKNOWLEDGED,
    invariants.NO_LOST,
)


async def _process(make: Make, message: Envelope, process: Process) -> Handled:
    prepared = prepare(SCRIBE, BOOK, message)
    assert not isinstance(prepared, Outcome)
    outcome = await make(SteppedTable, publish, process).process(prepared)
    refused = refused_of([outcome])
    assert refused or not outcome.is_dead_letter, outcome.error
    return Handled(() if refused else (message.message_id,), refused=refused)


async def _sweep(make: Make, process: Process) -> Handled:
    await make(SteppedTable, publish, process).sweep()
    return Handled()


async def _evict(make: Make, older_than: timedelta, process: Process) -> Handled:
    algorithm: Any = make(SteppedTable, publish, process)
    await algorithm.evict(older_than)
    return Handled()


def _left_over(make: Make, leftovers: Leftovers, view: View) -> str | None:
    """Sweep when all is done; say what is there that should not be, or what was sent only then."""
    if not view.is_quiescent:
        return None
    tables = {name: view.snapshot.table(name) for name in (STATES, OTHER)}
    sent: list[Output] = []

    async def send(output: Output) -> None:
        sent.append(output)

    drive(make(tables.__getitem__, send, Process(view.snapshot.writes, NOW + DAY)).sweep())
    late = [output.type for output in sent if output not in view.facts.published]
    if late:
        return f"only the sweeper sent {' and '.join(late)}"
    swept = Snapshot(
        {
            name: {key: partition.rows for key, partition in table._partitions.items()}
            for name, table in tables.items()
        }
    )
    entity = entity_in(swept)
    return None if entity is None else leftovers(view, swept, entity)
