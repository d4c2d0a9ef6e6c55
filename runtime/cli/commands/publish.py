"""`consistent publish`, and `--publish` of `run` and `stream`: send the outputs of a batch to a target outside."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import typer
from rich.console import RenderableType

from eventstore import Table
from runtime.batch_options import TablePlace
from runtime.cli.batch_command import resumable
from runtime.cli.checks import hint_at, kind, load_module, on_table, require_table
from runtime.cli.console import Screen, StepProgress, counted, make_table, notes
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError, needing
from runtime.cli.options import AsJson, ScanOptions, only
from runtime.clock import system_clock
from runtime.errors import BatchRefusedError, OutcomesMissingError, TargetError, UsageError
from runtime.ledger.ledger import Ledger
from runtime.options import option, resolved
from runtime.publishing.last_hop import AT_LEAST_ONCE, DeliverySettings, unended
from runtime.publishing.publisher import PublishOptions, TargetOptions

if TYPE_CHECKING:
    from runtime.cli.batch_command import CarriedOut
    from runtime.publishing.publisher import Record, Target
    from runtime.publishing.runner import PublishResult
    from runtime.spark.session import Session

T = TypeVar("T")

TARGET_VARIABLE = "CONSISTENT_TARGET"
_RESUMED = "What was sent stays sent, and the same command goes on with the rest."
_SHOWN = 10


@dataclass(frozen=True)
class Customers:
    """What is promised to customers."""

    GROUP: ClassVar = "publish"

    strategy: Literal["at-most-once", "at-least-once"] | None = option(
        "For a MODULE:FUNCTION: at-most-once rather loses a message than sends it twice, at-least-once rather sends it "
        "twice; without it at-least-once for AT_LEAST_ONCE_SENDING_CUSTOMERS, at-most-once for all others.",
        default=None,
    )

    def settings(self) -> DeliverySettings:
        """Return the settings in environment variables, with the strategy for all customers if one is given.

        Raises `UsageError` when the two contradict each other.
        """
        settings = DeliverySettings.read(os.environ)
        if self.strategy == "at-least-once":
            return replace(settings, at_least_once=frozenset("*"))
        if self.strategy == "at-most-once" and settings.at_least_once:
            raise UsageError(
                f"--strategy at-most-once is for all customers, but {AT_LEAST_ONCE} is {os.environ[AT_LEAST_ONCE]!r}: "
                f"leave out one of them. Without --strategy those customers are sent to at least once, all others at "
                f"most once."
            )
        return settings


@dataclass(frozen=True)
class PublishTo:
    """To which target a command that is a batch publishes, if it does, and what must be said of how."""

    publish: str | None = option(
        "Publish the outputs of the batch, or of each epoch, to this target once it has ended, as `consistent publish "
        "--to URL` does; by its url, or its name in the project file.",
        default=None,
        metavar="URL|NAME",
        group="batch",
        is_rare=False,
    )
    target: Annotated[TargetOptions, only("names", "headers", "customer", "keys", "rate")] = field(
        default_factory=TargetOptions
    )
    customers: Customers = field(default_factory=Customers)

    def find(self, batch_id: str, states: TablePlace) -> Publishing | None:
        """Return the target, None for none. Raises `UsageError` for what is no target, or no use without one."""
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
                raise UsageError(f"{option_} says how outputs are published: add --publish URL.")
        return None


@dataclass(frozen=True)
class Publishing:
    """A target that was found before any work on the batch that is published to it."""

    to: str = field(repr=False)
    """Its url, which may hold a secret."""
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
    """Find the target of a url. Raises `UsageError` and `MissingExtraError`."""
    with needing("Publishing needs"):
        import runtime.publishing.runner  # noqa: F401 - that is what sends
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
        raise UsageError("The target is the store itself: publish to a file of its own.")
    return Publishing(to, batch_id, states, of_target, options, target)


def load_sender(spec: str) -> Callable[..., object]:
    """Import the module of `module:function` and return the function, or the object that is called like one.

    Raises what `load_module` does, and `UsageError` when there is no such function, and when it does not take one
    argument.
    """
    module, name = load_module(spec, "A sender is named MODULE:FUNCTION, like post:send")
    if not hasattr(module, name):
        names = ", ".join(each for each, value in vars(module).items() if inspect.isfunction(value))
        known = f" Its functions: {names}." if names else ""
        raise UsageError(
            f"The module {module.__name__} has no function {name}.{known}{hint_at(module.__name__)}"
        )
    sender: Callable[..., object] = getattr(module, name)
    shape = f"write `def {name}(message): ...` or `async def {name}(message): ...`"
    if isinstance(sender, type) or not callable(sender):
        raise UsageError(f"{spec} is no function but {kind(sender)}: {shape}.")
    try:
        inspect.signature(sender).bind(object())
    except TypeError as error:
        raise UsageError(f"The sender {spec} is called with one message ({error}): {shape}.") from error
    return sender


def work_here(publishing: Publishing, doing: str, out: str | None, work: Callable[..., Awaitable[T]]) -> T:
    """Publish or redrive in this process, with progress. Raises `TargetError` when not all could be sent."""
    tell_of_keys(publishing)

    async def done(table: Table) -> T:
        record = await Ledger(table, system_clock).get(publishing.batch_id)
        folder, show = out or record.out, progress.show_outputs
        return await work(table, record, folder, publishing.target, publishing.options, show=show)

    with StepProgress(notes()) as progress, _resumable():
        progress.step(f"{doing} {publishing.target.name}, {publishing.target.promise}")
        return on_table(publishing.states, done)


def publish_on(
    publishing: Publishing, spark: Session, out: str | None, progress: StepProgress
) -> PublishResult:
    """Publish what is unpublished, as tasks of Spark. Raises `TargetError` when not all could be sent."""
    from runtime.spark.publishing import publish

    tell_of_keys(publishing)
    progress.step(
        f"Publishing batch {publishing.batch_id} to {publishing.target.name}, {publishing.target.promise}"
    )
    with _resumable():
        return publish(
            spark,
            publishing.batch_id,
            publishing.to,
            store=publishing.states.store,
            table=publishing.states.table,
            out=out,
            target=publishing.of_target,
            options=publishing.options,
        )


def publish_done(target: Publishing | None, done: CarriedOut, screen: Screen) -> bool:
    """Publish a batch that was carried out, if it has a target; return whether that has refused outputs."""
    if target is None:
        return False
    with resumable(target.batch_id, target.states):
        published = publish_on(target, done.spark, None, done.progress)
    done.progress.done()
    screen.show("", *published_parts(target.batch_id, published))
    return bool(published.refused)


def tell_of_keys(publishing: Publishing) -> None:
    """Say what a Redis may forget that keeps the keys. Raises `UsageError` when it does not answer."""
    from runtime.publishing.last_hop import weaknesses

    for remark in asyncio.run(weaknesses(publishing.of_target.keys, publishing.of_target.keys_table)):
        notes().print(remark, soft_wrap=True)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except TargetError as error:
        raise TargetError(f"{error} {_RESUMED}") from error


def published_parts(batch_id: str, found: PublishResult) -> Iterator[RenderableType]:
    """Yield what was sent of a batch of which all slices are, and what the target has refused."""
    total = counted(found.publication.slices, "slice")
    yield (
        f"Batch {batch_id} is published to {found.publication.target}: {total}, of which {found.slices:,} were sent "
        f"now, with {counted(found.outputs, 'output')}."
    )
    if found.records and len(found.records) > len(found.refused):
        results = _results(found.records).items()
        said = ", ".join(f"{count:,} {result.replace('_', ' ')}" for result, count in results)
        yield f"Recorded in all: {said}."
    if found.refused:
        yield ""
        yield _table(found.refused[:_SHOWN], len(found.refused))
        yield "The same command with --letters lists all of them, and with --redrive sends them again."
        yield "Until then the exit code is 3."


def _redriven_parts(
    batch_id: str, result: PublishResult, unended_keys: Sequence[tuple[str, str]] = ()
) -> Iterator[RenderableType]:
    """Yield the dead letters of a publication, after a redrive or without one.

    `unended_keys` are the customers and messages of deliveries that died while they sent, or send now.
    """
    of_batch = f"of batch {batch_id} at {result.publication.target}"
    if result.outputs:
        yield f"Sent again {of_batch}: {counted(result.outputs, 'output')}."
    if result.refused:
        yield _table(result.refused, len(result.refused))
    else:
        yield f"There are no dead letters {of_batch}."
    if unended_keys:
        title = f"Being sent, or left behind by processes that died: {counted(len(unended_keys), 'key')}"
        yield make_table(title, ("customer", "output"), unended_keys)


def _document(batch_id: str, result: PublishResult) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "target": result.publication.target,
        "publication": result.publication.key,
        "outputs_sent": result.outputs,
        "results": _results(result.records),
        "refused": [each._asdict() for each in result.refused],
    }


def _results(records: Sequence[Record]) -> dict[str, int]:
    return dict(sorted(Counter(each.result.value for each in records).items()))


def _table(refused: Sequence[Record], of: int) -> RenderableType:
    rows = [(each.message_id, each.type, each.business_id, each.why) for each in refused]
    return make_table(f"Not sent: {counted(of, 'output')}", ("output", "type", "business id", "why"), rows)


@dataclass(frozen=True)
class _Asked:
    """What is asked for, of one batch or of all."""

    out: str | None
    letters: bool
    redrive: bool
    screen: Screen

    def batches(self, target: Publishing) -> list[str]:
        """Return the ids of all batches with outputs that are not out, or were refused."""
        from runtime.publishing.runner import find_unpublished

        found = on_table(
            target.states,
            lambda table: find_unpublished(table, target.target, target.options.types, self.out),
        )
        is_of_letters = self.letters or self.redrive
        batch_ids = [record.batch_id for record, is_refused in found if is_refused or not is_of_letters]
        if not batch_ids:
            what = "has refused" if is_of_letters else "has not got"
            self.screen.show(f"There are no outputs that {target.target.name} {what}.")
        return batch_ids

    def work(
        self, publishing: Publishing, on_spark: tuple[Session, StepProgress] | None
    ) -> tuple[PublishResult, dict[str, Any]]:
        """Do what is asked for with a batch, and show it; return what came of it, and more to document."""
        from runtime.publishing import runner

        batch_id = publishing.batch_id
        if self.letters:

            async def listing(opened: Table) -> PublishResult:
                record = await Ledger(opened, system_clock).get(batch_id)
                return await runner.letters(opened, record, publishing.target, publishing.options.types)

            of_target = publishing.of_target
            left = asyncio.run(unended(of_target.keys, of_target.keys_table)) if of_target.send else []
            published = on_table(publishing.states, listing)
            self.screen.show(*_redriven_parts(batch_id, published, left))
            return published, {"keys_without_end": [list(each) for each in left]}
        if self.redrive:
            doing = f"Sending again what was refused of batch {batch_id} by"
            published = work_here(publishing, doing, self.out, runner.redrive)
            self.screen.show(*_redriven_parts(batch_id, published))
            return published, {"keys_without_end": []}
        if on_spark is not None:
            spark, progress = on_spark
            published = publish_on(publishing, spark, self.out, progress)
            progress.done()
        else:
            published = work_here(publishing, f"Publishing batch {batch_id} to", self.out, runner.publish)
        self.screen.show(*published_parts(batch_id, published))
        return published, {"slices": published.publication.slices, "slices_sent": published.slices}


def publish(
    *,
    states: TablePlace,
    batch: str | None = option(
        "The batch; it must have ended. By default all that have, in their order, of which outputs are not out.",
        default=None,
        metavar="ID",
    ),
    out: str | None = option(
        "Where its outcomes are, if not where the batch wrote them.", default=None, metavar="DIR"
    ),
    to: str = option(
        "The target, by its name in the project file, or sqlite:///FILE, postgresql://..., http://..., https://..., "
        "kafka://HOST:PORT, "
        "MODULE:FUNCTION, or env:NAME for one of these or a Service Bus connection string in an environment "
        "variable.",
        envvar=TARGET_VARIABLE,
        metavar="URL|NAME",
        group="publish",
    ),
    target: TargetOptions,
    customers: Customers,
    options: PublishOptions,
    scan: ScanOptions,
    letters: bool = option(
        "List what the target has refused for good, and keys of a MODULE:FUNCTION that say no end; send "
        "nothing.",
        default=False,
    ),
    redrive: bool = option(
        "Send again what the target has refused for good, once the cause is mended, and nothing else.",
        default=False,
    ),
    as_json: AsJson = False,
) -> None:
    r"""Send the outputs of a batch to a target outside, as often as the target can promise.

        consistent publish --batch ID --to sqlite:///published.db \
            --map Hit=hits --store sqlite:///store.db --table games

    To SQL and Kafka exactly once: a slice of the outputs is one transaction, with a marker. Over HTTP once at receivers
    that honour the Idempotency-Key, which is the id of the output. A MODULE:FUNCTION, at most or at least once, by a
    key for each customer and message. Outputs of a business object are sent in order.

    Without --batch it publishes all outputs that the target has not got: of runs, redrives, sweeps and epochs, batch by
    batch. Stopped or killed at any moment, the same command goes on with what is not sent; several at once share the
    work. What a receiver refuses for good is a dead letter with its reason, and costs the others nothing: --letters
    lists these, --redrive sends them again. Reads the outcomes once; with --master or --remote they are read and sent
    by all workers of Spark, in place of this process.
    """
    screen = Screen(as_json)
    if letters + redrive + bool(scan.place) > 1:
        raise UsageError(
            "--letters, --redrive and publishing on Spark are done one at a time: name one of them."
        )
    if batch is None:
        options = replace(options, any_types=True)
    find = partial(find_target, to, states=states, of_target=target, customers=customers, options=options)
    first = find(batch or "")
    require_table(states)

    asked = _Asked(out, letters, redrive, screen)
    found = [first] if batch is not None else [find(each) for each in asked.batches(first)]
    documents, missing, is_refused = _each(asked, found, scan, is_one=batch is not None)
    screen.put(documents[0] if batch is not None else {"batches": documents})
    if missing:
        raise NotPossibleError(
            f"The outcomes of {counted(missing, 'batch')} are missing or merged. All others are done."
        )
    if is_refused and not letters:
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


def _each(
    asked: _Asked, found: Sequence[Publishing], scan: ScanOptions, *, is_one: bool
) -> tuple[list[dict[str, Any]], int, bool]:
    """Do what is asked for with each batch. Return the documents, how many are missing, and whether any is refused."""
    documents, missing, is_refused = [], 0, False
    with scan.working(f"Stopped. {_RESUMED}") if scan.place and found else nullcontext() as on_spark:
        for each in found:
            try:
                published, more = asked.work(each, on_spark)
            except (OutcomesMissingError, BatchRefusedError) as error:
                if is_one:
                    raise
                asked.screen.note(f"Batch {each.batch_id} is left out: {error}")
                missing += 1
                continue
            documents.append({**_document(each.batch_id, published), **more})
            is_refused = is_refused or bool(published.refused)
    return documents, missing, is_refused
