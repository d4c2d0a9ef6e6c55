"""Batches: attempts of a task handle the same ordered messages, publish them, and note in the ledger that they have.

What Spark does between these steps is left out: an attempt publishes its outputs itself, and whichever attempt comes
to the end first finishes the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from uuid import UUID

from runtime import ledger
from runtime.envelope import Envelope
from runtime.fold import BatchContext
from runtime.ledger import Ledger
from runtime.preparation import prepare
from tests.model.algorithm import state_based
from tests.model.calls import SteppedTable, publish
from tests.model.histories import Job
from tests.model.processes import NOW, Process
from tests.model.scenarios.state_based import PATIENCE, Limit, StateBasedScenario
from tests.model.scribe import BOOK, app, write
from tests.model.versions import Handled

ONE_TOKEN: list[Limit] = [(ledger, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=0)))]
"""The token of a batch is drawn when it begins; here it is always the same, as nothing hangs on it."""


def task(batch_id: str, *messages: Envelope, copies: int = 1, now: int = NOW) -> Job:
    """Return the job of handling the messages of a batch, attempted so many times by processes that live `now`."""
    return Job(batch_id, partial(_attempt, batch_id, messages, now), copies)


async def _attempt(batch_id: str, messages: Sequence[Envelope], now: int, process: Process) -> Handled:
    table, clock = SteppedTable(), Process(process.number, now).clock
    book = Ledger(table, clock)
    record = await book.begin(batch_id, "input", "out")
    if record.is_finished:
        return Handled()
    batch = BatchContext(batch_id, await book.finished())
    (handler,) = app.handlers.values()
    algorithm = state_based.StateBased(table, handler, clock, batch, PATIENCE)
    prepared = [prepare(handler, BOOK, message) for message in messages]
    outcomes = await algorithm.process(BOOK, prepared)
    for outcome in outcomes:
        for output in outcome.outputs:
            await publish(output)
    await book.publish(record)
    handled = [outcome for outcome in outcomes if outcome.version is not None]
    return Handled(
        tuple(outcome.envelope.message_id for outcome in handled),
        tuple(f"{outcome.envelope.message_id} {outcome.status.value}" for outcome in handled),
    )


ATTEMPTS = StateBasedScenario(
    "2 attempts of a batch with a copy in it",
    [task("batch-1", write("x"), write("y"), write("x"), copies=2)],
    limits=ONE_TOKEN,
)
BATCHES = StateBasedScenario(
    "2 batches with a message in common",
    [task("batch-1", write("x"), write("y")), task("batch-2", write("y"), write("z"))],
    limits=ONE_TOKEN,
)
