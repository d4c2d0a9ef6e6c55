"""Truncation beside processing: old versions are cut while messages come, late copies of the old ones among them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from eventstore import ANY_ETAG, Operation, Stream
from eventstore import writing as event_truncation
from eventstore.backends import memory
from eventstore.writing import transact
from runtime import Processor, TableSettings, processor
from runtime.algorithms.algorithm import publish_all
from runtime.algorithms.state_based import truncation
from runtime.algorithms.state_based.algorithm import StateBasedOneByOne
from runtime.algorithms.state_based.truncation import (
    DAY,
    Plan,
    TruncationChoices,
    TruncationRules,
    truncate_stream,
)
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope
from tests.model.book import BOOK, Handled, app, write
from tests.model.calls import SteppedTable, publish
from tests.model.facts import Limit, Scenario
from tests.model.histories import Job, Started
from tests.model.mistakes import ALONE_CRASH, CRASH, Mistakes, giving, instead_of
from tests.model.processes import NOW, Process, draw_id
from tests.model.scenarios.state_based import ONE_TOKEN, PATIENCE, RUNS, deliver, state_based, task

OLD = NOW - 10 * DAY

SMALL_STEPS: list[Limit] = [(memory, "PAGE_SIZE", 1), (event_truncation, "_CHANGES", 1)]
"""A page has one row, and a transaction that deletes rows deletes one: everything takes several calls."""
_DRAWN: list[Limit] = [(processor, "fresh_id", draw_id)]
"""Ids of consumer batches, as each process draws them."""


def old(line: str) -> Envelope:
    """Return a message that is old enough to be cut; later letters were enqueued later."""
    return write(line, OLD + ord(line))


def truncate(copies: int = 1, *, keep_last: int | None = None, is_promised: bool = True) -> Job:
    """Return the job of cutting what may be cut of the book, of batches that are finished.

    The operator promises, or not, that single messages of more than a day ago were acknowledged.
    """
    return Job("truncate", partial(_truncate, keep_last, DAY if is_promised else None), copies)


def truncated_beside(name: str, *jobs: Job, earlier: Sequence[Job], limits: Sequence[Limit] = ()) -> Scenario:
    """Return the scenario of these jobs beside truncation, with a book of earlier lines."""
    return state_based(name, [truncate(), *jobs], earlier, limits=[*ONE_TOKEN, *limits])


def consume(message: Envelope, copies: int = 1) -> Job:
    """Return the job of a consumer that handles one message, and notes in the ledger when its outputs are published."""
    return Job(message.message_id, partial(_consume, message), copies)


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
    choices = TruncationChoices(older_than=DAY, keep_last=keep_last, acknowledged_after=acknowledged_after)
    rules = choices.as_of(NOW, open_batches)
    await truncate_stream(table, f"Scribe-{BOOK}", rules, PATIENCE)
    return Handled()


_LATE_COPY, _NEW = deliver(old("a")), deliver(write("x"))
_STEPS = [*RUNS, *SMALL_STEPS]

LATE = truncated_beside("a late copy beside truncation", _LATE_COPY, earlier=long_ago("a", "b"))
LATE_IN_ROWS = truncated_beside(
    f"{LATE.name}, each version in a row", _LATE_COPY, earlier=long_ago("a", "b"), limits=RUNS
)
LATE_IN_STEPS = truncated_beside(
    f"{LATE.name} in small steps", _LATE_COPY, earlier=long_ago(*"abc"), limits=_STEPS
)
IN_STEPS = truncated_beside(
    "truncation in small steps, each version in a row", _NEW, earlier=long_ago(*"abc"), limits=_STEPS
)
TWICE = state_based(
    "truncated twice, beside a late copy",
    [truncate(keep_last=2)._replace(name="truncate-2"), truncate(keep_last=1), deliver(old("c"))],
    long_ago("c", "b", "d"),
    limits=ONE_TOKEN,
)
UNPUBLISHED = truncated_beside(
    "an unpublished batch beside truncation", task("batch-1", old("a"), now=OLD), _NEW, earlier=[]
)
DIED = state_based(
    "a single message whose worker died beside truncation",
    [truncate(is_promised=False), *long_ago("a"), _NEW],
    limits=[*ONE_TOKEN, *_DRAWN],
)
CONSUMED = state_based(
    "a single message that its consumer acknowledges beside truncation",
    [truncate(is_promised=False), *at_that_time([consume(old("a"))]), _NEW],
    limits=[*ONE_TOKEN, *_DRAWN],
)


def late_and_new(where: str, limits: Sequence[Limit]) -> Scenario:
    """Return the scenario of a late copy and a new message beside truncation, of versions that lie somewhere."""
    name = f"a late copy and a message beside truncation, {where}"
    return truncated_beside(name, _LATE_COPY, _NEW, earlier=long_ago(*"abc"), limits=limits)


# Mistakes: what truncation remembers, in which order it deletes, and what it must leave alone

MISTAKES = Mistakes()
mistake = MISTAKES.add


mistake("single messages count as acknowledged", "DoneWhenAcknowledged", DIED, CRASH)(
    giving(TruncationRules, "is_acknowledged", value=True)
)


@mistake("a consumer's batch that is open counts as ended", "DoneWhenAcknowledged", CONSUMED, ALONE_CRASH)
@instead_of(OpenBatches, "is_finished")
def _(_: Any, self: Any, __: Any, number: Any) -> bool:
    return number is None or number < self.next


@mistake(
    "a consumer's batch ends before the outputs are published",
    "DoneWhenAcknowledged",
    CONSUMED,
    ALONE_CRASH,
)
@instead_of(StateBasedOneByOne, "process")
async def _(process: Any, self: Any, message: Any, **named: Any) -> Any:
    if self.consumer_batches is None:
        return await process(self, message, **named)
    consumer_batch = await self.consumer_batches.enter()
    numbered = self.algorithm.on_behalf_of(replace(self.algorithm.batch, number=consumer_batch.number))
    (outcome,) = await numbered.process(message.business_id, [message])
    await self.consumer_batches.leave(consumer_batch, None)
    await self.consumer_batches.flush()
    await publish_all(self.algorithm.table, self.publish, outcome.outputs)
    return outcome


@mistake("the horizon is not moved", "AtMostOneStateChange", LATE)
@instead_of(truncation, "_moved")
def _(moved: Any, head: Any, *given: Any) -> Any:
    return moved(head, *given)._replace(horizon=head.horizon)


@mistake("the horizon is moved after the delete", "AtMostOneStateChange", LATE_IN_ROWS)
@instead_of(Plan, "carry_out")
async def _(cut: Any, plan: Any) -> None:
    await cut(replace(plan, head=plan.head._replace(horizon=None)))
    now = await Stream.open(plan.stream.partition)
    horizon = plan.head.properties()["Horizon"]
    await Stream.set_properties(now, {**(now.properties or {}), "Horizon": horizon})


@mistake("the horizon goes back", "AtMostOneStateChange", TWICE)
@instead_of(truncation, "_moved")
def _(moved: Any, head: Any, *given: Any) -> Any:
    return moved(head._replace(horizon=None), *given)


@mistake("an unpublished batch is truncated", "NoLost", UNPUBLISHED, ALONE_CRASH)
@instead_of(TruncationRules, "holder")
def _(holder: Any, self: Any, run: Any) -> Any:
    return holder(replace(self, open_batches=OpenBatches(2)), run)


@mistake(
    "truncated without checking the ETag",
    "NoLostUpdate",
    truncated_beside("a message beside truncation", deliver(write("x")), earlier=long_ago("a", "b")),
)
@instead_of(Stream, "truncate")
def _(_, stream, first_version, properties=None, includes=(), rows=None) -> Any:
    unchecked = replace(stream, etag=ANY_ETAG)
    return event_truncation.truncate(unchecked, first_version, properties, includes, rows)


@mistake("rows are deleted before the watermark moves", "Readable", IN_STEPS)
@instead_of(event_truncation, "_delete")
async def _(delete: Any, partition: Any, header: Any, mark: Any, doomed: Any, includes: Any = ()) -> Any:
    for row_key in doomed:
        await transact(partition, [Operation.delete(row_key)])
    return await delete(partition, header, mark, (), includes)


@mistake("nothing is cleaned up after a crash", "NoGarbage", IN_STEPS, CRASH)
@instead_of(Stream, "truncate")
async def _(cut: Any, stream: Any, first_version: int, properties: Any, *given: Any) -> Any:
    return await cut(stream, first_version, properties, *given) if properties else stream
