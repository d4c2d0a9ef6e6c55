"""Spark sessions that need nothing from the shell: Java found, workers on this interpreter, output in a file."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from runtime.errors import MissingExtraError, UsageError
from runtime.namesakes import search_path
from runtime.spark.sessions.failures import explain
from runtime.spark.sessions.java import JAVA_MISSING, find_java
from runtime.spark.sessions.kinds import LOCAL, is_connect, is_local, master_of
from runtime.spark.sessions.settings import AT_START

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
    log_file: Path | None = None,
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
    _start(conf, log_file)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def connect_session(url: str) -> SparkSession:
    """Return a session of the server of Spark Connect that a url such as `sc://HOST:PORT` names.

    The session that this process has already is returned as it is. Raises `MissingExtraError` without the packages
    that Spark Connect needs, and `UsageError` when there is no such server.
    """
    _check_server(url)
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


def _check_server(url: str) -> None:
    """Raise `UsageError` when nobody listens at a url: PySpark would go on trying for ten minutes."""
    place = urlsplit(url)
    if any(os.environ.get(name) for name in _PROXIES):  # of which only gRPC knows the way
        return
    try:
        socket.create_connection(
            (place.hostname or "", place.port or _PORT), timeout=_PATIENCE_SECONDS
        ).close()
    except OSError as error:
        raise UsageError(f"There is no Spark Connect at {url}: {error.strerror or error}.") from error


def with_retries(master: str) -> str:
    """Return a master under which a failed task is tried again: plain `local[N]` gives up at the first."""
    match = LOCAL.match(master)
    if match is None or match[2]:
        return master
    return f"local[{match[1] or 1},{TASK_FAILURES}]"


def has_alike_workers(spark: SparkSession) -> bool:
    """Say whether the workers of a session run on this machine, with this interpreter and all of its search path."""
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


def _start(conf: SparkConf, log_file: Path | None) -> None:
    if log_file is None:
        SparkContext(conf=conf)
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)
