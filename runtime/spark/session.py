"""Spark sessions: their settings while jobs run, readable Spark errors, and the modules that workers need."""

from __future__ import annotations

import os
import re
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from runtime import namesakes
from runtime.errors import UsageError

if TYPE_CHECKING:
    import tempfile
    from types import ModuleType

    import pyarrow as pa

_RAISED = re.compile(
    r"^\S*?((?:runtime|eventstore|handlers)\.[\w.]*Error|[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
_CALLING = re.compile(r"An error occurred while calling \S+\n: ")
_OURS = ("runtime.", "eventstore.", "handlers.")
_LENGTH = 2000


def is_of_spark(error: BaseException) -> bool:
    return any(each.__module__.partition(".")[0] in ("pyspark", "py4j") for each in type(error).__mro__)


@contextmanager
def failing_as(failure: Callable[[str], Exception], what_to_do: str = "") -> Iterator[None]:
    """Context manager that converts a Spark error to `failure(text)`. The readable text ends with `what_to_do`."""
    try:
        yield
    except Exception as error:
        if not (is_of_spark(error) or isinstance(error, ConnectionError)):
            raise
        raise failure(explain(error, what_to_do)) from error


@contextmanager
def unless_gone() -> Iterator[None]:
    """Context manager that suppresses Spark errors, for calls that fail only if the session has ended."""
    try:
        yield
    except Exception as error:
        if not (is_of_spark(error) or isinstance(error, OSError)):
            raise


def explain(error: Exception, what_to_do: str = "") -> str:
    """Return a Spark error's cause (this package's last error, else any last error, else line 1) and `what_to_do`."""
    text = _CALLING.sub("", str(error), count=1)
    raised: list[tuple[str, str]] = _RAISED.findall(text)
    ours = [sentence for name, sentence in raised if name.startswith(_OURS)]
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        cause = "Spark's Java process has ended or does not answer: the machine may have too little memory."
    elif ours:
        cause = ours[-1]
    elif raised:
        cause = f"A Spark task failed with {raised[-1][0]}: {raised[-1][1]}"
    else:
        cause = text.strip().partition("\n")[0] or "Spark failed without a message."
    cause = cause[:_LENGTH]
    ended = cause if cause.endswith((".", "!", "?")) else f"{cause}."
    return f"{ended} {what_to_do}".rstrip()


REMOTE = "sc://"
LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?\Z")
_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(master: str) -> bool:
    """Return whether workers share this process's working directory. Those of `local-cluster` have their own."""
    return LOCAL.match(master) is not None


def may_be_local(master: str) -> bool:
    """Return whether all work may run on this machine, perhaps in a local Spark Connect server."""
    return is_local(master) or (is_remote(master) and urlsplit(master).hostname in LOOPBACK)


def is_remote(master: str) -> bool:
    return master.startswith(REMOTE)


def setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting of a session, or `None` if the setting is not set or hidden by the platform."""
    try:
        return spark.conf.get(name, None)
    except PySparkException:
        return None


def master_of(spark: SparkSession) -> str:
    """Return the master of a session, or the URL of a Spark Connect server on another machine."""
    if is_connect(spark) and (host := str(spark.client.host)) not in LOOPBACK:
        return f"{REMOTE}{host}"
    return setting(spark, "spark.master") or "unknown"


def cores_of(spark: SparkSession) -> int:
    """Return the default parallelism of a session."""
    given = setting(spark, "spark.default.parallelism")
    if given is not None:
        return max(1, int(given))
    local = LOCAL.match(master_of(spark))
    if local is not None and local[1] != "*":
        return int(local[1] or 1)
    # The plan of a query contains it, and needs no job.
    row = spark.sql("EXPLAIN SELECT * FROM range(1)").first()
    found = _SPLITS.search(str(row[0])) if row else None
    return int(found[1]) if found else 2


_OF_TEXTS = "spark.sql.parser.escapedStringLiterals"
"""False by default, and set only if necessary, because Spark logs a warning each time."""

SETTINGS = {  # while jobs run on a session
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Loading ICU takes a second.
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # The number of rows decoded at once. With bodies of 1 MiB, a larger one would fill the memory of a task.
    "spark.sql.parquet.columnarReaderBatchSize": "64",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The last of duplicate headers wins.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    _OF_TEXTS: "false",
    # Without these, messages could be lost, or the rows of a stream spread over several workers.
    "parquet.page.verify-checksum.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
}

AT_START = {name: value for name, value in SETTINGS.items() if name != _OF_TEXTS}

_NAME = "consistent.messaging.session"
"""A setting that identifies a session while jobs run on it, because several objects may represent one session."""

_lock = threading.Lock()
_jobs: Counter[str] = Counter()  # the number of jobs on each session
_before: dict[str, Mapping[str, str | None]] = {}  # the settings of each session before the first job


@contextmanager
def job_settings(spark: SparkSession, messages: object = None) -> Iterator[None]:
    """Context manager that applies `SETTINGS` to the session `spark`, and to the session of `messages` if it has one.

    Concurrent jobs on a session share the settings. The last job restores the former ones.
    """
    with ExitStack() as stack:
        stack.enter_context(_settings_of_one(spark))
        if isinstance(messages, DataFrame):
            stack.enter_context(_settings_of_one(messages.sparkSession))
        yield


def keep_job_settings(copy: SparkSession) -> None:
    """Apply the settings of jobs permanently to a copy of a session, such as a query's session."""
    copy.conf.unset(_NAME)  # jobs may run on the original at the same time
    _set(copy, SETTINGS)


@contextmanager
def planned_once(copy: SparkSession) -> Iterator[None]:
    """Context manager that disables adaptive execution, which runs each stage as a job. Not for shared sessions."""
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
    """Change settings of a session. Return the former values of those that changed; `None` means not set."""
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


Session = SparkSession  # for modules that import no PySpark themselves


def has_alike_workers(spark: SparkSession) -> bool:
    """Return whether workers run on this machine with the same interpreter and search path."""
    if is_connect(spark):
        return False
    path = spark.conf.get("spark.executorEnv.PYTHONPATH", None) or ""
    shipped = SparkFiles.getRootDirectory()  # Spark puts it on the path of the driver and of each worker
    return (
        is_local(master_of(spark))
        and spark.conf.get("spark.pyspark.python", None) == sys.executable
        and set(namesakes.search_path(sys.path)) <= {*path.split(os.pathsep), shipped}
    )


def ship(spark: SparkSession, name: str) -> bool:
    """Send an app module or package to workers. Return False for an installed module, or one without a source file."""
    import zipfile  # noqa: PLC0415 - workers do not need it

    module = sys.modules.get(name.partition(".")[0])
    # A namespace package may list the same folder twice.
    files = [] if module is None else sorted(dict(_sources(module)).items())
    if not files:
        return False
    # A session rejects different content under the same name.
    content = sha256(b"".join(path.read_bytes() for _, path in files)).hexdigest()[:16]
    archive = Path(_folder().name) / f"{files[0][0].partition('/')[0]}-{content}.zip"
    if not archive.exists():
        unfinished = archive.with_suffix(".unfinished")
        with zipfile.ZipFile(unfinished, "w") as zipped:
            for place, path in files:  # without timestamps, so that equal files make equal archives
                zipped.writestr(zipfile.ZipInfo(place), path.read_bytes())
        unfinished.rename(archive)
    spark.addArtifacts(str(archive), pyfile=True)
    return True


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    import tempfile  # noqa: PLC0415 - workers do not need it

    return tempfile.TemporaryDirectory(prefix="consistent-apps-")


def _sources(module: ModuleType) -> Iterator[tuple[str, Path]]:
    """Yield the source files of a module that is not installed, with their paths relative to the search path."""
    name = module.__name__
    if hasattr(module, "__path__"):
        for folder in map(Path, module.__path__):
            if not _is_installed(folder):
                for path in folder.rglob("*.py"):
                    yield f"{name}/{path.relative_to(folder).as_posix()}", path
        return
    source = Path(getattr(module, "__file__", None) or "")
    if source.suffix == ".py" and source.is_file() and not _is_installed(source):
        yield f"{name}.py", source


def _is_installed(path: Path) -> bool:
    import sysconfig  # noqa: PLC0415 - workers do not need it

    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.resolve().is_relative_to(Path(place).resolve()) for place in places)


_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NEEDED = re.compile(r"MissingExtraError: Batches on Spark need (\w+):")
_OF_ANOTHER = re.compile(r"ImportError: cannot import name .* from '([\w.]+)'")
_OF_A_STORE = frozenset({"aiohttp", "azure"})
_PACKAGES = _OF_A_STORE.union(
    namesakes.PACKAGES, ("msgpack", "pandas", "pyarrow", "pydantic", "pydantic_core", "zstandard")
)


def check_workers(spark: SparkSession, probe: Callable[[], object]) -> None:
    """Run `probe` on a worker, and send modules of the app that it lacks. Raise `UsageError` if `probe` still fails."""
    if has_alike_workers(spark):
        return
    sent: set[str] = set()
    while True:
        try:
            spark.range(0, 1, 1, 1).mapInArrow(partial(_run, probe), "id long").collect()
        except Exception as error:
            if not is_of_spark(error):
                raise
            failure = str(error)
            found = _MISSING.findall(failure) or _NEEDED.findall(failure) or _OF_ANOTHER.findall(failure)
            name = found[-1] if found else None
            is_ours = name is None or name.partition(".")[0] in _PACKAGES
            if name is None or is_ours or name in sent or not ship(spark, name):
                raise UsageError(_sentence(failure, name) or explain(error)) from error
            sent.add(name)
        else:
            return


def _run(probe: Callable[[], object], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    probe()
    yield from batches


def _sentence(text: str, missing: str | None) -> str | None:
    """Return the remedy if `text` is an error of the workers' set-up, else `None`. `missing`: the module they lack."""
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"The workers do not run this version of Python, {sys.version_info.major}.{sys.version_info.minor}: set "
            f"PYSPARK_PYTHON to one of this version before you start the session."
        )
    if missing is None:
        return None
    top = missing.partition(".")[0]
    hidden = [namesakes.explain(each) for each in namesakes.namesakes(Path.cwd()) if top == each.stem]
    if hidden:
        return hidden[0]
    if top in _PACKAGES:
        extra = "spark,azure" if top in _OF_A_STORE else "spark"
        return (
            f"The workers of this session have no module {missing}: install 'consistent-messaging[{extra}]' in this "
            f"version into their Python, or set PYSPARK_PYTHON to one that has it before you start the session."
        )
    return (
        f"The workers of this session do not find the module {missing} of the app: ship it with --py-files or "
        f"spark.addArtifacts(..., pyfile=True), or put its folder on their PYTHONPATH."
    )
