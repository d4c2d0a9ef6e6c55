"""Orders paid from accounts: a cascade of messages between two handlers, and its outputs.

`python -m samples.orders` runs it from the log to the published outputs; with `--servers`, on Azurite, PostgreSQL and
Redis. Use `--app samples.orders:app`. `domain` has messages and states, `log` generates a message log, `post` sends
letters, `warehouse` reads the published orders, and `servers` starts servers.
"""

from handlers import App
from samples.orders.handlers import Account, Order

app = App(Order, Account)
