"""A consumer of a queue: handles messages one at a time with the shooting range, outputs included.

As a program it is one of several that handle the same messages at the same time:
`python -m tests.support.consumer STORE TABLE` reads envelopes as JSON lines, says "ready", waits for a line
"go", and prints what it published as JSON lines.
"""

import asyncio
import json
import sys
from collections.abc import Iterable

from eventstore import connect
from runtime import Envelope, Output, Processor
from runtime.retries import RetryPolicy
from samples.shooting_range import app


class Consumer:
    """Handles messages, and the outputs of each at once after it. `published` is all that went out."""

    def __init__(self, table, **options):
        self.published: list[Output] = []
        self._processor = Processor(app, table, self._publish, **options)

    async def handle(self, *messages: Envelope) -> None:
        for message in messages:
            before = len(self.published)
            await self._processor.process(message)
            for output in self.published[before:]:
                await self._processor.process(output.envelope())

    async def _publish(self, output: Output) -> None:
        self.published.append(output)


def to_line(message: Envelope) -> str:
    return json.dumps([message.message_id, message.type, message.body])


def from_line(line: str) -> Envelope:
    return Envelope.of(*json.loads(line))


async def consume(store_url: str, table: str, messages: Iterable[Envelope]) -> list[Output]:
    async with connect(store_url) as store:
        consumer = Consumer(await store.table(table), retries=RetryPolicy(attempts=50))
        print("ready", flush=True)
        sys.stdin.readline()
        await consumer.handle(*messages)
        return consumer.published


if __name__ == "__main__":
    count = int(sys.stdin.readline())
    given = [from_line(sys.stdin.readline()) for _ in range(count)]
    for output in asyncio.run(consume(sys.argv[1], sys.argv[2], given)):
        print(json.dumps(output), flush=True)
