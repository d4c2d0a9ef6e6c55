"""Exchange rates, from a service that gives another answer each time: here chance stands for it."""

import random

from samples.orders.messages import Currency

RATES: dict[Currency, float] = {"EUR": 1.0, "GBP": 1.15, "USD": 0.92}
_SPREAD = 0.02


def rate_now(currency: Currency) -> str:
    """Return how many euros one unit of a currency is worth now, as text."""
    if currency == "EUR":
        return "1"
    return f"{RATES[currency] * random.uniform(1 - _SPREAD, 1 + _SPREAD):.4f}"
