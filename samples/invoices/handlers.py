"""The messages, state and handler of a customer's invoices."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

from handlers import Context, DocumentReference, Handler, Message, State, handles
from samples.pdf import print_page


class PlaceOrder(Message):
    """A customer orders something."""

    customer: str
    item: str
    price: Decimal


class InvoiceIssued(Message):
    """An invoice was stored under this reference."""

    customer: str
    number: int
    total: Decimal
    document: DocumentReference


# The state of a customer.


class CustomerData(State):
    """The number of a customer's invoices, their total, and the newest of them."""

    invoices: int = 0
    total: Decimal = Decimal()
    newest: DocumentReference | None = None


# The invoices of a customer, one for each order.


class Invoices(Handler[CustomerData]):
    """Numbers the invoices of one customer, and stores each as a PDF."""

    @handles(by="customer")
    def place_order(self, state: CustomerData, message: PlaceOrder, context: Context) -> CustomerData:
        """Store the invoice, and announce it."""
        number = state.invoices + 1
        document = context.store_document(
            partial(render, message, number), media_type="application/pdf", name="invoice.pdf"
        )
        total = state.total + message.price
        context.publish(
            InvoiceIssued(customer=message.customer, number=number, total=message.price, document=document)
        )
        return state.model_copy(update={"invoices": number, "total": total, "newest": document})


def render(order: PlaceOrder, number: int) -> bytes:
    """Return the PDF of an invoice."""
    return print_page(f"Invoice {number}", (f"For {order.customer}", f"{order.item}: {order.price} EUR"))
