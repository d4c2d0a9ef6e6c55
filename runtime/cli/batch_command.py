"""The options that commands have in common that are batches (`run`, `redrive`, `sweep`), and how they run one."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType

from handlers import App
from runtime.batch_options import BatchOptions
from runtime.cli.checks import Place, Stores
from runtime.cli.console import counted, iso, make_table
from runtime.cli.dead_letters import table_of_dead_letters
from runtime.cli.options import LimitOptions, OtherStores, SparkOptions, StoreUrl, TableName, options_of
from runtime.errors import BatchFailedError, BatchHeldBackError, TargetError
from runtime.file_systems import within
from runtime.ledger.ledger import BatchRecord
from runtime.messages.outcome import DeadLetters, Reason, Status

if TYPE_CHECKING:
    from runtime.cli.console import Screen, StepProgress
    from runtime.ledger.ledger import BatchRecord
    from runtime.spark.batch import Batch, OutcomeCount
    from runtime.spark.rounds import BatchResult
    from runtime.spark.session import Session

    Work = Callable[[Batch, str], BatchResult]
    """Runs a batch of the command's own kind under an id."""


# The command that is under way, as it can be typed again.

_given: ContextVar[Sequence[str] | None] = ContextVar("arguments", default=None)

_STORES = ("--store", "--deduplication-store", "--token-store", "--publish", "--to", "--header")
_SECRETS = ("accountkey=", "sharedaccesssignature=", "sig=")
_IN_URL = re.compile(r"://[^/\s]*:[^/\s]+@")
"""A password in the url of a target or of a store for keys."""

_HEADER = re.compile(r"(proxy-)?authorization=(?!env:)", re.IGNORECASE)
_HIDDEN = "..."


def remember(arguments: Sequence[str] | None) -> None:
    """Keep the arguments of the command, by default those of the process."""
    _given.set(list(sys.argv[1:] if arguments is None else arguments))


def holds_secret() -> bool:
    """Say whether a secret was typed into the command, where other users see it among the processes."""
    return any(map(_is_secret, _given.get() or ()))


def command_with(option: str, value: str) -> str:
    """Return the command with another value of an option, to be pasted into a shell; it shows no secret."""
    return shlex.join(["consistent", *map(_shown, _without(option)), option, value])


def abandoning(store: str, table: str, batch_id: str) -> str:
    """Return the command that abandons a batch."""
    words = ["--store", store, "--table", table, "--abandon", batch_id]
    return shlex.join(["consistent", "batches", *map(_shown, words)])


def about_letters(command: str, store: str, table: str, *more: str) -> str:
    """Return a command about the letters of a table."""
    return shlex.join(["consistent", command, *map(_shown, ["--store", store, "--table", table]), *more])


@contextmanager
def resumable(batch_id: str, store: str, table: str) -> Iterator[None]:
    """Say of a batch that fails by which command it goes on, or is given up."""
    try:
        yield
    except BatchHeldBackError as error:
        abandon = abandoning(store, table, batch_id)
        raise BatchHeldBackError(f"{error} To abandon it: {abandon}") from error
    except (BatchFailedError, TargetError) as error:
        again = f"To go on: {command_with('--batch-id', batch_id)}"
        if "abandon" in str(error):
            again += f" To abandon a batch: {abandoning(store, table, 'ID')}"
        raise type(error)(f"{error} {again}") from error


def _without(option: str) -> Iterator[str]:
    given = iter(_given.get() or ())
    for word in given:
        if word == option:
            next(given, None)
        elif not word.startswith(f"{option}="):
            yield word


def _is_secret(word: str) -> bool:
    named = any(secret in word.lower() for secret in _SECRETS)
    return named or bool(_IN_URL.search(word) or _HEADER.search(word))


def _shown(word: str) -> str:
    if not _is_secret(word):
        return word
    option, equals, _ = word.partition("=")
    return f"{option}={_HIDDEN}" if equals and option in _STORES else _HIDDEN


# A batch of the ledger, for people and for machines.

_OUTPUTS = "outputs"


def describe(record: BatchRecord) -> dict[str, Any]:
    """Return a batch for JSON."""
    return {
        "batch_id": record.batch_id,
        "number": record.number,
        "status": record.status.value,
        "algorithm": record.algorithm,
        "rounds": record.rounds,
        "started_at": iso(record.started_at),
        "updated_at": iso(record.updated_at),
        "counts": dict(sorted(record.counts.items())),
        "out": record.out,
        "input": record.input,
    }


def counts_text(record: BatchRecord) -> str:
    """Return the counts of a batch in one line."""
    return ", ".join(
        counted(count, "output") if name == _OUTPUTS else f"{count:,} {name.replace('_', ' ')}"
        for name, count in sorted(record.counts.items())
        if count
    )


# What came of a batch, for people and for machines.

GROUPS_SHOWN = 10

_COLUMNS = ("round", "handler", *(status.value.replace("_", " ") for status in Status), "outputs")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch, its outcomes counted, and its dead letters in groups, the largest."""

    record: BatchRecord
    was_published: bool
    counts: Sequence[OutcomeCount]
    dead_letters: Sequence[DeadLetters]

    @classmethod
    def of(cls, result: BatchResult) -> BatchReport:
        """Count the outcomes of a batch. Reads them once, and once more for its dead letters if it has any."""
        from runtime.spark.batch import count_outcomes, dead_letter_groups

        counts = count_outcomes(result.outcomes)
        has_dead = any(each.status == Status.DEAD_LETTER for each in counts)
        dead = dead_letter_groups(result.outcomes, GROUPS_SHOWN) if has_dead else []
        return cls(result.record, result.was_published, counts, dead)

    def total(self, status: Status) -> int:
        """Return how many outcomes have a status."""
        return sum(each.count for each in self.counts if each.status == status)

    @property
    def damaged(self) -> int:
        """How many deliveries met a stream that cannot be read."""
        return sum(each.count for each in self.counts if each.reason == Reason.STREAM_DAMAGED)

    @property
    def folder(self) -> str:
        """Where the outcomes are."""
        return within(self.record.out, f"batch_id={self.record.batch_id}")

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            **describe(self.record),
            "was_published": self.was_published,
            "folder": self.folder,
            "outcomes": [asdict(each) for each in self.counts],
            "dead_letters": [asdict(each) for each in self.dead_letters],
        }

    def table(self, title: str) -> RenderableType:
        """Return a row for each round and handler, with the counts by status."""
        return make_table(title, _COLUMNS, self._rows())

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people: counts, dead letters, and where to look next."""
        batch_id = self.record.batch_id
        if self.was_published:
            yield f"Batch {batch_id} was published already, and a published batch is not changed. This is what it gave:"
        yield self.table(f"Outcomes of batch {batch_id}")
        yield ""
        if self.dead_letters:
            yield from self._dead_letter_parts()
        if self.total(Status.TOO_LATE):
            yield (
                "Too late are unknown messages not newer than the horizon of their stream: whether they were handled "
                "before can no longer be told. They were not handled; --late process handles them."
            )
        yield f"The outcomes are in {self.folder}, as Parquet. To look at them, and at what was published:"
        yield f"  consistent outcomes --out {quote(self.record.out)} --batch-id {batch_id}"
        yield "With Spark, from runtime.spark:"
        yield f"  outputs(spark.read.parquet({self.folder!r}))       # what to publish, each output once"
        yield f"  dead_letters(spark.read.parquet({self.folder!r}))  # what was not handled, and why"

    def _dead_letter_parts(self) -> Iterator[RenderableType]:
        yield table_of_dead_letters(self.dead_letters, self.total(Status.DEAD_LETTER))
        yield ""

    def _rows(self) -> Iterator[tuple[int | str | None, ...]]:
        for round_, handler in dict.fromkeys((each.round, each.handler) for each in self.counts):
            here = [each for each in self.counts if (each.round, each.handler) == (round_, handler)]
            by_status = [sum(each.count for each in here if each.status == status) for status in Status]
            yield (round_, handler or "(none)", *by_status, sum(each.outputs for each in here))


Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="Where outcomes are written: DIR/batch_id=ID/round=N.",
    ),
]
BatchId = Annotated[
    str | None,
    typer.Option(
        "--batch-id",
        metavar="ID",
        show_default=False,
        help="Go on with the batch of this id, or begin one under it; by default a new id is made and printed.",
    ),
]


_OF_ANY_BATCH = options_of(
    BatchOptions,
    "cascade",
    "max_rounds",
    "max_outputs",
    "partitions",
    "handler_timeout",
    "worker_memory",
    "documents",
    "adopt",
)


@dataclass(frozen=True, kw_only=True)
class MicroBatchChoices:
    """What can be chosen for any batch, also for those of a stream, but for its id."""

    store: StoreUrl
    table: TableName
    out: Out
    given: Annotated[dict[str, Any], _OF_ANY_BATCH]
    limits: LimitOptions
    others: OtherStores
    spark: SparkOptions

    @property
    def states(self) -> Place:
        """The table of the states."""
        return Place(self.store, self.table)

    def options(self, **more: Any) -> BatchOptions:  # noqa: ANN401 - the fields of BatchOptions
        """Return the options of the batch. Raises `UsageError` for what does not go together."""
        stores = Stores.of(
            self.states,
            more["algorithm"],
            self.spark.place,
            deduplication_store=self.others.deduplication,
            token_store=self.others.tokens,
        )
        return BatchOptions(**self.given, **more, **stores._asdict(), limits=self.limits.limits())


@dataclass(frozen=True, kw_only=True)
class BatchChoices(MicroBatchChoices):
    """What can be chosen for a batch that is run by itself."""

    batch_id: BatchId = None


class CarriedOut(NamedTuple):
    """A batch that has ended, while its session is still there."""

    report: BatchReport
    spark: Session
    progress: StepProgress


@dataclass(frozen=True)
class BatchCommand:
    """A batch that is about to run, under an id that its user is told before."""

    app: App
    choices: BatchChoices
    options: BatchOptions
    batch_id: str

    @classmethod
    def announced(
        cls, app: App, choices: BatchChoices, options: BatchOptions, screen: Screen
    ) -> BatchCommand:
        """Choose the id, if none is given, and say how the batch goes on if it stops."""
        from runtime.spark.rounds import new_batch_id

        command = cls(app, choices, options, choices.batch_id or new_batch_id())
        screen.note(f"Batch {command.batch_id}: if it stops before its end, {command._how_to_go_on}")
        return command

    @contextmanager
    def carried_out(self, first_step: str, work: Work, log_bytes: int | None = None) -> Iterator[CarriedOut]:
        """Run the batch, and give the report on it while Spark is there.

        `log_bytes` is the size of the log that it reads, where that is known.
        """
        from runtime.spark.batch import Batch

        choices = self.choices
        stopped = f"Stopped. Nothing is lost: {self._how_to_go_on}"
        with choices.spark.working(stopped, log_bytes) as (spark, progress):
            progress.step(first_step)
            options = replace(self.options, step=progress.step)
            batch = Batch(spark, self.app, choices.store, choices.table, choices.out, options)
            with resumable(self.batch_id, *choices.states):
                result = work(batch, self.batch_id)
            progress.step("Counting outcomes")
            report = BatchReport.of(result)
            progress.done()
            yield CarriedOut(report, spark, progress)

    @property
    def _how_to_go_on(self) -> str:
        return f"go on with: {command_with('--batch-id', self.batch_id)}"
