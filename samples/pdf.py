"""A PDF page that shows the time of printing, so no two are alike. It needs fpdf2, of the extra `samples`."""

from collections.abc import Iterable
from datetime import UTC, datetime

from fpdf import FPDF

_OF_THE_FONT = "latin-1"
"""The encoding of built-in PDF fonts; other characters are printed as question marks."""


def print_page(title: str, lines: Iterable[str]) -> bytes:
    """Return a PDF. It reads the clock, so capture the result."""
    page = FPDF()
    page.add_page()
    page.set_font("Helvetica", size=8)
    page.cell(text=f"Printed {datetime.now(UTC).isoformat()}", align="R", w=0, new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", "B", size=18)
    page.cell(text=_printable(title), h=20, new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", size=12)
    for line in lines:
        page.cell(text=_printable(line), h=10, new_x="LMARGIN", new_y="NEXT")
    return bytes(page.output())


def _printable(text: str) -> str:
    return text.encode(_OF_THE_FONT, "replace").decode(_OF_THE_FONT)
