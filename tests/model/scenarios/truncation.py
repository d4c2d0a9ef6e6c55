"""Truncation beside processing: old versions are cut while messages come, late copies of the old ones among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from eventstore import writing as event_truncation
from eventstore.backends import memory
from runtime import Processor, TableSettings, processor
from runtime.algorithms.state_based.truncation import DAY, TruncationRules, truncate_stream
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope
from tests.model.calls import SteppedTable, publish
from tests.model.histories import Job, Started
from tests.model.processes import NOW, Dependencies, Process
from tests.model.scenarios.batches import ONE_TOKEN
from tests.model.scenarios.state_based import PATIENCE, Limit, StateBasedScenario, deliver
from tests.model.scribe import BOOK, app, write
from tests.model.versions import Handled

OLD = NOW - 10 * DAY

KEY = f"Scribe-{BOOK}"

SMALL_STEPS: list[Limit] = [(memory, "PAGE_SIZE", 1), (event_truncation, "_CHANGES", 1)]
"""A page has one row, and a transaction that deletes rows deletes one: everything takes several calls."""


def _draw_id() -> str:
    return Dependencies.process.draw_id()


_DRAWN: list[Limit] = [(processor, "fresh_id", _draw_id)]
"""Ids of epochs, as each process draws them."""


def old(line: str) -> Envelope:
    """Return a message that is old enough to be cut; later letters were enqueued later."""
    return write(line, OLD + ord(line))


def truncate(copies: int = 1, *, keep_last: int | None = None, is_promised: bool = True) -> Job:
    """Return the job of cutting what may be cut of the book, of batches that are finished.

    The operator promises, or not, that single messages of more than a day ago were acknowledged.
    """
    return Job("truncate", partial(_truncate, keep_last, DAY if is_promised else None), copies)


def truncated_beside(
    name: str, *jobs: Job, earlier: Sequence[Job], limits: Sequence[Limit] = ()
) -> StateBasedScenario:
    """Return the scenario of these jobs beside truncation, with a book of earlier lines."""
    return StateBasedScenario(name, [truncate(), *jobs], earlier, limits=[*ONE_TOKEN, *limits])


def consume(message: Envelope, copies: int = 1) -> Job:
    """Return the job of a consumer that handles one message, and notes in the ledger when its outputs are published."""
    return Job(message.message_id, partial(_consume, message), copies)


def consumed_beside(name: str, *jobs: Job, limits: Sequence[Limit] = ()) -> StateBasedScenario:
    """Return the scenario of jobs beside a truncation to which nothing is promised."""
    return StateBasedScenario(
        name, [truncate(is_promised=False), *jobs], limits=[*ONE_TOKEN, *_DRAWN, *limits]
    )


def long_ago(*lines: str) -> list[Job]:
    """Return the jobs of handling old messages when they were sent."""
    return at_that_time([deliver(old(line)) for line in lines])


def at_that_time(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs as processes did them whose clocks showed times long ago."""
    return [job._replace(start=partial(_long_ago, job.start)) for job in jobs]


def _long_ago(start: Callable[[Process], Started], process: Process) -> Started:
    return start(Process(process.number, OLD))


async def _consume(message: Envelope, process: Process) -> Handled:
    consumer = Processor(
        app,
        SteppedTable(),
        publish,
        clock=process.clock,
        retries=PATIENCE,
        acknowledge_every=timedelta(),
        settings=TableSettings(),
    )
    await consumer.process(message)
    await consumer.flush()
    return Handled((message.message_id,))


async def _truncate(keep_last: int | None, acknowledged_after: int | None, process: Process) -> Handled:
    table = SteppedTable()
    open_batches = await Ledger(table, process.clock, PATIENCE).open_batches()
    rules = TruncationRules.of(
        NOW, open_batches, older_than=DAY, keep_last=keep_last, acknowledged_after=acknowledged_after
    )
    await truncate_stream(table, KEY, rules, PATIENCE)
    return Handled()
