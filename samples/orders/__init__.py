"""Orders that are paid from accounts: a cascade of messages between two handlers, with what leaves them at its end.

`python -m samples.orders` runs it from a log to what was published, and with `--servers` on Azurite,
PostgreSQL and Redis. `--app samples.orders:app` names the app. `domain` has messages and states, `log` generates a
message log, `post` tells customers, `warehouse` reads what was published, `servers` has the commands.
"""

from handlers import App
from samples.orders.handlers import Account, Order

app = App(Order, Account)
