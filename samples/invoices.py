"""Invoices: each order gets a PDF that shows the current time, and a message with the hash of the PDF.

Use `--app samples.invoices:app`. It needs fpdf2: pip install fpdf2.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

from fpdf import FPDF

from handlers import App, Context, DocumentReference, Handler, Message, State, handles


class PlaceOrder(Message):
    """A customer orders an item."""

    customer: str
    item: str
    price: Decimal


class InvoiceIssued(Message):
    """An invoice was stored. `document` refers to its PDF."""

    customer: str
    number: int
    total: Decimal
    document: DocumentReference


class CustomerData(State):
    """The number of a customer's invoices, their total in euros, and a reference to the newest invoice."""

    invoices: int = 0
    total: Decimal = Decimal()
    newest: DocumentReference | None = None


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


def print_page(title: str, lines: Iterable[str]) -> bytes:
    """Return a PDF page. It shows the current time, so no two PDFs are equal."""
    page = FPDF()
    page.add_page()
    page.set_font("Helvetica", size=8)
    page.cell(text=f"Printed {datetime.now(UTC).isoformat()}", align="R", w=0, new_x="LMARGIN", new_y="NEXT")
    for size, text in ((18, title), *((12, line) for line in lines)):
        page.set_font("Helvetica", size=size)
        shown = text.encode("latin-1", "replace").decode("latin-1")  # the encoding of built-in fonts
        page.cell(text=shown, h=10, new_x="LMARGIN", new_y="NEXT")
    return bytes(page.output())


app = App(Invoices)
