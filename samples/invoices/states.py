"""What is remembered of a customer."""

from decimal import Decimal

from handlers import DocumentReference, State


class CustomerData(State):
    """How many invoices a customer has, what they come to, and the newest of them."""

    invoices: int = 0
    total: Decimal = Decimal()
    newest: DocumentReference | None = None
