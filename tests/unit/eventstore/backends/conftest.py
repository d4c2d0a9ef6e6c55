import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def run() -> Iterator[Callable[[Any], Any]]:
    """Run a coroutine in the event loop of the test."""
    with asyncio.Runner() as runner:
        yield runner.run
