"""`consistent run`: a batch over a message log."""

from __future__ import annotations

from typing import Annotated

import typer

from eventstore import connect
from runtime.batches.dead_letter_limit import DeadLetterLimit
from runtime.cli.apps import load_app
from runtime.cli.batch_command import AlgorithmOption, BatchChoices, BatchCommand, CarriedOut, Guard
from runtime.cli.beginning import check_batch
from runtime.cli.console import Screen
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError
from runtime.cli.invocation import about_letters, resumable
from runtime.cli.option_groups import LogOptions
from runtime.cli.options import (
    AlgorithmChoice,
    AppSpec,
    AsJson,
    Draws,
    KeepLarge,
    Late,
    OnDifference,
    OnError,
)
from runtime.cli.places import check_folder, check_out
from runtime.cli.publishing import Publishing, find_target, publish_on
from runtime.cli.publishing_options import PublishChoices
from runtime.cli.reports.batch import BatchReport
from runtime.cli.reports.publishing import PublishingReport
from runtime.cli.reports.tables import counted
from runtime.errors import UsageError

LateOption = Annotated[
    Late,
    typer.Option(
        "--late",
        help="What to do with an unknown message that is not newer than its stream's horizon: it may be a "
        "duplicate of a version that was cut, and `process` may handle it twice.",
    ),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="After a dead letter, go on with its stream, or hold back what is new in it: within the round "
        "(`stop-stream`), or in all batches until it is redriven or discarded (`park`).",
    ),
]
OnDifferenceOption = Annotated[
    OnDifference,
    typer.Option(
        "--on-difference",
        help="When the replay of a duplicate differs from what was recorded: make it a dead letter, or fail the batch.",
    ),
]
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
Types = Annotated[
    str | None,
    typer.Option(
        "--types",
        metavar="TYPE,...",
        show_default=False,
        help="The message types that the log may hold, where its senders may send no others: messages of other types "
        "are dead letters, type_not_allowed.",
    ),
]
DrawsOption = Annotated[
    Draws | None,
    typer.Option(
        "--draws",
        show_default=False,
        help="For a new table: `keyed` gives it a secret, so that no sender can foresee guids, ids of outputs and "
        "random numbers; plain by default. A table stays as it is.",
    ),
]
MustExist = Annotated[
    bool, typer.Option("--must-exist", help="Refuse a table that is not there yet, instead of making it.")
]


def run(
    *,
    app: AppSpec,
    log: LogOptions,
    batch: BatchChoices,
    must_exist: MustExist = False,
    late: LateOption = Late.REFUSE,
    on_error: OnErrorOption = OnError.CONTINUE,
    on_difference: OnDifferenceOption = OnDifference.DEAD_LETTER,
    max_dead_letters: MaxDeadLetters = None,
    strict: Strict = False,
    guard: Guard = False,
    keep_large: KeepLarge = None,
    types: Types = None,
    draws: DrawsOption = None,
    algorithm: AlgorithmOption = AlgorithmChoice.STATE_BASED,
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
        algorithm.value,
        late=late.value,
        on_error=on_error.value,
        on_difference=on_difference.value,
        guard=guard,
        keep_large=keep_large,
        types=split_types(types),
        draws=None if draws is None else draws.value,
        max_dead_letters=_held_back_by(max_dead_letters, strict=strict),
        **log.named(),
    )
    options.types_of(loaded)
    log_bytes = log.check(batch.spark.place)
    check_out(batch.out, batch.spark.place)
    if keep_large is not None:
        check_folder(keep_large, batch.spark.place, "What is too large", "--keep-large")
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


def split_types(types: str | None) -> list[str] | None:
    """Return the message types that were named, None when none were."""
    return None if types is None else [each.strip() for each in types.split(",")]


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
