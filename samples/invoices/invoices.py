"""The invoices of a customer: each order gives one."""

from functools import partial

from handlers import Context, Handler, handles
from samples.invoices.messages import InvoiceIssued, PlaceOrder
from samples.invoices.states import CustomerData
from samples.pdf import print_page


class Invoices(Handler[CustomerData]):
    """Numbers the invoices of one customer, and has each of them stored as a PDF."""

    @handles(by="customer")
    def place_order(self, state: CustomerData, message: PlaceOrder, context: Context) -> CustomerData:
        """Have the invoice rendered, and announce it."""
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
