"""The outbox with a de-duplication store, which is another table than the entity's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eventstore import Operation, Table
from runtime.algorithms.algorithm import Publish
from runtime.algorithms.outbox.algorithm import OutboxOneByOne
from runtime.algorithms.outbox.stores import DeduplicationStore
from runtime.algorithms.outbox.variants import OutboxWithDeduplicationStore
from runtime.messages.envelope import FIRST, LAST
from tests.model.calls import SteppedTable
from tests.model.histories import Job
from tests.model.processes import Process
from tests.model.scenarios.entities import (
    KEY,
    OTHER,
    SCRIBE,
    STATES,
    EntityScenario,
    deliver,
    holding,
    no_entries,
    sweep,
)
from tests.model.scenarios.state_based import PATIENCE
from tests.model.scribe import write
from tests.model.versions import Handled

REPLICA = "replica"
"""A table that follows the store, now and then; the shipped code must not read it."""


def make(table: Callable[[str], Table], publish: Publish, process: Process) -> OutboxOneByOne:
    """Return the outbox of the scribe, with its store."""
    algorithm = OutboxWithDeduplicationStore(
        table=table(STATES),
        store=DeduplicationStore(table(OTHER), process.clock),
        handler=SCRIBE,
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
    )
    return OutboxOneByOne(algorithm=algorithm, publish=publish)


def with_store(*lines: str, copies: int = 1, swept: bool = False) -> EntityScenario:
    """Return the scenario of some different lines, each delivered so many times, with a sweeper beside them or not."""
    jobs = [deliver(make, write(line), copies) for line in lines]
    name = f"de-duplication store: {', '.join(lines)}; {copies} cop{'ies' if copies > 1 else 'y'} each"
    if swept:
        return EntityScenario(f"{name}, and a sweeper", [*jobs, sweep(make)], INVARIANTS)
    return EntityScenario(name, jobs, INVARIANTS)


def replicated() -> EntityScenario:
    """Return the scenario of two copies, beside a replica of the store that follows it once."""
    jobs = [deliver(make, write("x"), 2), Job("replicate", partial(_replicate))]
    return EntityScenario("de-duplication store: a replica, and 2 copies", jobs, INVARIANTS)


async def _replicate(_: Process) -> Handled:
    page = await SteppedTable(OTHER).query(KEY, FIRST, LAST)
    copies = [Operation.insert_or_replace(row.row_key, row.properties) for row in page.rows]
    if copies:
        await SteppedTable(REPLICA).transact(KEY, copies)
    return Handled()


INVARIANTS = holding(make, no_entries)
