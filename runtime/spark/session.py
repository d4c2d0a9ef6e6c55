"""Spark sessions that need nothing from the shell: Java found, workers on this interpreter, output in a file."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from runtime.errors import MissingExtraError, UsageError
from runtime.namesakes import search_path
from runtime.spark.java import JAVA_MISSING, find_java

_RAISED = re.compile(
    r"^\S*?((?:runtime|eventstore|handlers)\.[\w.]*Error|[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
_CALLING = re.compile(r"An error occurred while calling \S+\n: ")
_OURS = ("runtime.", "eventstore.", "handlers.")
_LENGTH = 2000


def is_of_spark(error: BaseException) -> bool:
    """Return whether an error is one that Spark raises, in a session of any kind."""
    # A session of this process raises some of py4j, the bridge to its JVM.
    return any(each.__module__.partition(".")[0] in ("pyspark", "py4j") for each in type(error).__mro__)


@contextmanager
def failing_as(failure: Callable[[str], Exception], what_to_do: str = "") -> Iterator[None]:
    """Raise a failure, made of one sentence and what to do, in place of what Spark raises in the block."""
    try:
        yield
    except Exception as error:
        if not (is_of_spark(error) or isinstance(error, ConnectionError)):
            raise
        raise failure(explain(error, what_to_do)) from error


@contextmanager
def unless_gone() -> Iterator[None]:
    """End the block, without an error, where a session is no longer there."""
    try:
        yield
    except Exception as error:
        if not (is_of_spark(error) or isinstance(error, OSError)):
            raise


def explain(error: Exception, what_to_do: str = "") -> str:
    """Return what stopped a Spark job, without the traces of two languages around it, and what to do.

    That is the last of our own errors in its text, else the last one, else its first line.
    """
    text = _CALLING.sub("", str(error), count=1)
    raised: list[tuple[str, str]] = _RAISED.findall(text)
    ours = [sentence for name, sentence in raised if name.startswith(_OURS)]
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        cause = (
            "Java, in which Spark runs, has ended or does not answer: the machine may have too little memory."
        )
    elif ours:
        cause = ours[-1]
    elif raised:
        cause = f"A Spark task failed with {raised[-1][0]}: {raised[-1][1]}"
    else:
        cause = text.strip().partition("\n")[0] or "Spark failed without saying why."
    cause = cause[:_LENGTH]
    ended = cause if cause.endswith((".", "!", "?")) else f"{cause}."
    return f"{ended} {what_to_do}".rstrip()


REMOTE = "sc://"
LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?\Z")
_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, whose driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(master: str) -> bool:
    """Return whether all work is done in the working directory of this machine.

    `local-cluster` is not meant: its workers have directories of their own, where a relative path is another file.
    """
    return LOCAL.match(master) is not None


def may_be_local(master: str) -> bool:
    """Return whether all work may be done on this machine: a server of Spark Connect says its master when asked."""
    return is_local(master) or (is_remote(master) and urlsplit(master).hostname in LOOPBACK)


def is_remote(master: str) -> bool:
    """Return whether a url is one of Spark Connect."""
    return master.startswith(REMOTE)


def setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting of a session, None where it has none, or does not tell."""
    try:
        return spark.conf.get(name, None)
    except PySparkException:  # some platforms keep most of them to themselves
        return None


def master_of(spark: SparkSession) -> str:
    """Return where a session works: its master, or the url of a server of Spark Connect on another machine."""
    if is_connect(spark) and (host := str(spark.client.host)) not in LOOPBACK:
        return f"{REMOTE}{host}"
    return setting(spark, "spark.master") or "unknown"


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks Spark would make of what has no partitions of its own: its default parallelism."""
    given = setting(spark, "spark.default.parallelism")
    if given is not None:
        return max(1, int(given))
    local = LOCAL.match(master_of(spark))
    if local is not None and local[1] != "*":
        return int(local[1] or 1)
    # Nothing tells how many cores there are, but the plan of a query does, which starts no job.
    row = spark.sql("EXPLAIN SELECT * FROM range(1)").first()
    found = _SPLITS.search(str(row[0])) if row else None
    return int(found[1]) if found else 2


_OF_TEXTS = "spark.sql.parser.escapedStringLiterals"
"""Is false unless somebody sets it, of which Spark warns each time."""

SETTINGS = {  # of jobs, on a session of one's own for the time of a job only
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
    # Of a header that is named twice the last value counts, as in any JSON object.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
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
_jobs: Counter[str] = Counter()
"""How many jobs are in process on a session."""

_before: dict[str, Mapping[str, str | None]] = {}
"""What a session had before the first of them."""


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
        if not _jobs[name]:
            _before[name] = _set(session, {**SETTINGS, _NAME: name})
        _jobs[name] += 1
    try:
        yield
    finally:
        with _lock:
            _jobs[name] -= 1
            if not _jobs[name]:
                del _jobs[name]
                before = _before.pop(name)
                with unless_gone():
                    _set(session, before)


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


Session = SparkSession
"""What batches run on, for those who import no PySpark themselves."""

DEFAULT_MASTER = "local[*,4]"
TASK_FAILURES = 4

_PORT = 15002
_PATIENCE_SECONDS = 10.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

_SETTINGS = {
    "spark.app.name": "consistent-messaging",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What those pages would show, which Java keeps all the same: of a stream some 60 MB for 1,000 micro-batches.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.sql.ui.retainedExecutions": "100",
    # Where in the driver each column was made: asked for with every one, a quarter of the time of a small batch.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    **{
        name if name.startswith("spark.") else f"spark.hadoop.{name}": value
        for name, value in AT_START.items()
    },
}
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def build_session(
    master: str = DEFAULT_MASTER,
    *,
    log_file: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or return the session that runs already, as it is.

    The workers' Python is the interpreter that runs this. `log_file` takes what Spark and its workers print; it is
    appended to. Raises `UsageError` when there is no Java that Spark can use.
    """
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - there is no public way to ask
        return SparkSession.builder.getOrCreate()
    java = find_java()
    if java is None:
        raise UsageError(JAVA_MISSING)
    os.environ["JAVA_HOME"] = str(java)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf().setMaster(with_retries(master)).setAll(list(_settings(master, settings or {}).items()))
    if log_file is None:
        SparkContext(conf=conf)
    else:
        log_file = Path(log_file)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("ab") as log:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def connect_session(url: str) -> SparkSession:
    """Return a session of the server of Spark Connect that a url such as `sc://HOST:PORT` names.

    The session that this process has already is returned as it is. Raises `MissingExtraError` without the packages
    that Spark Connect needs, and `UsageError` when there is no such server.
    """
    place = urlsplit(url)
    # PySpark would go on trying for ten minutes where nobody listens. Through a proxy only gRPC knows the way.
    if not any(os.environ.get(name) for name in _PROXIES):
        try:
            address = (place.hostname or "", place.port or _PORT)
            socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        except (OSError, ValueError) as error:  # a port may be no number, or beyond the last one
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"There is no Spark Connect at {url}: {reason}.") from error
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        spark.version  # noqa: B018 - the first thing that is asked of the server
    except ImportError as error:
        raise MissingExtraError(
            f"Spark Connect needs {error.name or 'grpcio'}: pip install 'consistent-messaging[connect]'."
        ) from error
    except PySparkException as error:
        raise UsageError(f"There is no Spark Connect at {url}: {explain(error)}") from error
    return spark


def with_retries(master: str) -> str:
    """Return a master under which a failed task is tried again: plain `local[N]` gives up at the first."""
    match = LOCAL.match(master)
    if match is None or match[2]:
        return master
    return f"local[{match[1] or 1},{TASK_FAILURES}]"


def has_alike_workers(spark: SparkSession) -> bool:
    """Return whether the workers of a session run on this machine, with this interpreter and all of its search path."""
    if is_connect(spark):
        return False
    path = spark.conf.get("spark.executorEnv.PYTHONPATH", None) or ""
    # Where files that are shipped go; Spark puts it on the path of the driver and of each worker.
    shipped = SparkFiles.getRootDirectory()
    return (
        is_local(master_of(spark))
        and spark.conf.get("spark.pyspark.python", None) == sys.executable
        and set(search_path(sys.path)) <= {*path.split(os.pathsep), shipped}
    )


def _settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    # Apps are modules that a user has beside the place where the command is run: workers find them there too, and
    # there last. Without PYTHONSAFEPATH they would look there first, as they are started with `python -m`.
    workers = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(search_path(sys.path)),
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    return {**_SETTINGS, **(_LOCAL_SETTINGS if master.startswith("local") else {}), **workers, **given}
