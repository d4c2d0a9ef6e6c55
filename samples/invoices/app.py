"""The app to name on the command line: `--app samples.invoices:app`."""

from handlers import App
from samples.invoices.handlers import Invoices

app = App(Invoices)
