"""A look at how far the work is, in the driver, again and again while a job is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

_EVERY_SECONDS = 0.25

Show = Callable[[int, int], None]
"""Called with the number of what is counted that is done, and of all."""


class Watch:
    """Looks at something four times a second in a thread of its own, until it is closed."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-progress", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._look()
