"""The messages, states and handlers of orders and accounts. Amounts are in cents."""

import random
from decimal import Decimal
from functools import partial
from typing import Literal

from pydantic import PositiveInt

from handlers import Context, DocumentReference, Handler, Message, State, handles
from samples.invoices import print_page

Currency = Literal["EUR", "GBP", "USD"]


class TopUp(Message):
    """A customer pays into an account, in euros."""

    customer: str
    cents: PositiveInt


class PlaceOrder(Message):
    """A customer places an order, priced in any currency."""

    order_id: str
    customer: str
    cents: PositiveInt
    currency: Currency


class PaymentAsked(Message):
    """An order asks the customer's account for payment, in euros."""

    order_id: str
    customer: str
    cents: int


class PaymentMade(Message):
    order_id: str


class PaymentRefused(Message):
    """The balance of an account is too low for an order."""

    order_id: str


class OrderPaid(Message):
    """Tells the warehouse that an order is paid and can be sent with its invoice."""

    order_id: str
    customer: str
    cents: int
    rate: str
    invoice: DocumentReference


class CustomerTold(Message):
    """Tells the customer the result of an order."""

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


class OrderData(State):
    """An order: its customer, its price in euros, and the exchange rate used."""

    status: Literal["new", "placed", "paid", "refused"] = "new"
    customer: str = ""
    cents: int = 0
    rate: str = ""


class AccountData(State):
    """The balance of an account, in euro cents."""

    cents: int = 0


class Account(Handler[AccountData]):
    """The account of one customer."""

    @handles(by="customer")
    def top_up(self, state: AccountData, message: TopUp, context: Context) -> AccountData:
        return AccountData(cents=state.cents + message.cents)

    @handles(by="customer")
    def pay(self, state: AccountData, message: PaymentAsked, context: Context) -> AccountData:
        """Pay if the balance is sufficient, otherwise refuse."""
        if message.cents > state.cents:
            context.publish(PaymentRefused(order_id=message.order_id))
            return state
        context.publish(PaymentMade(order_id=message.order_id))
        return AccountData(cents=state.cents - message.cents)


def print_invoice(order_id: str, order: OrderData) -> bytes:
    """Return the PDF of an invoice. It shows the current time, so no two PDFs are equal."""
    price = f"{order.cents / 100:.2f} EUR, at a rate of {order.rate}"
    return print_page(f"Invoice of order {order_id}", (f"For {order.customer}", price, "Paid. Thank you!"))


class Order(Handler[OrderData]):
    """An order. It is priced in euros when it is placed, and ends when the account pays or refuses."""

    @handles(by="order_id")
    def place(self, state: OrderData, message: PlaceOrder, context: Context) -> OrderData:
        """Price the order at the current rate, which is recorded, and ask the customer's account for payment."""
        if state.status != "new":
            return state
        # Recorded, since a replay would get another rate.
        rate = context.capture("rate", partial(rate_now, message.currency))
        cents = round(message.cents * Decimal(rate))
        context.publish(PaymentAsked(order_id=message.order_id, customer=message.customer, cents=cents))
        return OrderData(status="placed", customer=message.customer, cents=cents, rate=rate)

    @handles(by="order_id")
    def paid(self, state: OrderData, message: PaymentMade, context: Context) -> OrderData:
        """Store the invoice, and tell the warehouse and the customer."""
        if state.status != "placed":
            return state
        # The reference is recorded too, so a replay prints nothing.
        invoice = context.store_document(
            partial(print_invoice, message.order_id, state), media_type="application/pdf", name="invoice.pdf"
        )
        context.publish(
            OrderPaid(
                order_id=message.order_id,
                customer=state.customer,
                cents=state.cents,
                rate=state.rate,
                invoice=invoice,
            )
        )
        self._tell(state, message.order_id, "is on its way", context)
        return state.model_copy(update={"status": "paid"})

    @handles(by="order_id")
    def refused(self, state: OrderData, message: PaymentRefused, context: Context) -> OrderData:
        if state.status != "placed":
            return state
        self._tell(state, message.order_id, "waits for a larger top-up: please order again", context)
        return state.model_copy(update={"status": "refused"})

    def _tell(self, state: OrderData, order_id: str, what: str, context: Context) -> None:
        text = f"Your order {order_id} {what} ({state.cents / 100:.2f} euros)."
        context.publish(CustomerTold(order_id=order_id, customer=state.customer, text=text))
