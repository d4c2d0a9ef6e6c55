"""Messages off a queue, and batches of them, with the state-based algorithm.

The steps of a batch are those of its driver, in their order, for one stream. What Spark does is left out: an attempt
handles the messages and publishes the outputs itself, and whichever attempt comes to the end first finishes the batch.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from uuid import UUID

from handlers import App
from runtime import Processor
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.clock import Clock
from runtime.ledger import ledger
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableSettings
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Status
from runtime.messages.parsing import prepare
from runtime.retries import RetryPolicy
from runtime.versions import limits
from tests.model import invariants
from tests.model.book import BOOK, Handled, app, committed_versions, count, refused_of, write
from tests.model.calls import SteppedTable, publish
from tests.model.facts import Limit, Scenario, count_of
from tests.model.histories import Job
from tests.model.processes import NOW, Process


async def no_pause(seconds: float) -> None:
    """Try again at once: how long others take is the explorer's choice."""


PATIENCE = RetryPolicy(sleep=no_pause)

RUNS: list[Limit] = [(limits, "MAX_SEGMENT_BYTES", 0)]
"""Each commit becomes a run, in a row of its own."""
FULL_TAIL: list[Limit] = [(limits, "MAX_TAIL_BYTES", 1)]
"""The tail is full after each commit: the next one turns it into a run."""
MIXED: list[Limit] = [(limits, "MAX_SEGMENT_BYTES", 400), (limits, "MAX_TAIL_BYTES", 400)]
"""A tail takes two commits or so; then it becomes a run."""
PARTS: list[Limit] = [*RUNS, (limits, "MAX_TRANSACTION_RUNS", 1), (limits, "MAX_RUN_VERSIONS", 1)]
"""A transaction takes one version."""
ONE_TOKEN: list[Limit] = [(ledger, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=0)))]
"""The token of a batch is drawn when it begins; here it is always the same, as nothing hangs on it."""

Fold = Callable[[SteppedTable, Clock, BatchContext, Sequence[Envelope]], Awaitable[list[Outcome]]]
"""Handles the messages of a batch."""


def state_based(name, jobs, earlier=(), invariants=invariants.ALL, limits=()) -> Scenario:
    """Return a scenario whose jobs make versions of the book's stream."""
    return Scenario(name, jobs, invariants, committed_versions, earlier, limits)


def deliver(message: Envelope, copies: int = 1, app: App = app) -> Job:
    """Return the job of handling a message, which is delivered so many times."""
    return Job(message.message_id, partial(_process, app, message), copies)


def messages(*lines: str, copies: int = 1) -> Scenario:
    """Return the scenario of some different lines, each delivered so many times."""
    name = f"{len(lines)} message{'s' * (len(lines) > 1)}, {count_of(copies)}"
    return state_based(name, [deliver(write(line), copies) for line in lines])


async def _process(app: App, message: Envelope, process: Process) -> Handled:
    processor = Processor(
        app, SteppedTable(), publish, clock=process.clock, retries=PATIENCE, settings=TableSettings()
    )
    refused = refused_of(await processor.process(message))
    return Handled(() if refused else (message.message_id,), refused=refused)


async def fold_scribe(table, clock, batch, messages) -> list[Outcome]:
    (handler,) = app.handlers.values()
    algorithm = StateBased(table, handler, clock, batch, PATIENCE)
    return list(await algorithm.process(BOOK, [prepare(handler, BOOK, message) for message in messages]))


def task(batch_id, *messages, copies=1, now=NOW, fold=fold_scribe, **options) -> Job:
    """Return the job of handling the messages of a batch, attempted so many times by processes that live `now`.

    `options` are those of `BatchContext`.
    """
    batch = BatchContext(batch_id, **options)
    return Job(batch_id, partial(_attempt, batch, messages, now, fold), copies)


async def _attempt(batch, messages, now, fold, process) -> Handled:
    table, clock = SteppedTable(), Process(process.number, now).clock
    ledger_ = Ledger(table, clock, PATIENCE)
    record = await ledger_.begin(batch.batch_id or "", "input", "out")
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


_X, _Y = write("x"), write("y")

BEGUN = state_based("2 messages for a book with lines", [deliver(_X), deliver(_Y)], [deliver(write("a"))])
COUNTED = state_based("a message that changes nothing, and one that does", [deliver(count("c")), deliver(_X)])
FILLED = replace(BEGUN, name="2 messages for a book whose tail is full", limits=FULL_TAIL)
ATTEMPTS = state_based(
    "2 attempts of a batch with a copy in it", [task("batch-1", _X, _Y, _X, copies=2)], limits=ONE_TOKEN
)
IN_PARTS = state_based(
    "a batch with a copy in it, in parts of one version, beside a message",
    [task("batch-1", _X, _Y, _X), deliver(_Y)],
    limits=[*ONE_TOKEN, *PARTS],
)
BATCHES = state_based(
    "2 batches with a message in common",
    [task("batch-1", _X, _Y), task("batch-2", _Y)],
    earlier=[task("batch-0")],
    limits=ONE_TOKEN,
)
