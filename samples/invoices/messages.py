"""What customers order, and what is announced of their invoices."""

from decimal import Decimal

from handlers import DocumentReference, Message


class PlaceOrder(Message):
    """A customer orders something."""

    customer: str
    item: str
    price: Decimal


class InvoiceIssued(Message):
    """There is an invoice, and the document is where the reference says."""

    customer: str
    number: int
    total: Decimal
    document: DocumentReference
