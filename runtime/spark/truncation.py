"""Truncate all streams of a table on the workers of a session, by rules or by the policies of the table."""

import getpass
import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventstore import EventStoreError, KeyRange
from eventstore.stream import count_and_split
from runtime.algorithms.state_based import truncation
from runtime.algorithms.state_based.truncation import HeldBy, Truncated, TruncationChoices, TruncationRules
from runtime.archives.versions import LetterPart, VersionPart, prepare_parts
from runtime.batch_options import TablePlace, Wrap
from runtime.clock import Clock, system_clock
from runtime.dead_letters import FoundLetter, to_line
from runtime.errors import BatchFailedError, LeaseLostError, StoredDataError, UsageError
from runtime.leases import RENEW_SECONDS, CleanUpLease
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.maintenance.policies import NO_RULES, Decision, Policies, PolicyReader, Scope
from runtime.publishing.records import prune_publications
from runtime.retries import Pace, RateLimitedTable, RetryPolicy
from runtime.spark.commit import absolute_folder
from runtime.spark.scan import FOUND, RANGES_OF_A_CORE, Documents, Task, documents_of, scanned
from runtime.spark.session import cores_of, failing_as, job_settings
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, open_current
from runtime.versions.dead_letter_rows import Letter
from runtime.versions.stream import stream_keys

GIVEN = "given"  # rules of the call, not of a policy
_STREAMS_OF_A_RANGE = 2000

_KIND = ("handler", "rules", "held")
_SUMS = ("streams", "cut", "versions", "runs", "rows", "bytes", "letters", "requests")
_OF_A_STREAM = (
    *("stream", "versions", "runs", "rows", "bytes", "letters"),
    *("kept_from", "newest", "horizon", "held"),
)
_REPORT = ", ".join(
    [f"{name} string" for name in (*_KIND, "stream")]
    + [f"{name} long" for name in ("kept_from", "newest", "horizon", *_SUMS)]
)
"""A row of the report: a stream, or the sum of streams with the same handler, rules and reason to be held."""


@contextmanager
def holding(place: TablePlace, clock: Clock, *, take_over: bool) -> Iterator[str]:
    """Context manager that holds and renews a table's clean-up lease. Workers check the lease with the yielded token.

    `take_over`: take the lease even from an active holder. If false, raises `LeaseHeldError` for such a holder. Raises
    `LeaseLostError` at the end of the block if the lease was lost meanwhile, unless the block raises another error.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user may have no name in a container
        user = str(os.getuid())
    holder = f"{user} on {socket.gethostname()} (process {os.getpid()})"
    with closing(Connection(place, make=False)) as connection:
        leases = CleanUpLease(connection.table, clock)
        lease, ended = connection.run(leases.take(holder, take_over=take_over)), threading.Event()
        lost: list[LeaseLostError] = []

        def renew() -> None:
            nonlocal lease
            with closing(Connection(place, make=False)) as own:
                renewed = CleanUpLease(own.table, clock)
                try:
                    while not ended.wait(RENEW_SECONDS):
                        # The store may be available again before the lease expires.
                        with suppress(EventStoreError):
                            lease = own.run(renewed.renew(lease))
                except LeaseLostError as error:
                    lost.append(error)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield lease.token
        finally:
            ended.set()
            thread.join()
            if not lost:
                with suppress(EventStoreError):  # it expires by itself
                    connection.run(leases.release(lease))
        if lost:
            raise lost[0]


@dataclass(frozen=True, kw_only=True)
class TruncationOptions(TruncationChoices):
    """The options of a truncation. Ages are in microseconds.

    A version is deleted if all given rules allow it, except while it

    - belongs to an open batch, or to the newest run (event) of its stream,
    - is younger than a day, unless `allow_young` is set,
    - was made outside a batch, by a message whose outputs may be unpublished (see `acknowledged_after`),
    - is not older than the stream's oldest waiting dead letter (see `give_up_letters_older_than`).

    Without rules, the policies of the table apply. A stream on hold is never truncated. With `export`, versions are
    deleted only after they have been read back from the files. Driver and workers must share the folders of `export`
    and `report`.
    """

    clock: Clock = system_clock
    wrap: Wrap | None = None

    def __post_init__(self) -> None:
        if self.export is not None:  # workers have other working directories
            object.__setattr__(self, "export", Path(self.export).absolute())
        if self.report is not None:
            absolute_folder(self.report)


@dataclass(frozen=True, slots=True)
class TruncatedCount:
    """Counts for the streams of a handler that have the same rules and the same reason to be held, if any."""

    handler: str
    rules: str | None  # `given`, or the level of the policy: `table`, `handler`, `stream`; None: no rules
    held: str | None
    streams: int
    cut: int
    versions: int
    runs: int
    rows: int
    bytes: int
    letters: int = 0  # discarded


@dataclass(frozen=True, slots=True)
class Truncation:
    """The deleted data (in a dry run: the data to delete), and the number of requests."""

    counts: list[TruncatedCount]
    requests: int
    streams: DataFrame | None = None  # the report: a row for each stream truncated or held


def truncate(
    spark: SparkSession,
    *,
    store: str,
    table: str,
    **options: Any,  # noqa: ANN401 - the fields of TruncationOptions
) -> Truncation:
    """Delete old versions of all state streams of a table. Return the counts.

    `options`: the fields of `TruncationOptions`. Takes the clean-up lease of the table.

    Raises `UsageError` for invalid rules, or without rules and policies, `LeaseHeldError` or `LeaseLostError` if
    another clean-up has the lease, `TableNotFoundError` for a missing table, and `BatchFailedError` if the job
    failed: run it again.
    """
    chosen = TruncationOptions(**options)
    now, rate = chosen.clock(), chosen.max_requests_per_second
    if chosen.is_given:
        chosen.as_of(now, OpenBatches())  # validates the rules before the table is opened
    table, connection = open_current(store, table, make=False, spark=spark)
    place = TablePlace(store, table)
    paced = RateLimitedTable(connection.table, Pace(rate) if rate else None)
    policies, ledger = Policies(paced, chosen.clock), Ledger(paced, chosen.clock)
    if not chosen.is_given and not connection.run(policies.has_rules()):
        raise UsageError(NO_RULES)
    job = TruncationJob(chosen, now, connection.run(ledger.open_batches()))
    with job_settings(spark), ExitStack() as stack:
        if not chosen.dry_run:
            lease = holding(place, chosen.clock, take_over=chosen.take_over)
            job = replace(job, token=stack.enter_context(lease))
            if chosen.export is not None:
                prepare_parts(chosen.export)
        parts = RANGES_OF_A_CORE * cores_of(spark)
        _, ranges = connection.run(count_and_split(paced, parts, _STREAMS_OF_A_RANGE))
        job = replace(job, requests_per_second=rate and rate / min(len(ranges), cores_of(spark)))
        found = scanned(spark, Task(job, place.for_workers()), ranges)
        try:
            # Collected, not aggregated by Spark, which could repeat part of the job after versions were deleted.
            report = chosen.report
            done = _summed(documents_of(found)) if report is None else _reported(found, str(report))
        except BatchFailedError as error:
            if LeaseLostError.__name__ in str(error.__cause__):  # Spark has only the text of a worker's error
                raise LeaseLostError(str(error)) from error
            raise
        if not chosen.dry_run:
            age = chosen.older_than
            if not chosen.is_given:  # batches belong to no stream, so the policy of the table applies
                policy = connection.run(policies.get(Scope()))
                age = policy.rules.older_than if policy.rules and not policy.hold else None
            if age is not None:
                connection.run(ledger.prune(now - max(age, truncation.MINIMUM_AGE)))
                connection.run(prune_publications(paced, chosen.clock))
    return replace(done, requests=done.requests + paced.calls)


def _reported(found: DataFrame, folder: str) -> Truncation:
    rows = found.select(sf.from_json(FOUND, _REPORT, {"mode": "FAILFAST"}).alias("row")).select("row.*")
    with failing_as(BatchFailedError):
        rows.withColumn("horizon", sf.timestamp_micros("horizon")).write.parquet(folder)
        written = found.sparkSession.read.parquet(folder)
        sums = written.groupBy(*_KIND).agg(*[sf.sum(name).alias(name) for name in _SUMS]).collect()
    streams = written.where(sf.col("stream").isNotNull()).select(*_OF_A_STREAM)
    return replace(_summed(row.asDict() for row in sums), streams=streams)


def _summed(rows: Iterable[Mapping[str, Any]]) -> Truncation:
    sums: defaultdict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in rows:
        sums[tuple(row[name] for name in _KIND)].update({name: row[name] for name in _SUMS})
    requests = sum(each["requests"] for each in sums.values())
    counts = [
        TruncatedCount(*kind, *(each[name] for name in _SUMS[:-1]))
        for kind, each in sums.items()
        if each["streams"]
    ]
    counts.sort(key=lambda each: (each.handler, each.rules or "", each.held or ""))
    return Truncation(counts, requests)


@dataclass(frozen=True)
class TruncationJob:
    """Truncates streams on a worker, while `token` holds the lease."""

    options: TruncationOptions
    now: int
    open_batches: OpenBatches
    token: str | None = None
    requests_per_second: float | None = None
    in_flight: int = 32

    def __call__(self, connection: Connection, ranges: Iterable[KeyRange]) -> Documents:
        concurrency = ConcurrencyLimit(self.in_flight)
        table = connection.measured(connection.table, concurrency, self.options.wrap)
        pace = Pace(self.requests_per_second) if self.requests_per_second else None
        return _Worker(self, connection, concurrency, RateLimitedTable(table, pace)).cut(ranges)

    def rules(self, decision: Decision) -> tuple[str | None, TruncationRules | None]:
        """Return the origin of a stream's rules (`GIVEN` or a policy's level) and the rules. No rules: `None, None`."""
        if self.options.is_given:
            return GIVEN, self.options.as_of(self.now, self.open_batches)
        if decision.rules is None or decision.rules.rules is None:
            return None, None
        rules = decision.rules.rules.as_of(self.now, self.open_batches)
        give_up = truncation.ago(self.now, self.options.give_up_letters_older_than)
        acknowledged = truncation.ago(self.now, self.options.acknowledged_after)
        if acknowledged is None:
            acknowledged = rules.acknowledged
        return decision.rules.scope.level, replace(rules, acknowledged=acknowledged, give_up=give_up)


_Exported = tuple[int | None, frozenset[int] | None]
"""The last exported version of a stream, and the exported letters. `None` means no limit."""


@dataclass
class _Worker:
    job: TruncationJob
    connection: Connection
    concurrency: ConcurrencyLimit
    table: RateLimitedTable
    looked_at_lease: float = 0.0

    def cut(self, ranges: Iterable[KeyRange]) -> Documents:
        for keys in ranges:
            before = self.table.calls
            found: dict[tuple[Any, ...], dict[str, Any]] = {}
            self._check_lease()
            for row in self.connection.run_all(self._work(keys), self.concurrency):
                of_kind = found.setdefault((row.get("stream"), *(row[name] for name in _KIND)), row)
                if of_kind is not row:
                    of_kind |= {name: of_kind[name] + row[name] for name in _SUMS}
            requests = self.table.calls - before
            yield [*found.values(), _row("", None, None) | {"streams": 0, "requests": requests}]

    def _work(self, keys: KeyRange) -> Iterator[Coroutine[Any, Any, dict[str, Any]]]:
        options, policies = self.job.options, PolicyReader(self.table)
        pages = stream_keys(self.table, keys)
        while (page := self.connection.run(anext(pages, None))) is not None:
            decisions = dict(zip(page, self.connection.run(policies.decide(page)), strict=True))
            exported: Mapping[str, _Exported] = dict.fromkeys(page, (None, None))
            if options.export is not None and not options.dry_run:
                exported = self.connection.run(self._export(options.export, decisions))
            for key, decision in decisions.items():
                if time.monotonic() - self.looked_at_lease >= RENEW_SECONDS:
                    self._check_lease()
                yield self._truncate(key, decision, *exported.get(key, (0, frozenset())))

    async def _export(self, folder: Path, decisions: Mapping[str, Decision]) -> Mapping[str, _Exported]:
        exported = {}
        with VersionPart(folder) as versions, LetterPart(folder) as letters:
            for key, decision in decisions.items():
                _, rules = self.job.rules(decision)
                if rules is None or decision.is_held:
                    continue
                handler, _, business_id = key.partition("-")

                def add(letter: Letter, handler: str = handler, business_id: str = business_id) -> None:
                    letters.add(to_line(FoundLetter(letter, handler, business_id)))

                take = partial(versions.add, handler, business_id)
                with suppress(StoredDataError):  # nothing is deleted from a corrupt stream
                    exported[key] = await truncation.take_old(
                        self.table, key, rules, RetryPolicy(), take, take_letter=add
                    )
            versions.close()
            letters.close()
        return exported

    def _check_lease(self) -> None:
        if self.job.token is not None:
            self.connection.run(CleanUpLease(self.table, self.job.options.clock).check(self.job.token))
        self.looked_at_lease = time.monotonic()

    async def _truncate(
        self, key: str, decision: Decision, up_to: int | None, letters_kept: frozenset[int] | None
    ) -> dict[str, Any]:
        handler = key.partition("-")[0]
        source, rules = self.job.rules(decision)
        if decision.is_held:
            return _row(handler, source, HeldBy.HOLD)
        if rules is None:
            return _row(handler, None, None)
        try:
            truncated = await truncation.truncate_stream(
                self.table,
                key,
                rules,
                RetryPolicy(),
                dry_run=self.job.options.dry_run,
                up_to=up_to,
                letters_kept=letters_kept,
            )
        except StoredDataError:
            truncated = Truncated(key, 0, 0, 0, 0, None, held=HeldBy.STREAM_DAMAGED)
        if truncated is None:
            return _row(handler, source, None)
        names = ["versions", "runs", "rows", "bytes", "letters"]
        if self.job.options.report is not None and (
            truncated.versions or truncated.held or truncated.letters
        ):
            names += ["stream", "kept_from", "newest", "horizon"]
        found = {name: getattr(truncated, name) for name in names}
        return _row(handler, source, truncated.held) | {"cut": int(truncated.versions > 0)} | found


def _row(handler: str, rules: str | None, held: str | None) -> dict[str, Any]:
    sums = dict.fromkeys(_SUMS, 0)
    return {"handler": handler, "rules": rules, "held": held} | sums | {"streams": 1}
