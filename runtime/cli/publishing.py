"""Publishing a batch from the command line: by `consistent publish`, and at the end of `consistent run --publish`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore import Table
from runtime.batches.ledger import Ledger
from runtime.cli.console import Screen
from runtime.cli.delivery_options import Strategy
from runtime.cli.durations import parse_duration
from runtime.cli.places import Place
from runtime.cli.senders import load_sender
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import MissingExtraError, TargetError, UsageError

if TYPE_CHECKING:
    from runtime.publishing.publisher import Target
    from runtime.publishing.runner import Published
    from runtime.publishing.slices import CommittedOutput

TARGET_VARIABLE = "CONSISTENT_TARGET"

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
        help="Publish the outputs to this target once the batch has ended, as `consistent publish --to URL` does.",
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
        "--strategy", help="How often a MODULE:FUNCTION is called for an output when runners are killed."
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
        "--concurrency", metavar="N", min=1, max=256, help="Send so many slices or requests at once."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", metavar="N", min=0.001, help="Make at most so many HTTP requests a second."),
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


_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How outputs are sent."""

    map: Names = None
    types: Types = None
    header: Headers = None
    strategy: StrategyOfFunction = None
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
class Publishing:
    """A target that was found, before any work on the batch that is published to it."""

    to: str
    batch_id: str
    sending: Sending
    target: Target

    @classmethod
    def check(cls, to: str, batch_id: str, sending: Sending) -> Publishing:
        """Find the target of a url. Raises `UsageError` and `MissingExtraError`."""
        try:
            from runtime.publishing.publisher import Promise
            from runtime.publishing.targets.choice import is_function, open_target, resolved
            from runtime.publishing.targets.options import TargetOptions
        except ModuleNotFoundError as error:
            message = f"Publishing needs {error.name}: pip install 'consistent-messaging[spark]'."
            raise MissingExtraError(message) from error
        to = resolved(to)
        headers = {name: resolved(value) for name, value in _pairs("--header", sending.header).items()}
        options = TargetOptions(
            names=_pairs("--map", sending.map),
            batch_id=batch_id,
            concurrency=sending.concurrency,
            rate=sending.rate,
            timeout=sending.timeout * _MICROSECOND,
            attempts=sending.attempts,
            headers=headers,
            send=_send_with(to, batch_id) if is_function(to) else None,
            strategy=Promise[sending.strategy.name] if sending.strategy else None,
            window=sending.duplicate_window * _MICROSECOND,
        )
        return cls(to, batch_id, sending, open_target(to, options))

    def done_on(self, states: Place, out: str | None, screen: Screen) -> Published:
        """Publish what is not out yet. Raises `TargetError` when not all could be sent."""
        self._check_file(states)
        try:
            return on_table(*states, lambda table: self._publish(table, out, screen))
        except TargetError as error:
            message = f"{error} What is out stays out, and the same command goes on with the rest."
            raise type(error)(message) from error

    async def _publish(self, table: Table, out: str | None, screen: Screen) -> Published:
        from runtime.publishing.runner import PublishOptions, publish

        sending = self.sending
        record = await Ledger(table, system_clock).get(self.batch_id)
        options = PublishOptions(
            types=listed(sending.types),
            slices=sending.slices,
            concurrency=sending.concurrency,
            attempts=sending.attempts,
            lease=sending.lease * _MICROSECOND,
            take_over=sending.take_over,
            force=sending.force,
        )
        screen.note(f"Publishing batch {self.batch_id} to {self.target.name}: {self.target.promise}.")
        return await publish(table, record, out or record.out, self.target, options)

    def _check_file(self, states: Place) -> None:
        """Raise `UsageError` when the target is the file of the store: a slice would lock out its own record."""
        store, name = states.store, self.target.name
        prefix = "sqlite:///"
        if store.startswith(prefix) and f"{prefix}{Path(store.removeprefix(prefix)).absolute()}" == name:
            raise UsageError("The target is the store itself: publish to a file of its own.")


def _send_with(sender_name: str, batch_id: str) -> Callable[[CommittedOutput], object]:
    """Return what gives outputs to a sender, as messages of a delivery: it serves `consistent deliver` too."""
    from runtime.delivery.outgoing import DEFAULT_CUSTOMER, OutgoingMessage

    sender = load_sender(sender_name)

    def send(output: CommittedOutput) -> object:
        body = json.loads(output.body)
        message = OutgoingMessage(
            output.message_id, output.type, body, DEFAULT_CUSTOMER, output.headers, batch_id
        )
        return sender(message)

    return send


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return what an option says of some names. Raises `UsageError` for what is no NAME=VALUE."""
    found: dict[str, str] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"{option} is written NAME=VALUE, not {pair!r}.")
        found[name.strip()] = value.strip()
    return found


def listed(given: Sequence[str] | None) -> list[str]:
    """Return the names that an option lists, with commas or as often as it is given."""
    return [name.strip() for names in given or () for name in names.split(",") if name.strip()]
