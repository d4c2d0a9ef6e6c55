"""Start Spark in this process with a Java that it supports, or connect to a Spark Connect server."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from runtime import namesakes
from runtime.errors import MissingExtraError, UsageError
from runtime.spark.java import JAVA_MISSING, find_java
from runtime.spark.session import AT_START, LOCAL, explain

DEFAULT_MASTER = "local[*,4]"
TASK_FAILURES = 4

_PORT = 15002
_PATIENCE_SECONDS = 10.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

_SETTINGS = {
    "spark.app.name": "consistent-messaging",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Java keeps the data of these pages even without the UI: some 60 MB for 1,000 micro-batches.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.sql.ui.retainedExecutions": "100",
    # Recording the driver's source line for each column takes a quarter of the time of a small batch.
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
    """Start Spark with this interpreter, or return the active session unchanged. `log_file`: for the output of Java.

    `settings`: Spark settings that replace the defaults. Raises `UsageError` without a supported Java.
    """
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - there is no public way
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
    """Return a session on a Spark Connect server at `sc://HOST:PORT`. Raises `UsageError` if no server answers."""
    place = urlsplit(url)
    # PySpark would retry for ten minutes, so try a plain connection first, unless only gRPC knows a proxy.
    if not any(os.environ.get(name) for name in _PROXIES):
        try:
            address = (place.hostname or "", place.port or _PORT)
            socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        except (OSError, ValueError) as error:  # a port may be invalid
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"There is no Spark Connect at {url}: {reason}.") from error
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        spark.version  # noqa: B018 - asks the server
    except ImportError as error:
        raise MissingExtraError(
            f"Spark Connect needs {error.name or 'grpcio'}: pip install 'consistent-messaging[spark]'."
        ) from error
    except PySparkException as error:
        raise UsageError(f"There is no Spark Connect at {url}: {explain(error)}") from error
    return spark


def with_retries(master: str) -> str:
    """Return a master that retries failed tasks, which plain `local[N]` does not."""
    match = LOCAL.match(master)
    if match is None or match[2]:
        return master
    return f"local[{match[1] or 1},{TASK_FAILURES}]"


def _settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    # Workers also find apps in the working directory, but search it last. Because they are started with `python -m`,
    # they would search it first without PYTHONSAFEPATH.
    workers = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(namesakes.search_path(sys.path)),
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    return {**_SETTINGS, **(_LOCAL_SETTINGS if master.startswith("local") else {}), **workers, **given}
