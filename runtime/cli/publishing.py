"""Publishing a batch from the command line: by `consistent publish`, and with `--publish` of `run` and `stream`."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import RenderableType

from eventstore import Table
from runtime.cli.checks import Place, hint_at, import_module, on_table, split_spec
from runtime.cli.console import StepProgress, counted, make_table, notes
from runtime.cli.options import parse_duration
from runtime.clock import system_clock
from runtime.errors import MissingExtraError, TargetError, UsageError
from runtime.ledger.ledger import Ledger
from runtime.publishing.last_hop import AT_LEAST_ONCE, DeliverySettings

if TYPE_CHECKING:
    from runtime.publishing.publisher import Record, Target, TargetOptions
    from runtime.publishing.runner import Published, PublishOptions
    from runtime.spark.session import Session


# The options of publishing: to which target, and how.

TARGET_VARIABLE = "CONSISTENT_TARGET"


class Strategy(StrEnum):
    """What is promised to all customers."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


To = Annotated[
    str,
    typer.Option(
        "--to",
        envvar=TARGET_VARIABLE,
        metavar="URL",
        show_default=False,
        help="The target: sqlite:///FILE, postgresql://..., http://..., https://..., kafka://HOST:PORT, "
        "MODULE:FUNCTION, or env:NAME for one of these or a Service Bus connection string in an environment variable.",
    ),
]
PublishTo = Annotated[
    str | None,
    typer.Option(
        "--publish",
        metavar="URL",
        show_default=False,
        help="Publish the outputs of the batch, or of each epoch, to this target once it has ended, as `consistent "
        "publish --to URL` does.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="TYPE=NAME",
        show_default=False,
        help="The table, topic or path for a message type; may be repeated. Without it tables and topics have the name "
        "of the type.",
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--types",
        metavar="TYPE,...",
        show_default=False,
        help="Publish only these message types; may be repeated.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VALUE",
        show_default=False,
        help="Send a header with each HTTP request, such as Authorization=env:TOKEN; may be repeated.",
    ),
]
StrategyOfFunction = Annotated[
    Strategy | None,
    typer.Option(
        "--strategy",
        show_default=False,
        help="For a MODULE:FUNCTION: at-most-once rather loses a message than sends it twice, at-least-once rather "
        "sends it twice; without it at-least-once for AT_LEAST_ONCE_SENDING_CUSTOMERS, at-most-once for all others.",
    ),
]
Customer = Annotated[
    str | None,
    typer.Option(
        "--customer",
        metavar="FIELD",
        show_default=False,
        help="For a MODULE:FUNCTION: the field of a body that names the customer.",
    ),
]
KeysUrl = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="URL",
        show_default=False,
        help="For a MODULE:FUNCTION: keep the keys that say what was sent in redis://HOST:PORT/0, another store or "
        "env:NAME, instead of the table of the batch.",
    ),
]
DuplicateWindow = Annotated[
    int,
    typer.Option(
        "--duplicate-window",
        parser=parse_duration,
        metavar="TIME",
        help="For how long a Service Bus queue is configured to recognise duplicates; a slice is not resumed later.",
    ),
]
NumberOfSlices = Annotated[
    int | None,
    typer.Option(
        "--slices",
        metavar="N",
        min=1,
        max=10_000,
        show_default=False,
        help="Cut the batch into so many slices, by business id; by default one for each 1,000 deliveries, at most "
        "256.",
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        max=256,
        help="Send so many slices or requests at once; on Spark in each task.",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", metavar="N", min=0.001, help="Make at most so many requests or calls a second."),
]
Timeout = Annotated[
    int, typer.Option("--timeout", parser=parse_duration, metavar="TIME", help="Wait so long for an answer.")
]
Attempts = Annotated[
    int,
    typer.Option(
        "--attempts", metavar="N", min=1, help="Try so often what may succeed when it is tried again."
    ),
]
Lease = Annotated[
    int,
    typer.Option(
        "--lease",
        parser=parse_duration,
        metavar="TIME",
        help="Take over slices of a runner that has not renewed its claim for so long.",
    ),
]
OnSpark = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        show_default=False,
        help="Send slices as tasks of Spark there, as on local[*,4]; without it in this process alone.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Do not wait for claims of a runner that certainly does not run any more.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Resume although the target may have forgotten what it received before."),
]


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How outputs are sent."""

    map: Names = None
    types: Types = None
    header: Headers = None
    strategy: StrategyOfFunction = None
    customer: Customer = None
    keys: KeysUrl = None
    duplicate_window: DuplicateWindow = "10m"  # type: ignore[assignment] # parsed like what is typed
    slices: NumberOfSlices = None
    concurrency: Concurrency = 4
    rate: Rate = None
    timeout: Timeout = "30s"  # type: ignore[assignment] # parsed like what is typed
    attempts: Attempts = 8
    lease: Lease = "1m"  # type: ignore[assignment] # parsed like what is typed
    take_over: TakeOver = False
    force: Force = False

    @classmethod
    def by_default(cls) -> Sending:
        """Return how outputs are sent when nothing is said about it."""
        return cls(
            timeout=parse_duration("30s"),
            lease=parse_duration("1m"),
            duplicate_window=parse_duration("10m"),
        )


@dataclass(frozen=True)
class PublishChoices:
    """To which target a command that is a batch publishes, if it does, and what must be said of how."""

    publish: PublishTo = None
    map: Names = None
    header: Headers = None
    strategy: StrategyOfFunction = None
    customer: Customer = None
    keys: KeysUrl = None
    rate: Rate = None

    def sending(self) -> Sending:
        """Return how outputs are sent. Raises `UsageError` when nothing is published."""
        given: dict[str, Any] = {
            "map": self.map,
            "header": self.header,
            "strategy": self.strategy,
            "customer": self.customer,
            "keys": self.keys,
            "rate": self.rate,
        }
        for name, value in given.items():
            if value and self.publish is None:
                raise UsageError(f"--{name} says how outputs are published: add --publish URL.")
        return replace(Sending.by_default(), **given)


def listed(given: Sequence[str] | None) -> list[str]:
    """Return the names that an option lists, with commas or as often as it is given."""
    return [name.strip() for names in given or () for name in names.split(",") if name.strip()]


def settings_of(strategy: Strategy | None, variables: Mapping[str, str]) -> DeliverySettings:
    """Return the settings in environment variables, with the strategy that an option says for all customers.

    Raises `UsageError` when the two contradict each other.
    """
    settings = DeliverySettings.read(variables)
    if strategy is Strategy.AT_LEAST_ONCE:
        return replace(settings, at_least_once=frozenset("*"))
    if strategy is Strategy.AT_MOST_ONCE and settings.at_least_once:
        message = (
            f"--strategy at-most-once is for all customers, but {AT_LEAST_ONCE} is {variables[AT_LEAST_ONCE]!r}: leave "
            f"out one of them. Without --strategy those customers are sent to at least once, all others at most once."
        )
        raise UsageError(message)
    return settings


# Senders by name: from `module:function`, as it stands on the command line, to the function.

_FORM = "A sender is named MODULE:FUNCTION, like post:send"
_SHAPE = "write `def {name}(message): ...` or `async def {name}(message): ...`"


def load_sender(spec: str) -> Callable[..., object]:
    """Import the module of `module:function` and return the function, or the object that is called like one.

    The working directory is searched last. Raises `UsageError` when the text is not of that form, when there is no such
    function, and when it does not take one argument; `AppNotFoundError` when the module cannot be imported.
    """
    name, attribute = split_spec(spec, _FORM)
    module = import_module(name)
    if not hasattr(module, attribute):
        names = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        known = f" Its functions: {', '.join(names)}." if names else ""
        raise UsageError(f"The module {name} has no function {attribute}.{known}{hint_at(name)}")
    sender: Callable[..., object] = getattr(module, attribute)
    shape = _SHAPE.format(name=attribute)
    if isinstance(sender, type) or not callable(sender):
        raise UsageError(f"{spec} is no function but {_kind(sender)}: {shape}.")
    try:
        inspect.signature(sender).bind(object())
    except TypeError as error:
        raise UsageError(f"The sender {spec} is called with one message ({error}): {shape}.") from error
    return sender


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)
_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Publishing:
    """A target that was found before any work on the batch that is published to it."""

    to: str = field(repr=False)
    """Its url, which may hold a secret."""
    batch_id: str
    states: Place
    of_target: TargetOptions
    options: PublishOptions
    target: Target


def find_target(to: str, batch_id: str, states: Place, sending: Sending) -> Publishing:
    """Find the target of a url. Raises `UsageError` and `MissingExtraError`."""
    try:
        from runtime.publishing.publisher import TargetOptions
        from runtime.publishing.runner import PublishOptions
        from runtime.publishing.targets.choice import is_function, open_target, resolved
    except ModuleNotFoundError as error:
        message = f"Publishing needs {error.name}: pip install 'consistent-messaging[spark]'."
        raise MissingExtraError(message) from error
    to = resolved(to)
    of_target = TargetOptions(
        names=_pairs("--map", sending.map),
        batch_id=batch_id,
        concurrency=sending.concurrency,
        rate=sending.rate,
        timeout=sending.timeout * _MICROSECOND,
        attempts=sending.attempts,
        headers={name: resolved(value) for name, value in _pairs("--header", sending.header).items()},
        window=sending.duplicate_window * _MICROSECOND,
    )
    if is_function(to):
        of_target = replace(
            of_target,
            send=load_sender(to),
            settings=settings_of(sending.strategy, os.environ),
            customer=sending.customer,
            keys=resolved(sending.keys) if sending.keys else states.store,
            keys_table="deliveries" if sending.keys else states.table,
        )
    options = PublishOptions(
        types=listed(sending.types),
        slices=sending.slices,
        concurrency=sending.concurrency,
        attempts=sending.attempts,
        lease=sending.lease * _MICROSECOND,
        take_over=sending.take_over,
        force=sending.force,
    )
    target = open_target(to, of_target)
    store = states.store
    if (
        store.startswith(_SQLITE)
        and target.name == f"{_SQLITE}{Path(store.removeprefix(_SQLITE)).absolute()}"
    ):
        raise UsageError("The target is the store itself: publish to a file of its own.")
    return Publishing(to, batch_id, states, of_target, options, target)


def work_here(found: Publishing, doing: str, out: str | None, work: Callable[..., Awaitable[T]]) -> T:
    """Publish or redrive in this process, with progress. Raises `TargetError` when not all could be sent."""
    tell_of_keys(found)
    progress = StepProgress(notes())
    progress.step(f"{doing} {found.target.name}, {found.target.promise}")

    async def done(table: Table) -> T:
        record = await Ledger(table, system_clock).get(found.batch_id)
        folder, show = out or record.out, progress.show_outputs
        return await work(table, record, folder, found.target, found.options, show=show)

    try:
        with _resumable():
            result = on_table(*found.states, done)
    except BaseException:
        progress.failed()
        raise
    progress.done()
    return result


def publish_on(found: Publishing, spark: Session, out: str | None, progress: StepProgress) -> Published:
    """Publish what is unpublished, as tasks of Spark. Raises `TargetError` when not all could be sent."""
    from runtime.spark.publishing import publish

    tell_of_keys(found)
    progress.step(f"Publishing batch {found.batch_id} to {found.target.name}, {found.target.promise}")
    with _resumable():
        return publish(
            spark,
            found.batch_id,
            found.to,
            store=found.states.store,
            table=found.states.table,
            out=out,
            target=found.of_target,
            options=found.options,
        )


def tell_of_keys(found: Publishing) -> None:
    """Say what a Redis may forget that keeps the keys. Raises `UsageError` when it does not answer."""
    from runtime.publishing.last_hop import weaknesses

    of_target = found.of_target
    for remark in asyncio.run(weaknesses(of_target.keys, of_target.keys_table)):
        notes().print(remark, soft_wrap=True)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except TargetError as error:
        message = f"{error} What was sent stays sent, and the same command goes on with the rest."
        raise TargetError(message) from error


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return what an option says of some names. Raises `UsageError` for what is no NAME=VALUE."""
    found: dict[str, str] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"{option} is written NAME=VALUE, not {pair!r}.")
        found[name.strip()] = value.strip()
    return found


# What came of publishing a batch, for people and for machines.

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PublishingReport:
    """A batch of which all slices are sent."""

    batch_id: str
    published: Published

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        found = self.published
        return {
            "batch_id": self.batch_id,
            "target": found.publication.target,
            "publication": found.publication.key,
            "slices": found.publication.slices,
            "slices_sent": found.slices,
            "outputs_sent": found.outputs,
            "results": _results(found.records),
            "refused": [each._asdict() for each in found.refused],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Yield what was sent, and what the target has refused."""
        found = self.published
        total = counted(found.publication.slices, "slice")
        yield (
            f"Batch {self.batch_id} is published to {found.publication.target}: {total}, of which "
            f"{found.slices:,} were sent now, with {counted(found.outputs, 'output')}."
        )
        results = _results(found.records)
        if found.records and len(found.records) > len(found.refused):
            said = ", ".join(f"{count:,} {result.replace('_', ' ')}" for result, count in results.items())
            yield f"Recorded in all: {said}."
        if found.refused:
            yield ""
            yield _table(found.refused[:_SHOWN], len(found.refused))
            yield "The same command with --letters lists all of them, and with --redrive sends them again."


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """The dead letters of a publication, after a redrive or without one."""

    batch_id: str
    redriven: Published
    unended: Sequence[tuple[str, str]] = ()
    """Customer and message of keys whose deliveries died while they sent, or send now."""

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        found = self.redriven
        return {
            "batch_id": self.batch_id,
            "target": found.publication.target,
            "publication": found.publication.key,
            "outputs_sent": found.outputs,
            "results": _results(found.records),
            "refused": [each._asdict() for each in found.refused],
            "keys_without_end": [list(each) for each in self.unended],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Yield what was sent again, and all that the target still refuses."""
        found = self.redriven
        place = f"of batch {self.batch_id} at {found.publication.target}"
        if found.outputs:
            yield f"Sent again {place}: {counted(found.outputs, 'output')}."
        if found.refused:
            yield _table(found.refused, len(found.refused))
        else:
            yield f"There are no dead letters {place}."
        if self.unended:
            title = f"Being sent, or left behind by processes that died: {counted(len(self.unended), 'key')}"
            yield make_table(title, ("customer", "output"), self.unended)


def _results(records: Sequence[Record]) -> dict[str, int]:
    return dict(sorted(Counter(each.result.value for each in records).items()))


def _table(refused: Sequence[Record], of: int) -> RenderableType:
    rows = [(each.message_id, each.type, each.business_id, each.why) for each in refused]
    return make_table(f"Not sent: {counted(of, 'output')}", ("output", "type", "business id", "why"), rows)
