"""`consistent stream`: a query without end, each micro-batch of which is a batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from runtime.batches.dead_letter_limit import DeadLetterLimit
from runtime.cli.apps import load_app
from runtime.cli.batch_command import AlgorithmOption, Guard, MicroBatchChoices
from runtime.cli.beginning import check_batch
from runtime.cli.commands.run import (
    DrawsOption,
    LateOption,
    OnDifferenceOption,
    OnErrorOption,
    Types,
    split_types,
)
from runtime.cli.console import Screen
from runtime.cli.durations import parse_duration
from runtime.cli.message_logs import check_source
from runtime.cli.options import (
    AlgorithmChoice,
    AppSpec,
    Late,
    OnDifference,
    OnError,
)
from runtime.cli.places import check_folder, check_out
from runtime.cli.publishing import find_target, tell_of_keys
from runtime.cli.publishing_options import PublishChoices
from runtime.cli.reports.tables import counted
from runtime.errors import UsageError

if TYPE_CHECKING:
    from handlers import App
    from runtime.batches.record import BatchRecord
    from runtime.spark.batch_options import BatchOptions
    from runtime.spark.streaming.micro_batches import PublishEpoch
    from runtime.spark.streaming.query import Stream, Trigger

_MICROSECONDS = 1_000_000


class SourceFormat(StrEnum):
    """What is in the files that come into a folder."""

    JSON = "json"
    PARQUET = "parquet"
    OUTCOMES = "outcomes"


SourceFolder = Annotated[
    str,
    typer.Option(
        "--source",
        metavar="DIR",
        show_default=False,
        help="The folder that files with messages come into, or into folders in it; each is to be complete when it "
        "appears there, and to stay until its epoch is published.",
    ),
]
FormatOption = Annotated[
    SourceFormat,
    typer.Option(
        "--format",
        show_default=False,
        help="JSON lines, Parquet, or the outcomes of another stream, of which the outputs are the messages.",
    ),
]
QueryName = Annotated[
    str,
    typer.Option(
        "--query",
        metavar="NAME",
        show_default=False,
        help="The name of the query: its micro-batches are batches with the ids NAME-0, NAME-1 ...",
    ),
]
CheckpointFolder = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        show_default=False,
        help="Where Spark keeps how far the query is; of this query alone, and never deleted.",
    ),
]
TriggerOption = Annotated[
    int | None,
    typer.Option(
        "--trigger",
        parser=parse_duration,
        metavar="TIME",
        show_default="one after another",
        help="Begin a micro-batch every 5s, 1m ..., if there are messages.",
    ),
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Handle what is there, in several micro-batches, and end.")
]
MaxFiles = Annotated[
    int | None,
    typer.Option(
        "--max-files", metavar="N", min=1, show_default="all", help="Take so many files into a micro-batch."
    ),
]
CompactAfter = Annotated[
    int,
    typer.Option(
        "--compact-after",
        metavar="N",
        min=1,
        help="Merge the outcomes of N epochs, which are in OUT when the last of them is published.",
    ),
]
MaxDeadLetters = Annotated[
    DeadLetterLimit | None,
    typer.Option(
        "--max-dead-letters",
        parser=DeadLetterLimit.parse,
        metavar="N|P%",
        help="Hold an epoch in which more deliveries than 10, or than 0.5%, are dead letters back, unpublished, and "
        "end with exit code 3.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class StreamChoices:
    """What can be chosen for a stream beside what its micro-batches have in common with other batches."""

    source: SourceFolder
    source_format: FormatOption
    query: QueryName
    checkpoint: CheckpointFolder
    trigger: TriggerOption = None
    available_now: AvailableNow = False
    max_files: MaxFiles = None
    compact_after: CompactAfter = 1

    @property
    def how_often(self) -> Trigger:
        """When micro-batches begin. Raises `UsageError` when two answers are given."""
        if self.available_now and self.trigger is not None:
            raise UsageError("--trigger is for a query without end: leave it or --available-now out.")
        if self.available_now:
            return "available-now"
        return None if self.trigger is None else timedelta(seconds=self.trigger / _MICROSECONDS)


def stream(
    *,
    app: AppSpec,
    choices: StreamChoices,
    batch: MicroBatchChoices,
    publishing: PublishChoices,
    late: LateOption = Late.REFUSE,
    on_error: OnErrorOption = OnError.CONTINUE,
    on_difference: OnDifferenceOption = OnDifference.DEAD_LETTER,
    max_dead_letters: MaxDeadLetters = None,
    guard: Guard = False,
    types: Types = None,
    draws: DrawsOption = None,
    algorithm: AlgorithmOption = AlgorithmChoice.STATE_BASED,
) -> None:
    r"""Run the handlers of an app over the files that come into a folder, micro-batch by micro-batch.

        consistent stream --app samples.shooting_range:app --cascade \
            --source incoming --format json --query shots --out outcomes \
            --store sqlite:///store.db --table games --checkpoint checkpoint

    Each micro-batch is a batch of `consistent batches`, with the id NAME-EPOCH; its outcomes are in OUT as a whole once
    it is published. A query that was stopped, or killed, goes on where it was when it is started again with its name
    and checkpoint. Another checkpoint under its name is refused. With --publish URL, each epoch is published before the
    next one begins.

    Ctrl-C ends it. With --available-now it ends by itself.
    """
    trigger = choices.how_often
    loaded = load_app(app)
    options = batch.options(
        algorithm.value,
        late=late.value,
        on_error=on_error.value,
        on_difference=on_difference.value,
        max_dead_letters=None if max_dead_letters is None else str(max_dead_letters),
        guard=guard,
        types=split_types(types),
        draws=None if draws is None else draws.value,
    )
    options.types_of(loaded)
    written = {"--out": batch.out, "--checkpoint": choices.checkpoint}
    check_source(choices.source, batch.spark.place, written)
    check_out(batch.out, batch.spark.place)
    check_folder(choices.checkpoint, batch.spark.place, "The checkpoint", "--checkpoint")
    check_batch(loaded, batch.states, options, None, batch.out, must_exist=False)
    screen = Screen()
    publisher = _publisher(publishing, batch, choices)
    new = _stream(loaded, batch, choices, options, screen=screen, publisher=publisher)
    again = f"Stopped. Nothing is lost: the same command goes on with the query {choices.query}."
    with batch.spark.working(again) as (spark, progress):
        from runtime.spark.streaming.source import open_source

        progress.done()
        messages = open_source(spark, choices.source, choices.source_format.value, choices.max_files)
        new.run(messages, trigger)
    screen.show(f"The query {choices.query} has handled all that was in {choices.source}.")


def _stream(
    app: App,
    batch: MicroBatchChoices,
    choices: StreamChoices,
    options: BatchOptions,
    *,
    screen: Screen,
    publisher: PublishEpoch | None,
) -> Stream:
    from runtime.spark.streaming.query import Stream
    from runtime.spark.workers.connection import TablePlace

    return Stream(
        app,
        TablePlace(*batch.states),
        batch.out,
        choices.query,
        choices.checkpoint,
        choices.compact_after,
        options,
        done=lambda record: screen.note(_sentence(record)),
        publish=publisher,
    )


def _publisher(
    publishing: PublishChoices, batch: MicroBatchChoices, choices: StreamChoices
) -> PublishEpoch | None:
    """Return what publishes each epoch, if anything does. Raises `UsageError` for what is no target."""
    sending = publishing.sending()
    if publishing.publish is None:
        return None
    from runtime.spark.publishing import PublishTo
    from runtime.spark.workers.connection import TablePlace

    found = find_target(publishing.publish, choices.query, batch.states, sending)
    tell_of_keys(found)
    return partial(PublishTo(found.to, found.of_target, found.options).publish, TablePlace(*batch.states))


def _sentence(record: BatchRecord) -> str:
    """Say what came of an epoch."""
    counts = {name: count for name, count in record.counts.items() if count and name != "outputs"}
    said = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(counts.items()))
    return f"{record.batch_id}: {said or 'no messages'}; {counted(record.counts.get('outputs', 0), 'output')}"
