"""Choosing an algorithm by its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from eventstore import Table
from handlers import App
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import Algorithm, Publish
from runtime.algorithms.deduplication_store import TableDeduplicationStore
from runtime.algorithms.outbox import Outbox
from runtime.algorithms.outbox_with_deduplication_store import OutboxWithDeduplicationStore
from runtime.algorithms.state_based import StateBased, StateBasedOneByOne
from runtime.algorithms.token_based import TokenBased
from runtime.algorithms.tokens import TableTokenStore
from runtime.backoff import BackoffPolicy
from runtime.clock import Clock, system_clock
from runtime.errors import UsageError
from runtime.fold import BatchContext

AlgorithmName = Literal["state-based", "outbox", "deduplication-store", "tokens"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What algorithms are made of.

    `table` holds the states, `evidence` the de-duplication store or the tokens; only the state-based algorithm looks
    at `batch`.
    """

    app: App
    table: Table
    evidence: Table
    publish: Publish
    clock: Clock = system_clock
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    batch: BatchContext = field(default_factory=BatchContext)


def make_algorithms(name: AlgorithmName, given: Surroundings) -> dict[str, Algorithm]:
    """Return an algorithm for each handler of an app, by the handlers' names. Raises `UsageError` for another name."""
    if name not in get_args(AlgorithmName):
        raise UsageError(f"There is no algorithm {name!r}: use one of {', '.join(get_args(AlgorithmName))}.")
    return {handler.name: _make(name, handler, given) for handler in given.app.handlers.values()}


def handlers_of(app: App, message_type: str) -> list[str]:
    """Return the names of the handlers that take messages of a type."""
    return [route.handler for route in app.routes(message_type)]


def _make(name: AlgorithmName, handler: HandlerDefinition, given: Surroundings) -> Algorithm:
    table, publish, clock, backoff = given.table, given.publish, given.clock, given.backoff
    if name == "outbox":
        return Outbox(table, handler, publish, clock=clock, backoff=backoff)
    if name == "deduplication-store":
        store = TableDeduplicationStore(given.evidence, clock)
        return OutboxWithDeduplicationStore(table, store, handler, publish, clock=clock, backoff=backoff)
    if name == "tokens":
        tokens, recipients = TableTokenStore(given.evidence), partial(handlers_of, given.app)
        return TokenBased(table, tokens, handler, publish, recipients, clock=clock, backoff=backoff)
    return StateBasedOneByOne(StateBased(table, handler, clock, given.batch, backoff), publish)
