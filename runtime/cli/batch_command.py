"""Shared by the commands that run batches (`run`, `stream`, `letters redrive`): options, execution and report."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from handlers import App
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.checks import check_batch, check_folder
from runtime.cli.console import counted, make_table
from runtime.cli.options import AuxiliaryStore, SparkOptions
from runtime.errors import BatchFailedError, BatchHeldBackError, TargetError
from runtime.file_systems import within
from runtime.ledger.ledger import BatchRecord, describe
from runtime.messages.outcome import DeadLetters, Reason, Status
from runtime.options import REQUIRED, is_secret, option
from runtime.telemetry import Metrics, has_meters

if TYPE_CHECKING:
    from runtime.cli.console import Screen, StepProgress
    from runtime.spark.batch import Batch, BatchResult, OutcomeCount
    from runtime.spark.session import Session

    Work = Callable[[Batch, str], BatchResult]  # runs a batch under an id


_given: ContextVar[Sequence[str] | None] = ContextVar("arguments", default=None)
_REFERABLE = {
    "--store", "--auxiliary-store", "--publish", "--to", "--keys", "--header", "--messages", "--source", "--from",
    "--documents", "--dead-letter-queue", "--schema-registry",
}  # fmt: skip
"""The options whose value may be `env:NAME`."""


def remember(arguments: Sequence[str] | None) -> None:
    """Store the typed arguments, by default those of the process, for `holds_secret` and `command_with`."""
    _given.set(list(sys.argv[1:] if arguments is None else arguments))


def holds_secret() -> str | None:
    """Return the beginning of the option to write instead of the first typed secret, such as `--to `.

    Without a secret, return `None`. Return "" for a secret in an argument, or in an option that takes no `env:NAME`.
    """
    before = ""
    for word in _given.get() or ():
        if is_secret(word):
            option = word.partition("=")[0] if word.startswith("--") else before
            return f"{option} {'NAME=' * (option == '--header')}" if option in _REFERABLE else ""
        before = word
    return None


def command_with(option: str, value: str) -> str:
    """Return the current command with another value of one option, quoted for a shell. Secrets are shown as dots."""
    words, given = [], iter(_given.get() or ())
    for word in given:
        if word == option:
            next(given, None)
        elif not word.startswith(f"{option}="):
            words.append(_shown(word))
    return shlex.join(["consistent", *words, option, value])


def command_on(command: str, states: TablePlace, *more: str) -> str:
    """Return a `consistent` command with store and table as options, quoted for a shell. Secrets are shown as dots."""
    words = ["--store", states.store, "--table", states.table]
    return shlex.join(["consistent", *command.split(), *map(_shown, words), *more])


@contextmanager
def resumable(batch_id: str, states: TablePlace) -> Iterator[None]:
    """Context manager. If the batch fails, appends to the error text the commands that resume or abandon it."""
    try:
        yield
    except BatchHeldBackError as error:
        abandon = command_on("batches", states, "--abandon", batch_id)
        raise BatchHeldBackError(f"{error} To abandon it: {abandon}") from error
    except (BatchFailedError, TargetError) as error:
        again = f"To resume: {command_with('--batch-id', batch_id)}"
        if "abandon" in str(error):
            again += f" To abandon a batch: {command_on('batches', states, '--abandon', 'ID')}"
        raise type(error)(f"{error} {again}") from error


def _shown(word: str) -> str:
    if not is_secret(word):
        return word
    option, equals, _ = word.partition("=")
    return f"{option}=..." if equals and option in _REFERABLE else "..."


def counts_text(counts: Mapping[str, int]) -> str:
    """Format the counts of a batch on one line."""
    return ", ".join(
        counted(count, "output") if name == "outputs" else f"{count:,} {name.replace('_', ' ')}"
        for name, count in sorted(counts.items())
        if count
    )


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch with the counts of its outcomes and the largest groups of dead letters."""

    record: BatchRecord
    was_published: bool
    counts: Sequence[OutcomeCount]
    dead_letters: Sequence[DeadLetters]

    @classmethod
    def of(cls, result: BatchResult) -> BatchReport:
        """Count the outcomes of a batch. Reads them once, or twice if there are dead letters."""
        from runtime.spark.batch import count_outcomes, dead_letter_groups

        counts = count_outcomes(result.outcomes)
        has_dead = any(each.status == Status.DEAD_LETTER for each in counts)
        dead = dead_letter_groups(result.outcomes, 10) if has_dead else []
        return cls(result.record, result.was_published, counts, dead)

    @property
    def folder(self) -> str:
        """The folder of the outcomes."""
        return within(self.record.out, f"batch_id={self.record.batch_id}")

    def document(self) -> dict[str, Any]:
        """Return the JSON form of the report."""
        return {
            **describe(self.record),
            "was_published": self.was_published,
            "folder": self.folder,
            "outcomes": [asdict(each) for each in self.counts],
            "dead_letters": [asdict(each) for each in self.dead_letters],
        }

    def table(self, title: str) -> RenderableType:
        """Return a table with a row for each round and handler: deliveries by status, and outputs."""
        rows: dict[tuple[int, str], dict[str, Any]] = {}
        for each in self.counts:
            name = each.handler or "(none)"
            new: dict[str, Any] = {"round": each.round, "handler": name, "outputs": 0}
            row = rows.setdefault((each.round, name), new | dict.fromkeys(Status, 0))
            row[each.status] += each.count
            row["outputs"] += each.outputs
        return make_table(title, ("round", "handler", *Status, "outputs"), rows.values())

    def parts(self) -> Iterator[RenderableType]:
        """Yield the parts of the human-readable report: counts, dead letters, and the command to list outcomes."""
        batch_id = self.record.batch_id
        if self.was_published:
            yield f"Batch {batch_id} was already published, and a published batch never changes. Its outcomes:"
        yield self.table(f"Outcomes of batch {batch_id}")
        yield ""
        total: Counter[str] = Counter()
        for each in self.counts:
            total[each.status] += each.count
        if self.dead_letters:
            yield table_of_dead_letters(self.dead_letters, total[Status.DEAD_LETTER])
            yield ""
        if total[Status.TOO_LATE]:
            yield (
                "too_late: unknown messages not newer than the horizon of their stream, which may be duplicates. They "
                "were rejected; --late process handles them."
            )
        yield f"The outcomes are in {self.folder}, as Parquet. To show them and the outputs:"
        yield f"  consistent outcomes --out {shlex.quote(self.record.out)} --batch-id {batch_id}"
        yield "With Spark, from runtime.spark:"
        yield f"  outputs(spark.read.parquet({self.folder!r}))       # the outputs, each once"
        yield f"  dead_letters(spark.read.parquet({self.folder!r}))  # rejected deliveries, with reasons"


_OF_REPLAY = {Reason.NONDETERMINISTIC, Reason.REPLAY_FAILED}
_SEE = Text("Reasons: docs/statuses.md#reasons. How to redrive: docs/dead-letters.md.")
_CHANGED_RULE = Text(
    "The handlers treat messages differently than before. If a rule was changed without a new revision: deploy the "
    "earlier handlers, redrive these dead letters, then deploy the change as a revision."
)


def table_of_dead_letters(groups: Sequence[DeadLetters], total: int, what: str = "Dead letters") -> Group:
    """Return a table of groups of dead letters, with the error and some message ids of each.

    `what` begins the title. `total` is the number of all dead letters, including those of groups that are not given.
    """
    shown = sum(group.count for group in groups)
    title = what if shown == total else f"{what}, {shown:,} of {total:,}"
    columns = ("deliveries", "reason", "handler", "type", "error", "messages")
    rows = []
    for group in groups:
        ids = ", ".join([*group.message_ids, *["..."] * (group.count > len(group.message_ids) > 0)])
        rows.append((group.count, group.reason, group.handler, group.type, group.error, ids or None))
    table = make_table(f"{title}, by reason and error", columns, rows)
    is_rule_changed = any(group.reason in _OF_REPLAY for group in groups)
    return Group(table, "", *([_CHANGED_RULE] if is_rule_changed else []), _SEE)


# The fields of `BatchOptions` that all batch commands take.
OF_ANY_BATCH = (
    "cascade", "max_rounds", "max_outputs", "partitions", "handler_timeout", "worker_memory", "documents", "adopt",
    "limits",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BatchChoices:
    """The id of a batch, and the locations of its table and outcomes."""

    states: TablePlace
    out: str = option(
        "The folder for outcomes, in DIR/batch_id=ID/round=N.", default=REQUIRED, metavar="DIR", group=""
    )
    batch_id: str | None = option(
        "Resume the batch with this id, or begin it. By default a new id is generated and printed.",
        metavar="ID",
    )
    metrics_file: Path | None = option(
        "Add metrics to FILE for node_exporter.", dir_okay=False, group="batch"
    )
    others: AuxiliaryStore = field(default_factory=AuxiliaryStore)
    spark: SparkOptions

    def options(self, options: BatchOptions) -> BatchOptions:
        """Return a copy of `options` with `Metrics` and, if ids or tokens have a table of their own, with that table.

        Raises `UsageError` for a separate table that the algorithm does not use, or if workers cannot access a store.
        """
        self.others.check(options.algorithm)
        other = self.others.place(self.states)
        self.spark.check_scope(self.states, other)
        elsewhere = None if other == self.states else other
        return replace(
            options,
            metrics=Metrics(is_on=self.metrics_file is not None or has_meters(), file=self.metrics_file),
            deduplication_store=elsewhere if options.algorithm == "deduplication-store" else None,
            token_store=elsewhere if options.algorithm == "tokens" else None,
        )

    def check(self, app: App, options: BatchOptions, *, must_exist: bool = True) -> bool:
        """Return whether the table exists. Raises the errors of `check_batch` and `check_folder`."""
        check_folder(self.out, self.spark.place)
        return check_batch(app, self.states, options, self.batch_id, self.out, must_exist=must_exist)

    def announced(self, screen: Screen) -> BatchChoices:
        """Print the command that resumes the batch. Return the choices, with a new batch id if none is given."""
        from runtime.spark.batch import new_batch_id

        batch_id = self.batch_id or new_batch_id()
        again = command_with("--batch-id", batch_id)
        screen.note(f"Batch {batch_id}: if it stops early, resume it with: {again}", batch=batch_id)
        return replace(self, batch_id=batch_id)

    @contextmanager
    def carried_out(
        self, app: App, options: BatchOptions, first_step: str, work: Work, log_bytes: int | None = None
    ) -> Iterator[CarriedOut]:
        """Context manager that starts Spark, calls `work` with a `Batch` and its id, and yields a report of the result.

        `first_step` describes the work for the progress display. `log_bytes` is the size of the log, if known.
        """
        from runtime.spark.batch import Batch

        batch_id = self.batch_id or ""
        stopped = f"Stopped. Nothing is lost. Resume with: {command_with('--batch-id', batch_id)}"
        with options.metrics as metrics, self.spark.working(stopped, log_bytes) as (spark, progress):
            progress.fields = {"batch": batch_id}
            progress.step(first_step)
            options = replace(options, step=progress.step)
            batch = Batch(spark, app, self.states.store, self.states.table, self.out, options)
            with resumable(batch_id, self.states):
                result = work(batch, batch_id)
            progress.step("Counting outcomes")
            report = BatchReport.of(result)
            progress.done()
            yield CarriedOut(report, spark, progress, metrics)


class CarriedOut(NamedTuple):
    """The report of a finished batch, and the Spark session, which is still open."""

    report: BatchReport
    spark: Session
    progress: StepProgress
    metrics: Metrics
