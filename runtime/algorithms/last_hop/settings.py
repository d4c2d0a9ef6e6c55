"""Settings of deliveries, from environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from runtime.errors import UsageError

AT_LEAST_ONCE = "AT_LEAST_ONCE_SENDING_CUSTOMERS"
LOCK_LIMIT = ("TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS")
TTL = "TTL_IDEMPOTENCY_PER_CUSTOMER_SEC"

_ALL = "*"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """For whom to send at least once, and how long keys are kept.

    `at_least_once` are customers, or "*" for all; to the others is sent at most once. A lock is given up after
    `lock_limit`. A key of a customer is kept for `ttl`, by customer, else for `default_ttl`.
    """

    at_least_once: frozenset[str] = frozenset()
    lock_limit: timedelta = timedelta(minutes=2)
    ttl: Mapping[str, timedelta] = field(default_factory=dict)
    default_ttl: timedelta = timedelta(hours=6)

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> DeliverySettings:
        """Return the settings in environment variables; what is not set has its default. Raises `UsageError`."""
        named = variables.get(AT_LEAST_ONCE, "").split(",")
        ttl = _ttl(variables[TTL]) if variables.get(TTL) else {}
        return cls(
            frozenset(customer.strip() for customer in named if customer.strip()),
            _lock_limit(variables) or cls().lock_limit,
            {customer: each for customer, each in ttl.items() if customer != _DEFAULT},
            ttl.get(_DEFAULT, cls().default_ttl),
        )

    def is_at_least_once(self, customer: str) -> bool:
        """Say whether to send to a customer at least once."""
        return _ALL in self.at_least_once or customer in self.at_least_once

    def ttl_of(self, customer: str) -> timedelta:
        """Return how long the keys of a customer are kept."""
        return self.ttl.get(customer, self.default_ttl)


def _lock_limit(variables: Mapping[str, str]) -> timedelta | None:
    given = {name: variables[name] for name in LOCK_LIMIT if variables.get(name)}
    if len(set(given.values())) > 1:
        raise UsageError(f"{' and '.join(given)} say different things: set one of them.")
    for name, value in given.items():
        if not value.strip().isdecimal() or not int(value):
            raise UsageError(
                f"{name} is {value!r}: give it a whole number of milliseconds, 120000 for two minutes."
            )
        return timedelta(milliseconds=int(value))
    return None


def _ttl(value: str) -> dict[str, timedelta]:
    try:
        seconds = json.loads(value)
    except ValueError:
        seconds = None
    if not isinstance(seconds, dict) or not all(_is_period(each) for each in seconds.values()):
        raise UsageError(
            f"{TTL} is {value!r}: give it an object of customer ids and seconds, "
            'such as {"17": 3600, "default": 21600}.'
        )
    return {str(customer): timedelta(seconds=each) for customer, each in seconds.items()}


def _is_period(value: object) -> bool:
    return type(value) is int and value > 0
