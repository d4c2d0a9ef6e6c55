"""How often the tests try again: often enough, and without pauses."""

from runtime.backoff import BackoffPolicy


async def no_sleep(seconds: float) -> None:
    """Pause for no time at all."""


PATIENCE = BackoffPolicy(attempts=12, sleep=no_sleep)
