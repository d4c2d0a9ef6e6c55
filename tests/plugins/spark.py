"""One Spark session for all tests that need one, and the command line in it: starting a JVM takes longest.

The JVM and its Python workers run in the folder `workplace`. A test that uses it has it alone, and leaves it empty, so
that commands find relative paths there, and workers the modules of an app, as in the folder of a user.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import runtime.spark
from runtime.cli import main
from runtime.spark.sessions import session

# Small jobs end before a compiler has paid for itself: the JVM's optimising one, and Spark's of queries.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(scope="session")
def spark(_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    with contextlib.chdir(_home):
        started = session.build_session("local[2]", log_file=log_file, settings=QUICK)
    yield started
    started.stop()


@dataclass(frozen=True)
class Workplace:
    """A folder in which commands are run, in this process and in the session that is there."""

    path: Path
    spark: SparkSession

    def consistent(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), self.at_work():
            code = _exit_code(arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Let what is called work here; whoever starts a session gets the one that is there."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("CONSISTENT_")
        }
        with (
            contextlib.chdir(self.path),
            patch.dict(os.environ, {**environment, "COLUMNS": "250"}, clear=True),
            patch.object(sys, "path", list(sys.path)),
            patch.object(session, "build_session", self._session),
            patch.object(runtime.spark, "build_session", self._session),
            patch.object(SparkSession, "stop", lambda _: None),
            _own_modules(self.path),
        ):
            yield

    def _session(self, *_: object, **__: object) -> SparkSession:
        return self.spark


@pytest.fixture(scope="module")
def workplace(_home: Path, spark: SparkSession) -> Iterator[Workplace]:
    """Give the folder of the session, which is empty, to the tests of a module alone."""
    yield Workplace(_home, spark)
    for path in _home.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@contextlib.contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Forget the modules of a folder afterwards: other tests have modules of these names."""
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]
