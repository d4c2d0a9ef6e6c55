"""Publishing outputs, once what they speak of is stored durably."""

from __future__ import annotations

from collections.abc import Iterable

from eventstore import Table
from runtime.algorithms.algorithm import Publish
from runtime.messages.outcome import Output


async def publish_all(table: Table, publish: Publish, outputs: Iterable[Output]) -> None:
    """Make what was committed to a table durable, then publish outputs, one after another."""
    await table.barrier()
    for output in outputs:
        await publish(output)
