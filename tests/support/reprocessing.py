"""Banks whose rule can change, and reprocessing in this process: rounds as on Spark, over tables in memory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from types import new_class
from typing import Any, ClassVar

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Outcome, Processor
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.algorithms.state_based.reprocess import VISIT, Manner, Reprocessor
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelopes
from runtime.messages.outcome import Output, Reason, Status
from runtime.messages.parsing import business_id_of, prepare_all
from runtime.retries import RetryPolicy
from runtime.versions.head import Head
from runtime.versions.stream import summaries, versions
from tests.unit.runtime.tables import memory_table


class Paid(Message):
    account: str
    amount: int


class Booked(Message):
    book: str
    amount: int
    fee: Decimal


class Audited(Message):
    account: str
    total: int


class Balance(State):
    balance: int = 0
    audits: int = 0
    luck: int = 0


class Total(State):
    total: int = 0
    entries: tuple[int, ...] = ()


RULES = ("same", "fee", "book", "nothing", "twice", "fails", "state")
"""How the rule for amounts from 50 on may change."""


class Account(Handler[Balance]):
    """The payments of one account. A subclass has another rule."""

    RULE: ClassVar = "same"

    @handles(by="account")
    def pay(self, state: Balance, message: Paid, context: Context) -> Balance:
        is_large = message.amount >= 50
        if message.amount == 13 or (is_large and self.RULE == "fails"):
            raise ValueError("unlucky")
        rate = context.capture("rate", lambda: 7) if message.amount % 2 else 1
        book = f"b{message.amount % 3}"
        fee = Decimal("1.50") if is_large and self.RULE == "fee" else Decimal("1.00")
        if is_large and self.RULE == "book":
            book = "b9"
        for _ in range({"nothing": 0, "twice": 2}.get(self.RULE, 1) if is_large else 1):
            context.publish(Booked(book=book, amount=message.amount * rate, fee=fee))
        luck = state.luck + context.random.randrange(10) + context.now.second
        more = 1 if is_large and self.RULE == "state" else 0
        return Balance(balance=state.balance + message.amount + more, audits=state.audits, luck=luck)

    @handles(by="account")
    def audit(self, state: Balance, message: Audited, context: Context) -> Balance:
        del context
        return state.model_copy(update={"audits": state.audits + message.total})


class Book(Handler[Total]):
    @handles(by="book")
    def book(self, state: Total, message: Booked, context: Context) -> Total:
        total = state.total + message.amount
        if total // 100 > state.total // 100:
            context.publish(Audited(account=f"a{total % 3}", total=total))
        return Total(total=total, entries=(*state.entries, message.amount))


for _rule in RULES:  # classes of the module, which workers import
    globals()[f"Account_{_rule}"] = new_class(
        f"Account_{_rule}",
        (Account,),
        {"name": "Account"},
        lambda namespace, rule=_rule: namespace.update(RULE=rule, __module__=__name__),  # type: ignore[misc]
    )


@cache
def bank(rule: str) -> App:
    return App(globals()[f"Account_{rule}"], Book, name="bank")


@dataclass
class World:
    table: Table = field(default_factory=memory_table)
    log: list[Envelope] = field(default_factory=list)
    second: int = 0

    def run(self, messages: Sequence[tuple[str, Message]], app: App, order: Sequence[int] = ()) -> None:
        """Handle messages and their outputs. `order` chooses which waiting message is next."""
        waiting = [
            Envelope(name, type(each).__message_name__, each.model_dump_json()) for name, each in messages
        ]
        self.log += waiting

        async def publish(output: Output) -> None:
            waiting.append(output.envelope())

        processor = Processor(app, self.table, publish, clock=self._clock, handler_timeout=None)
        picks = iter(order)
        while waiting:
            at = next(picks, 0) % len(waiting)
            drive(processor.process(waiting.pop(at)))

    def _clock(self) -> int:
        self.second += 1
        return self.second * 1_000_000


@dataclass
class Found:
    rows: list[Outcome]

    @property
    def documents(self) -> list[tuple[Outcome, dict[str, Any]]]:
        return [(each, json.loads(each.error or "")) for each in self.rows if each.status is Status.PROCESSED]

    @property
    def objects(self) -> set[tuple[str | None, str | None]]:
        return {(each.handler, each.business_id) for each, _ in self.documents}

    @property
    def same(self) -> int:
        return sum(each.status is Status.DUPLICATE and each.version is not None for each in self.rows)


def reprocess(old, new, log, app, was=None, most=50, **options) -> Found:
    """Handle the history of a table again in rounds. Ends after `most`, as streams may wait for ever."""
    rows: list[Outcome] = []
    waiting: list[tuple[str | None, Envelope]] = [(None, each) for each in log]
    held: list[tuple[str | None, Envelope]] = []
    keeps = False
    for number in range(most):
        closes = not waiting
        if closes:
            waiting, keeps = incomplete(old, new)
            waiting = [each for each in waiting if each[0] in app.handlers]
            if not waiting:
                break
        given = {"closes": closes and not keeps, "keeps": closes and keeps, **options}
        held, waiting = _round(old, new, [*waiting, *held], app, was or app, number, rows, **given)
    return Found(rows)


def incomplete(old: Table, new: Table) -> tuple[list[tuple[str | None, Envelope]], bool]:
    """Return visits of the streams to complete, and whether messages of the table may be lost."""

    async def find() -> tuple[list[tuple[str | None, Envelope]], bool]:
        heads = {each.key: each.head async for each in summaries(new)}
        found = [(each, heads.get(each.key, Head(None, 1, shared=True))) async for each in summaries(old)]
        keeps = any(each.head.kept_from > 1 or each.head.tombstone for each, _ in found)
        return [
            (each.handler, Envelope("", VISIT, "", each.business_id, own.followed))
            for each, own in found
            if max(own.followed, each.head.kept_from - 1) < each.head.versions and (own.shared or not keeps)
        ], keeps

    return drive(find())


def _round(
    old: Table,
    new: Table,
    waiting: Sequence[tuple[str | None, Envelope]],
    app: App,
    was: App,
    number: int,
    rows: list[Outcome],
    **options: Any,
) -> tuple[list[tuple[str | None, Envelope]], list[tuple[str | None, Envelope]]]:
    streams: dict[tuple[str, str], list[Envelope]] = defaultdict(list)
    for handler, envelope in waiting:
        if envelope.type == VISIT:
            streams[str(handler), str(envelope.business_id)].append(envelope)
            continue
        for route in app.routes(envelope.type):
            if handler in (None, route.handler):
                streams[route.handler, str(business_id_of(route, envelope))].append(envelope)
    batch = BatchContext("b", is_cascade=number > 0, number=1)
    held: list[tuple[str | None, Envelope]] = []
    sent: list[tuple[str | None, Envelope]] = []
    for (name, business_id), envelopes in sorted(streams.items()):
        handles = app.handlers[name]
        algorithm = StateBased(new, handles, lambda: 0, batch, RetryPolicy())
        reprocessor = Reprocessor(algorithm, old, was.handlers[name], Manner(**options))
        envelopes.sort(key=lambda each: (each.sequence or 0, each.enqueued_at or 0, each.message_id))
        deliveries = prepare_all(handles, business_id, Envelopes.of(envelopes))
        for each in drive(reprocessor.process(business_id, deliveries)):
            if each.reason is Reason.HELD_BACK:
                held.append((name, each.envelope))
            else:
                rows.append(each)
                sent += [(None, output.envelope()) for output in each.outputs]
    return held, sent


def histories(table: Table) -> dict[tuple[str, str], list[tuple[str, bytes, bytes]]]:
    async def read() -> dict[tuple[str, str], list[tuple[str, bytes, bytes]]]:
        found = {}
        async for each in summaries(table):
            made = await versions(table, each.handler, each.business_id) or []
            if made:
                found[each.handler, each.business_id] = [
                    (version.message_id, version.after, version.record.outputs_digest) for version in made
                ]
        return found

    return drive(read())
