"""Outputs of single messages that may be unpublished, because their worker died after the append.

The queue redelivers such a message, and its copy is replayed on the version before its own: while that is kept,
nothing is lost. So versions of single messages go only when they have no outputs, or when their consumer or the
operator says that these are published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from eventstore import Stream
from runtime.messages.digests import NO_OUTPUTS
from runtime.storage.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    Commit,
    Run,
    RunIndex,
    read_run,
)
from runtime.storage.tail import NO_EVENT, Tail


@dataclass(slots=True)
class StoredOutputs:
    """Tells which versions of a stream have outputs, by the digests of these."""

    stream: Stream
    tail: Tail | None
    _tail_as_run: Run | None = field(default=None, init=False)

    async def of(self, run: RunIndex, is_acknowledged: Callable[[Commit], bool]) -> bool:
        """Say whether versions in a run, other than those of acknowledged commits, have outputs.

        Costs one request, none for the tail.
        """
        read = await self._read(run)
        digests = read.versions.outputs_digests
        starts = accumulate((commit.length for commit in run.commits), initial=run.first - read.first)
        return any(
            digest != NO_OUTPUTS
            for commit, start in zip(run.commits, starts, strict=False)
            if not is_acknowledged(commit)
            for digest in digests[start : start + commit.length]
        )

    async def _read(self, run: RunIndex) -> Run:
        """Return a run with its versions; for a segment of the tail, the whole tail."""
        if run.event == NO_EVENT and self.tail is not None:
            self._tail_as_run = self._tail_as_run or self.tail.run()
            return self._tail_as_run
        select = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]
        (event,) = await Stream.read_events(self.stream, run.event, run.event, select=select)
        return read_run(event)
