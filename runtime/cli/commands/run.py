"""`consistent run`, `consistent stream` and `consistent tokens`: process a log or a stream, and issue tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eventstore import connect
from runtime.algorithms.choice import check_swept
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import OF_ANY_BATCH, BatchChoices, BatchReport, command_on, counts_text
from runtime.cli.checks import check_folder, check_log, check_source, load_app
from runtime.cli.commands.publish import PublishTo, publish_done, tell_of_keys
from runtime.cli.console import Screen, counted
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError
from runtime.cli.options import AppSpec, AsJson, AuxiliaryStore, Messages, SparkOptions, only
from runtime.errors import UsageError
from runtime.ledger.batch import DeadLetterLimit
from runtime.messages.outcome import Reason
from runtime.messages.sizes import MessageLimits
from runtime.options import REQUIRED, flag, option, option_of
from runtime.telemetry import Metrics, logs_json

if TYPE_CHECKING:
    from runtime.ledger.ledger import BatchRecord
    from runtime.spark.batch import Batch, BatchResult
    from runtime.spark.session import Session
    from runtime.spark.streaming import PublishEpoch

_OF_STREAM = (
    *OF_ANY_BATCH, "late", "on_error", "on_difference", "guard", "types", "draws", "algorithm", "decoding",
)  # fmt: skip


@dataclass(frozen=True)
class DeadLetterChoices:
    """The limit of dead letters in a batch, and whether a batch over the limit is published."""

    max_dead_letters: DeadLetterLimit | None = option(
        "Exit with code 3 if there are more dead letters than N, or than P% of the deliveries.",
        metavar="N|P%",
        parser=DeadLetterLimit.parse,
    )
    strict: bool = flag("With --max-dead-letters: do not publish a batch that has more.", is_rare=True)

    def __post_init__(self) -> None:
        if self.strict and self.max_dead_letters is None:
            raise UsageError("--strict needs --max-dead-letters.")

    def judge(self, screen: Screen, report: BatchReport, then: Sequence[str]) -> None:
        """Report dead letters, if any, and print the commands `then`, which list and redrive them.

        Raises `NotPossibleError` if there are corrupt streams. Exits with 3 if there are more dead letters than
        allowed.
        """
        if not report.dead_letters:
            return
        for group in report.dead_letters if logs_json() else ():
            screen.note("dead letters", batch=report.record.batch_id, **asdict(group))
        said = "The table keeps the dead letters. To list them, and to redrive them after fixing the cause:"
        screen.show(said, *(f"  {command}" for command in then))
        damaged = sum(each.count for each in report.counts if each.reason == Reason.STREAM_DAMAGED)
        if damaged:
            raise NotPossibleError(
                f"{counted(damaged, 'delivery')} to corrupt streams failed (stream_damaged). All others are done. "
                f"`consistent check` lists the corrupt rows."
            )
        done, limit = "Dead letters change no state, and the batch is done", self.max_dead_letters
        if limit is None or not limit.is_exceeded(report.record.counts):
            screen.show(f"{done}: the exit code is 0.")
            return
        screen.note(f"{done}, but there are more than --max-dead-letters {limit}: the exit code is 3.")
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


def run(
    *,
    app: AppSpec,
    messages: Messages = "",
    unfinished: timedelta | None = option(
        "Instead of --messages: publish outputs that have been in outboxes for more than 1h, 24h ..., because their "
        "single message or abandoned batch is not processed again.",
        metavar="AGE",
    ),
    batch: BatchChoices,
    options: Annotated[BatchOptions, only(*_OF_STREAM, "keep_large", "source", "log_format")],
    must_exist: bool = flag("Fail if the table does not exist, instead of creating it.", is_rare=True),
    limit: DeadLetterChoices,
    publish: PublishTo,
    as_json: AsJson = False,
) -> None:
    r"""Run the handlers of an app over a message log with Spark, and write the outcome of each delivery.

        consistent run --app samples.shooting_range:app --messages log.parquet \
            --cascade --out outcomes --store sqlite:///store.db --table games

    A new message adds one version to its stream. A duplicate yields the outputs of its first delivery and stores
    nothing. Takes one query and one transaction for each stream, and about ten seconds to start Spark.

    A delivery that cannot be handled becomes a dead letter with its reason and does not affect other messages. The exit
    code is still 0, or 3 with more than --max-dead-letters. A stopped batch resumes when it is run again with its id:
    keep the log until the batch ends.

        consistent run --app samples.shooting_range:app --algorithm outbox \
            --unfinished 1h --cascade --out outcomes \
            --store sqlite:///store.db --table games

    Publishes outputs that crashed workers left in outboxes. The outcomes are duplicates with these outputs.
    """
    if bool(messages) == (unfinished is not None):
        raise UsageError("Use either --messages LOG or --unfinished AGE.")
    loaded = load_app(app)
    held_back_above = str(limit.max_dead_letters) if limit.strict else None
    options = replace(batch.options(options), max_dead_letters=held_back_above)
    options.types_of(loaded)
    place, log_bytes = batch.spark.place, None
    if messages:
        log_bytes = check_log(messages, place, options.log_format, options.source, options.decoding)
    else:
        check_swept(options.algorithm)
    if options.keep_large is not None:
        check_folder(options.keep_large, place, "Large messages", "--keep-large")
    is_there = batch.check(loaded, options, must_exist=must_exist or unfinished is not None)
    screen = Screen(as_json)
    batch, target = publish.announced(batch, screen)
    if not is_there:
        url = connect(batch.states.store).url
        screen.note(f"The batch creates the table {batch.states.table} in {url}.")
    step = "Reading the log" if unfinished is None else "Looking for unfinished messages"

    def work(new: Batch, batch_id: str) -> BatchResult:
        return new.run(messages, batch_id) if unfinished is None else new.sweep(unfinished, batch_id)

    with batch.carried_out(loaded, options, step, work, log_bytes) as done:
        report = done.report
        nothing = f"No unfinished messages are older than {unfinished}."
        screen.put(report.document(), *(report.parts() if messages or report.counts else [nothing]))
        is_refused = publish_done(target, done, screen)
    redrive = command_on("letters redrive", batch.states, "--app", app, "--out", batch.out, "--all")
    limit.judge(screen, report, [command_on("letters", batch.states), redrive])
    if is_refused:
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


@dataclass(frozen=True, kw_only=True)
class StreamChoices:
    """The query of a stream: its source and schedule."""

    source: str = option(
        "The folder that receives files with messages, also in subfolders. Files must be complete when they appear, "
        "and stay until their epoch is published. Or topics: kafka://HOST:PORT/TOPIC, or env:NAME.",
        default=REQUIRED,
        is_secret=True,
        metavar="DIR|URL",
    )
    source_format: Literal["json", "parquet", "outcomes"] | None = option(
        "The format of a folder: JSON lines, Parquet, or the outcomes of another stream, whose outputs are the "
        "messages.",
        name="--format",
        is_rare=False,
    )
    query: str = option(
        "The name of the query. Its batches have the ids NAME-0, NAME-1 ...", default=REQUIRED, metavar="NAME"
    )
    checkpoint: str = option(
        "The folder for Spark's progress of this query. Use it for no other query, and never delete it.",
        default=REQUIRED,
        metavar="DIR",
    )
    trigger: timedelta | None = option(
        "Start a micro-batch every 5s, 1m ... By default each follows the last one at once.", metavar="TIME"
    )
    available_now: bool = flag("Process the existing files in micro-batches, then stop.")
    max_files: int | None = option(
        "The maximum number of files in a micro-batch.", min=1, show_default="all", is_rare=True
    )
    compact_after: int = option(
        "Merge the outcomes of N epochs, when the last one is published.", default=1, min=1, is_rare=True
    )

    def __post_init__(self) -> None:
        if self.available_now and self.trigger is not None:
            raise UsageError("--trigger and --available-now exclude each other: use one of them.")


def stream(
    *,
    app: AppSpec,
    choices: StreamChoices,
    batch: Annotated[BatchChoices, only("states", "out", "metrics_file", "others", "spark")],
    options: Annotated[BatchOptions, only(*_OF_STREAM)],
    max_dead_letters: DeadLetterLimit | None = option_of(
        DeadLetterChoices,
        "max_dead_letters",
        help="Exit with code 3, without publishing the epoch, above N dead letters, or P% of the deliveries.",
    ),
    publish: PublishTo,
) -> None:
    r"""Run the handlers of an app over files that arrive in a folder, or over topics of Kafka, in micro-batches.

        consistent stream --app samples.shooting_range:app --cascade \
            --source incoming --format json --query shots --out outcomes \
            --store sqlite:///store.db --table games --checkpoint checkpoint

    Each micro-batch is a batch in `consistent batches`, with the id NAME-EPOCH. Its outcomes appear in OUT atomically
    when it is published. A stopped or killed query resumes when it is started again with its name and checkpoint;
    another checkpoint under its name is rejected. With --publish URL, each epoch is published before the next one
    begins.

    Ends on Ctrl-C or, with --available-now, when all available messages are handled.
    """
    loaded = load_app(app)
    limit = None if max_dead_letters is None else str(max_dead_letters)
    options = replace(batch.options(options), max_dead_letters=limit)
    options.types_of(loaded)
    place, states, source = batch.spark.place, batch.states, choices.source
    written = {"--out": batch.out, "--checkpoint": choices.checkpoint}
    check_source(source, choices.source_format, place, written, options.decoding)
    check_folder(choices.checkpoint, place, "The checkpoint", "--checkpoint")
    batch.check(loaded, options, must_exist=False)
    screen, metrics = Screen(), options.metrics

    def say(record: BatchRecord) -> None:
        outputs = counted(record.counts.get("outputs", 0), "output")
        said = counts_text({name: count for name, count in record.counts.items() if name != "outputs"})
        text = f"{record.batch_id}: {said or 'no messages'}; {outputs}"
        screen.note(text, batch=record.batch_id, counts=dict(record.counts))
        metrics.write()

    publisher = _publisher(publish, states, choices.query, screen, metrics)
    from runtime.spark.logs.read import is_kafka
    from runtime.spark.streaming import Stream, open_source

    named = choices.query, choices.checkpoint, choices.compact_after
    new = Stream(loaded, states, batch.out, *named, options, done=say, publish=publisher)
    again = f"Stopped. Nothing is lost: run the same command again to resume the query {choices.query}."
    with metrics, batch.spark.working(again) as (spark, progress):
        progress.done()
        how = choices.source_format, choices.max_files, screen.note
        messages = open_source(spark, source, *how, decoding=options.decoding)
        new.run(messages, "available-now" if choices.available_now else choices.trigger)
    where = "messages" if is_kafka(source) else f"files in {source}"
    screen.show(f"The query {choices.query} has processed all {where}.")


def _publisher(
    publish: PublishTo, states: TablePlace, query: str, screen: Screen, metrics: Metrics
) -> PublishEpoch | None:
    """Return the function that publishes an epoch, or None without --publish. An invalid target raises `UsageError`."""
    found = publish.find(query, states)
    if found is None:
        return None
    from runtime.spark.publishing import PublishTo as OnSpark

    tell_of_keys(found)
    to = OnSpark(found.to, found.of_target, found.options)

    def publish_epoch(spark: Session, batch_id: str, place: str) -> None:
        published = to.publish(states, spark, batch_id, place)
        metrics.add("published_outputs", published.outputs)
        if refused := len(published.refused):
            of_batch = ("--batch", batch_id, "--out", place, "--to", "URL", "--letters")
            letters = command_on("publish", states, *of_batch)
            screen.note(f"{batch_id}: {found.target.name} rejected {counted(refused, 'output')}: {letters}")

    return publish_epoch


def tokens(
    *,
    app: AppSpec,
    messages: Messages,
    options: Annotated[BatchOptions, only("source", "log_format")],
    states: TablePlace,
    out: str = option("The folder for the log with tokens, in Parquet.", default=REQUIRED, metavar="LOG"),
    others: AuxiliaryStore,
    limits: MessageLimits,
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    r"""Issue a token for each message of a log, and write a log whose messages contain them.

        consistent tokens --app samples.shooting_range:app \
            --messages log.parquet --out log-with-tokens \
            --store sqlite:///store.db --table games

    `run --algorithm tokens` processes a message only while its token exists. Issue tokens once for each message from
    outside, before it is processed: a message with a new token is processed again. Running the command again with the
    same log is safe: it issues no further tokens. A log may contain copies of a message, but two logs must not contain
    the same message. Costs one request for each delivery.
    """
    loaded = load_app(app)
    from runtime.spark.outbox import issue_tokens

    place = others.place(states)
    spark.check_scope(states, place)
    log_bytes = check_log(messages, spark.place, options.log_format, options.source)
    with spark.working("Stopped. Run the same command again.", log_bytes) as (session, progress):
        how: Any = {"log_format": options.log_format, "source": options.source, "limits": limits}
        issued = issue_tokens(session, messages, loaded, place, out, **how, step=progress.step)
        progress.done()
        said = [f"Wrote {counted(issued.deliveries, 'delivery')} with tokens to {issued.out}."]
        if issued.was_issued:
            said.insert(0, "The tokens of this log were issued before: the new log contains the same tokens.")
        if issued.rejected:
            said.append(f"Invalid rows: {issued.rejected:,}, listed in {issued.out}.rejected.")
        Screen(as_json).put(asdict(issued), *said)
