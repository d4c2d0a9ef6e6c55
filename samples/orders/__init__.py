"""Orders paid from accounts: a cascade of messages between two handlers, and its outputs.

`python -m samples.orders` runs the sample from its log to the published outputs. Use `--app samples.orders:app`.
`domain` has messages, states and handlers, `post` sends letters, and `warehouse` reads the published orders.
"""

from handlers import App
from samples.orders.domain import Account, Order

app = App(Order, Account)
