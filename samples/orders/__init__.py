"""Orders that are paid from accounts: a cascade of messages between two handlers, with what leaves them at its end.

`python -m samples.orders` runs it from a log to what was published and delivered. Laid out for reading: `messages`,
`states`, `order`, `account`, `rates`, `app`; `log` generates a message log, `post` tells customers.
"""

from samples.orders.app import app

__all__ = ["app"]
