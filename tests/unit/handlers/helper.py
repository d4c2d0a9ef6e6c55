"""A helper that a handler uses, in a module of its own; it looks at the clock."""

from datetime import UTC, datetime, timedelta


def age_of(begin: datetime) -> timedelta:
    return datetime.now(UTC) - begin
