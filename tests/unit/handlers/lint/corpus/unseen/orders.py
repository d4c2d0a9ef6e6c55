"""Orders: handlers as they might stand in an application, some right and some wrong."""

import hashlib
import json
import logging
import re
import uuid
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum

from pydantic import Field

import rates
from handlers import Context, Handler, Message, State, handles

log = logging.getLogger(__name__)
CENT = Decimal("0.01")
_audit = []


class Status(StrEnum):
    OPEN = "open"
    PAID = "paid"


class Item(Message):
    order: str
    sku: str = ""
    quantity: int = 1
    price: Decimal = Decimal(0)
    labels: frozenset[str] = frozenset()


class Paid(Message):
    order: str
    at: datetime | None = None


class Shipped(Message):
    order: str
    parcel: str = ""


class Reminder(Message):
    order: str
    due: datetime = Field(default_factory=lambda: datetime.now(UTC) + timedelta(days=3))  # expect: CM101


class Order(State):
    status: Status = Status.OPEN
    skus: tuple[str, ...] = ()
    labels: frozenset[str] = frozenset()
    weights: frozenset[float] = frozenset()
    total: Decimal = Decimal(0)
    note: str = ""
    due: datetime | None = None

    @property
    def summary(self) -> str:
        return f"{self.status} {', '.join(self.labels)}"  # expect: CM701

    @property
    def is_late(self) -> bool:
        return self.due is not None and self.due < datetime.now(UTC)  # expect: CM101

    def labelled(self, *labels: str) -> "Order":
        return self.model_copy(update={"labels": self.labels | set(labels)})


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal

    def taxed(self, rate: Decimal) -> "Line":
        return replace(self, price=(self.price * (1 + rate)).quantize(CENT, rounding=ROUND_HALF_UP))


class AddsItem(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        line = Line(message.sku, message.price).taxed(Decimal("0.19"))
        log.info("%s now has %s", message.order, line)
        return state.model_copy(
            update={"skus": (*state.skus, line.sku), "total": state.total + line.price * message.quantity}
        ).labelled(*sorted(message.labels))


class Summarises(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        return state.model_copy(update={"note": state.summary})


class Reminds(Handler[Order]):
    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        if state.is_late:
            context.publish(Reminder(order=message.order))
        return state


class RemindsRightly(Handler[Order]):
    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        due = (message.at or context.now) + timedelta(days=3)
        context.publish(Reminder(order=message.order, due=due))
        return state.model_copy(update={"due": due, "status": Status.PAID})


class Ships(Handler[Order]):
    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        for label in state.labels:  # expect: CM701
            context.publish(Shipped(order=message.order, parcel=f"{label}-{uuid.uuid4()}"))  # expect: CM203
        return state


class ShipsRightly(Handler[Order]):
    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        for number, label in enumerate(sorted(state.labels, key=str.lower)):  # false: CM705 the labels differ by more than their case
            context.publish(Shipped(order=message.order, parcel=f"{number}-{label}-{context.new_guid()}"))
        return state


class Groups(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        groups = defaultdict(list)
        for sku in state.skus:
            groups[sku[:1]].append(sku)
        ordered = OrderedDict(sorted(groups.items()))
        return state.model_copy(update={"note": json.dumps(ordered, sort_keys=True)})


class GroupsOfSets(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        groups = defaultdict(set)
        for sku in state.skus:
            groups[sku[:1]].add(sku)
        firsts = [list(group)[0] for group in groups.values()]  # expect: CM701
        return state.model_copy(update={"skus": tuple(firsts)})


class Audits(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        _audit.append((context.now, message.sku))  # expect: CM801
        return state


class Digests(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        text = json.dumps({"sku": message.sku, "quantity": message.quantity}, sort_keys=True)
        return state.model_copy(update={"note": hashlib.sha256(text.encode()).hexdigest()[:8]})


class Buckets(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        bucket = hash(message.sku) % 16  # expect: CM602
        return state.model_copy(update={"note": f"bucket {bucket}"})


class Converts(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        return state.model_copy(update={"total": message.price * rates.current("EUR")})


class ConvertsRightly(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        rate = context.capture("rate", lambda: str(rates.current("EUR")))
        return state.model_copy(update={"total": message.price * Decimal(rate)})


class ConvertsByTable(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        converter = rates.Converter(rates.TABLE)
        return state.model_copy(update={"total": converter.convert(message.price, "EUR")})


class Weighs(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        heavy = [weight for weight in sorted(state.weights) if weight > 1.5]
        light = sum(weight for weight in state.weights if weight <= 1.5)  # expect: CM704
        return state.model_copy(update={"note": f"{sum(heavy):.2f} {light:.2f}"})


class Retries(Handler[Order]):
    attempts = 0

    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        while not self._pay(message):
            type(self).attempts += 1  # expect: CM802
        return state

    def _pay(self, message: Paid) -> bool:
        return rates.post("/pay", {"order": message.order})


class Samples(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        skus = context.random.sample(state.skus, k=min(2, len(state.skus)))
        if re.fullmatch(r"[a-z]+", message.sku) and not state.labels.isdisjoint(message.labels):
            skus.append(message.sku)
        return state.model_copy(update={"skus": tuple(skus)})


class SamplesLabels(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        labels = list(state.labels & message.labels)  # expect: CM701
        return state.model_copy(update={"skus": tuple(context.random.sample(labels, k=1))})


class Parses(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        try:
            due = datetime.fromisoformat(message.sku)
        except ValueError:
            due = context.now
        if due.tzinfo is None:
            due = due.replace(tzinfo=UTC)
        return state.model_copy(update={"due": due.astimezone(UTC)})


class ParsesLocally(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        due = datetime.strptime(message.sku, "%Y-%m-%d")
        return state.model_copy(update={"due": due.astimezone()})  # expect: CM103


class StampsNaively(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        due = datetime.strptime(message.sku, "%Y-%m-%d")
        return state.model_copy(update={"note": str(due.timestamp())})  # miss: CM103 whether a datetime has a time zone is not tracked


class Collects(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        wanted = {label for label in message.labels if label not in state.labels}
        if not wanted:
            return state
        return state.labelled(*wanted)  # expect: CM701


class CollectsRightly(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        wanted = message.labels - state.labels
        found = any(label.startswith("x") for label in wanted)
        return state.model_copy(update={"labels": state.labels | wanted, "note": "x" if found else ""})


class Remembers(Handler[Order]):
    def __init__(self) -> None:
        object.__setattr__(self, "seen", {})

    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        self.seen[message.sku] = message.quantity  # expect: CM802
        return state


class ChecksOnce(Handler[Order]):
    @handles(by="order")
    def item(self, state: Order, message: Item, context: Context) -> Order:
        if rates.is_new(message.sku):
            return state.model_copy(update={"skus": (*state.skus, message.sku)})
        return state


class Signs(Handler[Order]):
    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        return state.model_copy(update={"note": rates.Signer(state.note).signature})


class Imports(Handler[Order]):
    @handles(by="order")
    def paid(self, state: Order, message: Paid, context: Context) -> Order:
        text = rates.template().substitute(order=message.order)
        return state.model_copy(update={"note": text})
