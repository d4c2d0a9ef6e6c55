"""The outbox: one entity, whose ids nobody evicts here."""

from __future__ import annotations

from collections.abc import Callable

from eventstore import Table
from runtime.algorithms.algorithm import Publish
from runtime.algorithms.outbox.algorithm import OutboxOneByOne
from runtime.algorithms.outbox.variants import Outbox
from tests.model.processes import Process
from tests.model.scenarios.entities import (
    SCRIBE,
    STATES,
    EntityScenario,
    deliver,
    holding,
    nothing_pending,
    sweep,
)
from tests.model.scenarios.state_based import PATIENCE
from tests.model.scribe import write


def make(table: Callable[[str], Table], publish: Publish, process: Process) -> OutboxOneByOne:
    """Return the outbox of the scribe."""
    algorithm = Outbox(
        table=table(STATES),
        handler=SCRIBE,
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
    )
    return OutboxOneByOne(algorithm=algorithm, publish=publish)


def outbox(*lines: str, copies: int = 1, swept: bool = False) -> EntityScenario:
    """Return the scenario of some different lines, each delivered so many times, with a sweeper beside them or not."""
    jobs = [deliver(make, write(line), copies) for line in lines]
    name = f"outbox: {', '.join(lines)}; {copies} cop{'ies' if copies > 1 else 'y'} each"
    if swept:
        return EntityScenario(f"{name}, and a sweeper", [*jobs, sweep(make)], INVARIANTS)
    return EntityScenario(name, jobs, INVARIANTS)


INVARIANTS = holding(make, nothing_pending)
