"""Invoices: each is rendered to a PDF with the time in its corner, and announced with the hash of that PDF.

`--app samples.invoices:app` names the app. It needs fpdf2: pip install 'consistent-messaging[samples]'.
"""

from handlers import App
from samples.invoices.handlers import Invoices

app = App(Invoices)
