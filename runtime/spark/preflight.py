"""Checks before a batch: workers answer, the output folder can be written, and the app's modules reach the workers."""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pyarrow as pa
from pyspark.sql import SparkSession

from runtime.batch_options import TablePlace
from runtime.errors import UsageError
from runtime.file_systems import open_folder
from runtime.namesakes import PACKAGES, explain, namesakes
from runtime.spark.session import explain as explain_failure
from runtime.spark.session import has_alike_workers, is_of_spark
from runtime.spark.worker.connection import open_table


def ship(spark: SparkSession, name: str) -> bool:
    """Send the module or package of a name to the workers of a session; return whether it could be.

    Only a user's own source travels: what is installed from a package index may need more than its Python files.
    """
    module = sys.modules.get(name.partition(".")[0])
    # A package without an __init__.py may have the same folder twice.
    files = [] if module is None else sorted(dict(_sources(module)).items())
    if not files:
        return False
    # The name says what is in it, as a session refuses other content under a name that it has.
    content = sha256(b"".join(path.read_bytes() for _, path in files)).hexdigest()[:16]
    archive = Path(_folder().name) / f"{files[0][0].partition('/')[0]}-{content}.zip"
    if not archive.exists():
        unfinished = archive.with_suffix(".unfinished")
        with zipfile.ZipFile(unfinished, "w") as zipped:
            for place, path in files:  # the same files give the same bytes, at whatever time
                zipped.writestr(zipfile.ZipInfo(place), path.read_bytes())
        unfinished.rename(archive)
    spark.addArtifacts(str(archive), pyfile=True)
    return True


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of what was sent: new workers of a session fetch it anew as long as this process lives."""
    return tempfile.TemporaryDirectory(prefix="consistent-apps-")


def _sources(module: ModuleType) -> Iterator[tuple[str, Path]]:
    """Yield the source files of a module, each with its place below a folder of the search path."""
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
    """Return whether a file belongs to Python, or to a package that was installed into it."""
    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.resolve().is_relative_to(Path(place).resolve()) for place in places)


_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NEEDED = re.compile(r"MissingExtraError: Batches on Spark need (\w+):")
_OF_ANOTHER = re.compile(r"ImportError: cannot import name .* from '([\w.]+)'")
_OF_A_STORE = frozenset({"aiohttp", "azure"})
_OURS = _OF_A_STORE.union(
    PACKAGES, ("msgpack", "pandas", "pyarrow", "pydantic", "pydantic_core", "zstandard")
)


def check_folder(folder: str) -> None:
    """Raise `UsageError` when nothing can be written to a folder; makes it if there is none."""
    tried = open_folder(folder).sub(f"_writable-{uuid.uuid4().hex}")
    try:
        tried.create()
        tried.touch("file")
        tried.delete()
    except OSError as error:
        raise UsageError(f"Outcomes cannot be written to {folder}: {error}. Choose another --out.") from error


def _probe(
    app: object,  # noqa: ARG001 - is loaded, as it is sent with the task
    states: TablePlace,
    other: TablePlace | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Open the tables, and return the rows."""
    open_table(states.store, states.table, other, make=False)
    yield from batches


def check_workers(
    spark: SparkSession, app: object, states: TablePlace, other: TablePlace | None = None
) -> None:
    """Raise `UsageError` when a worker lacks this package, or does not reach the store; send it the app it lacks.

    An app, or a sender, is loaded, and the tables are opened. Costs a task, unless the workers are known to have what
    this process has; and one more for each module sent.
    """
    if has_alike_workers(spark):
        return
    sent: set[str] = set()
    while True:
        try:
            spark.range(0, 1, 1, 1).mapInArrow(partial(_probe, app, states, other), "id long").collect()
        except Exception as error:
            if not is_of_spark(error):
                raise
            failure = str(error)
            found = _MISSING.findall(failure) or _NEEDED.findall(failure) or _OF_ANOTHER.findall(failure)
            name = found[-1] if found else None
            is_ours = name is None or name.partition(".")[0] in _OURS
            if name is None or is_ours or name in sent or not ship(spark, name):
                raise UsageError(_sentence(failure, name) or explain_failure(error)) from error
            sent.add(name)
        else:
            return


def _sentence(text: str, missing: str | None) -> str | None:
    """Return what to do about the failure of a probe, None when it is none of a worker's set-up."""
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"The workers run another Python than this one, {sys.version_info.major}.{sys.version_info.minor}: set "
            f"PYSPARK_PYTHON to one of this version before the session is started."
        )
    if missing is None:
        return None
    top = missing.partition(".")[0]
    hidden = [explain(each) for each in namesakes(Path.cwd()) if top == each.stem]
    if hidden:
        return hidden[0]
    if top in _OURS:
        extra = "spark,azure" if top in _OF_A_STORE else "spark"
        return (
            f"The workers of this session have no module {missing}: install 'consistent-messaging[{extra}]' in this "
            f"version into their Python, or set PYSPARK_PYTHON to one that has it before the session is started."
        )
    return (
        f"The workers of this session do not find the module {missing} of the app: ship it with --py-files or "
        f"spark.addArtifacts(..., pyfile=True), or put its folder on their PYTHONPATH."
    )
