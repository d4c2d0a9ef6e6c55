"""Entities: the algorithms that keep a business state and its outbox in one row, one message at a time.

The outbox alone remembers all ids here. The deduplication store is another table than the entity's. With tokens a
message from outside comes with its token, and one of its outputs goes to somebody who needs one too: he stands at the
end of `publish`, takes the token and leaves a receipt in one transaction, and makes durable what he found.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from eventstore import ANY_ETAG, Operation, RowNotFoundError, StoreUnavailableError, Table, drive
from runtime.algorithms.algorithm import AT_ONCE, Algorithm, Publish, publish_all
from runtime.algorithms.outbox.algorithm import (
    Outbox,
    OutboxOneByOne,
    OutboxWithDeduplicationStore,
    TokenBased,
)
from runtime.algorithms.outbox.entity import ENTITY, Entities, Entity, read_entity
from runtime.algorithms.outbox.stores import DeduplicationStore, EntryTokens, TokenStore, issue, token_of
from runtime.algorithms.state_based.truncation import DAY
from runtime.messages.envelope import FIRST, LAST, Envelope
from runtime.messages.outcome import Outcome, Output, Status
from runtime.messages.parsing import prepare
from tests.model import invariants
from tests.model.book import BOOK, Handled, Place, Version, app, committed_letters, refused_of, write
from tests.model.calls import SteppedTable, ask, publish
from tests.model.contents import Snapshot
from tests.model.facts import Invariant, Scenario, View, count_of
from tests.model.histories import Job
from tests.model.mistakes import ALONE, ALONE_CRASH, ALONE_LOSS, Mistakes, instead_of
from tests.model.processes import NOW, Process
from tests.model.scenarios.state_based import PATIENCE
from tests.model.scenarios.truncation import at_that_time, old

SCRIBE = app.handlers["Scribe"]
KEY = f"Scribe-{BOOK}"
STATES, OTHER = "states", "other"
REPLICA = "replica"
"""A table that follows the deduplication store, now and then; the shipped code must not read it."""
READER, _RECEIPT = "Reader", "RECEIPT"

Tables = Callable[[str], Table]
Make = Callable[[Tables, Publish, Process], Algorithm]
"""Makes an algorithm for the scribe, of tables by their names, in a process."""
Leftovers = Callable[[View, Snapshot, Entity], str | None]
"""Says what is left over, though it should not be, of the tables and the entity once all is done and swept."""


def entities(name, jobs, invariants, earlier=(), replies=()) -> Scenario:
    """Return a scenario whose jobs change the entity of the book. `replies` are the ids of replies."""
    return Scenario(name, jobs, invariants, partial(_committed_entity, replies), earlier)


def _committed_entity(replies: Collection[str], snapshot: Snapshot) -> Mapping[Hashable, Any]:
    """Return the version that the entity has, and the letters. Each line is the id of the message that wrote it."""
    letters = committed_letters(snapshot)
    entity = entity_in(snapshot)
    if entity is None or not entity.version:
        return letters
    lines = tuple(json.loads(entity.state)["lines"])
    kind = "Reply" if lines[-1] in replies else "Write"
    return {
        Place("Scribe", entity.version): Version(lines[-1], kind, entity.last_now, lines[:-1], lines),
        **letters,
    }


def entity_in(snapshot: Snapshot) -> Entity | None:
    """Return the entity of the book, None before it is first written."""
    row = snapshot.tables.get(STATES, {}).get(KEY, {}).get(ENTITY)
    return None if row is None else read_entity(row)


def deliver(make: Make, message: Envelope, copies: int = 1) -> Job:
    """Return the job of handling a message, which is delivered so many times."""
    return Job(message.message_id, partial(_process, make, message), copies)


async def _process(make: Make, message: Envelope, process: Process) -> Handled:
    prepared = prepare(SCRIBE, BOOK, message)
    assert not isinstance(prepared, Outcome)
    outcome = await make(SteppedTable, publish, process).process(prepared)
    refused = refused_of([outcome])
    assert refused or not outcome.is_dead_letter, outcome.error
    return Handled(() if refused else (message.message_id,), refused=refused)


async def _sweep(make: Make, process: Process) -> Handled:
    await make(SteppedTable, publish, process).sweep()
    return Handled()


async def _evict(make: Make, older_than: timedelta, process: Process) -> Handled:
    algorithm: Any = make(SteppedTable, publish, process)
    await algorithm.evict(older_than)
    return Handled()


def _holding(make: Make, leftovers: Leftovers, *more: Invariant) -> Sequence[Invariant]:
    """Return what must hold of an algorithm, with what may be left over of it."""
    return (
        invariants.CONSISTENT_OUTPUT,
        invariants.AT_MOST_ONE_STATE_CHANGE,
        invariants.NO_LOST_UPDATE,
        invariants.NO_GHOST,
        invariants.DONE_WHEN_ACKNOWLEDGED,
        invariants.NO_LOST,
        *more,
        Invariant("NoGarbage", partial(_left_over, make, leftovers)),
    )


def _left_over(make: Make, leftovers: Leftovers, view: View) -> str | None:
    """Sweep when all is done; say what is there that should not be, or what was sent only then."""
    if not view.is_quiescent:
        return None
    tables = {name: view.snapshot.table(name) for name in (STATES, OTHER)}
    sent: list[Output] = []

    async def send(output: Output) -> None:
        sent.append(output)

    drive(make(tables.__getitem__, send, Process(view.snapshot.writes, NOW + DAY)).sweep())
    late = [output.type for output in sent if output not in view.facts.published]
    if late:
        return f"only the sweeper sent {' and '.join(late)}"
    swept = Snapshot(
        {
            name: {key: partition.rows for key, partition in table._partitions.items()}
            for name, table in tables.items()
        }
    )
    entity = entity_in(swept)
    return None if entity is None else leftovers(view, swept, entity)


def _pending(_: View, __: Snapshot, entity: Entity) -> str | None:
    return f"{entity.pending} entries of {KEY} are not finished" if entity.pending else None


def _entries(_: View, __: Snapshot, entity: Entity) -> str | None:
    return f"the outbox of {KEY} still has {len(entity.outbox)} entries" if entity.outbox else None


def _tokens(view: View, swept: Snapshot, entity: Entity) -> str | None:
    """Say that tokens are left, but for those of messages that wait as letters."""
    left = [key for key in _others(swept) if not key.startswith(_RECEIPT)]
    if len(left) > len(committed_letters(swept)):
        return f"{len(left)} tokens are left"
    return _entries(view, swept, entity)


def _one_by_one(variant, table, publish, process, **stores) -> OutboxOneByOne:
    algorithm = variant(
        table=table(STATES),
        handler=SCRIBE,
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
        **stores,
    )
    return OutboxOneByOne(algorithm=algorithm, publish=publish)


def _with_store(table: Tables, publish: Publish, process: Process) -> OutboxOneByOne:
    store = DeduplicationStore(table(OTHER), process.clock)
    return _one_by_one(OutboxWithDeduplicationStore, table, publish, process, store=store)


def _with_tokens(table: Tables, publish: Publish, process: Process) -> OutboxOneByOne:
    send = partial(_send, table(OTHER), publish, process)
    stores = {"tokens": TokenStore(table(OTHER)), "recipients": _recipients}
    return _one_by_one(TokenBased, table, send, process, **stores)


def _recipients(message_type: str) -> Collection[str]:
    return [READER] if message_type == "Wrote" else []


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
    received = Counter(key.split()[1] for key in _others(view.snapshot) if key.startswith(_RECEIPT))
    for output in view.facts.published:
        if received[output.message_id] > 1:
            return f"{output.type} was processed twice by the one it is for"
        if view.is_quiescent and _recipients(output.type) and not received[output.message_id]:
            return f"{output.type} was never processed by the one it is for"
    return None


def _others(snapshot: Snapshot) -> Iterator[str]:
    for rows in snapshot.tables.get(OTHER, {}).values():
        yield from rows


def _as_it_is(message: Envelope) -> Envelope:
    return message


def _with_first_token(message: Envelope) -> Envelope:
    return drive(issue(TokenStore(Snapshot().table(OTHER)), message, [SCRIBE.name]))


async def _issue(message: Envelope, _: Process) -> Handled:
    await issue(TokenStore(SteppedTable(OTHER)), message, [SCRIBE.name])
    return Handled()


class Family(NamedTuple):
    """An algorithm: its name, what makes it, what must hold of it, and a message as it is sent to it."""

    name: str
    make: Make
    invariants: Sequence[Invariant]
    sent: Callable[[Envelope], Envelope] = _as_it_is

    def issued(self, *messages: Envelope) -> list[Job]:
        """Return the jobs of issuing the tokens of messages, where they need one."""
        if self.sent is _as_it_is:
            return []
        return [Job(f"issue {each.message_id}", partial(_issue, self.sent(each))) for each in messages]

    def deliveries(self, *lines: str, copies: int = 1, swept: bool = False) -> Scenario:
        """Return the scenario of different lines, each delivered so many times, with a sweeper beside them or not."""
        messages = [write(line) for line in lines]
        jobs = [deliver(self.make, self.sent(message), copies) for message in messages]
        name = f"{self.name}: {', '.join(lines)}; {count_of(copies)} each"
        if swept:
            name, jobs = f"{name}, and a sweeper", [*jobs, Job("sweep", partial(_sweep, self.make))]
        return entities(name, jobs, self.invariants, self.issued(*messages))

    def evicted(self) -> Scenario:
        """Return the scenario of a message and its copy beside an eviction, after a message of long ago."""
        jobs = [
            deliver(self.make, write("x"), 2),
            Job("evict", partial(_evict, self.make, timedelta(days=1))),
        ]
        earlier = at_that_time([deliver(self.make, old("a"))])
        return entities(f"{self.name}: x beside eviction; 2 copies each", jobs, self.invariants, earlier)

    def evicted_at_once(self) -> Scenario:
        """Return the scenario of a message and its copy beside an eviction that waits for no copies."""
        jobs = [deliver(self.make, write("x"), 2), Job("evict", partial(_evict, self.make, AT_ONCE))]
        return entities(f"{self.name}: x evicted at once", jobs, self.invariants)


_outbox = partial(_one_by_one, Outbox)
OUTBOX = Family("outbox", _outbox, _holding(_outbox, _pending))
STORE = Family("deduplication store", _with_store, _holding(_with_store, _entries))
TOKENS = Family(
    "tokens",
    _with_tokens,
    _holding(_with_tokens, _tokens, Invariant("ReceivedOnce", _received_twice_or_never)),
    _with_first_token,
)
FAMILIES = (OUTBOX, STORE, TOKENS)
outbox, with_store, tokens = (family.deliveries for family in FAMILIES)


def replicated() -> Scenario:
    """Return the scenario of two copies, beside a replica of the deduplication store that follows it once."""
    jobs = [deliver(STORE.make, write("x"), 2), Job("replicate", _replicate)]
    return entities("deduplication store: a replica, and 2 copies", jobs, STORE.invariants)


async def _replicate(_: Process) -> Handled:
    page = await SteppedTable(OTHER).query(KEY, FIRST, LAST)
    copies = [Operation.insert_or_replace(row.row_key, row.properties) for row in page.rows]
    if copies:
        await SteppedTable(REPLICA).transact(KEY, copies)
    return Handled()


MISTAKES = Mistakes()
mistake = MISTAKES.add

_X, _STORE, _STORE_TWICE = outbox("x"), with_store("x"), with_store("x", copies=2)
_TOKEN, _TOKEN_TWICE = tokens("x"), tokens("x", copies=2)


async def _nothing(*_: object) -> None:
    """Leave it."""


def _no(owner: Any, name: str) -> Any:
    return lambda patch: patch.setattr(owner, name, _nothing)


# The outbox


@mistake("outbox: stored without checking for another entity", "NoLostUpdate", outbox("x", "y"))
@mistake("store: the entity is stored without checking the ETag", "NoLostUpdate", with_store("x", "y"))
@mistake("tokens: the entity is stored without checking the ETag", "NoLostUpdate", tokens("x", "y"))
@instead_of(Entities, "store")
async def _(_: Any, self: Any, entity: Any) -> Any:
    change = Operation.insert_or_replace(ENTITY, entity.properties())
    (etag,) = await self.table.transact(entity.key, [change])
    return replace(entity, etag=etag)


@mistake("outbox: replaced without checking the ETag", "NoLostUpdate", outbox("x", "y"))
@instead_of(Entities, "store")
def _(store: Any, self: Any, entity: Any) -> Any:
    return store(self, entity if entity.etag is None else replace(entity, etag=ANY_ETAG))


@mistake("outbox: finished before it is published", "DoneWhenAcknowledged", _X, ALONE_CRASH)
@instead_of(OutboxOneByOne, "publish_outputs")
async def _(publish_outputs: Any, self: Any, entity: Any, message_ids: Any, *cause: Any) -> None:
    await self.algorithm.mark_finished(entity, message_ids)
    await publish_outputs(self, entity, message_ids, *cause)


@mistake("outbox: published before it is stored", "NoGhost", _X)
@instead_of(Entities, "store")
async def _(store: Any, self: Any, entity: Any) -> Any:
    for entry in entity.outbox.values():
        await publish_all(self.table, publish, entry.to_publish)
    return await store(self, entity)


@mistake("outbox: a lost answer is taken for success", "NoGhost", _X, ALONE_LOSS)
@instead_of(Entities, "store")
async def _(store: Any, self: Any, entity: Any) -> Any:
    try:
        return await store(self, entity)
    except StoreUnavailableError:
        return entity


@mistake("outbox: duplicates publish nothing", "DoneWhenAcknowledged", _X, ALONE_CRASH)
@instead_of(OutboxOneByOne, "attempt")
async def _(attempt: Any, self: Any, algorithm: Any, message: Any) -> Any:
    entity = await algorithm.entities.load(algorithm.entities.key(message.business_id))
    if message.key in entity.outbox:
        return algorithm.concluded(message, Status.DUPLICATE)
    return await attempt(self, algorithm, message)


# The deduplication store


@mistake("store: asked before the entity is loaded", "AtMostOneStateChange", _STORE_TWICE)
@instead_of(OutboxWithDeduplicationStore, "attempt")
async def _(attempt: Any, self: Any, business_id: str, deliveries: Any, *more: Any) -> Any:
    found = await self.store.find(self.entities.key(business_id), deliveries[0].key)

    async def told(*_: object) -> Any:
        return found

    early = copy(self)
    early.store = SimpleNamespace(add=self.store.add, find=told)
    return await attempt(early, business_id, deliveries, *more)


@mistake("store: removed from the entity before it is added", "AtMostOneStateChange", _STORE, ALONE_CRASH)
@instead_of(OutboxWithDeduplicationStore, "mark_finished")
async def _(_: Any, self: Any, entity: Any, message_ids: Any) -> Any:
    done = {key: entity.outbox[key].fingerprint for key in message_ids}
    rest = await self.forget(entity, message_ids)
    await self.store.add(entity.key, done)
    return rest


@mistake("store: stale reads", "AtMostOneStateChange", replicated())
@instead_of(SteppedTable, "get")
def _(get: Any, self: Any, partition_key: str, row_key: str) -> Any:
    return (
        ask(REPLICA, "get", partition_key, row_key)
        if self.name == OTHER
        else get(self, partition_key, row_key)
    )


mistake("store: nothing is added", "AtMostOneStateChange", _STORE_TWICE)(_no(DeduplicationStore, "add"))


@mistake("store: an entry left by a crash stays", "NoGarbage", _STORE, ALONE_CRASH)
def _(patch: pytest.MonkeyPatch) -> None:
    async def sweep_nothing(*_: object) -> int:
        return 0

    patch.setattr(OutboxWithDeduplicationStore, "forget_leftover", _nothing)
    patch.setattr(OutboxOneByOne, "sweep", sweep_nothing)


# Tokens


@mistake("tokens: created again, one worker and a crash", "ReceivedOnce", _TOKEN, ALONE_CRASH)
@mistake("tokens: created again, two copies", "ReceivedOnce", _TOKEN_TWICE)
@instead_of(TokenBased, "make_ready")
async def _(_: Any, self: Any, entity: Any, attempts: Any) -> Any:
    for message_id in attempts:
        entry = entity.outbox[message_id]
        await self.tokens.create(entry.tokens.incoming, entry.tokens.of_attempt("same"))
    return _committing(dict.fromkeys(attempts, "same"), entity)


def _committing(attempts: Mapping[Any, str], entity: Any) -> Any:
    for key, attempt in attempts.items():
        entry = entity.outbox[key]
        entity = entity.with_entry(key, replace(entry, tokens=entry.tokens._replace(committed=attempt)))
    return entity


@mistake("tokens: each attempt has the same ids", "ReceivedOnce", _TOKEN_TWICE)
@instead_of(TokenBased, "__init__")
def _(begin: Any, self: Any, *given: Any, **named: Any) -> None:
    begin(self, *given, **{**named, "new_id": lambda: "same"})


@mistake("tokens: no checkpoint", "ConsistentOutput", _TOKEN, ALONE_CRASH)
@instead_of(TokenBased, "make_ready")
async def _(_: Any, self: Any, entity: Any, attempts: Any) -> Any:
    for message_id, attempt in attempts.items():
        entry = entity.outbox[message_id]
        await self.tokens.create(entry.tokens.incoming, entry.tokens.of_attempt(attempt))
    return _committing(attempts, entity)


@mistake("tokens: asked before the entity is loaded", "AtMostOneStateChange", _TOKEN_TWICE)
@instead_of(TokenBased, "attempt")
async def _(attempt: Any, self: Any, business_id: str, deliveries: Any, *more: Any) -> Any:
    found = await self.tokens.exists(token_of(deliveries[0].envelope, self.handler.name))

    async def told(_: object) -> Any:
        return found

    early = copy(self)
    early.tokens = copy(self.tokens)
    early.tokens.exists = told
    return await attempt(early, business_id, deliveries, *more)


@mistake("tokens: attempts are not registered", "NoGarbage", _TOKEN, ALONE_CRASH)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryTokens, "registered", lambda self, _: self)
    patch.setattr(EntryTokens, "decided", lambda self, attempt: self._replace(committed=attempt))


@mistake("tokens: created though the message is finished", "NoGarbage", _TOKEN_TWICE)
@instead_of(TokenStore, "create")
async def _(_: Any, self: Any, __: Any, created: Any) -> None:
    await self.issue(created)


mistake("tokens: never deleted", "NoGarbage", _TOKEN, ALONE)(_no(TokenStore, "delete"))


@mistake("tokens: deleted before the outputs are published", "DoneWhenAcknowledged", _TOKEN, ALONE_CRASH)
@instead_of(TokenBased, "make_ready")
async def _(make_ready: Any, self: Any, entity: Any, attempts: Any) -> Any:
    ready = await make_ready(self, entity, attempts)
    for message_id in attempts:
        await self.tokens.delete(entity.outbox[message_id].tokens.incoming)
    return ready
