"""The warehouse: reads paid orders from its own table, and fetches their invoices.

`python -m samples.orders.warehouse URL DOCUMENTS` fails if an invoice is missing or has the wrong hash.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from typing import Any

from runtime.documents import FolderDocuments
from samples.orders.domain import OrderPaid

_FILE = "sqlite:///"
_BODIES = "SELECT body FROM paid_orders ORDER BY message_id"


def paid_orders(url: str) -> Iterator[OrderPaid]:
    """Yield the orders published to the table, in SQLite or PostgreSQL."""
    if url.startswith(_FILE):
        with closing(sqlite3.connect(url.removeprefix(_FILE))) as file:
            rows: list[tuple[Any]] = file.execute(_BODIES).fetchall()
    else:
        import psycopg  # noqa: PLC0415 - of the extra `publish`, and not needed for a file

        with psycopg.connect(url) as connection:
            rows = connection.execute(_BODIES).fetchall()
    for (body,) in rows:
        yield OrderPaid.model_validate(json.loads(body) if isinstance(body, str) else body)


async def is_right(order: OrderPaid, documents: FolderDocuments) -> bool:
    """Return whether the invoice of an order exists and has the announced hash."""
    try:
        content = await documents.read(order.invoice.name)
    except FileNotFoundError:
        return False
    return sha256(content).hexdigest() == order.invoice.sha256


async def check(orders: list[OrderPaid], documents: FolderDocuments) -> list[str]:
    """Return the ids of the orders whose invoice is missing or wrong."""
    return [order.order_id for order in orders if not await is_right(order, documents)]


def main() -> None:
    warehouse, documents = sys.argv[1:]
    orders = list(paid_orders(warehouse))
    wrong = asyncio.run(check(orders, FolderDocuments(documents)))
    if wrong:
        sys.exit(f"The invoices of these orders are missing or have the wrong hash: {', '.join(wrong)}.")
    print(f"The warehouse can send {len(orders)} orders, each with its invoice.")


if __name__ == "__main__":
    main()
