"""The app to name on the command line: `--app samples.invoices:app`."""

from handlers import App
from samples.invoices.invoices import Invoices

app = App(Invoices)
