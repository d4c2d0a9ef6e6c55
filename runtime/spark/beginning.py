"""What is looked at before a batch begins, so that none stands in the ledger as started that could not begin."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from consistent_messaging import PACKAGES, explain, namesakes
from handlers import App
from runtime.errors import UsageError
from runtime.spark.sessions.failures import SPARK_FAILURES
from runtime.spark.sessions.failures import explain as explain_failure
from runtime.spark.sessions.session import has_alike_workers
from runtime.spark.workers.connection import TablePlace, open_table

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OF_ANOTHER = re.compile(r"ImportError: cannot import name .* from '([\w.]+)'")
_OURS = frozenset(
    {
        *PACKAGES,
        "consistent_messaging",
        "msgpack",
        "pandas",
        "pyarrow",
        "pydantic",
        "pydantic_core",
        "zstandard",
    }
)
_OF_A_STORE = frozenset({"aiohttp", "azure"})


@dataclass(frozen=True)
class Probe:
    """What a worker tries before a batch begins: to load the app, and to open the tables."""

    app: App
    states: TablePlace
    other: TablePlace | None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Open the tables, and give the rows back."""
        open_table(self.states.store, self.states.table, self.other, make=False)
        yield from batches


def check_session(spark: SparkSession) -> None:
    """Raise `UsageError` for a session that cannot run jobs: one of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        message = (
            "This is a session of Spark Connect, which gives no access to the driver's JVM: run the batch with a "
            'session of the driver itself, such as SparkSession.builder.master("local[*]") or by spark-submit.'
        )
        raise UsageError(message)


def check_folder(spark: SparkSession, folder: str) -> None:
    """Raise `UsageError` when nothing can be written to a folder; makes it if there is none."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way to Hadoop's files
    try:
        file = jvm.org.apache.hadoop.fs.Path(f"{folder}/_writable-{uuid.uuid4().hex}")
        files = file.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
        files.create(file).close()
        files.delete(file, False)
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString()).partition("\n")[0]
        message = f"Outcomes cannot be written to {folder}: {reason}. Choose another --out."
        raise UsageError(message) from error


def check_workers(spark: SparkSession, probe: Probe) -> None:
    """Raise `UsageError` when a worker lacks this package or the app, or does not reach the store.

    Costs a task, unless the workers are known to have what this process has.
    """
    if has_alike_workers(spark):
        return
    try:
        spark.range(0, 1, 1, 1).mapInArrow(probe.run, "id long").collect()
    except SPARK_FAILURES as error:
        raise UsageError(_sentence(str(error)) or explain_failure(error)) from error


def _sentence(text: str) -> str | None:
    """Return what to do about the failure of a probe, None when it is none of a worker's set-up."""
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"The workers run another Python than this one, {sys.version_info.major}.{sys.version_info.minor}: set "
            f"PYSPARK_PYTHON to one of this version before the session is started."
        )
    found = _MISSING.findall(text) or _OF_ANOTHER.findall(text)
    if not found:
        return None
    name, top = found[-1], found[-1].partition(".")[0]
    hidden = [explain(each) for each in namesakes(Path.cwd()) if top == each.stem]
    if hidden:
        return hidden[0]
    if top in _OURS | _OF_A_STORE:
        extra = "spark,azure" if top in _OF_A_STORE else "spark"
        return (
            f"The workers of this session have no module {name}: install 'consistent-messaging[{extra}]' in this "
            f"version into their Python, or set PYSPARK_PYTHON to one that has it before the session is started."
        )
    return (
        f"The workers of this session do not find the module {name} of the app: ship it with --py-files or "
        f"spark.sparkContext.addPyFile(...), or put its folder on their PYTHONPATH."
    )
