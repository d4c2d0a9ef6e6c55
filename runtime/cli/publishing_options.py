"""The options of publishing: to which target, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from runtime.cli.durations import parse_duration
from runtime.errors import UsageError
from runtime.publishing.last_hop import AT_LEAST_ONCE, DeliverySettings

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
