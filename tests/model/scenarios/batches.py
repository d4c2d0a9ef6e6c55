"""Batches: the same ordered messages, handled, made durable, published, and noted in the ledger, by each attempt.

The steps are those of a batch's driver, and in their order, for one stream. What Spark does is left out: an attempt
handles the messages and publishes the outputs itself, and whichever attempt comes to the end first finishes the batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from runtime.algorithms.state_based import algorithm as state_based
from runtime.clock import Clock
from runtime.ledger import ledger
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Status
from runtime.messages.parsing import prepare
from runtime.versions import limits
from tests.model.calls import SteppedTable, publish
from tests.model.histories import Job
from tests.model.processes import NOW, Process
from tests.model.scenarios.state_based import PATIENCE, RUNS, Limit, StateBasedScenario, deliver
from tests.model.scribe import BOOK, app, write
from tests.model.versions import Handled, refused_of

ONE_TOKEN: list[Limit] = [(ledger, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=0)))]
"""The token of a batch is drawn when it begins; here it is always the same, as nothing hangs on it."""

PARTS: list[Limit] = [*RUNS, (limits, "MAX_TRANSACTION_RUNS", 1), (limits, "MAX_RUN_VERSIONS", 1)]
"""A transaction takes one version."""

Fold = Callable[[SteppedTable, Clock, BatchContext, Sequence[Envelope]], Awaitable[list[Outcome]]]
"""Handles the messages of a batch."""


async def fold_scribe(
    table: SteppedTable, clock: Clock, batch: BatchContext, messages: Sequence[Envelope]
) -> list[Outcome]:
    """Handle the messages of a batch."""
    (handler,) = app.handlers.values()
    algorithm = state_based.StateBased(table, handler, clock, batch, PATIENCE)
    return list(await algorithm.process(BOOK, [prepare(handler, BOOK, message) for message in messages]))


def task(
    batch_id: str,
    *messages: Envelope,
    copies: int = 1,
    now: int = NOW,
    fold: Fold = fold_scribe,
    **options: Any,
) -> Job:
    """Return the job of handling the messages of a batch, attempted so many times by processes that live `now`.

    `options` are those of `BatchContext`.
    """
    batch = BatchContext(batch_id, **options)
    return Job(batch_id, partial(_attempt, batch, messages, now, fold), copies)


async def _attempt(
    batch: BatchContext, messages: Sequence[Envelope], now: int, fold: Fold, process: Process
) -> Handled:
    batch_id = batch.batch_id or ""
    table, clock = SteppedTable(), Process(process.number, now).clock
    ledger_ = Ledger(table, clock, PATIENCE)
    record = await ledger_.begin(batch_id, "input", "out")
    if record.is_finished:
        return Handled()
    handled = Handled()
    if record.rounds == 0:
        context = replace(batch, open_batches=await ledger_.open_batches(), number=record.number)
        outcomes = await fold(table, clock, context, messages)
        await table.barrier()
        for outcome in outcomes:
            for output in outcome.outputs:
                await publish(output)
        record = await ledger_.commit_round(record, 0, {}, 0)
        handled = _handled(outcomes)
    await ledger_.publish(record)
    return handled


def _handled(outcomes: Sequence[Outcome]) -> Handled:
    decided = [outcome for outcome in outcomes if outcome.version is not None or outcome.is_dead_letter]
    return Handled(
        tuple(outcome.envelope.message_id for outcome in decided if outcome.version is not None),
        tuple(f"{each.envelope.message_id} {each.reason or each.status}" for each in decided),
        refused_of(decided),
        tuple(each.envelope.message_id for each in outcomes if each.status is Status.TOO_LATE),
    )


ATTEMPTS = StateBasedScenario(
    "2 attempts of a batch with a copy in it",
    [task("batch-1", write("x"), write("y"), write("x"), copies=2)],
    limits=ONE_TOKEN,
)
IN_PARTS = StateBasedScenario(
    "a batch with a copy in it, in parts of one version, beside a message",
    [task("batch-1", write("x"), write("y"), write("x")), deliver(write("y"))],
    limits=[*ONE_TOKEN, *PARTS],
)
BATCHES = StateBasedScenario(
    "2 batches with a message in common",
    [task("batch-1", write("x"), write("y")), task("batch-2", write("y"))],
    earlier=[task("batch-0")],
    limits=ONE_TOKEN,
)
