"""Tokens: a message from outside comes with its token, and one of its outputs goes to somebody who needs one too.

That receiver stands at the end of `publish` here: in one transaction it takes the token and leaves a receipt, and makes
durable what it found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial

from eventstore import Operation, RowNotFoundError, Table, drive
from runtime.algorithms.algorithm import Publish
from runtime.algorithms.outbox.algorithm import OutboxOneByOne
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.stores import TokenStore, issue, token_of
from runtime.algorithms.outbox.variants import TokenBased
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Output
from tests.model.calls import SteppedTable
from tests.model.contents import Snapshot
from tests.model.facts import Invariant, View
from tests.model.histories import Job
from tests.model.letters import committed_letters
from tests.model.processes import Process
from tests.model.scenarios.entities import (
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

READER = "Reader"
_RECEIPT = "RECEIPT"


def make(table: Callable[[str], Table], publish: Publish, process: Process) -> OutboxOneByOne:
    """Return the token-based algorithm of the scribe, which draws its ids from its process."""
    algorithm = TokenBased(
        table=table(STATES),
        tokens=TokenStore(table(OTHER)),
        handler=SCRIBE,
        recipients=_recipients,
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
    )
    return OutboxOneByOne(algorithm=algorithm, publish=partial(_send, table(OTHER), publish, process))


def tokens(*lines: str, copies: int = 1, swept: bool = False) -> EntityScenario:
    """Return the scenario of some different lines, each delivered so many times, with a sweeper beside them or not."""
    sent = [with_first_token(write(line)) for line in lines]
    jobs = [deliver(make, message, copies) for message in sent]
    earlier = [issued(message) for message in sent]
    name = f"tokens: {', '.join(lines)}; {copies} cop{'ies' if copies > 1 else 'y'} each"
    if swept:
        return EntityScenario(f"{name}, and a sweeper", [*jobs, sweep(make)], INVARIANTS, earlier)
    return EntityScenario(name, jobs, INVARIANTS, earlier)


def _recipients(message_type: str) -> Collection[str]:
    return [READER] if message_type == "Wrote" else []


def issued(message: Envelope) -> Job:
    """Return the job of issuing the token of a message."""
    return Job(f"issue {message.message_id}", partial(_issue, message))


def with_first_token(message: Envelope) -> Envelope:
    """Return a message from outside as it is sent."""
    return drive(issue(TokenStore(Snapshot().table(OTHER)), message, [SCRIBE.name]))


async def _issue(message: Envelope, _: Process) -> Handled:
    await issue(TokenStore(SteppedTable(OTHER)), message, [SCRIBE.name])
    return Handled()


async def _send(table: Table, publish: Publish, process: Process, output: Output) -> None:
    """Publish an output; the reader takes the token of one that is for him, and leaves a message without one alone."""
    await publish(output)
    token = token_of(output.envelope(), READER)
    if token is None:
        return
    receipt = Operation.insert(f"{_RECEIPT} {output.message_id} {process.name}", {})
    with suppress(RowNotFoundError):
        await table.transact(f"tokens.{token.chain}", [Operation.delete(token.row_key), receipt])
    await table.barrier()


def _received_twice_or_never(view: View) -> str | None:
    received = Counter(key.split()[1] for key in _rows(view.snapshot) if key.startswith(_RECEIPT))
    for output in view.facts.published:
        if received[output.message_id] > 1:
            return f"{output.type} was processed twice by the one it is for"
        if view.is_quiescent and _recipients(output.type) and not received[output.message_id]:
            return f"{output.type} was never processed by the one it is for"
    return None


def _leftovers(view: View, swept: Snapshot, entity: Entity) -> str | None:
    """Say that tokens are left, but for those of messages that wait as letters."""
    left = [key for key in _rows(swept) if not key.startswith(_RECEIPT)]
    if len(left) > len(committed_letters(swept)):
        return f"{len(left)} tokens are left"
    return no_entries(view, swept, entity)


def _rows(snapshot: Snapshot) -> Iterator[str]:
    for rows in snapshot.tables.get(OTHER, {}).values():
        yield from rows


RECEIVED_ONCE = Invariant("ReceivedOnce", _received_twice_or_never)
INVARIANTS = holding(make, _leftovers, RECEIVED_ONCE)
