"""`consistent run`, `consistent stream` and `consistent tokens`: process a message log, a stream, and issue tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eventstore import connect
from runtime.algorithms.choice import check_swept
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import (
    OF_ANY_BATCH,
    BatchChoices,
    BatchReport,
    command_on,
    counts_text,
)
from runtime.cli.checks import check_folder, check_log, check_source_folder, load_app
from runtime.cli.commands.publish import PublishTo, publish_done, tell_of_keys
from runtime.cli.console import Screen, counted
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError
from runtime.cli.options import AppSpec, AsJson, AuxiliaryStores, Messages, SparkOptions, only
from runtime.errors import UsageError
from runtime.ledger.batch import DeadLetterLimit
from runtime.messages.limits import MessageLimits
from runtime.options import option

if TYPE_CHECKING:
    from runtime.ledger.ledger import BatchRecord
    from runtime.spark.batch import Batch, BatchResult
    from runtime.spark.session import Session
    from runtime.spark.streaming.query import PublishEpoch, Trigger

_OF_STREAM = (*OF_ANY_BATCH, "late", "on_error", "on_difference", "guard", "types", "draws", "algorithm")


def run(
    *,
    app: AppSpec,
    messages: Messages = "",
    unfinished: timedelta | None = option(
        "In place of --messages: publish outputs that outboxes have had for longer than 1h, 24h ..., of single "
        "messages and of abandoned batches, and whose message will not be redelivered.",
        default=None,
        metavar="AGE",
    ),
    batch: BatchChoices,
    options: Annotated[BatchOptions, only(*_OF_STREAM, "keep_large", "source", "log_format")],
    must_exist: bool = option(
        "Refuse a table that is not there yet, instead of making it.", default=False, is_rare=True
    ),
    max_dead_letters: DeadLetterLimit | None = option(
        "End with exit code 3 when more deliveries than 10, or than 0.5%, are dead letters.",
        default=None,
        metavar="N|P%",
        parser=DeadLetterLimit.parse,
    ),
    strict: bool = option(
        "With --max-dead-letters: hold a batch with more of them back, unpublished.",
        default=False,
        is_rare=True,
    ),
    publish: PublishTo,
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

        consistent run --app samples.shooting_range:app --algorithm outbox \
            --unfinished 1h --cascade --out outcomes \
            --store sqlite:///store.db --table games

    This finishes what died with its worker. Its outcomes are duplicates with the outputs that were left.
    """
    loaded = load_app(app)
    if bool(messages) == (unfinished is not None):
        raise UsageError(
            "--messages is empty, or there is --unfinished too: name a file or folder, or give the age."
        )
    if strict and max_dead_letters is None:
        raise UsageError("Say with --max-dead-letters how many dead letters hold the batch back.")
    options = replace(batch.options(options), max_dead_letters=str(max_dead_letters) if strict else None)
    options.types_of(loaded)
    place = batch.spark.place
    if unfinished is not None:
        check_swept(options.algorithm)
    log_bytes = check_log(messages, place, options.log_format, options.source) if messages else None
    if options.keep_large is not None:
        check_folder(options.keep_large, place, "What is too large", "--keep-large")
    is_there = batch.check(loaded, options, must_exist=must_exist or unfinished is not None)
    publish.find("", batch.states)  # what is no target is refused before the batch is announced
    screen = Screen(as_json)
    batch = batch.announced(screen)
    target = publish.find(batch.batch_id or "", batch.states)
    if not is_there:
        url = connect(batch.states.store).url
        screen.note(f"New table: there is no {batch.states.table} in {url} yet, and this batch makes it.")
    step = "Reading the log" if unfinished is None else "Looking for what is unfinished"

    def work(new: Batch, batch_id: str) -> BatchResult:
        return new.run(messages, batch_id) if unfinished is None else new.sweep(unfinished, batch_id)

    with batch.carried_out(loaded, options, step, work, log_bytes) as done:
        report = done.report
        nothing = f"Nothing that began {unfinished} ago or before is unfinished."
        screen.put(report.document(), *(report.parts() if messages or report.counts else [nothing]))
        is_refused = publish_done(target, done, screen)
    redrive = command_on("letters redrive", batch.states, "--app", app, "--out", batch.out, "--all")
    _judge(screen, report, max_dead_letters, [command_on("letters", batch.states), redrive])
    if is_refused:
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


def _judge(screen: Screen, report: BatchReport, limit: DeadLetterLimit | None, then: Sequence[str]) -> None:
    """Say what the dead letters of a batch mean, and exit with 3 when there are too many."""
    if not report.dead_letters:
        return
    say = "Dead letters wait in the table. To list them, and once their cause is mended, handle them:"
    screen.show(say, *(f"  {command}" for command in then))
    if report.damaged:
        raise NotPossibleError(
            f"{counted(report.damaged, 'delivery')} met streams that cannot be read (stream_damaged). "
            f"All others are done; `consistent check` says where the table is damaged."
        )
    done = "A dead letter changes no state, and the batch is done all the same"
    if limit is None or not limit.is_exceeded(report.record.counts):
        screen.show(f"{done}: the exit code is 0.")
        return
    screen.note(f"{done}, but these are more than --max-dead-letters {limit}: the exit code is 3.")
    raise typer.Exit(TOO_MANY_DEAD_LETTERS)


# `consistent stream`: a query without end, each micro-batch of which is a batch.


@dataclass(frozen=True, kw_only=True)
class StreamChoices:
    """Which query it is, what it reads, and when."""

    source: str = option(
        "The folder that files with messages come into, or into folders in it; each is to be complete when it appears "
        "there, and to stay until its epoch is published.",
        metavar="DIR",
    )
    source_format: Literal["json", "parquet", "outcomes"] = option(
        "JSON lines, Parquet, or the outcomes of another stream, of which the outputs are the messages.",
        name="--format",
    )
    query: str = option(
        "The name of the query: its micro-batches are batches with the ids NAME-0, NAME-1 ...", metavar="NAME"
    )
    checkpoint: str = option(
        "Where Spark keeps how far the query is; of this query alone, and never deleted.", metavar="DIR"
    )
    trigger: timedelta | None = option(
        "Begin a micro-batch every 5s, 1m ..., if there are messages.",
        default=None,
        metavar="TIME",
        show_default="one after another",
    )
    available_now: bool = option("Handle what is there, in several micro-batches, and end.", default=False)
    max_files: int | None = option(
        "Take so many files into a micro-batch.",
        default=None,
        metavar="N",
        min=1,
        show_default="all",
        is_rare=True,
    )
    compact_after: int = option(
        "Merge the outcomes of N epochs, which are in OUT when the last of them is published.",
        default=1,
        metavar="N",
        min=1,
        is_rare=True,
    )

    def __post_init__(self) -> None:
        if self.available_now and self.trigger is not None:
            raise UsageError("--trigger is for a query without end: leave it or --available-now out.")

    @property
    def how_often(self) -> Trigger:
        """When micro-batches begin."""
        return "available-now" if self.available_now else self.trigger


def stream(
    *,
    app: AppSpec,
    choices: StreamChoices,
    batch: Annotated[BatchChoices, only("states", "out", "others", "spark")],
    options: Annotated[BatchOptions, only(*_OF_STREAM)],
    max_dead_letters: DeadLetterLimit | None = option(
        "Hold an epoch in which more deliveries than 10, or than 0.5%, are dead letters back, unpublished, "
        "and end with exit code 3.",
        default=None,
        metavar="N|P%",
        parser=DeadLetterLimit.parse,
    ),
    publish: PublishTo,
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
    loaded = load_app(app)
    limit = None if max_dead_letters is None else str(max_dead_letters)
    options = replace(batch.options(options), max_dead_letters=limit)
    options.types_of(loaded)
    place, states = batch.spark.place, batch.states
    written = {"--out": batch.out, "--checkpoint": choices.checkpoint}
    check_source_folder(choices.source, place, written)
    check_folder(choices.checkpoint, place, "The checkpoint", "--checkpoint")
    batch.check(loaded, options, must_exist=False)
    screen = Screen()

    def say(record: BatchRecord) -> None:
        outputs = counted(record.counts.get("outputs", 0), "output")
        said = counts_text({name: count for name, count in record.counts.items() if name != "outputs"})
        screen.note(f"{record.batch_id}: {said or 'no messages'}; {outputs}")

    publisher = _publisher(publish, states, choices.query, screen)
    from runtime.spark.streaming.query import Stream, open_source

    new = Stream(
        loaded,
        states,
        batch.out,
        choices.query,
        choices.checkpoint,
        choices.compact_after,
        options,
        done=say,
        publish=publisher,
        say=screen.note,
    )
    again = f"Stopped. Nothing is lost: the same command goes on with the query {choices.query}."
    with batch.spark.working(again) as (spark, progress):
        progress.done()
        new.run(
            open_source(spark, choices.source, choices.source_format, choices.max_files, screen.note),
            choices.how_often,
        )
    screen.show(f"The query {choices.query} has handled all that was in {choices.source}.")


def _publisher(publish: PublishTo, states: TablePlace, query: str, screen: Screen) -> PublishEpoch | None:
    """Return what publishes each epoch, if anything does. Raises `UsageError` for what is no target."""
    found = publish.find(query, states)
    if found is None:
        return None
    from runtime.spark.publishing import PublishTo as OnSpark

    tell_of_keys(found)
    to = OnSpark(found.to, found.of_target, found.options)

    def publish_epoch(spark: Session, batch_id: str, place: str) -> None:
        refused = len(to.publish(states, spark, batch_id, place).refused)
        if refused:
            letters = command_on(
                "publish", states, "--batch", batch_id, "--out", place, "--to", "URL", "--letters"
            )
            screen.note(f"{batch_id}: {found.target.name} refused {counted(refused, 'output')}: {letters}")

    return publish_epoch


# `consistent tokens`: tokens for messages that come from outside.


def tokens(
    *,
    app: AppSpec,
    messages: Messages,
    options: Annotated[BatchOptions, only("source", "log_format")],
    states: TablePlace,
    out: str = option("The folder to write the log with tokens to, as Parquet.", metavar="LOG"),
    others: Annotated[AuxiliaryStores, only("token_store", "token_table")],
    limits: MessageLimits,
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    r"""Give each message of a log its token, and write a log whose messages name them.

        consistent tokens --app samples.shooting_range:app \
            --messages log.parquet --out log-with-tokens \
            --store sqlite:///store.db --table games

    With `run --algorithm tokens` a message is processed only while its token exists. Issue once for each message
    from outside, before it is processed: a message whose token is issued again after that is processed again. The same
    log may be given again: its messages get the same tokens, and none is created. A log may hold copies of a message,
    but two logs must not hold the same message. One request for each delivery.
    """
    loaded = load_app(app)
    from runtime.spark.outbox import issue_tokens

    place = others.tokens(states)
    spark.check_scope(states, place)
    log_bytes = check_log(messages, spark.place, options.log_format, options.source)
    with spark.working("Stopped. Nothing was sent: run it again.", log_bytes) as (session, progress):
        issued = issue_tokens(
            session,
            messages,
            loaded,
            place,
            out,
            log_format=options.log_format,
            source=options.source,
            limits=limits,
            step=progress.step,
        )
        progress.done()
        said = [f"Wrote {counted(issued.deliveries, 'delivery')} with tokens to {issued.out}."]
        if issued.was_issued:
            said.insert(
                0, "The tokens of this log were issued before: the log names them again, and none is new."
            )
        if issued.rejected:
            said.append(f"Rows that are no messages: {issued.rejected:,}. {issued.out}.rejected says why.")
        Screen(as_json).put(asdict(issued), *said)
