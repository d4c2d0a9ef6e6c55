"""`consistent run`, `consistent stream` and `consistent tokens`: process a message log, a stream, and issue tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore import connect
from runtime.batch_options import BatchOptions
from runtime.cli.batch_command import (
    BatchChoices,
    BatchCommand,
    BatchReport,
    CarriedOut,
    MicroBatchChoices,
    about_letters,
    resumable,
)
from runtime.cli.checks import (
    Named,
    Place,
    check_batch,
    check_folder,
    check_out,
    check_source,
    load_app,
    place,
)
from runtime.cli.console import Screen, counted
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError
from runtime.cli.options import (
    AppSpec,
    AsJson,
    LimitOptions,
    LogOptions,
    SparkOptions,
    StoreUrl,
    TableName,
    TokenStoreUrl,
    TokenTableName,
    options_of,
    parse_duration,
)
from runtime.cli.publishing import (
    PublishChoices,
    Publishing,
    PublishingReport,
    find_target,
    publish_on,
    tell_of_keys,
)
from runtime.errors import UsageError
from runtime.ledger.batch import DeadLetterLimit

if TYPE_CHECKING:
    from handlers import App
    from runtime.ledger.ledger import BatchRecord
    from runtime.spark.streaming.query import PublishEpoch, Stream, Trigger
    from runtime.spark.tokens import Issued


MaxDeadLetters = Annotated[
    DeadLetterLimit | None,
    typer.Option(
        "--max-dead-letters",
        parser=DeadLetterLimit.parse,
        metavar="N|P%",
        help="End with exit code 3 when more deliveries than 10, or than 0.5%, are dead letters.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="With --max-dead-letters: hold a batch with more of them back, unpublished."
    ),
]
MustExist = Annotated[
    bool, typer.Option("--must-exist", help="Refuse a table that is not there yet, instead of making it.")
]


_OF_RUN = options_of(
    BatchOptions, "late", "on_error", "on_difference", "guard", "keep_large", "types", "draws", "algorithm"
)


def run(
    *,
    app: AppSpec,
    log: LogOptions,
    batch: BatchChoices,
    must_exist: MustExist = False,
    given: Annotated[dict[str, Any], _OF_RUN],
    max_dead_letters: MaxDeadLetters = None,
    strict: Strict = False,
    publishing: PublishChoices,
    as_json: AsJson = False,
) -> None:
    r"""Run the handlers of an app over a message log with Spark, and write what came of each delivery.

        consistent run --app samples.shooting_range:app --messages log.parquet \
            --cascade --out outcomes --store sqlite:///store.db --table games

    Each new message adds one version to its stream; a duplicate gives the outputs of its first delivery again and
    stores nothing. One query and one transaction for each stream, and about ten seconds to start Spark.

    A delivery that cannot be handled is a dead letter with its reason: it costs no other message its outcome, and the
    exit code is 0 all the same, or 3 when there are more than --max-dead-letters. A batch that was stopped goes on
    where it was when it is run again with its id, so keep the log until then.
    """
    loaded = load_app(app)
    options = batch.options(
        **given, **log.named(), max_dead_letters=_held_back_by(max_dead_letters, strict=strict)
    )
    options.types_of(loaded)
    log_bytes = log.check(batch.spark.place)
    check_out(batch.out, batch.spark.place)
    if options.keep_large is not None:
        check_folder(options.keep_large, batch.spark.place, "What is too large", "--keep-large")
    is_there = check_batch(loaded, batch.states, options, batch.batch_id, batch.out, must_exist=must_exist)
    _target(publishing, "", batch)  # what is no target is refused before the batch is announced
    screen = Screen(as_json)
    command = BatchCommand.announced(loaded, batch, options, screen)
    target = _target(publishing, command.batch_id, batch)
    if not is_there:
        _announce_table(batch, screen)
    reading = command.carried_out("Reading the log", lambda new, id_: new.run(log.messages, id_), log_bytes)
    with reading as done:
        screen.put(done.report)
        _say_how_to_redrive(app, batch, done.report, screen)
        if target is not None:
            _publish(target, done, batch, screen)
    _judge(screen, done.report, max_dead_letters)


def _target(publishing: PublishChoices, batch_id: str, batch: BatchChoices) -> Publishing | None:
    """Return where the batch is published to. Raises `UsageError` for what is no target."""
    sending = publishing.sending()
    to = publishing.publish
    return find_target(to, batch_id, batch.states, sending) if to else None


def _publish(target: Publishing, done: CarriedOut, batch: BatchChoices, screen: Screen) -> None:
    with resumable(target.batch_id, *batch.states):
        published = publish_on(target, done.spark, None, done.progress)
    done.progress.done()
    screen.show("", *PublishingReport(target.batch_id, published).parts())


def _held_back_by(limit: DeadLetterLimit | None, *, strict: bool) -> str | None:
    """Return how many dead letters hold the batch back, None when none do."""
    if strict and limit is None:
        raise UsageError("Say with --max-dead-letters how many dead letters hold the batch back.")
    return str(limit) if strict else None


def _announce_table(batch: BatchChoices, screen: Screen) -> None:
    url = connect(batch.store).url
    screen.note(f"New table: there is no {batch.table} in {url} yet, and this batch makes it.")


def _say_how_to_redrive(app: str, batch: BatchChoices, report: BatchReport, screen: Screen) -> None:
    if not report.dead_letters:
        return
    redrive = ("--app", app, "--out", batch.out, "--all")
    screen.show(
        "Dead letters wait in the table. To list them, and once their cause is mended, handle them:",
        f"  {about_letters('letters', *batch.states)}",
        f"  {about_letters('redrive', *batch.states, *redrive)}",
    )


def _judge(screen: Screen, report: BatchReport, limit: DeadLetterLimit | None) -> None:
    """Say what the dead letters of a batch mean, and exit with 3 when there are too many."""
    if not report.dead_letters:
        return
    damaged = report.damaged
    if damaged:
        raise NotPossibleError(
            f"{counted(damaged, 'delivery')} met streams that cannot be read (stream_damaged). "
            f"All others are done; `consistent check` says where the table is damaged."
        )
    done = "A dead letter changes no state, and the batch is done all the same"
    if limit is None or not limit.is_exceeded(report.record.counts):
        screen.show(f"{done}: the exit code is 0.")
        return
    screen.note(f"{done}, but these are more than --max-dead-letters {limit}: the exit code is 3.")
    raise typer.Exit(TOO_MANY_DEAD_LETTERS)


# `consistent stream`: a query without end, each micro-batch of which is a batch.

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
StreamMaxDeadLetters = Annotated[
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


_OF_STREAM = options_of(
    BatchOptions, "late", "on_error", "on_difference", "guard", "types", "draws", "algorithm"
)


def stream(
    *,
    app: AppSpec,
    choices: StreamChoices,
    batch: MicroBatchChoices,
    publishing: PublishChoices,
    given: Annotated[dict[str, Any], _OF_STREAM],
    max_dead_letters: StreamMaxDeadLetters = None,
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
    limit = None if max_dead_letters is None else str(max_dead_letters)
    options = batch.options(**given, max_dead_letters=limit)
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
        from runtime.spark.streaming.query import open_source

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
    from runtime.batch_options import TablePlace
    from runtime.spark.streaming.query import Stream

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
    from runtime.batch_options import TablePlace
    from runtime.spark.publishing import PublishTo

    found = find_target(publishing.publish, choices.query, batch.states, sending)
    tell_of_keys(found)
    return partial(PublishTo(found.to, found.of_target, found.options).publish, TablePlace(*batch.states))


def _sentence(record: BatchRecord) -> str:
    """Say what came of an epoch."""
    counts = {name: count for name, count in record.counts.items() if count and name != "outputs"}
    said = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(counts.items()))
    return f"{record.batch_id}: {said or 'no messages'}; {counted(record.counts.get('outputs', 0), 'output')}"


# `consistent tokens`: tokens for messages that come from outside.

Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="LOG",
        show_default=False,
        help="The folder to write the log with tokens to, as Parquet.",
    ),
]


def issue(
    *,
    app: AppSpec,
    log: LogOptions,
    store: StoreUrl,
    table: TableName,
    out: Out,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    limits: LimitOptions,
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    r"""Give each message of a log its token, and write a log whose messages name them.

        consistent tokens issue --app samples.shooting_range:app \
            --messages log.parquet --out log-with-tokens \
            --store sqlite:///store.db --table games

    With `run --algorithm tokens` a message is processed only while its token exists. Issue once for each message
    from outside, before it is processed: a message whose token is issued again after that is processed again. The same
    log may be given again: its messages get the same tokens, and none is created. A log may hold copies of a message,
    but two logs must not hold the same message. One request for each delivery.
    """
    loaded = load_app(app)
    from runtime.batch_options import TablePlace
    from runtime.spark.tokens import issue_tokens

    states, named = Place(store, table), Named(token_store, token_table)
    tokens = place(named, states, spark.place) or TablePlace(*states)
    log_bytes = log.check(spark.place)
    screen = Screen(as_json)
    with spark.working("Stopped. Nothing was sent: run it again.", log_bytes) as (session, progress):
        how = {**log.named(), "limits": limits.limits(), "step": progress.step}
        issued = issue_tokens(session, log.messages, loaded, tokens, out, **how)
        progress.done()
        screen.give(asdict(issued))
        screen.show(*_sentences(issued))


def _sentences(issued: Issued) -> Iterator[str]:
    if issued.was_issued:
        yield "The tokens of this log were issued before: the log names them again, and none is new."
    yield f"Wrote {counted(issued.deliveries, 'delivery')} with tokens to {issued.out}."
    if issued.rejected:
        yield f"Rows that are no messages: {issued.rejected:,}. {issued.out}.rejected says why."
