"""The sample of invoices: each order has a PDF, and the linter, the kit and the guard find it deterministic."""

from decimal import Decimal
from pathlib import Path

from handlers.lint import Target, check
from handlers.testing import HandlerSpec
from samples import invoices
from samples.invoices import InvoiceIssued, Invoices, PlaceOrder

ORDER = PlaceOrder(customer="Ada", item="A book", price=Decimal("12.90"))
PDF = {"name": "n", "sha256": "0" * 64, "size": 1, "media_type": "application/pdf"}


def test_an_order_has_an_invoice_whose_number_is_the_next():
    spec = HandlerSpec(Invoices).capturing(**{"document invoice.pdf": PDF})
    for number in (1, 2):
        handled = spec.given(*[ORDER] * (number - 1)).when(ORDER)
        (issued,) = handled.published
        assert isinstance(issued, InvoiceIssued)
        assert (issued.number, issued.total, issued.document.name) == (number, ORDER.price, "n")
        assert handled.state.total == ORDER.price * number


def test_the_linter_finds_nothing():
    report = check([Target(Path(invoices.__file__))])
    assert (report.handlers, report.findings) == (1, ())
