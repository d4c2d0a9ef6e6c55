"""Truncation: every stream of a table, cut by the same rules or by the policies, on all workers of a Spark session."""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from eventstore import EventStoreError, KeyRange
from eventstore.connect import portable_url
from eventstore.stream import count_and_split
from runtime.algorithms.state_based.truncation import (
    MINIMUM_AGE,
    HeldBy,
    Truncated,
    TruncationChoices,
    TruncationRules,
    ago,
    take_letters,
    take_versions,
    truncate_stream,
)
from runtime.archives.versions import LetterPart, VersionPart, prepare_parts
from runtime.batch_options import TablePlace, Wrap
from runtime.clock import Clock, system_clock
from runtime.dead_letters import FoundLetter, to_line
from runtime.errors import BatchFailedError, LeaseLostError, StoredDataError, UsageError
from runtime.leases import RENEW_SECONDS, Lease, Leases
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.maintenance.policies import NO_RULES, Decision, Policies, PolicyReader, Scope
from runtime.publishing.records import prune_publications
from runtime.retries import Pace, PacedTable, RetryPolicy
from runtime.spark.scan import FOUND, RANGES_OF_A_CORE, Documents, Task, documents_of, scanned
from runtime.spark.session import cores_of, failing_as, job_settings
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, check_reach, open_table
from runtime.versions.dead_letters import Letter
from runtime.versions.stream import stream_keys

# Holding the lease of a table in a driver: taken, renewed in a thread of its own, and given back at the end.


@contextmanager
def holding(place: TablePlace, clock: Clock, *, take_over: bool) -> Iterator[str]:
    """Hold the lease while the block is worked through, and give its token.

    When somebody has taken it over, `LeaseLostError` is raised when the block ends, in whatever way; workers look for
    the token themselves, and end it. Raises `LeaseHeldError`.
    """
    connection = Connection(place, make=False)
    try:
        leases = Leases(connection.table, clock)
        keeper = _Keeper(place, clock, connection.run(leases.take(_name(), take_over=take_over)))
        try:
            yield keeper.lease.token
        finally:
            keeper.end()
            if keeper.lost is not None:
                raise keeper.lost
            with suppress(EventStoreError):  # it expires by itself
                connection.run(leases.release(keeper.lease))
    finally:
        connection.close()


class _Keeper:
    """Renews a lease again and again, until it is ended or the lease is lost."""

    def __init__(self, place: TablePlace, clock: Clock, lease: Lease) -> None:
        self.lease = lease
        self.lost: LeaseLostError | None = None
        self._place = place
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Renew it no more."""
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        connection = Connection(self._place, make=False)
        leases = Leases(connection.table, self._clock)
        try:
            while not self._ended.wait(RENEW_SECONDS):
                # A store that does not answer now may do so before the lease expires.
                with suppress(EventStoreError):
                    self.lease = connection.run(leases.renew(self.lease))
        except LeaseLostError as error:
            self.lost = error
        finally:
            connection.close()


def _name() -> str:
    """Return what tells this process from others, to people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = str(os.getuid())
    return f"{user} on {socket.gethostname()} (process {os.getpid()})"


GIVEN = "given"
"""Rules that are no policy."""

_STREAMS_OF_A_RANGE = 2000
_MAX_ROWS = 4096
_KIND = ("handler", "rules", "held")
SUMS = ("streams", "cut", "versions", "runs", "rows", "bytes", "letters", "requests")
REPORT = StructType(
    [
        *[StructField(name, StringType()) for name in (*_KIND, "stream")],
        *[StructField(name, LongType()) for name in ("kept_from", "newest", "horizon", *SUMS)],
    ]
)
"""A document for one stream, or without one for all that have handler, rules and what holds them in common."""

_OF_A_STREAM = (
    "stream",
    "versions",
    "runs",
    "rows",
    "bytes",
    "letters",
    "kept_from",
    "newest",
    "horizon",
    "held",
)


@dataclass(frozen=True, kw_only=True)
class TruncationOptions(TruncationChoices):
    """What is cut of a table, and how. Times are microseconds.

    A version goes only when every rule given lets it. It never goes when its batch is not published or abandoned, when
    it is in the newest run of its stream, or, without `allow_young`, within a day; nor when it is of a single message
    whose outputs may be unpublished and nobody promises that it was acknowledged; nor when a letter waits that is not
    newer and is not given up. Without any rule the policies of the table are applied; a stream that they hold is never
    cut. With `dry_run` nothing is written.

    Folders are seen by driver and workers. Versions are cut once they were read back from files in `export`.
    """

    clock: Clock = system_clock
    wrap: Wrap | None = None


class Kind(NamedTuple):
    """What streams are counted by: their handler, whose rules they were cut by, and what holds them.

    Rules are those `given`, or a policy of the `table`, the `handler` or the `stream`; None when there are none.
    """

    handler: str
    rules: str | None
    held: str | None


@dataclass(frozen=True, slots=True)
class TruncatedCount:
    """Streams of a handler that were cut by the same rules and are held by the same, and what was cut of them.

    `letters` were given up. `rules` says whose rules they were, and `held` what keeps more of the streams: see
    `Kind`.
    """

    handler: str
    rules: str | None
    held: str | None
    streams: int
    cut: int
    versions: int
    runs: int
    rows: int
    bytes: int
    letters: int = 0


@dataclass(frozen=True, slots=True)
class Truncation:
    """What was cut of a table, or would be, and how many requests that took.

    `streams` has, where a report was asked for, a row for each stream that was cut or held.
    """

    counts: list[TruncatedCount]
    requests: int
    streams: DataFrame | None = None


def truncate(
    spark: SparkSession,
    *,
    store: str,
    table: str,
    **options: Any,  # noqa: ANN401 - the fields of TruncationOptions
) -> Truncation:
    """Cut old versions of all state streams of a table, and return what was cut.

    `options` are the fields of `TruncationOptions`. One truncation at a time holds the lease of the table.

    Raises `UsageError` for rules that make no sense, or no rules and no policies, `LeaseHeldError`, `LeaseLostError`
    when the lease was taken over meanwhile, `TableNotFoundError` when there is no such table, and `BatchFailedError`
    when the job failed: run it again.
    """
    chosen = TruncationOptions(**options)
    if chosen.is_given:
        chosen.as_of(
            chosen.clock(), OpenBatches()
        )  # what cannot be is refused before the table is looked for
    connection = open_table(store, table, make=False)
    check_reach(connection, spark)
    with job_settings(spark):
        return _Truncating(spark, TablePlace(store, table), chosen, connection).run()


class _Truncating:
    """A truncation under way: the requests of its driver are counted and paced like those of the workers."""

    def __init__(
        self, spark: SparkSession, place: TablePlace, options: TruncationOptions, connection: Connection
    ) -> None:
        self._spark = spark
        self._place = place
        self._options = options
        self._connection = connection
        pace = options.max_requests_per_second
        self._table = PacedTable(connection.table, Pace(pace) if pace else None)
        self._ledger = Ledger(self._table, options.clock)

    def run(self) -> Truncation:
        """Cut the streams, prune the ledger, and return what was cut."""
        options, now = self._options, self._options.clock()
        policies = Policies(self._table, options.clock)
        if not options.is_given and not self._connection.run(policies.has_rules()):
            raise UsageError(NO_RULES)
        open_batches = self._connection.run(self._ledger.open_batches())
        job = TruncationJob(
            given=options.as_of(now, open_batches) if options.is_given else None,
            now=now,
            open_batches=open_batches,
            acknowledged=ago(now, options.acknowledged_after),
            give_up=ago(now, options.give_up_letters_older_than),
            dry_run=options.dry_run,
            clock=options.clock,
            with_streams=options.report is not None,
            export=None if options.export is None else str(Path(options.export).absolute()),
            wrap=options.wrap,
        )
        with ExitStack() as stack:
            if not options.dry_run:
                lease = holding(self._place, options.clock, take_over=options.take_over)
                job = replace(job, token=stack.enter_context(lease))
                if job.export is not None:
                    prepare_parts(Path(job.export))
            truncation = self._cut(job)
            if not options.dry_run:
                self._prune(policies, now)
        return replace(truncation, requests=truncation.requests + self._table.calls)

    def _cut(self, job: TruncationJob) -> Truncation:
        """Have the workers cut the streams, range by range."""
        options, parallel = self._options, cores_of(self._spark)
        _, ranges = self._connection.run(
            count_and_split(self._table, RANGES_OF_A_CORE * parallel, _STREAMS_OF_A_RANGE)
        )
        if options.max_requests_per_second:
            workers = min(len(ranges), parallel)
            job = replace(job, requests_per_second=options.max_requests_per_second / workers)
        task = Task(job, TablePlace(portable_url(self._place.store), self._place.table))
        found = scanned(self._spark, task, ranges)
        try:
            # Collected, not grouped: Spark would carry a lost part of the job out again, when all was cut.
            return (
                _summed(documents_of(found))
                if options.report is None
                else _reported(self._spark, found, str(options.report))
            )
        except BatchFailedError as error:
            # A worker's error comes as text.
            if LeaseLostError.__name__ in str(error.__cause__):
                raise LeaseLostError(str(error)) from error
            raise

    def _prune(self, policies: Policies, now: int) -> None:
        """Delete the rows of batches, and of their publications, by the age that is given or the table's own policy."""
        age = self._options.older_than
        if not self._options.is_given:
            # Rows of batches are no stream's, and go by the policy of the table itself.
            policy = self._connection.run(policies.get(Scope()))
            age = policy.rules.older_than if policy.rules and not policy.hold else None
        if age is not None:
            self._connection.run(self._ledger.prune(now - max(age, MINIMUM_AGE)))
            self._connection.run(prune_publications(self._table, self._options.clock))


def _reported(spark: SparkSession, found: DataFrame, folder: str) -> Truncation:
    """Write what was found as a report, and sum it up from there."""
    rows = found.select(sf.from_json(FOUND, REPORT, {"mode": "FAILFAST"}).alias("row")).select("row.*")
    with failing_as(BatchFailedError):
        rows.withColumn("horizon", sf.timestamp_micros("horizon")).write.parquet(folder)
        written = spark.read.parquet(folder)
        sums = written.groupBy(*_KIND).agg(*[sf.sum(name).alias(name) for name in SUMS]).collect()
    streams = written.where(sf.col("stream").isNotNull()).select(*_OF_A_STREAM)
    return replace(_summed(row.asDict() for row in sums), streams=streams)


def _summed(rows: Iterable[Mapping[str, Any]]) -> Truncation:
    sums: dict[Kind, dict[str, int]] = defaultdict(lambda: dict.fromkeys(SUMS, 0))
    for row in rows:
        kind = sums[Kind(*(row[name] for name in _KIND))]
        for name in SUMS:
            kind[name] += row[name]
    requests = sum(each.pop("requests") for each in sums.values())
    counts = [
        TruncatedCount(kind.handler, kind.rules, kind.held, **each)
        for kind, each in sums.items()
        if each["streams"]
    ]
    return Truncation(
        sorted(counts, key=lambda each: (each.handler, each.rules or "", each.held or "")), requests
    )


@dataclass(frozen=True)
class TruncationJob:
    """All that a worker needs to truncate streams.

    With `export`, a folder, versions are cut and letters are given up once they are in verified files there. Without
    `given` rules the policies count. With `token` the worker goes on only while the lease has it. Single
    messages handled before `acknowledged` count as acknowledged, whatever the rules promise; letters refused before
    `give_up` are given up. `with_streams` gives a document for each stream that was cut or is held.
    """

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

    def begin(self, connection: Connection) -> Callable[[KeyRange], Documents]:
        """Return what truncates the streams of a range, and gives documents of `REPORT`."""
        return _Worker(self, connection).cut


class _Exported(NamedTuple):
    """What of a stream is in verified files: its versions up to one, and the letters with these numbers."""

    up_to: int = 0
    letters: frozenset[int] = frozenset()


class _Looked(NamedTuple):
    """What became of a stream."""

    kind: Kind
    truncated: Truncated | None = None


class _Worker:
    """Truncates streams, as many at once as the store answers quickly."""

    def __init__(self, job: TruncationJob, connection: Connection) -> None:
        self._job = job
        self._connection = connection
        self._concurrency = ConcurrencyLimit(job.in_flight)
        table = job.wrap(self._connection.table) if job.wrap else self._connection.table
        pace = Pace(job.requests_per_second) if job.requests_per_second else None
        self._table = PacedTable(self._connection.measured(table, self._concurrency), pace)
        self._looked_at_lease = 0.0

    def cut(self, keys: KeyRange) -> Documents:
        """Truncate the streams of a range."""
        before = self._table.calls
        tally: dict[Kind, dict[str, Any]] = {}
        rows: list[dict[str, Any]] = []
        self._check_lease()
        for kind, truncated in self._connection.run_all(self._work(keys), self._concurrency):
            found = _sums(kind, truncated)
            if (
                self._job.with_streams
                and truncated
                and (truncated.versions or truncated.held or truncated.letters)
            ):
                places = ("stream", "kept_from", "newest", "horizon")
                rows.append(found | {name: getattr(truncated, name) for name in places})
                if len(rows) >= _MAX_ROWS:
                    yield rows
                    rows = []
                continue
            sums = tally.setdefault(kind, _sums(kind, None) | {"streams": 0})
            for name in SUMS:
                sums[name] += found[name]
        requests = self._table.calls - before
        yield [
            *rows,
            *tally.values(),
            _sums(Kind("", None, None), None) | {"streams": 0, "requests": requests},
        ]

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


def _sums(kind: Kind, truncated: Truncated | None) -> dict[str, Any]:
    """Return what one stream adds to the sums of its kind."""
    sums: dict[str, Any] = {**kind._asdict(), **dict.fromkeys(SUMS, 0), "streams": 1}
    if truncated is not None:
        sums |= {name: getattr(truncated, name) for name in ("versions", "runs", "rows", "bytes", "letters")}
        sums["cut"] = int(truncated.versions > 0)
    return sums
