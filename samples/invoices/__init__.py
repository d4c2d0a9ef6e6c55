"""Invoices: each is rendered to a PDF that shows the current time, and announced with the hash of the PDF.

Use `--app samples.invoices:app`. It needs fpdf2: pip install 'consistent-messaging[samples]'.
"""

from handlers import App
from samples.invoices.handlers import Invoices

app = App(Invoices)
