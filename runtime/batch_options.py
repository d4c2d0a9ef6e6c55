"""The options of a batch and of a verification. Nothing of Spark is imported."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from eventstore import Table
from eventstore.connect import check_form, portable_url
from eventstore.keys import table_name
from handlers import App
from runtime.algorithms import choice
from runtime.clock import Clock, system_clock
from runtime.errors import UsageError
from runtime.ledger.batch import DeadLetterLimit
from runtime.ledger.ledger import STATE_BASED
from runtime.ledger.settings import Draws, TableDemands, TableOwner
from runtime.messages.limits import GIB, USUAL, MessageLimits
from runtime.options import check_fields, option, option_of

STORE_VARIABLE = "CONSISTENT_STORE"
TABLE_VARIABLE = "CONSISTENT_TABLE"

Step = Callable[[str], None]
"""Is called with a short sentence when a batch begins its next step."""

Wrap = Callable[[Table], Table]


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is: the url of its store, and its name."""

    GROUP: ClassVar = ""

    store: str = option(
        "The store: sqlite:///FILE, postgresql://USER@HOST/DATABASE, azurite, https://ACCOUNT.table.core.windows.net, "
        "or env:NAME for a url or connection string in an environment variable.",
        is_secret=True,
        envvar=STORE_VARIABLE,
        metavar="URL",
        check=check_form,
    )
    table: str = option(
        "The table of the store: 3 to 63 letters and digits.",
        envvar=TABLE_VARIABLE,
        metavar="NAME",
        check=table_name,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def for_workers(self) -> TablePlace:
        """Return the place with the url of the same store on workers. It may hold a secret."""
        return TablePlace(portable_url(self.store), self.table)


def check_app(app: object) -> None:
    """Raise `UsageError` unless it is an App."""
    if not isinstance(app, App):
        raise UsageError(f"app is an App of handlers, such as App(MyHandler), not {app!r}.")


def _silent(_: str) -> None: ...


def remark(step: Step, sentence: str) -> None:
    """Call `step` with a remark on a log, or warn if it is the default, which is silent."""
    if step is _silent:
        warnings.warn(sentence, stacklevel=3)
    else:
        step(sentence)


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is run. The same for all batches of a table: `algorithm`, the stores and `draws`."""

    GROUP: ClassVar = "batch"

    cascade: bool = option(
        "Handle the outputs too, round by round, until no handler takes any.", default=False, is_rare=False
    )
    max_rounds: int = option(
        "Stop a cascade that has not ended after so many.", default=100, metavar="N", min=1
    )
    max_outputs: int = option(
        "Stop a cascade that has published more than so many messages for each one that it began with.",
        default=1000,
        metavar="N",
        min=1,
    )
    late: Literal["refuse", "process"] = option(
        "What to do with an unknown message that is not newer than its stream's horizon: it may be a duplicate of a "
        "version that was cut, and `process` may handle it twice.",
        default="refuse",
    )
    on_error: Literal["continue", "stop-stream", "park"] = option(
        "After a dead letter, go on with its stream, or hold back what is new in it: within the round (`stop-stream`), "
        "or in all batches until it is redriven or discarded (`park`).",
        default="continue",
    )
    on_difference: Literal["dead-letter", "fail"] = option(
        "When the replay of a duplicate differs from what was recorded: make it a dead letter, or fail the batch.",
        default="dead-letter",
    )
    source: str | None = option(
        "Set the message ids of this log apart from those of other logs.",
        default=None,
        metavar="NAME",
        group="log",
    )
    log_format: Literal["parquet", "json"] | None = option(
        "The log's format; by default what its name says, else Parquet.",
        default=None,
        name="--format",
        group="log",
    )
    partitions: int | None = option(
        "Shuffle to so many partitions.", default=None, metavar="N", min=1, show_default="two for each core"
    )
    in_flight: int = 32
    """How many streams each worker works on at once at most."""

    guard: bool = option(
        "Make a dead letter of each message whose handler looks at a clock, at chance or at the outside other than "
        "through its context; costs a few percent.",
        default=False,
    )
    algorithm: choice.AlgorithmName = option(
        "How a message takes effect exactly once; the same for all batches of a table. With tokens, the log comes from "
        "`consistent tokens`.",
        default="state-based",
        group="",
        is_rare=True,
    )
    deduplication_store: TablePlace | None = None
    """The table of the ids, None for the table of the states."""

    token_store: TablePlace | None = None
    """The table of the tokens, None for the table of the states."""

    clock: Clock = system_clock
    wrap: Wrap | None = None
    """Wraps each table of a worker, for example to count its requests."""

    step: Step = _silent
    """Is called with a sentence for each step. What it raises stops the work there."""

    max_dead_letters: int | str | None = None
    """A round with more dead letters than 10, or than 0.5%, is held back: raises `BatchHeldBackError`. Its outcomes can
    be looked at; the batch is resumed with a higher limit, or none."""

    limits: MessageLimits = USUAL
    """Messages beyond them are dead letters, `too_large`."""

    keep_large: str | None = option(
        "Write what is too large of the log to DIR/ID.jsonl or DIR/ID.parquet, named after the batch: a log that can "
        "be run with higher limits.",
        default=None,
        metavar="DIR",
        group="log",
    )
    handler_timeout: timedelta = option(
        "Interrupt a handler that takes longer: its message is a dead letter, handler_timeout.",
        default=timedelta(seconds=30),
        metavar="TIME",
    )
    worker_memory: int | None = option(
        "How much a worker may take beside what it begins with; a handler that takes more fails.",
        default=2 * GIB,
        parse="size",
    )
    documents: str | None = option(
        "Where documents are kept that handlers store: a folder, s3://BUCKET/FOLDER, "
        "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or env:NAME for a url in an environment variable.",
        default=None,
        is_secret=True,
        metavar="URL",
        group="",
        is_rare=True,
    )
    types: Collection[str] | None = option(
        "The message types that the log may hold, where its senders may send no others: messages of other types are "
        "dead letters, type_not_allowed. With `cascade`, outputs are of any type.",
        default=None,
        metavar="TYPE,...",
        group="log",
    )
    draws: Draws | None = option(
        "For a new table: `keyed` gives it a secret, so that no sender can foresee guids, ids of outputs and random "
        "numbers; plain by default. A table stays as it is.",
        default=None,
    )
    adopt: bool = option(
        "Take over a table that belongs to another app: from now on it belongs to this one.",
        default=False,
        group=None,
        is_rare=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        nothing = {"handler_timeout": timedelta(), "in_flight": 0, "worker_memory": 0}
        for name, none in nothing.items():
            if getattr(self, name) is not None and getattr(self, name) <= none:
                raise UsageError(f"The option {name} must be greater than {none}.")
        self.limit()
        choice.check_stores(
            self.algorithm, deduplication_store=self.deduplication_store, token_store=self.token_store
        )
        choice.check_documents(self.algorithm, self.documents)
        # The working directory and the environment of a process may change later.
        for name in ("deduplication_store", "token_store"):
            place: TablePlace | None = getattr(self, name)
            object.__setattr__(self, name, place and place.for_workers())
        if self.documents is not None:
            from runtime.documents import store  # noqa: PLC0415 - seldom needed

            object.__setattr__(self, "documents", store.portable_url(self.documents))
            store.open_documents(self.documents)
        if self.has_outbox and (self.late, self.on_difference) != ("refuse", "dead-letter"):
            raise UsageError(
                f"With the algorithm {self.algorithm} nothing is too late and nothing is replayed: leave out what is "
                f"to be done then (late, on_difference)."
            )

    def limit(self) -> DeadLetterLimit | None:
        """Return the limit of dead letters, if any."""
        return None if self.max_dead_letters is None else DeadLetterLimit.parse(str(self.max_dead_letters))

    @property
    def has_outbox(self) -> bool:
        """Whether entities keep outputs until they are published, which takes a second pass."""
        return self.algorithm != STATE_BASED

    @property
    def other_table(self) -> TablePlace | None:
        """The place of the de-duplication store or the token store, None for the table of the states."""
        return self.deduplication_store or self.token_store

    def described_algorithm(self) -> str:
        """Return the algorithm as it is recorded in the ledger."""
        other = self.other_table
        return choice.described_algorithm(
            self.algorithm, None if other is None else (other.store, other.table)
        )

    def claim(self, app: App) -> TableDemands:
        """Return the claim of a batch of an app on its table."""
        return TableDemands(TableOwner.of(app), self.draws, self.adopt)

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
        """Return the options that change the outcomes."""
        more = ", guard=True" if self.guard else ""
        more += "" if self.types is None else f", types={','.join(sorted(self.types))}"
        more += f", algorithm={self.described_algorithm()}" if self.has_outbox else ""
        more += self.limits.described()
        return (
            f"cascade={self.cascade}, late={self.late}, on_error={self.on_error}, source={self.source}{more}"
        )


@dataclass(frozen=True)
class VerifyOptions:
    """How a log is verified."""

    sample: float = option(
        "Look at a share of the streams only, such as 0.01: always the same ones.",
        default=1.0,
        metavar="SHARE",
    )
    seed: int = option(
        "Choose other streams for the sample with another number.", default=0, metavar="N", is_rare=True
    )
    cascade: bool = option(
        "Verify the handlers of what the replays publish too, round by round.", default=False
    )
    max_rounds: int = option_of(BatchOptions, "max_rounds", is_rare=True)
    source: str | None = option_of(BatchOptions, "source")
    limits: MessageLimits = USUAL
    log_format: Literal["parquet", "json"] | None = option_of(BatchOptions, "log_format")
    partitions: int | None = option_of(BatchOptions, "partitions", is_rare=True)
    in_flight: int = 32
    wrap: Wrap | None = None
    export: str | None = option(
        "Compare with the versions that `consistent truncate --export` has written to this folder, too.",
        default=None,
        metavar="DIR",
    )
    """Driver and workers see the folder."""

    step: Step = _silent
    """Is called with a sentence for each step."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.sample <= 1:
            raise UsageError(f"A sample is a share of the streams, above 0 and up to 1, not {self.sample}.")
