"""The handlers of accounts and orders."""

from decimal import Decimal
from functools import partial

from handlers import Context, Handler, handles
from samples.invoices import print_page
from samples.orders.domain import (
    AccountData,
    CustomerTold,
    OrderData,
    OrderPaid,
    PaymentAsked,
    PaymentMade,
    PaymentRefused,
    PlaceOrder,
    TopUp,
    rate_now,
)


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


# The invoice of a paid order, as PDF.


def print_invoice(order_id: str, order: OrderData) -> bytes:
    """Return the PDF of an invoice. It shows the current time, so no two PDFs are equal."""
    lines = (
        f"For {order.customer}",
        f"{order.cents / 100:.2f} EUR, at a rate of {order.rate}",
        "Paid. Thank you!",
    )
    return print_page(f"Invoice of order {order_id}", lines)


# An order is priced in euros when it is placed, and ends when an account pays or refuses.


class Order(Handler[OrderData]):
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
        # The reference is recorded too; a replay does not print again.
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
