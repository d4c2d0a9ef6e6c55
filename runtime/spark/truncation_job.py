"""What the workers of a truncation do: cut the streams of a range of keys, and add up what was cut."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from eventstore import KeyRange
from runtime.algorithms.letters.lines import to_line
from runtime.algorithms.letters.selection import FoundLetter
from runtime.algorithms.state_based.old_letters import take_letters
from runtime.algorithms.state_based.truncation import Truncated, take_versions, truncate_stream
from runtime.algorithms.state_based.truncation_rules import HeldBy, TruncationRules
from runtime.archives.letters import LetterPart
from runtime.archives.versions import VersionPart
from runtime.batch_options import Wrap
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup.lease import RENEW_SECONDS, Leases
from runtime.cleanup.policies import Decision, PolicyReader
from runtime.clock import Clock
from runtime.errors import StoredDataError
from runtime.retries import RetryPolicy
from runtime.spark.workers.concurrency import ConcurrencyLimit
from runtime.spark.workers.connection import open_table
from runtime.spark.workers.pace import Pace, PacedTable
from runtime.storage.letters import Letter
from runtime.storage.listing import stream_keys

GIVEN = "given"
"""Rules that are no policy."""

_MAX_ROWS = 4096
_KIND = ("handler", "rules", "held")
SUMS = ("streams", "cut", "versions", "runs", "rows", "bytes", "letters", "requests")
REPORT = StructType(
    [
        *[StructField(name, StringType()) for name in (*_KIND, "stream")],
        *[StructField(name, LongType()) for name in ("kept_from", "newest")],
        StructField("horizon", TimestampType()),
        *[StructField(name, LongType()) for name in SUMS],
    ]
)
"""A row for one stream, or without one for all that have handler, rules and what holds them in common."""


class Kind(NamedTuple):
    """What streams are counted by: their handler, whose rules they were cut by, and what holds them.

    Rules are those `given`, or a policy of the `table`, the `handler` or the `stream`; None when there are none.
    """

    handler: str
    rules: str | None
    held: str | None


class _Exported(NamedTuple):
    """What of a stream is in verified files: its versions up to one, and the letters with these numbers."""

    up_to: int = 0
    letters: frozenset[int] = frozenset()


class _Looked(NamedTuple):
    """What became of a stream."""

    kind: Kind
    truncated: Truncated | None = None


@dataclass(frozen=True)
class TruncationJob:
    """All that a worker needs to truncate streams.

    With `export`, a folder, versions are cut and letters are given up once they are in verified files there. Without
    `given` rules the policies count. With `token` the worker goes on only while the lease has it. Single messages
    handled before `acknowledged` count as acknowledged, whatever the rules promise; letters refused before `give_up`
    are given up. `with_streams` gives a row for each stream that was cut or is held.
    """

    store: str = field(repr=False)
    table: str
    given: TruncationRules | None
    now: int
    open_batches: OpenBatches
    acknowledged: int | None
    give_up: int | None
    dry_run: bool
    clock: Clock
    token: str | None = None
    export: str | None = None
    requests_per_second: float | None = None
    with_streams: bool = False
    in_flight: int = 32
    wrap: Wrap | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Truncate the streams of the ranges of keys that come in, and give rows of `REPORT`."""
        worker = _Worker(self)
        for row in (row for batch in batches for row in batch.to_pylist()):
            yield from worker.cut(KeyRange(**row))


class _Worker:
    """Truncates streams, as many at once as the store answers quickly."""

    def __init__(self, job: TruncationJob) -> None:
        self._job = job
        self._connection = open_table(job.store, job.table, make=False)
        self._concurrency = ConcurrencyLimit(job.in_flight)
        table = job.wrap(self._connection.table) if job.wrap else self._connection.table
        pace = Pace(job.requests_per_second) if job.requests_per_second else None
        self._table = PacedTable(self._connection.measured(table, self._concurrency), pace)
        self._looked_at_lease = 0.0

    def cut(self, keys: KeyRange) -> Iterator[pa.RecordBatch]:
        """Truncate the streams of a range."""
        before, tally = self._table.calls, _Tally(self._job.with_streams)
        self._check_lease()
        for looked in self._connection.run_all(self._work(keys), self._concurrency):
            tally.add(looked)
            if tally.is_full:
                yield tally.flush()
        yield tally.end(self._table.calls - before)

    def _work(self, keys: KeyRange) -> Iterator[Coroutine[Any, Any, _Looked]]:
        policies = PolicyReader(self._table)
        pages = stream_keys(self._table, keys)
        while (page := self._connection.run(anext(pages, None))) is not None:
            decisions = self._connection.run(policies.decide(page))
            exported: Mapping[str, _Exported] | None = None
            if self._job.export is not None and not self._job.dry_run:
                exported = self._connection.run(self._export(Path(self._job.export), page, decisions))
            for key, decision in zip(page, decisions, strict=True):
                if time.monotonic() - self._looked_at_lease >= RENEW_SECONDS:
                    self._check_lease()
                yield self._truncate(
                    key, decision, None if exported is None else exported.get(key, _Exported())
                )

    async def _export(
        self, folder: Path, keys: Sequence[str], decisions: Sequence[Decision]
    ) -> Mapping[str, _Exported]:
        """Write the versions and letters that are to go of some streams to files, verified, and say what that is."""
        exported = {}
        with VersionPart(folder) as part, LetterPart(folder) as refused:
            for key, decision in zip(keys, decisions, strict=True):
                _, rules = self._rules(decision)
                if rules is not None and not decision.is_held:
                    handler, _, business_id = key.partition("-")
                    add = partial(part.add, handler, business_id)
                    add_letter = partial(_add_letter, refused, handler, business_id)
                    with suppress(StoredDataError):  # of which nothing is cut
                        exported[key] = _Exported(
                            await take_versions(self._table, key, rules, RetryPolicy(), add),
                            await take_letters(self._table, key, rules, RetryPolicy(), add_letter),
                        )
            part.close()
            refused.close()
        return exported

    def _check_lease(self) -> None:
        if self._job.token is not None:
            self._connection.run(Leases(self._table, self._job.clock).check(self._job.token))
        self._looked_at_lease = time.monotonic()

    async def _truncate(self, key: str, decision: Decision, exported: _Exported | None) -> _Looked:
        handler = key.partition("-")[0]
        source, rules = self._rules(decision)
        if decision.is_held:
            return _Looked(Kind(handler, source, HeldBy.HOLD))
        if rules is None:
            return _Looked(Kind(handler, None, None))
        dry_run = self._job.dry_run
        try:
            truncated = await truncate_stream(
                self._table,
                key,
                rules,
                RetryPolicy(),
                dry_run=dry_run,
                up_to=exported.up_to if exported else None,
                letters_kept=exported.letters if exported else None,
            )
        except StoredDataError:
            truncated = Truncated(key, 0, 0, 0, 0, None, held=HeldBy.STREAM_DAMAGED)
        return _Looked(Kind(handler, source, truncated.held if truncated else None), truncated)

    def _rules(self, decision: Decision) -> tuple[str | None, TruncationRules | None]:
        job = self._job
        if job.given is not None:
            return GIVEN, self._promised(job.given)
        if decision.rules is None or decision.rules.rules is None:
            return None, None
        rules = decision.rules.rules.as_of(job.now, job.open_batches)
        return decision.rules.scope.level, self._promised(rules)

    def _promised(self, rules: TruncationRules) -> TruncationRules:
        job = self._job
        acknowledged = rules.acknowledged if job.acknowledged is None else job.acknowledged
        return replace(rules, acknowledged=acknowledged, give_up=job.give_up)


def _add_letter(part: LetterPart, handler: str, business_id: str, letter: Letter) -> None:
    part.add(to_line(FoundLetter(letter, handler, business_id)))


class _Tally:
    """Adds up what was cut, and with `with_streams` keeps a row for each stream that was cut or is held."""

    def __init__(self, with_streams: bool) -> None:  # noqa: FBT001 - one of its kind
        self._with_streams = with_streams
        self._rows: list[dict[str, Any]] = []
        self._sums: dict[Kind, dict[str, Any]] = {}

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._rows) >= _MAX_ROWS

    def add(self, looked: _Looked) -> None:
        """Take what became of a stream."""
        kind, truncated = looked
        row: dict[str, Any] = {**kind._asdict(), **dict.fromkeys(SUMS, 0), "streams": 1}
        if truncated is not None:
            row |= {
                "stream": truncated.stream,
                "kept_from": truncated.kept_from,
                "newest": truncated.newest,
                "horizon": truncated.horizon,
                "cut": int(truncated.versions > 0),
                "versions": truncated.versions,
                "runs": truncated.runs,
                "rows": truncated.rows,
                "bytes": truncated.bytes,
                "letters": truncated.letters,
            }
            if self._with_streams and (truncated.versions or truncated.held or truncated.letters):
                self._rows.append(row)
                return
        self._add(kind, row)

    def flush(self) -> pa.RecordBatch:
        """Return the rows of streams so far."""
        rows, self._rows = self._rows, []
        return _to_arrow(rows)

    def end(self, requests: int) -> pa.RecordBatch:
        """Return the last rows, with what was added up."""
        self._add(Kind("", None, None), {**dict.fromkeys(SUMS, 0), "requests": requests})
        self._rows += self._sums.values()
        return self.flush()

    def _add(self, kind: Kind, row: dict[str, Any]) -> None:
        sums = self._sums.setdefault(kind, {**kind._asdict(), **dict.fromkeys(SUMS, 0)})
        for name in SUMS:
            sums[name] += row[name]


def _to_arrow(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    texts = [pa.array([row.get(name) for row in rows], pa.string()) for name in (*_KIND, "stream")]
    places = [pa.array([row.get(name) for row in rows], pa.int64()) for name in ("kept_from", "newest")]
    horizons = pa.array([row.get("horizon") for row in rows], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    sums = [pa.array([row[name] for row in rows], pa.int64()) for name in SUMS]
    return pa.RecordBatch.from_arrays([*texts, *places, horizons, *sums], names=REPORT.fieldNames())
