"""Invoices: each is rendered to a PDF with the time in its corner, and announced with the hash of that PDF.

Laid out for reading: `messages`, `states`, `invoices`, `app`. It needs fpdf2: pip install
'consistent-messaging[samples]'.
"""

from samples.invoices.app import app

__all__ = ["app"]
