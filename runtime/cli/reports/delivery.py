"""What a delivery did, or would do, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.cli.reports.tables import counted, make_table
from runtime.delivery.outgoing import OutgoingMessage
from runtime.delivery.records import Result


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The messages by result: of this run, and of all records that are there now."""

    now: Mapping[Result, int]
    recorded: Mapping[str, int]
    records: str

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "delivered": {result.value: self.now.get(result, 0) for result in Result},
            "recorded": {result.value: self.recorded.get(result, 0) for result in Result},
            "records": self.records,
        }

    def parts(self) -> Iterator[RenderableType]:
        """Give it for people."""
        rows = [
            (result.value.replace("_", " "), self.now.get(result, 0), self.recorded.get(result, 0))
            for result in Result
        ]
        yield make_table("Messages", ("result", "in this run", "in all"), rows)
        yield f"A record of each is in {self.records}."


@dataclass(frozen=True, slots=True)
class DryRunReport:
    """How many messages would be delivered, by type and promise, and how many have a record already."""

    waiting: Mapping[tuple[str, str], int]
    customers: int
    recorded: int
    unusable: int

    @classmethod
    def of(
        cls, messages: Iterable[OutgoingMessage], settings: DeliverySettings, done: AbstractSet[str]
    ) -> DryRunReport:
        """Count messages, `done` are the ids of those that have a final record."""
        waiting: Counter[tuple[str, str]] = Counter()
        customers, seen = set[str](), set[str]()
        recorded = unusable = 0
        for message in messages:
            if message.message_id in seen:
                continue
            seen.add(message.message_id)
            if message.message_id in done:
                recorded += 1
            elif message.problem is not None:
                unusable += 1
            else:
                customers.add(message.customer)
                waiting[message.type, _promise(settings, message.customer)] += 1
        return cls(waiting, len(customers), recorded, unusable)

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "dry_run": True,
            "would_be_delivered": [
                {"type": type_, "strategy": promise, "count": count}
                for (type_, promise), count in sorted(self.waiting.items())
            ],
            "customers": self.customers,
            "recorded": self.recorded,
            "without_customer": self.unusable,
        }

    def parts(self) -> Iterator[RenderableType]:
        """Give it for people."""
        if self.waiting:
            rows = [(*kind, count) for kind, count in sorted(self.waiting.items())]
            title = f"Would be delivered to {counted(self.customers, 'customer')}"
            yield make_table(title, ("type", "strategy", "messages"), rows)
        else:
            yield "Nothing would be delivered."
        if self.recorded:
            yield f"{counted(self.recorded, 'message')} of these outcomes were delivered before."
        if self.unusable:
            yield f"{counted(self.unusable, 'message')} would not be sent, as no customer is named."


def _promise(settings: DeliverySettings, customer: str) -> str:
    return "at-least-once" if settings.is_at_least_once(customer) else "at-most-once"
