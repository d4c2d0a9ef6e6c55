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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import typer
from rich.console import RenderableType

from eventstore import Table
from runtime.batch_options import TablePlace
from runtime.cli.batch_command import BatchChoices, resumable
from runtime.cli.checks import hint_at, kind, load_module, on_table, require_table
from runtime.cli.console import Screen, StepProgress, counted, make_table, notes
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError, needing
from runtime.cli.options import AsJson, ScanOptions, only
from runtime.clock import system_clock
from runtime.errors import BatchRefusedError, OutcomesMissingError, TargetError, UsageError
from runtime.ledger.ledger import Ledger
from runtime.options import REQUIRED, flag, option, option_of, resolved
from runtime.publishing.last_hop import AT_LEAST_ONCE, DeliverySettings, unended
from runtime.publishing.publisher import PublishOptions, TargetOptions
from runtime.telemetry import Metrics, has_meters

if TYPE_CHECKING:
    from runtime.cli.batch_command import CarriedOut
    from runtime.publishing.publisher import Record, Target
    from runtime.publishing.runner import PublishResult
    from runtime.spark.session import Session

T = TypeVar("T")

TARGET_VARIABLE = "CONSISTENT_TARGET"
_RESUMED = "Outputs sent so far stay sent. Run the same command again to resume."
_SHOWN = 10


@dataclass(frozen=True)
class Customers:
    """The delivery guarantee for customers."""

    GROUP: ClassVar = "publish"

    strategy: Literal["at-most-once", "at-least-once"] | None = option(
        "For a MODULE:FUNCTION: at-most-once may lose a message, at-least-once may send it twice. By default "
        "at-least-once for AT_LEAST_ONCE_SENDING_CUSTOMERS, at-most-once for all others."
    )

    def settings(self) -> DeliverySettings:
        """Return the environment's settings, with `strategy` for all customers. Raises `UsageError` on a conflict."""
        settings = DeliverySettings.read(os.environ)
        if self.strategy == "at-least-once":
            return replace(settings, at_least_once=frozenset("*"))
        if self.strategy == "at-most-once" and settings.at_least_once:
            raise UsageError(
                f"--strategy at-most-once applies to all customers, but {AT_LEAST_ONCE} is "
                f"{os.environ[AT_LEAST_ONCE]!r}: remove one of them. Without --strategy, messages to those "
                f"customers are sent at least once, all others at most once."
            )
        return settings


@dataclass(frozen=True)
class PublishTo:
    """The target of a batch command, if any, and how to publish to it."""

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
        """Return the target, if any. Raises `UsageError` for an invalid target, or target options without a target."""
        if self.publish is not None:
            return find_target(
                self.publish, batch_id, states, of_target=self.target, customers=self.customers
            )
        of = self.target
        for option_, value in (
            ("--map", of.names),
            ("--header", of.headers),
            ("--customer", of.customer),
            ("--keys", of.keys),
            ("--rate", of.rate),
            ("--strategy", self.customers.strategy),
        ):
            if value:
                raise UsageError(f"{option_} needs --publish URL.")
        return None

    def announced(self, batch: BatchChoices, screen: Screen) -> tuple[BatchChoices, Publishing | None]:
        """Announce a batch, and return it with its target. First raises `UsageError` if the target is invalid."""
        self.find("", batch.states)
        batch = batch.announced(screen)
        return batch, self.find(batch.batch_id or "", batch.states)


@dataclass(frozen=True)
class Publishing:
    """A target, opened before the batch starts."""

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
    options: PublishOptions | None = None,
) -> Publishing:
    """Open the target of a URL. Raises `UsageError` and `MissingExtraError`."""
    with needing("Publishing needs"):
        import runtime.publishing.runner  # noqa: F401 - fails early if missing
        from runtime.publishing.targets.choice import is_function, open_target
    to, options = resolved(to), options or PublishOptions()
    of_target = replace(
        of_target,
        batch_id=batch_id,
        concurrency=options.concurrency,
        attempts=options.attempts,
        headers={name: resolved(value) for name, value in of_target.headers.items()},
    )
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
        names = ", ".join(each for each, value in vars(module).items() if inspect.isfunction(value))
        known = f" Its functions: {names}." if names else ""
        raise UsageError(
            f"The module {module.__name__} has no function {name}.{known}{hint_at(module.__name__)}"
        )
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
    """Show the progress of a batch. Append to a `TargetError` how to resume."""
    tell_of_keys(publishing)
    target = publishing.target
    progress.step(f"{doing} batch {publishing.batch_id} to {target.name}, {target.promise}")
    try:
        yield
    except TargetError as error:
        raise TargetError(f"{error} {_RESUMED}") from error


def _work_here(publishing: Publishing, doing: str, out: str | None, work: Callable[..., Awaitable[T]]) -> T:
    async def done(table: Table) -> T:
        record = await Ledger(table, system_clock).get(publishing.batch_id)
        folder, show = out or record.out, progress.show_outputs
        return await work(table, record, folder, publishing.target, publishing.options, show=show)

    with StepProgress(notes()) as progress, _sending(publishing, doing, progress):
        return on_table(publishing.states, done)


def publish_on(
    publishing: Publishing, spark: Session, out: str | None, progress: StepProgress
) -> PublishResult:
    """Publish unpublished outputs as Spark tasks. Raises `TargetError` if some outputs were not sent."""
    from runtime.spark.publishing import publish

    place = asdict(publishing.states)
    target, options = publishing.of_target, publishing.options
    with _sending(publishing, "Publishing", progress):
        return publish(
            spark, publishing.batch_id, publishing.to, **place, out=out, target=target, options=options
        )


def publish_done(target: Publishing | None, done: CarriedOut, screen: Screen) -> bool:
    """Publish a finished batch, if it has a target. Return whether the target rejected outputs."""
    if target is None:
        return False
    with resumable(target.batch_id, target.states):
        published = publish_on(target, done.spark, None, done.progress)
    done.metrics.add("published_outputs", published.outputs)
    done.progress.done()
    screen.show("", *published_parts(target.batch_id, published))
    return bool(published.refused)


def tell_of_keys(publishing: Publishing) -> None:
    """Warn if Redis might lose the delivery keys. Raises `UsageError` if Redis does not answer."""
    from runtime.publishing.last_hop import weaknesses

    for remark in asyncio.run(weaknesses(publishing.of_target.keys, publishing.of_target.keys_table)):
        notes().print(remark, soft_wrap=True)


def published_parts(batch_id: str, found: PublishResult) -> Iterator[RenderableType]:
    """Yield the result of a complete publication: counts, and rejected outputs."""
    total = counted(found.publication.slices, "slice")
    yield (
        f"Batch {batch_id} is published to {found.publication.target}: {total}, of which {found.slices:,} were sent "
        f"now, with {counted(found.outputs, 'output')}."
    )
    if found.skipped:
        by = [f"{count:,} by {batch_id}" for batch_id, count in Counter(found.skipped).most_common(_SHOWN)]
        more = ["others"] * (len(found.skipped) > _SHOWN)
        total = counted(sum(found.skipped.values()), "output")
        yield f"Skipped: {total} of duplicates, published before: {', '.join(by + more)}."
    if found.records and len(found.records) > len(found.refused):
        results = _results(found.records).items()
        said = ", ".join(f"{count:,} {result.replace('_', ' ')}" for result, count in results)
        yield f"Total: {said}."
    if found.refused:
        yield ""
        yield _table(found.refused[:_SHOWN], len(found.refused))
        yield "Use --letters to list all of them, and --redrive to send them again. Until then the exit code is 3."


def _redriven_parts(
    batch_id: str, result: PublishResult, unended_keys: Sequence[tuple[str, str]]
) -> Iterator[RenderableType]:
    """Yield the dead letters of a publication, and the number of redriven outputs.

    `unended_keys`: the customer and message id of each send that crashed or is in progress.
    """
    of_batch = f"of batch {batch_id} at {result.publication.target}"
    if result.outputs:
        yield f"Sent again {of_batch}: {counted(result.outputs, 'output')}."
    if result.refused:
        yield _table(result.refused, len(result.refused))
    else:
        yield f"There are no dead letters {of_batch}."
    if unended_keys:
        title = f"In doubt, because sending is in progress or crashed: {counted(len(unended_keys), 'key')}"
        yield make_table(title, ("customer", "output"), unended_keys)


def _document(batch_id: str, result: PublishResult) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "target": result.publication.target,
        "publication": result.publication.key,
        "outputs_sent": result.outputs,
        "outputs_skipped": dict(result.skipped),
        "results": _results(result.records),
        "refused": [each._asdict() for each in result.refused],
    }


def _results(records: Collection[Record]) -> dict[str, int]:
    return dict(sorted(Counter(each.result.value for each in records).items()))


def _table(refused: Sequence[Record], of: int) -> RenderableType:
    rows = [(each.message_id, each.type, each.business_id, each.why) for each in refused]
    return make_table(f"Not sent: {counted(of, 'output')}", ("output", "type", "business id", "why"), rows)


@dataclass(frozen=True)
class _Asked:
    out: str | None
    letters: bool
    redrive: bool
    screen: Screen
    metrics: Metrics

    def batches(self, target: Publishing) -> list[str]:
        """Return the batches with unpublished or rejected outputs."""
        from runtime.publishing.runner import find_unpublished

        found = on_table(
            target.states,
            lambda table: find_unpublished(
                table,
                target.target,
                target.options.types,
                self.out,
                corrections=target.options.corrections,
            ),
        )
        is_of_letters = self.letters or self.redrive
        batch_ids = [record.batch_id for record, is_refused in found if is_refused or not is_of_letters]
        if not batch_ids:
            state = "rejected" if is_of_letters else "lacks"
            self.screen.show(f"There are no outputs that {target.target.name} {state}.")
        return batch_ids

    def work(
        self, publishing: Publishing, on_spark: tuple[Session, StepProgress] | None
    ) -> tuple[PublishResult, dict[str, Any]]:
        """Publish, list or redrive a batch, show and return the result, with more entries for the JSON document."""
        from runtime.publishing import runner

        batch_id, of_target = publishing.batch_id, publishing.of_target
        left: Sequence[tuple[str, str]] = []
        if self.letters:

            async def listing(opened: Table) -> PublishResult:
                record = await Ledger(opened, system_clock).get(batch_id)
                return await runner.letters(opened, record, publishing.target, publishing.options.types)

            left = asyncio.run(unended(of_target.keys, of_target.keys_table)) if of_target.send else []
            published = on_table(publishing.states, listing)
        elif self.redrive:
            doing = "Redriving the rejected outputs of"
            published = _work_here(publishing, doing, self.out, runner.redrive)
        else:
            if on_spark is not None:
                spark, progress = on_spark
                published = publish_on(publishing, spark, self.out, progress)
                progress.done()
            else:
                published = _work_here(publishing, "Publishing", self.out, runner.publish)
            self.screen.show(*published_parts(batch_id, published))
            return published, {"slices": published.publication.slices, "slices_sent": published.slices}
        self.screen.show(*_redriven_parts(batch_id, published, left))
        return published, {"keys_without_end": [list(each) for each in left]}


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
        "kafka://HOST:PORT, "
        "MODULE:FUNCTION, or env:NAME for one of these or a Service Bus connection string in an environment "
        "variable.",
        default=REQUIRED,
        envvar=TARGET_VARIABLE,
        metavar="URL|NAME",
        group="publish",
    ),
    target: TargetOptions,
    customers: Customers,
    options: PublishOptions,
    scan: ScanOptions,
    letters: bool = flag(
        "Only list outputs that the target rejected permanently, and messages of a MODULE:FUNCTION in doubt."
    ),
    redrive: bool = flag(
        "Only send outputs again that the target rejected permanently, after fixing the cause."
    ),
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
    it is run again; several at once share the work. An output that the target rejects permanently becomes a dead letter
    and does not affect the others: --letters lists these, --redrive sends them again. Reads the outcomes once. With
    --master or --remote, the workers of Spark read and send.
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
        documents, missing, is_refused = _each(asked, found, scan, is_one=batch is not None)
    screen.put(documents[0] if batch is not None else {"batches": documents})
    if missing:
        raise NotPossibleError(
            f"The outcomes of {counted(missing, 'batch')} are missing (use --out) or merged. All others are published."
        )
    if is_refused and not letters:
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


def _each(
    asked: _Asked, found: Sequence[Publishing], scan: ScanOptions, *, is_one: bool
) -> tuple[list[dict[str, Any]], int, bool]:
    documents, missing, is_refused = [], 0, False
    with scan.working(f"Stopped. {_RESUMED}") if scan.place and found else nullcontext() as on_spark:
        for each in found:
            try:
                published, more = asked.work(each, on_spark)
            except (OutcomesMissingError, BatchRefusedError) as error:
                if is_one:
                    raise
                asked.screen.note(f"Batch {each.batch_id} is skipped: {error}")
                missing += 1
                continue
            asked.metrics.add("published_outputs", published.outputs)
            documents.append({**_document(each.batch_id, published), **more})
            is_refused = is_refused or bool(published.refused)
    return documents, missing, is_refused
