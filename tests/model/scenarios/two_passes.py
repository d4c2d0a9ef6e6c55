"""Two passes: the messages of a batch are handled, their outcomes committed, and only then finished in the entity.

The steps are those of a batch's driver, and in their order, for one entity. The folder of outcomes is a row here, which
can be put in place once; what is in it is published. What Spark does is left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgpack

from eventstore import Operation, RowExistsError, Table
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope, id_key
from runtime.messages.outcome import Outcome, Output, Status
from runtime.messages.parsing import prepare
from tests.model.book import BOOK, Handled, refused_of, write
from tests.model.calls import SteppedTable, publish
from tests.model.contents import Snapshot
from tests.model.facts import Invariant, Scenario, View
from tests.model.histories import Job
from tests.model.mistakes import ALONE_CRASH, Mistakes, giving, instead_of
from tests.model.processes import Process
from tests.model.scenarios.entities import FAMILIES, SCRIBE, STATES, Family, deliver, entities, entity_in
from tests.model.scenarios.state_based import ONE_TOKEN, PATIENCE

FOLDERS = "folders"
_ROUND = "round-0"


def batches(name, jobs, invariants, earlier, replies="") -> Scenario:
    """Return the scenario of batches that an algorithm with an outbox runs, and perhaps of single messages."""
    return replace(entities(name, jobs, invariants, earlier, replies), limits=ONE_TOKEN)


def batch(family: Family, batch_id: str, *messages: Envelope, copies: int = 1, **options: Any) -> Job:
    """Return the job of running a batch, attempted so many times. `options` are those of `BatchContext`."""
    sent = [family.sent(message) for message in messages]
    return Job(batch_id, partial(_attempt, family.make, BatchContext(batch_id, **options), sent), copies)


async def _attempt(make: Any, batch: BatchContext, messages: Sequence[Envelope], process: Process) -> Handled:
    batch_id = batch.batch_id or ""
    one_by_one, folders = make(SteppedTable, publish, process), SteppedTable(FOLDERS)
    ledger_ = Ledger(SteppedTable(STATES), process.clock, PATIENCE)
    record = await ledger_.begin(batch_id, "input", "out")
    if record.is_finished:
        return Handled()
    batch = replace(batch, open_batches=await ledger_.open_batches(), number=record.number)
    algorithm = replace(one_by_one.algorithm, batch=batch)
    handled = Handled()
    if record.rounds == 0:
        if await folders.get(batch_id, _ROUND) is None:
            outcomes = await algorithm.process(BOOK, [prepare(SCRIBE, BOOK, message) for message in messages])
            await SteppedTable(STATES).barrier()
            await _put_in_place(folders, batch_id, outcomes)
            handled = Handled(refused=refused_of(outcomes))
        record = await ledger_.commit_round(record, 0, {}, 0)
    row = await folders.get(batch_id, _ROUND)
    assert row is not None
    ends, outputs = msgpack.unpackb(row.properties["Content"])
    for output in outputs:
        await one_by_one.publish(Output(*output))
    await algorithm.finish(BOOK, [id_key(message_id) for message_id, _ in ends])
    await ledger_.publish(record)
    return handled


async def _put_in_place(folders: Table, batch_id: str, outcomes: Sequence[Outcome]) -> None:
    ends = [(outcome.envelope.message_id, outcome.status.value) for outcome in outcomes]
    content = msgpack.packb((ends, [output for outcome in outcomes for output in outcome.outputs]))
    try:
        await folders.transact(batch_id, [Operation.insert(_ROUND, {"Content": content})])
    except RowExistsError:
        return


def _processed_twice_or_never(view: View) -> str | None:
    """Say which message several batches have processed, or none, though a batch has made its version."""
    found = _processed(view.snapshot)
    if found and max(found.values()) > 1:
        return f"{found.most_common(1)[0][0]} is said to be processed twice"
    entity = entity_in(view.snapshot)
    alone = not any(done.result.messages for done in view.facts.done)
    if view.is_quiescent and alone and entity is not None and found.total() < entity.version:
        return "no batch says of a message that it has processed it"
    return None


def _processed(snapshot: Snapshot) -> Counter[str]:
    rows = [each[_ROUND] for each in snapshot.tables.get(FOLDERS, {}).values()]
    ends = [end for row in rows for end in msgpack.unpackb(row.properties["Content"])[0]]
    return Counter(message_id for message_id, status in ends if status == Status.PROCESSED)


_X = write("x")


def _with_each(what: str, jobs: Any) -> tuple[Scenario, ...]:
    """Return the scenario of jobs, made for an algorithm, with each algorithm."""
    once = Invariant("ProcessedOnce", _processed_twice_or_never)
    return tuple(
        batches(f"{each.name}: {what}", jobs(each), [*each.invariants, once], each.issued(_X))
        for each in FAMILIES
    )


ATTEMPTS = _with_each(
    "2 attempts of a batch with a copy in it", lambda family: [batch(family, "batch-1", _X, _X, copies=2)]
)
BATCHES = _with_each(
    "2 batches with a message in common",
    lambda family: [batch(family, "batch-1", _X), batch(family, "batch-2", _X)],
)
BESIDE = _with_each(
    "a batch beside a copy",
    lambda family: [batch(family, "batch-1", _X), deliver(family.make, family.sent(_X))],
)


# Mistakes: what belongs into the second pass, and to whom

MISTAKES = Mistakes()


@instead_of(OutboxAlgorithm, "attempt")
async def _finished_in_the_first_pass(attempt, self, business_id, *given, **named) -> Any:
    entity, outcomes = await attempt(self, business_id, *given, **named)
    await self.finish(business_id, [id_key(outcome.envelope.message_id) for outcome in outcomes])
    return entity, outcomes


@instead_of(OutboxAlgorithm, "invoke")
def _entries_do_not_know_their_batch(invoke: Any, self: Any, entity: Any, message: Any, attempt: str) -> Any:
    changed = invoke(self, entity, message, attempt)
    return changed.with_entry(message.key, replace(changed.outbox[message.key], batch=None))


for _what, _breaks, _scenarios, _plant in (
    ("finished in the first pass", "NoLost", ATTEMPTS, _finished_in_the_first_pass),
    ("entries do not record their batch", "ProcessedOnce", ATTEMPTS, _entries_do_not_know_their_batch),
    (
        "a batch finishes the entries of another",
        "ProcessedOnce",
        BATCHES,
        giving(OutboxAlgorithm, "_may_finish", value=True),
    ),
):
    for _family, _scenario in zip(("outbox", "store", "tokens"), _scenarios, strict=True):
        MISTAKES.add(f"{_family}: {_what}", _breaks, _scenario, ALONE_CRASH)(_plant)
