"""Orders paid from accounts: a cascade of messages between two handlers, and its outputs.

`python -m samples.orders` runs it from the log to the published outputs. Use `--app samples.orders:app`. `domain` has
messages and states, `log` generates a message log, `post` sends letters, and `warehouse` reads the published orders.
"""

from handlers import App
from samples.orders.handlers import Account, Order

app = App(Order, Account)
