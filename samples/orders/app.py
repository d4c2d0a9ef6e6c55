"""The app to name on the command line: `--app samples.orders:app`."""

from handlers import App
from samples.orders.account import Account
from samples.orders.order import Order

app = App(Order, Account)
