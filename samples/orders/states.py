"""What is remembered of an order and of an account."""

from typing import Literal

from handlers import State


class OrderData(State):
    """An order: its customer, its price in euros, and the exchange rate that made it so."""

    status: Literal["new", "placed", "paid", "refused"] = "new"
    customer: str = ""
    cents: int = 0
    rate: str = ""


class AccountData(State):
    """What is left in an account, in euro cents."""

    cents: int = 0
