"""`consistent publish`, and `--publish` of other commands: send outputs to a target."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from rich.console import RenderableType

from eventstore import Table
from runtime.batch_options import TablePlace
from runtime.cli.batch_command import BatchChoices, resumable
from runtime.cli.checks import hint_at, kind, load_module, on_table, require_table
from runtime.cli.console import Parts, Screen, StepProgress, counted, make_table, notes
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError, needing
from runtime.cli.options import AsJson, ScanOptions, only
from runtime.clock import system_clock
from runtime.errors import BatchRefusedError, OutcomesMissingError, TargetError, UsageError
from runtime.ledger.ledger import Ledger
from runtime.options import REQUIRED, flag, option, option_of, resolved
from runtime.publishing.last_hop import unended
from runtime.publishing.publisher import AT_LEAST_ONCE, DeliverySettings, PublishOptions, TargetOptions
from runtime.telemetry import Metrics, has_meters

if TYPE_CHECKING:
    from runtime.cli.batch_command import CarriedOut
    from runtime.publishing.publisher import Record, Target
    from runtime.publishing.runner import PublishResult
    from runtime.spark.session import Session

_RESUMED = "Outputs sent so far stay sent. Run the same command again to resume."
_SHOWN = 10


@dataclass(frozen=True)
class Customers:
    """How often a message may reach a customer, the recipient that the message names: at most or at least once."""

    GROUP: ClassVar = "publish"

    strategy: Literal["at-most-once", "at-least-once"] | None = option(
        "For a MODULE:FUNCTION: at-most-once may lose a message, at-least-once may send it twice. By default "
        "at-least-once for AT_LEAST_ONCE_SENDING_CUSTOMERS, at-most-once for all others."
    )

    def settings(self) -> DeliverySettings:
        """Return the delivery settings in environment variables. If `strategy` is set, it applies to all customers.

        Raises `UsageError` if `strategy` is at-most-once, but a variable names customers for at-least-once.
        """
        settings = DeliverySettings.read(os.environ)
        if self.strategy == "at-least-once":
            return replace(settings, at_least_once=frozenset("*"))
        if self.strategy == "at-most-once" and settings.at_least_once:
            raise UsageError(
                f"--strategy at-most-once applies to all customers, but {AT_LEAST_ONCE} is "
                f"{os.environ[AT_LEAST_ONCE]!r}: remove one of the two. Without --strategy, messages to these "
                f"customers are sent at least once, all others at most once."
            )
        return settings


@dataclass(frozen=True)
class PublishTo:
    """The target to which a batch command publishes, if any, and the options of that target."""

    publish: str | None = option(
        "The target to which the batch, or each epoch, is published at its end, as by `consistent publish --to`: a "
        "URL, or a name in the project file.",
        metavar="URL|NAME",
        group="batch",
        is_rare=False,
    )
    target: Annotated[TargetOptions, only("names", "headers", "customer", "keys", "rate")] = field(
        default_factory=TargetOptions
    )
    customers: Customers = field(default_factory=Customers)

    def find(self, batch_id: str, states: TablePlace) -> Publishing | None:
        """Open the target. Without --publish, returns None, or raises `UsageError` if an option of targets is given."""
        of = self.target
        if self.publish is not None:
            return find_target(self.publish, batch_id, states, of_target=of, customers=self.customers)
        names = ("map", "header", "customer", "keys", "rate", "strategy")
        values = (of.names, of.headers, of.customer, of.keys, of.rate, self.customers.strategy)
        for name, value in zip(names, values, strict=True):
            if value:
                raise UsageError(f"--{name} needs --publish URL.")
        return None

    def announced(self, batch: BatchChoices, screen: Screen) -> tuple[BatchChoices, Publishing | None]:
        """Print how to resume the batch. Return the batch with its id, and the target, or None without --publish.

        Raises `UsageError` for an invalid target before anything is printed.
        """
        self.find("", batch.states)
        batch = batch.announced(screen)
        return batch, self.find(batch.batch_id or "", batch.states)


@dataclass(frozen=True)
class Publishing:
    """A target for the outputs of one batch, already opened."""

    to: str = field(repr=False)  # the URL, which may contain a secret
    batch_id: str
    states: TablePlace
    of_target: TargetOptions
    options: PublishOptions
    target: Target


def find_target(
    to: str,
    batch_id: str,
    states: TablePlace,
    *,
    of_target: TargetOptions,
    customers: Customers,
    options: PublishOptions = PublishOptions(),
) -> Publishing:
    """Open the target of a batch.

    Raises `UsageError` if the target is invalid or is the store of `states`, and `MissingExtraError` if a package is
    missing.
    """
    with needing("Publishing needs"):
        import runtime.publishing.runner  # noqa: F401 - fails early if missing
        from runtime.publishing.targets.choice import is_function, open_target
    to = resolved(to)
    headers = {name: resolved(value) for name, value in of_target.headers.items()}
    how: Any = {"concurrency": options.concurrency, "attempts": options.attempts}
    of_target = replace(of_target, batch_id=batch_id, headers=headers, **how)
    if is_function(to):
        keys = of_target.keys
        of_target = replace(
            of_target,
            send=load_sender(to),
            settings=customers.settings(),
            keys=resolved(keys) if keys else states.store,
            keys_table="deliveries" if keys else states.table,
        )
    target = open_target(to, of_target)
    ours, theirs = (Path(url.removeprefix("sqlite:///")) for url in (states.store, target.name))
    if theirs.exists() and ours.exists() and ours.samefile(theirs):
        raise UsageError("The target is the store itself: publish to another file.")
    return Publishing(to, batch_id, states, of_target, options, target)


def load_sender(spec: str) -> Callable[..., object]:
    """Import the function or callable object named by `module:function`.

    Raises the errors of `load_module`, and `UsageError` if the object is missing or does not take one argument.
    """
    module, name = load_module(spec, "A sender is named MODULE:FUNCTION, such as post:send")
    if not hasattr(module, name):
        of = module.__name__
        names = ", ".join(each for each, value in vars(module).items() if inspect.isfunction(value))
        known = f" Its functions: {names}." if names else ""
        raise UsageError(f"The module {of} has no function {name}.{known}{hint_at(of)}")
    sender: Callable[..., object] = getattr(module, name)
    shape = f"write `def {name}(message): ...` or `async def {name}(message): ...`"
    if isinstance(sender, type) or not callable(sender):
        raise UsageError(f"{spec} is not a function but {kind(sender)}: {shape}.")
    try:
        inspect.signature(sender).bind(object())
    except TypeError as error:
        raise UsageError(f"The sender {spec} must take one message ({error}): {shape}.") from error
    return sender


@contextmanager
def _sending(publishing: Publishing, doing: str, progress: StepProgress) -> Iterator[None]:
    """Context manager that shows `doing`, the batch and the target as the current step.

    If a `TargetError` is raised, adds instructions for resuming to its message.
    """
    tell_of_keys(publishing)
    target = publishing.target
    progress.step(f"{doing} batch {publishing.batch_id} to {target.name}, {target.promise}")
    try:
        yield
    except TargetError as error:
        raise TargetError(f"{error} {_RESUMED}") from error


def _work_here(
    publishing: Publishing, doing: str, out: str | None, work: Callable[..., Awaitable[PublishResult]]
) -> PublishResult:
    async def done(table: Table) -> PublishResult:
        record = await Ledger(table, system_clock).get(publishing.batch_id)
        folder, show = out or record.out, progress.show_outputs
        return await work(table, record, folder, publishing.target, publishing.options, show=show)

    with StepProgress(notes()) as progress, _sending(publishing, doing, progress):
        return on_table(publishing.states, done)


def publish_on(to: Publishing, spark: Session, out: str | None, progress: StepProgress) -> PublishResult:
    """Publish the unsent outputs of a batch as Spark tasks. Raises `TargetError` if some were not sent."""
    from runtime.spark.publishing import publish

    how: Any = {**asdict(to.states), "target": to.of_target, "options": to.options}
    with _sending(to, "Publishing", progress):
        return publish(spark, to.batch_id, to.to, out=out, **how)


def publish_done(target: Publishing | None, done: CarriedOut, screen: Screen) -> bool:
    """Publish a finished batch, if there is a target. Return whether the target rejected outputs."""
    if target is None:
        return False
    with resumable(target.batch_id, target.states):
        published = publish_on(target, done.spark, None, done.progress)
    done.metrics.add("published_outputs", published.outputs)
    done.progress.done()
    screen.show("", *published_parts(target.batch_id, published))
    return bool(published.refused)


def tell_of_keys(publishing: Publishing) -> None:
    """Warn if Redis stores the keys of sent messages and may lose them. Raises `UsageError` if it does not answer."""
    from runtime.publishing.last_hop import weaknesses

    for remark in asyncio.run(weaknesses(publishing.of_target.keys, publishing.of_target.keys_table)):
        notes().print(remark, soft_wrap=True)


def published_parts(batch_id: str, found: PublishResult) -> Parts:
    """Yield the report of a complete publication: counts, and rejected outputs."""
    total = counted(found.publication.slices, "slice")
    yield (
        f"Batch {batch_id} is published to {found.publication.target}: {total}, of which {found.slices:,} were sent "
        f"now, with {counted(found.outputs, 'output')}."
    )
    if found.skipped:
        by = [f"{count:,} by {batch_id}" for batch_id, count in Counter(found.skipped).most_common(_SHOWN)]
        more = ["others"] * (len(found.skipped) > _SHOWN)
        skipped = counted(sum(found.skipped.values()), "output")
        yield f"Skipped: {skipped} of duplicates, published before: {', '.join(by + more)}."
    if found.records and len(found.records) > len(found.refused):
        results = _results(found.records).items()
        said = ", ".join(f"{count:,} {result.replace('_', ' ')}" for result, count in results)
        yield f"Total: {said}."
    if found.refused:
        yield ""
        yield _table(found.refused[:_SHOWN], len(found.refused))
        yield "Use --letters to list all of them, and --redrive to send them again. Until then the exit code is 3."


def _redriven_parts(batch_id: str, result: PublishResult, keys: Sequence[tuple[str, str]]) -> Parts:
    """Yield the report of `--letters`, or of `--redrive` with the number of outputs sent again. Both list dead letters.

    `keys`: customer and message id of each send in doubt, which is in progress or crashed.
    """
    of_batch = f"of batch {batch_id} at {result.publication.target}"
    if result.outputs:
        yield f"Sent again {of_batch}: {counted(result.outputs, 'output')}."
    if result.refused:
        yield _table(result.refused, len(result.refused))
    else:
        yield f"There are no dead letters {of_batch}."
    if keys:
        title = f"In doubt, because sending is in progress or crashed: {counted(len(keys), 'key')}"
        yield make_table(title, ("customer", "output"), keys)


def _results(records: Collection[Record]) -> dict[str, int]:
    return dict(sorted(Counter(each.result.value for each in records).items()))


def _table(refused: Sequence[Record], of: int) -> RenderableType:
    rows = [(each.message_id, each.type, each.business_id, each.why) for each in refused]
    return make_table(f"Not sent: {counted(of, 'output')}", ("output", "type", "business id", "why"), rows)


@dataclass(frozen=True)
class _Asked:
    """A request to publish outputs or, with `letters` or `redrive`, to list or redrive dead letters."""

    out: str | None
    letters: bool
    redrive: bool
    screen: Screen
    metrics: Metrics

    def batches(self, to: Publishing) -> list[str]:
        """Return the ids of batches with outputs to publish or, with `letters` or `redrive`, with rejected outputs."""
        from runtime.publishing.runner import find_unpublished

        how, corrections = (to.target, to.options.types, self.out), to.options.corrections
        found = on_table(to.states, lambda table: find_unpublished(table, *how, corrections=corrections))
        is_of_letters = self.letters or self.redrive
        batch_ids = [record.batch_id for record, is_refused in found if is_refused or not is_of_letters]
        if not batch_ids:
            state = "rejected" if is_of_letters else "lacks"
            self.screen.show(f"There are no outputs that {to.target.name} {state}.")
        return batch_ids

    def work(self, to: Publishing, on_spark: tuple[Session, StepProgress] | None) -> dict[str, Any]:
        """Publish a batch, or list or redrive its dead letters. Show the result, and return its JSON form.

        `on_spark`: the session and progress if workers publish, None to publish in this process.
        """
        from runtime.publishing import runner

        keys: Sequence[tuple[str, str]] = []
        if self.letters:

            async def listing(opened: Table) -> PublishResult:
                record = await Ledger(opened, system_clock).get(to.batch_id)
                return await runner.letters(opened, record, to.target, to.options.types)

            of = to.of_target
            keys = asyncio.run(unended(of.keys, of.keys_table)) if of.send else []
            result = on_table(to.states, listing)
        elif self.redrive:
            result = _work_here(to, "Redriving the rejected outputs of", self.out, runner.redrive)
        elif on_spark is not None:
            result = publish_on(to, on_spark[0], self.out, on_spark[1])
            on_spark[1].done()
        else:
            result = _work_here(to, "Publishing", self.out, runner.publish)
        self.metrics.add("published_outputs", result.outputs)
        if self.letters or self.redrive:
            more: dict[str, Any] = {"keys_without_end": [list(each) for each in keys]}
            self.screen.show(*_redriven_parts(to.batch_id, result, keys))
        else:
            more = {"slices": result.publication.slices, "slices_sent": result.slices}
            self.screen.show(*published_parts(to.batch_id, result))
        return {
            "batch_id": to.batch_id,
            "target": result.publication.target,
            "publication": result.publication.key,
            "outputs_sent": result.outputs,
            "outputs_skipped": dict(result.skipped),
            "results": _results(result.records),
            "refused": [each._asdict() for each in result.refused],
            **more,
        }

    def work_through(
        self, found: Sequence[Publishing], scan: ScanOptions, *, is_one: bool
    ) -> tuple[list[dict[str, Any]], int]:
        """Call `work` for each batch. Return the results, and the number of skipped batches.

        A batch is skipped if its outcomes are missing, or if it must not be published. If `is_one` is set, the
        error is raised instead.
        """
        documents, missing = [], 0
        with scan.working(f"Stopped. {_RESUMED}") if scan.place and found else nullcontext() as on_spark:
            for each in found:
                try:
                    documents.append(self.work(each, on_spark))
                except (OutcomesMissingError, BatchRefusedError) as error:
                    if is_one:
                        raise
                    self.screen.note(f"Batch {each.batch_id} is skipped: {error}")
                    missing += 1
        return documents, missing


def publish(
    *,
    states: TablePlace,
    batch: str | None = option(
        "The batch, which must have ended. By default all batches with unpublished outputs, in order.",
        metavar="ID",
    ),
    out: str | None = option("The folder of the outcomes, if they were moved.", metavar="DIR"),
    to: str = option(
        "The target, by its name in the project file, or sqlite:///FILE, postgresql://..., http://..., https://..., "
        "kafka://HOST:PORT, MODULE:FUNCTION, or env:NAME for one of these or a Service Bus connection string in an "
        "environment variable.",
        default=REQUIRED,
        envvar="CONSISTENT_TARGET",
        metavar="URL|NAME",
        group="publish",
    ),
    target: TargetOptions,
    customers: Customers,
    options: PublishOptions,
    scan: ScanOptions,
    letters: bool = flag(
        "Only list permanently rejected outputs, and messages of a MODULE:FUNCTION in doubt."
    ),
    redrive: bool = flag("Only resend permanently rejected outputs, after fixing the cause."),
    metrics_file: Path | None = option_of(BatchChoices, "metrics_file", group="publish"),
    as_json: AsJson = False,
) -> None:
    r"""Send the outputs of batches to a target, with the strongest guarantee the target supports.

        consistent publish --batch ID --to sqlite:///published.db \
            --map Hit=hits --store sqlite:///store.db --table games

    SQL and Kafka: exactly once, as one transaction for each slice of the outputs. HTTP: once, if the receiver honours
    the Idempotency-Key, which is the output's id. MODULE:FUNCTION: at most or at least once, with a key for each
    customer and message. Outputs of a business object are sent in order.

    Without --batch it publishes all outputs that the target lacks, batch by batch. An interrupted command resumes when
    it is run again; several running at once share the work. An output that the target rejects permanently becomes a
    dead letter and does not affect the others: --letters lists dead letters, --redrive sends them again. Reads the
    outcomes once. With --master or --remote, the workers of Spark read and send.
    """
    screen = Screen(as_json)
    if letters + redrive + bool(scan.place) > 1:
        raise UsageError("--letters, --redrive and publishing on Spark exclude each other: use one of them.")
    if batch is None:
        options = replace(options, any_types=True)
    find = partial(find_target, to, states=states, of_target=target, customers=customers, options=options)
    first = find(batch or "")
    require_table(states)
    with Metrics(is_on=metrics_file is not None or has_meters(), file=metrics_file) as metrics:
        asked = _Asked(out, letters, redrive, screen, metrics)
        found = [first] if batch is not None else [find(each) for each in asked.batches(first)]
        documents, missing = asked.work_through(found, scan, is_one=batch is not None)
    screen.put(documents[0] if batch is not None else {"batches": documents})
    if missing:
        raise NotPossibleError(
            f"The outcomes of {counted(missing, 'batch')} are missing (use --out) or merged. All others are published."
        )
    if not letters and any(each["refused"] for each in documents):
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)
