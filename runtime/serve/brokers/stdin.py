"""Standard input and output: lines of JSON, as in a message log, for pipes and trials.

Lines are not acknowledged. If the process is killed, pass the same lines again. Handled lines are then duplicates.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from runtime.publishing.publisher import CommittedOutput
from runtime.serve.messages import Rebalances, Received, Settlement, Source, read_message, written

_CHUNK = 256 * 2**10  # bytes that are read at once


class Stdin:
    """Reads lines in a thread. The thread may be blocked when the process ends."""

    name = "stdin"
    origin: str | None = None

    async def open(self, rebalances: Rebalances) -> None:
        del rebalances
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._begun, self._count, self._lines = b"", 0, list[bytes]()
        self._has_ended = False
        loop = asyncio.get_running_loop()

        def read() -> None:
            chunk = b"-"
            while chunk:
                chunk = os.read(sys.stdin.fileno(), _CHUNK)
                asyncio.run_coroutine_threadsafe(self._chunks.put(chunk), loop).result()

        threading.Thread(target=read, daemon=True).start()

    async def read(self, most: int, linger: float) -> Sequence[Received] | None:
        if most == 0:
            await asyncio.sleep(0.02)
            return ()
        if not self._lines and not self._has_ended:
            with suppress(TimeoutError):
                self._add(await asyncio.wait_for(self._chunks.get(), 1.0))
            if len(self._lines) < most and not self._has_ended:
                await asyncio.sleep(linger)
        if self._has_ended and not self._lines:
            return None
        lines, self._lines = self._lines[:most], self._lines[most:]
        self._count += len(lines)
        numbered = enumerate(lines, self._count - len(lines) + 1)
        return [read_message(line, f"stdin:{number}") for number, line in numbered if line.strip()]

    def _add(self, chunk: bytes) -> None:
        *lines, self._begun = (self._begun + chunk).split(b"\n")
        self._lines += lines
        if not chunk:
            self._has_ended = True
            self._lines += [self._begun] if self._begun else []

    async def acknowledge(self, received: Sequence[Received]) -> None: ...

    async def close(self) -> None: ...


def source(_: str) -> Source:
    """Return the source that reads standard input."""
    return Stdin()


def settlement(url: str, source: Source | None, names: Mapping[str, str]) -> Settlement:
    """Return the settlement that writes outputs to standard output."""
    del url, names

    async def send(outputs: Sequence[CommittedOutput]) -> None:
        lines = memoryview(b"".join(written(each) + b"\n" for each in outputs))
        while lines:
            lines = lines[os.write(sys.stdout.fileno(), lines) :]

    return Settlement("stdout", source, send)
