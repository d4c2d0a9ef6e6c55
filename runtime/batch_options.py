"""How a batch is run: what its handlers, its algorithm and its workers are told.

Each field is declared once, here: its type, its default and a line of help, from which the options of commands follow
(`runtime.cli.options`). Nothing of Spark is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from eventstore import Table
from eventstore.connect import portable_url
from handlers import App
from runtime.algorithms.choice import (
    AlgorithmName,
    check_documents,
    check_name,
    check_stores,
    described_algorithm,
)
from runtime.clock import Clock, system_clock
from runtime.errors import UsageError
from runtime.ledger.batch import DeadLetterLimit
from runtime.ledger.ledger import STATE_BASED
from runtime.ledger.settings import Claim, Draws, Owner
from runtime.messages.limits import GIB, USUAL, MessageLimits

Step = Callable[[str], None]
"""Is called with a short sentence when a batch goes on to its next step."""

Wrap = Callable[[Table], Table]


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is: the url of its store, and its name."""

    store: str = field(repr=False)
    table: str

    def for_workers(self) -> TablePlace:
        """Return the place with a url that means the same store on the workers. It may hold a secret."""
        return TablePlace(portable_url(self.store), self.table)


def _silent(_: str) -> None: ...


def _option(text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - what typer.Option takes
    """Return the metadata of a field: its help, and what more `runtime.cli.options` is to know."""
    return {"help": text, **more}


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is run. The same for all batches of a table: `algorithm`, the stores and `draws`."""

    cascade: bool = field(
        default=False, metadata=_option("Handle the outputs too, round by round, until no handler takes any.")
    )
    max_rounds: int = field(
        default=100, metadata=_option("Stop a cascade that has not ended after so many.", metavar="N", min=1)
    )
    max_outputs: int = field(
        default=1000,
        metadata=_option(
            "Stop a cascade that has published more than so many messages for each one that it began with.",
            metavar="N",
            min=1,
        ),
    )
    late: Literal["refuse", "process"] = field(
        default="refuse",
        metadata=_option(
            "What to do with an unknown message that is not newer than its stream's horizon: it may be a duplicate "
            "of a version that was cut, and `process` may handle it twice."
        ),
    )
    on_error: Literal["continue", "stop-stream", "park"] = field(
        default="continue",
        metadata=_option(
            "After a dead letter, go on with its stream, or hold back what is new in it: within the round (`stop-"
            "stream`), or in all batches until it is redriven or discarded (`park`)."
        ),
    )
    on_difference: Literal["dead-letter", "fail"] = field(
        default="dead-letter",
        metadata=_option(
            "When the replay of a duplicate differs from what was recorded: make it a dead letter, or fail the batch."
        ),
    )
    source: str | None = field(
        default=None,
        metadata=_option("Set the message ids of this log apart from those of other logs.", metavar="NAME"),
    )
    log_format: str | None = None
    partitions: int | None = field(
        default=None,
        metadata=_option(
            "Shuffle to so many partitions.", metavar="N", min=1, show_default="two for each core"
        ),
    )
    in_flight: int = field(
        default=32, metadata=_option("Work on so many streams at once at most, in each worker.")
    )
    guard: bool = field(
        default=False,
        metadata=_option(
            "Make a dead letter of each message whose handler looks at a clock, at chance or at the outside other "
            "than through its context; costs a few percent."
        ),
    )
    algorithm: AlgorithmName = field(
        default="state-based",
        metadata=_option(
            "How a message takes effect exactly once; the same for all batches of a table. With tokens, the log "
            "comes from `consistent tokens issue`."
        ),
    )
    deduplication_store: TablePlace | None = None
    """The table of the ids, None for the table of the states."""

    token_store: TablePlace | None = None
    """The table of the tokens, None for the table of the states."""

    clock: Clock = system_clock
    wrap: Wrap | None = None
    """Is put around each table of a worker, for example to count its requests."""

    step: Step = _silent
    """Is called with a sentence when the batch goes on to its next step. What it raises stops the batch there."""

    max_dead_letters: int | str | None = field(
        default=None,
        metadata=_option(
            "Hold a round with more dead letters than 10, or than 0.5%, back: raises `BatchHeldBackError`. Its "
            "outcomes can be looked at; the batch is resumed with a higher limit, or none."
        ),
    )
    limits: MessageLimits = USUAL
    """Messages beyond them are dead letters, `too_large`."""

    keep_large: str | None = field(
        default=None,
        metadata=_option(
            "Write what is too large of the log to DIR/ID.jsonl or DIR/ID.parquet, named after the batch: a log that"
            " can be run with higher limits.",
            metavar="DIR",
        ),
    )
    handler_timeout: timedelta = field(
        default=timedelta(seconds=30),
        metadata=_option(
            "Interrupt a handler that takes longer: its message is a dead letter, handler_timeout.",
            metavar="TIME",
        ),
    )
    worker_memory: int | None = field(
        default=2 * GIB,
        metadata=_option(
            "How much a worker may take beside what it begins with; a handler that takes more fails.",
            metavar="SIZE",
            unit="bytes",
        ),
    )
    documents: str | None = field(
        default=None,
        repr=False,
        metadata=_option(
            "Where documents are kept that handlers store: a folder, s3://BUCKET/FOLDER, "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or env:NAME for a url in an environment "
            "variable.",
            metavar="URL",
        ),
    )
    types: Collection[str] | None = field(
        default=None,
        metadata=_option(
            "The message types that the log may hold, where its senders may send no others: messages of other types "
            "are dead letters, type_not_allowed. With `cascade`, outputs are of any type.",
            metavar="TYPE,...",
        ),
    )
    draws: Draws | None = field(
        default=None,
        metadata=_option(
            "For a new table: `keyed` gives it a secret, so that no sender can foresee guids, ids of outputs and "
            "random numbers; plain by default. A table stays as it is."
        ),
    )
    adopt: bool = field(
        default=False,
        metadata=_option(
            "Take over a table that belongs to another app: from now on it belongs to this one."
        ),
    )

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
            from runtime.documents.store import open_documents  # noqa: PLC0415 - seldom needed

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
