"""What orders and accounts are told, and what they tell others. Amounts are in cents."""

from typing import Literal

from pydantic import PositiveInt

from handlers import DocumentReference, Message

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
    """An account has paid for an order."""

    order_id: str


class PaymentRefused(Message):
    """There is not enough in an account for an order."""

    order_id: str


class OrderPaid(Message):
    """For the warehouse: an order is paid, and can be sent with its invoice."""

    order_id: str
    customer: str
    cents: int
    rate: str
    invoice: DocumentReference


class CustomerTold(Message):
    """For the customer: how an order went."""

    order_id: str
    customer: str
    text: str
