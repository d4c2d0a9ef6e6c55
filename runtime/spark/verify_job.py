"""What the workers of a verification do: compare the deliveries of a partition, stream by stream, and add up.

What matches is counted. Of what differs, each stream gives the first version for each kind of difference.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from eventstore import Table
from handlers import App
from runtime.algorithms.state_based.verification import Finding, Verdict, Verifier
from runtime.archives.versions import ExportedVersions
from runtime.errors import StoredDataError
from runtime.messages.dead_letters import without_values
from runtime.messages.deliveries import Delivery
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.outcome import Outcome
from runtime.messages.outputs import Outputs
from runtime.messages.parsing import prepare_all, unroutable
from runtime.retries import RetryPolicy
from runtime.spark.schemas import FOUND
from runtime.spark.workers.buffer import Buffer
from runtime.spark.workers.concurrency import ConcurrencyLimit, Wait
from runtime.spark.workers.connection import open_table
from runtime.spark.workers.deliveries import Group, groups
from runtime.spark.workers.garbage import rare_collections
from runtime.spark.workers.job import Wrap
from runtime.spark.workers.meter import Address, Meter
from runtime.spark.workers.outcomes import MAX_BYTES, outputs_array, outputs_bytes

_MAX_ROWS = 4096
_MAX_COUNTS = 1024

_Kind = tuple[str | None, str | None, int | None, Verdict]


@dataclass(slots=True)
class _Stream:
    """What was found of one stream so far: kinds of findings, and the last message that gave its outputs."""

    kinds: set[_Kind] = field(default_factory=set)
    delivered: str | None = None


class _Checked(NamedTuple):
    """The findings on a group of deliveries."""

    stream: _Stream
    findings: Sequence[Finding]


@dataclass(slots=True)
class _Row:
    """Findings of one kind, with the first of them as the example."""

    first: Finding
    deliveries: int = 0
    streams: int = 0

    def add(self, finding: Finding, *, is_new: bool) -> None:
        self.deliveries += finding.message_id is not None
        self.streams += is_new
        if (finding.version or 0) < (self.first.version or 0):
            self.first = finding


@dataclass(frozen=True)
class VerifyJob:
    """All that a worker needs to verify a partition of deliveries. `with_outputs` also gives what matches publish.

    `export` is a folder with versions that were cut. `number` tells one verification from another that is equal.
    `counts` is where the driver is told how far it is.
    """

    app: App
    store: str = field(repr=False)
    table: str
    in_flight: int = 32
    with_outputs: bool = False
    wrap: Wrap | None = None
    number: int = 0
    export: str | None = None
    counts: Address | None = None
    limits: MessageLimits = USUAL

    def verify(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare the deliveries of a partition with their stored versions, and give rows of `FOUND`."""
        connection = open_table(self.store, self.table, make=False)
        concurrency = ConcurrencyLimit(self.in_flight)
        table = self.wrap(connection.table) if self.wrap else connection.table
        worker = _Worker(self, connection.measured(table, concurrency))
        tally = _Tally()
        with rare_collections():
            for checked in connection.run_all(worker.work(batches), concurrency):
                tally.add(checked)
                if tally.is_full:
                    yield tally.flush()
                del checked  # or it would be kept while the next group is verified
            worker.meter.tell()
            yield tally.end()


class _Worker:
    """Verifies groups of deliveries, each with the code of its handler."""

    def __init__(self, job: VerifyJob, table: Table) -> None:
        self._app = job.app
        self._limits = job.limits
        self._buffer = Buffer()
        find_cut = None if job.export is None else ExportedVersions(Path(job.export)).find
        self.meter = Meter(job.counts, job.app)
        self._verifiers = {
            name: Verifier(table, handler, RetryPolicy(), with_outputs=job.with_outputs, find_cut=find_cut)
            for name, handler in job.app.handlers.items()
        }

    def work(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Coroutine[Any, Any, _Checked] | Wait]:
        """Give the work on each group."""
        stream = _Stream()
        for group in groups(batches):
            if not group.follows:
                stream = _Stream()
            yield from self._buffer.admit(group.size)
            yield self._check(group, stream)
            del group  # or it would be kept while the next one is read

    async def _check(self, group: Group, stream: _Stream) -> _Checked:
        findings = await self._findings(group)
        self._buffer.release(group.size)
        self.meter.add(group)
        return _Checked(stream, findings)

    async def _findings(self, group: Group) -> Sequence[Finding]:
        handler = self._app.handlers.get(group.handler or "")
        if handler is None:
            rows = zip(group.envelopes, group.problems, strict=True)
            return [
                _without_stream(unroutable(envelope, why, group.handler), group.handler)
                for envelope, why in rows
            ]
        prepared = prepare_all(handler, group.business_id, group.envelopes, self._limits)
        if group.business_id is None:
            return [_without_stream(each, handler.name) for each in prepared]
        try:
            return await self._verifiers[handler.name].verify(group.business_id, prepared)
        except StoredDataError as error:
            verdict = Verdict.STREAM_DAMAGED
            return [Finding(handler.name, group.business_id, None, None, verdict, error=str(error))]


class _Tally:
    """Adds up findings, and collects rows for those that differ."""

    def __init__(self) -> None:
        self._counts: dict[tuple[_Kind, str], _Row] = {}
        self._rows: list[_Row] = []
        self._outputs = Outputs()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._rows) >= _MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, checked: _Checked) -> None:
        """Take the findings on a group."""
        stream = checked.stream
        differing: dict[tuple[_Kind, str], _Row] = {}
        for finding in checked.findings:
            kind = (finding.handler, finding.type, finding.revision, finding.verdict)
            rows = differing if finding.verdict.is_difference else self._counts
            row = rows.setdefault((kind, self._alike(finding)), _Row(finding))
            row.add(finding, is_new=kind not in stream.kinds)
            stream.kinds.add(kind)
            # Copies of a message stand together, and the first of them gives the outputs.
            if finding.outputs and finding.message_id != stream.delivered:
                stream.delivered = finding.message_id
                outputs = Outputs.of(finding.outputs)
                self._outputs.extend(outputs)
                self._bytes += outputs_bytes(outputs)
        self._rows += differing.values()

    def _alike(self, finding: Finding) -> str:
        """Return what the errors of deliveries without a version have in common that are counted together."""
        if finding.verdict is not Verdict.UNKNOWN or len(self._counts) >= _MAX_COUNTS:
            return ""
        return without_values(finding.error or "")

    def flush(self) -> pa.RecordBatch:
        """Return the rows so far, and begin anew."""
        batch = _to_arrow(self._rows, self._outputs)
        self._rows, self._outputs, self._bytes = [], Outputs(), 0
        return batch

    def end(self) -> pa.RecordBatch:
        """Return the last rows, with what was counted."""
        self._rows += self._counts.values()
        return self.flush()


def _to_arrow(rows: list[_Row], outputs: Outputs) -> pa.RecordBatch:
    """Return a row for each kind, and one more with outputs when there are any."""
    firsts: list[Finding | None] = [row.first for row in rows]
    counts = [(row.deliveries, row.streams) for row in rows]
    if outputs:
        firsts.append(None)
        counts.append((0, 0))
    texts = [
        pa.array([getattr(first, name, None) for first in firsts], pa.string())
        for name in ("handler", "type", "verdict", "business_id", "message_id", "error")
    ]
    numbers = [
        pa.array([getattr(first, name, None) for first in firsts], pa.int64())
        for name in ("revision", "version")
    ]
    columns = [
        *texts,
        *numbers,
        pa.array([_changes(first) for first in firsts], pa.string()),
        pa.array([deliveries for deliveries, _ in counts], pa.int64()),
        pa.array([streams for _, streams in counts], pa.int64()),
        outputs_array([len(outputs) if first is None else 0 for first in firsts], outputs),
    ]
    return pa.RecordBatch.from_arrays(columns, names=FOUND.fieldNames())


def _changes(first: Finding | None) -> str | None:
    if first is None or not first.changes:
        return None
    return json.dumps([asdict(change) for change in first.changes], ensure_ascii=False)


def _without_stream(delivery: Delivery, handler: str | None) -> Finding:
    envelope = delivery.envelope
    error = delivery.error if isinstance(delivery, Outcome) else None
    return Finding(handler, None, envelope.message_id or "", envelope.type, Verdict.UNKNOWN, error=error)
