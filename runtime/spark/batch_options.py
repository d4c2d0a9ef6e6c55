"""How a batch is run: what its handlers, its algorithm and its workers are told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from handlers import App
from runtime.algorithms.choice import (
    AlgorithmName,
    check_documents,
    check_name,
    check_stores,
    described_algorithm,
)
from runtime.batches.dead_letter_limit import DeadLetterLimit
from runtime.batches.record import STATE_BASED
from runtime.batches.settings import Claim, Draws, Owner
from runtime.clock import Clock, system_clock
from runtime.documents.opening import open_documents
from runtime.errors import UsageError
from runtime.messages.limits import GIB, USUAL, MessageLimits
from runtime.spark.workers.connection import TablePlace
from runtime.spark.workers.job import Wrap

Step = Callable[[str], None]
"""Is called with a short sentence when a batch goes on to its next step."""


def _silent(_: str) -> None: ...


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is run.

    `source` sets the ids of this log apart from those of others. `partitions` is the number of partitions that the
    messages are shuffled to. `in_flight` is how many streams a worker works on at most at once: a store on the network
    answers them concurrently, and a file commits them together.
    `guard` makes a dead letter of a message whose handler looks at a clock, at chance or at the outside.
    `on_difference` fails the batch when the replay of a duplicate differs from what was recorded: stored versions stay,
    and the batch can be resumed with its id either way. `step` is called with a sentence when the batch goes on to its
    next step; what it raises stops the batch there. `max_dead_letters`, such as 10 or
    "0.5%", holds a round with more of them back, and raises `BatchHeldBackError`: its outcomes can be looked at, and
    run again with a higher limit, or none, the batch goes on. A message beyond
    `limits` is a dead letter; `keep_large` is a folder for those of a log, as they were. A cascade that is not at its
    end after `max_rounds`, or with more than `max_outputs` outputs for each message that it began with, stops there.
    A handler that takes longer than `handler_timeout` is interrupted, and its message is a dead letter, as is one
    during which workers die; a worker may take `worker_memory` bytes beside what it begins with.

    `draws="keyed"` in the first batch of a new table gives it a secret that goes into all guids, ids of outputs and
    random numbers, so that nobody can foresee them (docs/determinism.md); None takes what the table has. A table
    belongs to the app whose batch was the first: another one is refused, or with `adopt` takes the table over.

    `types` are the message types that the log may hold, for a log of senders who may send no others: a message of
    another type is a dead letter, whatever handler takes it. With `cascade`, outputs are of any type.

    `on_error` says what becomes of later new messages of a stream after a dead letter: they are handled, or held back
    within the round ("stop-stream"), or in all batches until it is redriven or given up ("park").

    `algorithm` is one of those in docs/algorithms.md, the same for all batches of a table. `deduplication_store` and
    `token_store` are tables for the algorithms that use them; by default they are the table of the states. With an
    algorithm other than the state-based one nothing is ever `too_late` and nothing is replayed, so `late` and
    `on_difference` must be left out.

    `documents` is the url of the folder in which documents are kept that handlers store (`context.store_document`):
    see `runtime.documents.opening`. Only the state-based algorithm takes it.
    """

    cascade: bool = False
    max_rounds: int = 100
    max_outputs: int = 1000
    late: Literal["refuse", "process"] = "refuse"
    on_error: Literal["continue", "stop-stream", "park"] = "continue"
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"
    source: str | None = None
    log_format: str | None = None
    partitions: int | None = None
    in_flight: int = 32
    guard: bool = False
    algorithm: AlgorithmName = "state-based"
    deduplication_store: TablePlace | None = None
    token_store: TablePlace | None = None
    clock: Clock = system_clock
    wrap: Wrap | None = None
    step: Step = _silent
    max_dead_letters: int | str | None = None
    limits: MessageLimits = USUAL
    keep_large: str | None = None
    handler_timeout: timedelta = timedelta(seconds=30)
    worker_memory: int | None = 2 * GIB
    documents: str | None = field(default=None, repr=False)
    types: Collection[str] | None = None
    draws: Draws | None = None
    adopt: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("late", self.late, ("refuse", "process")),
            ("on_error", self.on_error, ("continue", "stop-stream", "park")),
            ("on_difference", self.on_difference, ("dead-letter", "fail")),
            ("draws", self.draws or "plain", ("plain", "keyed")),
        ):
            if value not in allowed:
                message = f"{name} is {' or '.join(map(repr, allowed))}, not {value!r}."
                raise UsageError(message)
        if self.handler_timeout <= timedelta():
            raise UsageError("The time that a handler may take (handler_timeout) is more than none.")
        check_name(self.algorithm)
        self.limit()
        check_stores(
            self.algorithm, deduplication_store=self.deduplication_store, token_store=self.token_store
        )
        check_documents(self.algorithm, self.documents)
        if self.documents is not None:
            open_documents(self.documents)
        if self.has_outbox and (self.late, self.on_difference) != ("refuse", "dead-letter"):
            message = (
                f"With the algorithm {self.algorithm} nothing is too late and nothing is replayed: leave out what is "
                f"to be done then (late, on_difference)."
            )
            raise UsageError(message)

    def limit(self) -> DeadLetterLimit | None:
        """Return how many dead letters the batch may have, None when there is no limit."""
        return None if self.max_dead_letters is None else DeadLetterLimit.parse(str(self.max_dead_letters))

    @property
    def has_outbox(self) -> bool:
        """Whether entities keep outputs until they are published, so that there is a second pass."""
        return self.algorithm != STATE_BASED

    @property
    def other_table(self) -> TablePlace | None:
        """Where the de-duplication store or the token store is, None for the table of the states."""
        return self.deduplication_store or self.token_store

    def described_algorithm(self) -> str:
        """Return the algorithm as the ledger has it, with the place of its de-duplication store or token store."""
        other = self.other_table
        return described_algorithm(self.algorithm, None if other is None else (other.store, other.table))

    def claim(self, app: App) -> Claim:
        """Return what a batch of an app asks of the table."""
        return Claim(Owner.of(app), self.draws, self.adopt)

    def types_of(self, app: App) -> frozenset[str] | None:
        """Return the types that the log may hold, None for all. Raises `UsageError` for one that no handler takes."""
        if self.types is None:
            return None
        unknown = sorted(set(self.types) - set(app.message_types))
        if unknown or not self.types:
            known = ", ".join(sorted(app.message_types))
            raise UsageError(
                f"The types of a log are some of those that the app takes, {known}: not {unknown or 'none'}."
            )
        return frozenset(self.types)

    def described(self) -> str:
        """Return the options that change what a batch gives."""
        more = ", guard=True" if self.guard else ""
        more += "" if self.types is None else f", types={','.join(sorted(self.types))}"
        more += f", algorithm={self.described_algorithm()}" if self.has_outbox else ""
        more += self.limits.described()
        return (
            f"cascade={self.cascade}, late={self.late}, on_error={self.on_error}, source={self.source}{more}"
        )
