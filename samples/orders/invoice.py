"""The invoice of an order that is paid, as PDF."""

from samples.orders.states import OrderData
from samples.pdf import print_page


def print_invoice(order_id: str, order: OrderData) -> bytes:
    """Return the PDF. The time is printed in its corner, so it is another one each time."""
    lines = (
        f"For {order.customer}",
        f"{order.cents / 100:.2f} EUR, at a rate of {order.rate}",
        "Paid. Thank you!",
    )
    return print_page(f"Invoice of order {order_id}", lines)
