"""Rounds of kills, and what they leave: every announced hash must be that of its document, and no other be there."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from benchmarks.side_effects.consumer import NEVER, Kill, Place, handled
from benchmarks.side_effects.driver import LOG, killed_at, run_to_the_end
from eventstore import connect
from runtime import Envelope, Output, Processor
from runtime.clock import system_clock
from samples.invoices import InvoiceIssued, app

CUSTOMERS = 2
DRIVER_MOMENTS = (
    "Round 0: handling messages", "registered 1", "committing 3", "committed 5", "registered 9",
    "Round 0: committing outcomes", "Round 0: recording in the ledger",
)  # fmt: skip
"""The moments at which one driver of a batch after another is killed; see `driver`."""
_BATCH_ORDERS = 60
_BATCH_CUSTOMERS = 12


@dataclass
class Counts:
    """What was counted over some rounds."""

    rounds: int = 0
    kills: int = 0
    orders: int = 0
    announced: int = 0
    swept: int = 0
    lost: int = 0
    wrong: int = 0
    left: int = 0

    def row(self) -> list[str]:
        """Return the counts as cells of a table."""
        return [f"{count:,}" for count in vars(self).values()]

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost, wrong or left."""
        return not (self.lost or self.wrong or self.left)


def each_step(*, after: bool) -> Counts:
    """Kill one consumer of one order at its first call, at its second, and so on until it lives."""
    counts, call = Counts(), 1
    while _play(counts, _orders(1), [Kill(call, after=after)]):
        call += 1
    return counts


def at_random(rounds: int, seed: int = 1) -> Counts:
    """Kill one of two consumers of the same orders, which begin at once, at a call drawn at random."""
    chance, counts = random.Random(seed), Counts()  # noqa: S311 - places of kills
    for _ in range(rounds):
        kill = Kill(chance.randint(1, 20), after=chance.random() < 1 / 2)
        _play(counts, _orders(3), [kill, NEVER])
    return counts


def drivers(moments: Sequence[str] = DRIVER_MOMENTS) -> Counts:
    """Kill the drivers of a batch on Spark, one after another, and let the last one run to the end."""
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="invoices-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder))
        orders = _orders(_BATCH_ORDERS, _BATCH_CUSTOMERS)
        _write_log(place.folder / LOG, [*orders, *orders[::3]])
        for moment in moments:
            if not killed_at(place, moment):
                raise ChildProcessError(f"No driver came to {moment}: {(place.folder / 'said').read_text()}")
        run_to_the_end(place)
        _settle(counts, place, len(moments), len(orders))
    return counts


def _write_log(log: Path, orders: Sequence[Envelope]) -> None:
    rows = ({"message_id": each.message_id, "type": each.type, "body": each.body} for each in orders)
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _orders(count: int, customers: int = CUSTOMERS) -> list[Envelope]:
    return [
        Envelope.of(
            f"order-{number}",
            "PlaceOrder",
            json.dumps(
                {"customer": f"customer-{number % customers}", "item": "A book", "price": f"{number}.90"}
            ),
        )
        for number in range(count)
    ]


def _play(counts: Counts, orders: Sequence[Envelope], kills: list[Kill]) -> bool:
    """Handle orders under kills, then in peace, then sweep; add what is found, and say whether one was killed."""
    with tempfile.TemporaryDirectory(prefix="invoices-") as folder:
        place = Place(Path(folder))
        killed = sum(handled(place, list(orders), *kills))
        handled(place, list(orders), NEVER)
        _settle(counts, place, killed, len(orders))
        return killed > 0


def _settle(counts: Counts, place: Place, killed: int, orders: int) -> None:
    """Sweep what the killed have left, and add what is found."""
    before = len(list(_documents(place)))
    asyncio.run(_sweep(place))
    counts.rounds += 1
    counts.kills += killed
    counts.orders += orders
    _count(counts, place, orders)
    counts.swept += before - len(list(_documents(place)))


async def _sweep(place: Place) -> None:
    async def nothing(_: Output) -> None:
        """Publish nothing: a sweep of documents has no outputs."""

    async with connect(place.store) as store:
        table, documents = await store.table("invoices"), str(place.documents)
        # Two days later, as what was given up just now stays for a day, should a request of it take effect late.
        processor = Processor(app, table, nothing, documents=documents, clock=_in_two_days)
        await processor.sweep(timedelta())


def _in_two_days() -> int:
    return system_clock() + timedelta(days=2) // timedelta(microseconds=1)


def _count(counts: Counts, place: Place, orders: int) -> None:
    announced = [
        InvoiceIssued.model_validate_json(line).document for line in place.announced.read_text().splitlines()
    ]
    documents = {str(path.relative_to(place.documents)): path for path in _documents(place)}
    names = {document.name for document in announced}
    counts.announced += len(announced)
    counts.lost += orders - len(names & set(documents))
    counts.wrong += sum(
        document.name in documents
        and sha256(documents[document.name].read_bytes()).hexdigest() != document.sha256
        for document in announced
    )
    counts.left += len(set(documents) - names)


def _documents(place: Place) -> Iterator[Path]:
    return (path for path in place.documents.rglob("*") if path.is_file())
