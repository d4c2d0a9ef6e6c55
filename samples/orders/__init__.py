"""Orders that are paid from accounts: a cascade of messages between two handlers, with what leaves them at its end.

`python -m samples.orders` runs it from a log to what was published, and with `--servers` on Azurite,
PostgreSQL and Redis. Laid out for reading: `messages`, `states`, `order`, `account`, `rates`, `invoice`, `app`; `log`
generates a message log, `post` tells customers, `warehouse` reads what was published, `steps` are the commands.
"""

from samples.orders.app import app

__all__ = ["app"]
