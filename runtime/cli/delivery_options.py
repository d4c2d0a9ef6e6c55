"""The options of a delivery, and what they make of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runtime.algorithms.last_hop.settings import AT_LEAST_ONCE, DeliverySettings
from runtime.cli.durations import parse_duration
from runtime.cli.options import STORE_VARIABLE, TABLE_VARIABLE
from runtime.errors import UsageError

if TYPE_CHECKING:
    from runtime.delivery import DeliveryPolicy

_ALL = frozenset("*")
_MICROSECONDS = 1_000_000


class Strategy(StrEnum):
    """What is promised to customers."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


Outcomes = Annotated[
    str | None,
    typer.Option(
        "--outcomes",
        metavar="DIR",
        show_default=False,
        help="The folder or url that batches wrote their outcomes to; not needed with --batch, --store and --table.",
    ),
]
BatchId = Annotated[
    str | None, typer.Option("--batch", metavar="ID", help="Deliver what this batch published, and no other.")
]
SenderSpec = Annotated[
    str,
    typer.Option(
        "--sender",
        metavar="MODULE:FUNCTION",
        show_default=False,
        help="The function that sends one message, with `async def` or without; it is given an OutgoingMessage.",
    ),
]
WithStrategy = Annotated[
    Strategy | None,
    typer.Option(
        "--strategy",
        show_default=False,
        help="at-most-once rather loses a message than sends it twice, at-least-once rather sends it twice; without it "
        "at-least-once for AT_LEAST_ONCE_SENDING_CUSTOMERS, at-most-once for all others.",
    ),
]
KeysUrl = Annotated[
    str,
    typer.Option(
        "--keys",
        metavar="URL",
        show_default=False,
        help="What was sent is kept there: redis://HOST:PORT/0, sqlite:///FILE, the url of another store, or env:NAME.",
    ),
]
KeysTable = Annotated[
    str, typer.Option("--keys-table", metavar="NAME", help="Its table, or how its keys in Redis begin.")
]
Records = Annotated[
    str,
    typer.Option(
        "--records",
        metavar="DIR",
        show_default=False,
        help="The folder or url that takes a record of each message; run again with it, the delivery goes on.",
    ),
]
Customer = Annotated[
    str | None,
    typer.Option("--customer", metavar="FIELD", help="The field of a body that names the customer."),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--types",
        metavar="TYPE,...",
        show_default=False,
        help="Deliver only these message types; may be repeated.",
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", min=1, help="Send so many messages at a time.")
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", min=0.001, help="Send no more in a second.")
]
Timeout = Annotated[
    int,
    typer.Option(
        "--timeout",
        parser=parse_duration,
        metavar="TIME",
        help="Give up a send that takes longer.",
    ),
]
Attempts = Annotated[
    int, typer.Option("--attempts", metavar="N", min=1, help="At least once: try a message so often in all.")
]
GiveUpAfter = Annotated[
    int,
    typer.Option(
        "--give-up-after",
        parser=parse_duration,
        metavar="TIME",
        help="Stop when the receiver has taken no message for so long.",
    ),
]
LedgerStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        show_default=False,
        help="With --batch: the store whose ledger knows where the outcomes of the batch are.",
    ),
]
LedgerTable = Annotated[
    str | None,
    typer.Option(
        "--table", envvar=TABLE_VARIABLE, metavar="NAME", show_default=False, help="With --batch: its table."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Send and write nothing, and say what would be sent.")
]


@dataclass(frozen=True)
class PolicyOptions:
    """What the receiver is asked for, and how patiently."""

    concurrency: Concurrency = 8
    rate: Rate = None
    timeout: Timeout = "30s"  # type: ignore[assignment] # parsed like what is typed
    attempts: Attempts = 5
    give_up_after: GiveUpAfter = "10m"  # type: ignore[assignment] # parsed like what is typed

    def policy(self) -> DeliveryPolicy:
        """Return the policy that they say."""
        from runtime.delivery import BreakerPolicy, DeliveryPolicy

        return DeliveryPolicy(
            self.concurrency,
            self.rate,
            self.timeout / _MICROSECONDS,
            self.attempts,
            breaker=BreakerPolicy(give_up_after=self.give_up_after / _MICROSECONDS),
        )


def settings_of(strategy: Strategy | None, variables: Mapping[str, str]) -> DeliverySettings:
    """Return the settings in environment variables, with the strategy that an option says for all customers.

    Raises `UsageError` when the two contradict each other.
    """
    settings = DeliverySettings.read(variables)
    if strategy is Strategy.AT_LEAST_ONCE:
        return replace(settings, at_least_once=_ALL)
    if strategy is Strategy.AT_MOST_ONCE and settings.at_least_once:
        message = (
            f"--strategy at-most-once is for all customers, but {AT_LEAST_ONCE} is {variables[AT_LEAST_ONCE]!r}: leave "
            f"out one of them. Without --strategy those customers are sent to at least once, all others at most once."
        )
        raise UsageError(message)
    return settings
