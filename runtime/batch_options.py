"""The options of batches and verifications. Does not import Spark."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
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
from runtime.messages.records import AS_JSON, Decoding
from runtime.messages.sizes import GIB, USUAL, MessageLimits
from runtime.options import REQUIRED, check_fields, flag, option, option_of
from runtime.telemetry import Metrics, has_meters

STORE_VARIABLE = "CONSISTENT_STORE"
TABLE_VARIABLE = "CONSISTENT_TABLE"

Step = Callable[[str], None]
"""Called with a short sentence at the start of each step of a batch."""

Wrap = Callable[[Table], Table]


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The location of a table: the URL of the store, and the name of the table."""

    GROUP: ClassVar = ""

    store: str = option(
        "The store: sqlite:///FILE, postgresql://USER@HOST/DATABASE, azurite, https://ACCOUNT.table.core.windows.net, "
        "or env:NAME for a URL or connection string in an environment variable.",
        default=REQUIRED,
        is_secret=True,
        envvar=STORE_VARIABLE,
        metavar="URL",
        check=check_form,
    )
    table: str = option(
        "The table of the store: 3 to 63 letters and digits.",
        default=REQUIRED,
        envvar=TABLE_VARIABLE,
        metavar="NAME",
        check=table_name,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def for_workers(self) -> TablePlace:
        """Return the location with a URL that workers can use. The URL may contain a secret."""
        return TablePlace(portable_url(self.store), self.table)


def check_app(app: object) -> None:
    """Raise `UsageError` unless `app` is an App."""
    if not isinstance(app, App):
        raise UsageError(f"app must be an App, such as App(MyHandler), not {app!r}.")


def _silent(_: str) -> None: ...


def remark(step: Step, sentence: str) -> None:
    """Call `step` with a sentence about a message log. If `step` is the silent default, issue a warning instead."""
    if step is _silent:
        warnings.warn(sentence, stacklevel=3)
    else:
        step(sentence)


@dataclass(frozen=True)
class BatchOptions:
    """The options of a batch. `algorithm`, `draws` and the stores must be the same for all batches of a table."""

    GROUP: ClassVar = "batch"

    cascade: bool = flag(
        "Also handle the outputs, round by round, until no handler takes any.", is_rare=False
    )
    max_rounds: int = option("Fail a cascade that needs more than N rounds.", default=100, min=1)
    max_outputs: int = option(
        "Fail a cascade that publishes more than N messages for each message of the log.", default=1000, min=1
    )
    late: Literal["refuse", "process"] = option(
        "Reject or process unknown messages that are not newer than the horizon of their stream. With "
        "`process`, a duplicate of a truncated version takes effect twice.",
        default="refuse",
    )
    on_error: Literal["continue", "stop-stream", "park"] = option(
        "After a dead letter, handle later messages of its stream (`continue`), or reject them: for the rest of the "
        "round (`stop-stream`), or until it is redriven or discarded (`park`).",
        default="continue",
    )
    on_difference: Literal["dead-letter", "fail"] = option(
        "If the replay of a duplicate differs from its record, make it a dead letter or fail the batch.",
        default="dead-letter",
    )
    source: str | None = option("A namespace for the message ids of this log.", metavar="NAME", group="log")
    log_format: Literal["parquet", "json"] | None = option(
        "The log's format. By default it follows from the file name.",
        name="--format",
        group="log",
    )
    partitions: int | None = option(
        "The number of shuffle partitions.", min=1, show_default="two for each core"
    )
    in_flight: int = 32
    """Maximum number of streams that each worker processes concurrently."""

    guard: bool = flag(
        "Reject messages whose handler bypasses its context to use a clock, random numbers or I/O. Costs a few "
        "percent."
    )
    algorithm: choice.AlgorithmName = option(
        "How duplicates are recognised. The same for all batches of a table. `tokens` needs a log from `consistent "
        "tokens`.",
        default="state-based",
        group="",
        is_rare=True,
    )
    deduplication_store: TablePlace | None = None
    """The table of processed message ids. `None` means the table of the states."""

    token_store: TablePlace | None = None
    """The table of tokens. `None` means the table of the states."""

    clock: Clock = system_clock
    wrap: Wrap | None = None
    """Wraps each table in a worker, for example to count requests."""

    step: Step = _silent
    """Called with a sentence for each step. An exception stops the batch there."""

    metrics: Metrics = field(default_factory=lambda: Metrics(is_on=has_meters()), repr=False, compare=False)
    """Measures the batch (docs/monitoring.md). By default only OpenTelemetry does, if it is configured."""

    max_dead_letters: int | str | None = None
    """Hold back a round with more dead letters than this number, or share such as `0.5%`. Raises `BatchHeldBackError`.

    The outcomes can be inspected, and the batch can be resumed with another limit.
    """

    decoding: Decoding = AS_JSON
    limits: MessageLimits = USUAL
    """Messages over a limit become dead letters, `too_large`."""

    keep_large: str | None = option(
        "Write messages over a limit to DIR/ID.jsonl or DIR/ID.parquet, where ID is the batch id. The file is a log to "
        "run with higher limits.",
        metavar="DIR",
        group="log",
    )
    handler_timeout: timedelta = option(
        "Interrupt handlers that take longer. The message becomes a dead letter, handler_timeout.",
        default=timedelta(seconds=30),
        metavar="TIME",
    )
    worker_memory: int | None = option(
        "The memory that a worker may use on top of its start-up memory. A handler that needs more fails.",
        default=2 * GIB,
        parse="size",
    )
    documents: str | None = option(
        "Where to store handlers' documents: a folder, s3://BUCKET/FOLDER, "
        "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or env:NAME for a URL in an environment variable.",
        is_secret=True,
        metavar="URL",
        group="",
        is_rare=True,
    )
    types: Collection[str] | None = option(
        "The message types that the log may contain. Others become dead letters, type_not_allowed. Outputs in a "
        "cascade may be of any type.",
        metavar="TYPE,...",
        group="log",
    )
    draws: Draws | None = option(
        "For a new table only: `keyed` adds a secret, so that senders cannot predict guids, output ids and random "
        "numbers. Default: plain."
    )
    adopt: bool = flag("Take over a table that belongs to another app.", group=None, is_rare=True)

    def __post_init__(self) -> None:
        check_fields(self)
        for name, zero in (("handler_timeout", timedelta()), ("in_flight", 0), ("worker_memory", 0)):
            if getattr(self, name) is not None and getattr(self, name) <= zero:
                raise UsageError(f"The option {name} must be greater than {zero}.")
        self.limit()
        choice.check_stores(
            self.algorithm,
            deduplication_store=self.deduplication_store,
            token_store=self.token_store,
            documents=self.documents,
        )
        # The working directory and the environment of a process may change later.
        for name in ("deduplication_store", "token_store"):
            place: TablePlace | None = getattr(self, name)
            object.__setattr__(self, name, place and place.for_workers())
        if self.documents is not None:
            from runtime import documents  # noqa: PLC0415 - rarely needed

            object.__setattr__(self, "documents", documents.portable_url(self.documents))
            documents.open_documents(self.documents)
        if self.has_outbox and (self.late, self.on_difference) != ("refuse", "dead-letter"):
            raise UsageError(
                f"The options late and on_difference need the algorithm {STATE_BASED}: omit them with {self.algorithm}."
            )

    def limit(self) -> DeadLetterLimit | None:
        """Return the parsed `max_dead_letters`. None means no limit."""
        return None if self.max_dead_letters is None else DeadLetterLimit.parse(str(self.max_dead_letters))

    @property
    def has_outbox(self) -> bool:
        """Whether entities store outputs until a second pass publishes them."""
        return self.algorithm != STATE_BASED

    @property
    def other_table(self) -> TablePlace | None:
        """The deduplication or token store, or `None` if it is the table of the states."""
        return self.deduplication_store or self.token_store

    def described_algorithm(self) -> str:
        """Return the algorithm in the form recorded in the ledger."""
        other = self.other_table
        place = None if other is None else (other.store, other.table)
        return choice.described_algorithm(self.algorithm, place)

    def claim(self, app: App) -> TableDemands:
        """Return the settings that a batch of the app requires of its table."""
        return TableDemands(TableOwner.of(app), self.draws, self.adopt)

    def types_of(self, app: App) -> frozenset[str] | None:
        """Return the types allowed in a log, None for all. Raises `UsageError` for an empty set or unhandled types."""
        if self.types is None:
            return None
        unknown = sorted(set(self.types) - set(app.message_types))
        if unknown or not self.types:
            known = ", ".join(sorted(app.message_types))
            raise UsageError(
                f"The option types must be a selection of the app's message types, {known}, not {unknown or 'none'}."
            )
        return frozenset(self.types)

    def described(self) -> str:
        """Return the options that affect outcomes, in the form recorded in the ledger."""
        more = ", guard=True" if self.guard else ""
        more += "" if self.types is None else f", types={','.join(sorted(self.types))}"
        more += f", algorithm={self.described_algorithm()}" if self.has_outbox else ""
        more += self.decoding.described() + self.limits.described()
        return (
            f"cascade={self.cascade}, late={self.late}, on_error={self.on_error}, source={self.source}{more}"
        )


@dataclass(frozen=True)
class VerifyOptions:
    """The options of a verification, which replays a message log and compares the results with the stored versions."""

    sample: float = option(
        "Verify only a share of the streams, such as 0.01. The same seed selects the same streams.",
        default=1.0,
        metavar="SHARE",
    )
    seed: int = option("The seed that selects the streams of a sample.", default=0, is_rare=True)
    cascade: bool = flag("Also verify the handlers of the replayed outputs, round by round.")
    max_rounds: int = option_of(BatchOptions, "max_rounds", is_rare=True)
    source: str | None = option_of(BatchOptions, "source")
    decoding: Decoding = AS_JSON
    limits: MessageLimits = USUAL
    log_format: Literal["parquet", "json"] | None = option_of(BatchOptions, "log_format")
    partitions: int | None = option_of(BatchOptions, "partitions", is_rare=True)
    in_flight: int = 32
    wrap: Wrap | None = None
    export: str | None = option(
        "Also compare with versions that `consistent truncate --export` wrote to this folder.", metavar="DIR"
    )
    """Must be accessible from driver and workers."""

    step: Step = _silent
    """Called with a sentence for each step."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.sample <= 1:
            raise UsageError(f"The option sample must be greater than 0 and at most 1, not {self.sample}.")
