"""Truncation beside processing: old versions are cut while messages come, late copies of the old ones among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from eventstore import truncation as event_truncation
from eventstore.backends import memory
from runtime.algorithms.state_based.truncation import DAY, TruncationRules, truncate_stream
from runtime.batches.ledger import Ledger
from runtime.messages.envelope import Envelope
from tests.model.calls import SteppedTable
from tests.model.histories import Job, Started
from tests.model.processes import NOW, Process
from tests.model.scenarios.batches import ONE_TOKEN
from tests.model.scenarios.state_based import PATIENCE, Limit, StateBasedScenario, deliver
from tests.model.scribe import BOOK, write
from tests.model.versions import Handled

OLD = NOW - 10 * DAY
KEY = f"Scribe-{BOOK}"

SMALL_STEPS: list[Limit] = [(memory, "PAGE_SIZE", 1), (event_truncation, "_CHANGES", 1)]
"""A page has one row, and a transaction that deletes rows deletes one: everything takes several calls."""


def old(line: str) -> Envelope:
    """Return a message that is old enough to be cut; later letters were enqueued later."""
    return write(line, OLD + ord(line))


def truncate(copies: int = 1, *, keep_last: int | None = None) -> Job:
    """Return the job of cutting what may be cut of the book, of batches that are finished."""
    return Job("truncate", partial(_truncate, keep_last), copies)


def truncated_beside(
    name: str, *jobs: Job, earlier: Sequence[Job], limits: Sequence[Limit] = ()
) -> StateBasedScenario:
    """Return the scenario of these jobs beside truncation, with a book of earlier lines."""
    return StateBasedScenario(name, [truncate(), *jobs], earlier, limits=[*ONE_TOKEN, *limits])


def long_ago(*lines: str) -> list[Job]:
    """Return the jobs of handling old messages when they were sent."""
    return at_that_time([deliver(old(line)) for line in lines])


def at_that_time(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs as processes did them whose clocks showed times long ago."""
    return [job._replace(start=partial(_long_ago, job.start)) for job in jobs]


def _long_ago(start: Callable[[Process], Started], process: Process) -> Started:
    return start(Process(process.number, OLD))


async def _truncate(keep_last: int | None, process: Process) -> Handled:
    table = SteppedTable()
    open_batches = await Ledger(table, process.clock, PATIENCE).open_batches()
    rules = TruncationRules.of(NOW, open_batches, older_than=DAY, keep_last=keep_last)
    await truncate_stream(table, KEY, rules, PATIENCE)
    return Handled()
