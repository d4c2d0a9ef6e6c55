"""The app to name on the command line: `--app samples.orders:app`."""

from handlers import App
from samples.orders.handlers import Account, Order

app = App(Order, Account)
