"""Outboxes on Spark: evict ids, and issue tokens for a message log.

Tokens are durable before the log with their names is written. A record of each log prevents a second issue from
creating a token again after its message was processed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from eventstore import KeyRange, Operation, RowExistsError, Table
from eventstore.stream import read_range
from handlers import App
from runtime.algorithms.choice import AlgorithmName, Dependencies, check_stores, handlers_of, make_outboxes
from runtime.algorithms.outbox.entity import ENTITY
from runtime.algorithms.outbox.stores import CHAIN_LENGTH, FIRST_IN_CHAIN, HEADER, TokenStore, first_tokens
from runtime.batch_options import Step, TablePlace
from runtime.clock import Clock, cut_off, system_clock
from runtime.errors import BatchFailedError, UsageError
from runtime.file_systems import open_folder
from runtime.maintenance.check import ISSUED
from runtime.messages.sizes import USUAL, MessageLimits
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.commit import absolute_folder
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import Log, describe_messages, open_log
from runtime.spark.scan import scan_with
from runtime.spark.session import check_workers, failing_as, job_settings
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, open_table, reach
from runtime.spark.worker.outcomes import rows_of


@dataclass(frozen=True)
class Issued:
    """The log with tokens, and the numbers of its deliveries and of rejected rows."""

    out: str
    deliveries: int
    rejected: int
    was_issued: bool


def issue_tokens(
    spark: SparkSession,
    messages: Log,
    app: App,
    place: TablePlace,
    out: str,
    *,
    source: str | None = None,
    log_format: str | None = None,
    limits: MessageLimits = USUAL,
    step: Step = lambda _: None,
) -> Issued:
    """Issue a token for each message of a log, and write the log with the tokens to a new folder, as Parquet.

    `place`: the table of the tokens. `source`: a prefix for message ids. Replaces existing tokens in the log. Writes
    rows that are invalid or beyond `limits` to a folder named `out` plus `.rejected`. Costs one request per message.
    Raises `UsageError` if one of the folders exists.

    Never issue tokens for processed messages, for example those of an earlier log: they would be processed again.
    """
    with job_settings(spark, messages):
        connection = open_table(place.store, place.table, spark=spark)
        check_workers(spark, partial(reach, app, place.for_workers()))
        given = open_log(spark, messages, log_format, step)
        log = normalise(given.rows, source, limits)
        folder = absolute_folder(out)
        for path in (folder, f"{folder}.rejected"):
            if open_folder(path).exists():
                raise UsageError(f"{path} already exists: remove it, or choose another --out.")
        step("Reading the log")
        what = sha256(f"{describe_messages(given)}; source={source}".encode()).hexdigest()[:32]
        was_issued = connection.run(connection.table.get(ISSUED, what)) is not None
        named = log.where(sf.col("problem").isNull()).withColumn("headers", _with_token())
        with failing_as(BatchFailedError):
            if not was_issued:
                step("Issuing tokens")
                new = log.where(sf.col("problem").isNull()).select("message_id", "type")
                issued = new.mapInArrow(partial(_issue, app, place.for_workers()), "messages long")
                issued.write.format("noop").mode("overwrite").save()
                connection.run(connection.table.barrier())
                connection.run(_note(connection.table, what, folder))
            step("Writing the log")
            named.drop("problem", "line").write.parquet(folder)
            rejected = log.where(sf.col("problem").isNotNull()).select("problem", "line")
            count = rejected.count()
            if count:
                rejected.write.parquet(f"{folder}.rejected")
            return Issued(folder, spark.read.parquet(folder).count(), count, was_issued)


def _issue(app: App, place: TablePlace, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    connection = open_table(place.store, place.table)
    concurrency = ConcurrencyLimit(32)
    store = TokenStore(connection.measured(connection.table, concurrency))
    retries = RetryPolicy().beside(connection.table)
    rows = rows_of(batches)
    tokens = (first_tokens(row["message_id"], handlers_of(app, row["type"])) for row in rows)
    work = (until_undisturbed(retries, partial(store.add, each)) for each in tokens if each)
    done = sum(1 for _ in connection.run_all(work, concurrency))
    yield pa.RecordBatch.from_pydict({"messages": pa.array([done], pa.int64())})


def _with_token() -> Column:
    """Return the headers, plus the name of the message's first token, as `first_tokens` computes the name in Python."""
    chain = sf.substring(sf.sha2(sf.encode("message_id", "UTF-8"), 256), 1, CHAIN_LENGTH)
    token = sf.create_map(sf.lit(HEADER), sf.concat(chain, sf.lit(f"/{FIRST_IN_CHAIN}")))
    others = sf.map_filter("headers", lambda name, _: name != HEADER)
    return sf.map_concat(sf.coalesce(others, sf.create_map().cast("map<string,string>")), token)


async def _note(table: Table, what: str, out: str) -> None:
    try:
        await table.transact(ISSUED, [Operation.insert(what, {"Out": out})])
    except RowExistsError:
        return
    finally:
        await table.barrier()


def evict(
    spark: SparkSession,
    app: App,
    place: TablePlace,
    older_than: timedelta,
    *,
    algorithm: AlgorithmName,
    ids: TablePlace | None = None,
    dry_run: bool = False,
    clock: Clock = system_clock,
) -> int:
    """Delete the ids of messages processed more than `older_than` ago, unless `dry_run`. Return the number of ids.

    `ids`: the table of the deduplication store; `None`: the table of the states. Costs a scan and the requests of
    `Processor.evict`. Raises `UsageError` for invalid arguments, and the errors of `scan`: call `evict` again to
    continue. Raises `StoredDataError` for corrupt entities, after all others are done.
    """
    check_stores(algorithm, deduplication_store=ids, token_store=None)
    open_table(place.store, place.table, ids, make=False, spark=spark)
    check_workers(spark, partial(reach, app, place.for_workers(), ids and ids.for_workers()))
    counts: list[int] = []
    latest = cut_off(clock, older_than)

    def forgotten(connection: Connection, keys: KeyRange) -> int:
        concurrency = ConcurrencyLimit(32)
        table = connection.measured(connection.table, concurrency)
        other = connection.measured(connection.other, concurrency)
        outboxes = make_outboxes(algorithm, Dependencies(app, table, deduplication_store=other))

        async def entities() -> list[str]:
            return [row.partition_key async for row in read_range(connection.table, ENTITY, keys, ())]

        found = ((key, outboxes.get(key.partition("-")[0])) for key in connection.run(entities()))
        work = (
            until_undisturbed(outbox.retries, partial(outbox.evict_from, key, latest, dry_run=dry_run))
            for key, outbox in found
            if outbox is not None
        )
        return sum(connection.run_all(work, concurrency))

    scan_with(spark, place, forgotten, counts.append, other=ids)
    return sum(counts)
