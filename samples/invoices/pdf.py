"""Rendering an invoice as a PDF, with the time in its corner: no two renderings are alike."""

from datetime import UTC, datetime

from fpdf import FPDF

from samples.invoices.messages import PlaceOrder


def render(order: PlaceOrder, number: int) -> bytes:
    """Return the PDF of an invoice. It looks at the clock: so it runs while its result is recorded, and never again."""
    page = FPDF()
    page.add_page()
    page.set_font("Helvetica", size=8)
    page.cell(text=f"Printed {datetime.now(UTC).isoformat()}", align="R", w=0, new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", "B", size=18)
    page.cell(text=f"Invoice {number}", h=20, new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", size=12)
    for line in (f"For {order.customer}", f"{order.item}: {order.price} EUR"):
        page.cell(text=line, h=10, new_x="LMARGIN", new_y="NEXT")
    return bytes(page.output())
