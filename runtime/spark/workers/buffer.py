"""The memory of a worker: what it holds of all the streams that it processes concurrently, bounded in bytes."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.spark.workers.concurrency import Wait

MAX_BUFFERED_BYTES = 128 * 2**20
"""How much the groups in process may take together; one that takes more is processed alone."""

LARGE_BYTES = 2**20
"""A group that takes more is not held in memory until others come to the commit that they would share."""


class Buffer:
    """Counts the bytes of the groups in process.

    A group is released when it ends. Its outcomes are taken before the next group is admitted, so they need no count.
    """

    def __init__(self) -> None:
        self._held = 0

    def admit(self, size: int) -> Iterator[Wait]:
        """Give waits until a group has room, or is alone; count it from then on."""
        while self._held and self._held + size > MAX_BUFFERED_BYTES:
            yield Wait.FOR_ONE
        self._held += size
        if size > LARGE_BYTES:
            yield Wait.FOR_NEXT

    def release(self, size: int) -> None:
        """Count a group no more."""
        self._held -= size
