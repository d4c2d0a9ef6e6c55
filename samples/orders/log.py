"""A message log of customers who top up and order, with duplicates, as a queue would deliver it."""

import json
import random
from collections.abc import Iterator
from typing import Any

from samples.orders.domain import RATES

Row = dict[str, Any]

_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Tony")
_TOP_UP_CENTS = 20_000
_MOST_CENTS = 9_000


def generate(orders: int, *, duplicates: float = 0.1, seed: int = 1) -> Iterator[Row]:
    """Yield the rows of a log: a top-up for each customer, orders in several currencies, and some duplicates."""
    chance = random.Random(seed)
    rows = [
        _row(f"top-up-{each}", number, "TopUp", {"customer": each, "cents": _TOP_UP_CENTS})
        for number, each in enumerate(_CUSTOMERS, 1)
    ]
    for number in range(1, orders + 1):
        body = {
            "order_id": f"o-{number:04}",
            "customer": chance.choice(_CUSTOMERS),
            "cents": chance.randint(100, _MOST_CENTS),
            "currency": chance.choice(sorted(RATES)),
        }
        rows.append(_row(f"order-{number:04}", len(rows) + 1, "PlaceOrder", body))
    rows += [dict(chance.choice(rows)) for _ in range(round(len(rows) * duplicates))]
    chance.shuffle(rows)
    yield from rows


def _row(message_id: str, sequence: int, type_: str, body: Row) -> Row:
    return {"message_id": message_id, "type": type_, "sequence": sequence, "body": json.dumps(body)}
