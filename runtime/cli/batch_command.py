"""The options that commands have in common that are batches (`run`, `redrive`, `sweep`), and how they run one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from handlers import App
from runtime.batch_options import BatchOptions
from runtime.cli.declared import options_of
from runtime.cli.invocation import command_with, resumable
from runtime.cli.option_groups import LimitOptions, OtherStores, SparkOptions
from runtime.cli.options import StoreUrl, TableName
from runtime.cli.places import Place, Stores
from runtime.cli.reports.batch import BatchReport

if TYPE_CHECKING:
    from runtime.cli.console import Screen
    from runtime.cli.progress import StepProgress
    from runtime.spark.batch import Batch
    from runtime.spark.rounds import BatchResult
    from runtime.spark.sessions.session import Session

    Work = Callable[[Batch, str], BatchResult]
    """Runs a batch of the command's own kind under an id."""

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
