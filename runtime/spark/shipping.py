"""Apps that workers lack are sent to them: modules of this process, as files of the session."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession


def ship(spark: SparkSession, name: str) -> bool:
    """Send the module or package of a name to the workers of a session, and say whether it could be.

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
        _pack(files, archive)
    spark.addArtifacts(str(archive), pyfile=True)
    return True


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of what was sent: new workers of a session fetch it anew as long as this process lives."""
    return tempfile.TemporaryDirectory(prefix="consistent-apps-")


def _pack(files: Sequence[tuple[str, Path]], archive: Path) -> None:
    """Write an archive. The same files give the same bytes, at whatever time."""
    unfinished = archive.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w") as zipped:
        for place, path in files:
            zipped.writestr(zipfile.ZipInfo(place), path.read_bytes())
    unfinished.rename(archive)


def _sources(module: ModuleType) -> Iterator[tuple[str, Path]]:
    """Give the source files of a module, each with its place below a folder of the search path."""
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
    """Say whether a file belongs to Python, or to a package that was installed into it."""
    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.resolve().is_relative_to(Path(place).resolve()) for place in places)
