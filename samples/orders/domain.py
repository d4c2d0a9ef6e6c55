"""The messages and states of orders and accounts. Amounts are in cents."""

import random
from typing import Literal

from pydantic import PositiveInt

from handlers import DocumentReference, Message, State

Currency = Literal["EUR", "GBP", "USD"]


class TopUp(Message):
    """A customer pays into an account, in euros."""

    customer: str
    cents: PositiveInt


class PlaceOrder(Message):
    """A customer orders something, priced in any currency."""

    order_id: str
    customer: str
    cents: PositiveInt
    currency: Currency


class PaymentAsked(Message):
    """An order asks an account for its price, in euros."""

    order_id: str
    customer: str
    cents: int


class PaymentMade(Message):
    order_id: str


class PaymentRefused(Message):
    """The balance of an account is too low for an order."""

    order_id: str


class OrderPaid(Message):
    """For the warehouse: an order is paid, and can be sent with its invoice."""

    order_id: str
    customer: str
    cents: int
    rate: str
    invoice: DocumentReference


class CustomerTold(Message):
    """For the customer: the result of an order."""

    order_id: str
    customer: str
    text: str


# Exchange rates: random numbers simulate a service that answers differently each time.

RATES: dict[Currency, float] = {"EUR": 1.0, "GBP": 1.15, "USD": 0.92}
_SPREAD = 0.02


def rate_now(currency: Currency) -> str:
    """Return the current value of one unit of a currency in euros, as text."""
    if currency == "EUR":
        return "1"
    return f"{RATES[currency] * random.uniform(1 - _SPREAD, 1 + _SPREAD):.4f}"


# The states of orders and accounts.


class OrderData(State):
    """An order: its customer, its price in euros, and the exchange rate used."""

    status: Literal["new", "placed", "paid", "refused"] = "new"
    customer: str = ""
    cents: int = 0
    rate: str = ""


class AccountData(State):
    """The balance of an account, in euro cents."""

    cents: int = 0
