"""How often the tests try again: often enough, and without pauses."""

from runtime.retries import RetryPolicy


async def no_sleep(seconds: float) -> None:
    """Pause for no time at all."""


PATIENCE = RetryPolicy(attempts=12, sleep=no_sleep)
