"""The settings under which the jobs run, on a session of one's own for the time of a job only."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.sql import DataFrame, SparkSession

from runtime.spark.sessions.failures import unless_gone

_OF_TEXTS = "spark.sql.parser.escapedStringLiterals"
"""Is false unless somebody sets it, of which Spark warns each time."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Small letters are those of Java: before the first, ICU looks at each character that there is, for a second.
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # How many rows are decoded at once: bodies of 1 MiB are as many MiB, in each task.
    "spark.sql.parquet.columnarReaderBatchSize": "64",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # How the texts are written that plans are made of.
    _OF_TEXTS: "false",
    # Under these, messages would be lost, or the rows of a stream be on several workers.
    "parquet.page.verify-checksum.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
}

AT_START = {name: value for name, value in SETTINGS.items() if name != _OF_TEXTS}
"""Those that a session of one's own has from its start."""

_NAME = "consistent.messaging.session"
"""A setting that names a session while jobs are under way on it: two objects may stand for one session."""

_lock = threading.Lock()
_loans: dict[str, _Loan] = {}


class _Loan:
    """A session under the settings of jobs: how many are under way, and what it had before the first."""

    def __init__(self) -> None:
        self.jobs = 0
        self.before: Mapping[str, str | None] = {}


@contextmanager
def job_settings(spark: SparkSession, messages: object = None) -> Iterator[None]:
    """Run what is in the block under the settings of jobs, and leave the session as it was.

    A DataFrame is run in the session that it was made in, which may be another one. Jobs that run at the same time on a
    session share the settings; the last to end gives the session back.
    """
    with ExitStack() as stack:
        stack.enter_context(_settings_of_one(spark))
        if isinstance(messages, DataFrame):
            stack.enter_context(_settings_of_one(messages.sparkSession))
        yield


def keep_job_settings(copy: SparkSession) -> None:
    """Have a copy of a session, such as that of a query, under the settings of jobs as long as there is one."""
    copy.conf.unset(_NAME)  # it is not the session on which jobs may be under way
    _set(copy, SETTINGS)


@contextmanager
def planned_once(copy: SparkSession) -> Iterator[None]:
    """Run what is in the block by the plan that Spark makes at first, on a session that nobody else runs anything on.

    Planning again after each stage makes each of them a job of its own.
    """
    before = _set(copy, {"spark.sql.adaptive.enabled": "false"})
    try:
        yield
    finally:
        with unless_gone():
            _set(copy, before)


@contextmanager
def _settings_of_one(session: SparkSession) -> Iterator[None]:
    with _lock:
        name = session.conf.get(_NAME, None) or uuid.uuid4().hex
        loan = _loans.setdefault(name, _Loan())
        if not loan.jobs:
            loan.before = _set(session, {**SETTINGS, _NAME: name})
        loan.jobs += 1
    try:
        yield
    finally:
        with _lock:
            loan.jobs -= 1
            if not loan.jobs:
                del _loans[name]
                with unless_gone():
                    _set(session, loan.before)


def _set(session: SparkSession, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    """Change the settings of a session that are others, and return what these were; None for one that is not set."""
    found = {name: session.conf.get(name, None) for name in wanted}
    before = {name: value for name, value in found.items() if value != wanted[name]}
    if before.get(_OF_TEXTS, "true") is None:
        del before[_OF_TEXTS]
    for name in before:
        value = wanted[name]
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    return before
