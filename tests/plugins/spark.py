"""One Spark session for all tests that need one, and the command line in it: starting a JVM takes longest.

With `--connect` it is a session of Spark Connect, whose server runs in a JVM that this process starts. A process has
sessions of one kind only: PySpark chooses once where its functions go.

The JVM and its Python workers run in the folder `workplace`. A test that uses it has it alone, and leaves it empty, so
that commands find relative paths there, and workers the modules of an app, as in the folder of a user.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import runtime.spark
from runtime.cli import main
from runtime.spark import start
from runtime.spark.java import find_java
from tests.plugins.azurite import REPOSITORY
from tests.plugins.chance import forget_modules
from tests.plugins.s3 import SIGNED

# Small jobs end before a compiler has paid for itself: the JVM's optimising one, and Spark's of queries.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # One JVM is that of hundreds of tests: it may have more than the one of a command, which is 1 GB.
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
}


@pytest.fixture(scope="session")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workplace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--connect", action="store_true", help="run the tests on Spark with Spark Connect")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--connect"):
        others = [item for item in items if item.get_closest_marker("connect") is None]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, _home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    os.environ.update(SIGNED)  # what workers sign requests with, on whom a test has no more influence
    with contextlib.chdir(_home):
        if request.config.getoption("--connect"):
            started = _of_connect()
        else:
            started = start.build_session("local[2]", log_file=log_file, settings=QUICK)
    yield started
    started.stop()


def _of_connect() -> SparkSession:
    """Start a server, whose workers find the modules of these tests as this process does."""
    searched = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    os.environ.update(JAVA_HOME=str(find_java()), PYSPARK_PYTHON=sys.executable, PYTHONPATH=searched)
    settings: dict[str, Any] = {**QUICK, **start._settings("local[2,4]", {})}
    with warnings.catch_warnings(action="ignore"):  # what is for the server only, the session refuses
        return SparkSession.builder.config(map=settings).remote("local[2,4]").getOrCreate()


@dataclass(frozen=True)
class Workplace:
    """A folder in which commands run, in this process and on the session of the tests."""

    path: Path
    spark: SparkSession

    def consistent(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end with these variables, and without `CONSISTENT_` variables from outside."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), self.at_work(**environment):
            try:
                main(arguments)
            except SystemExit as ended:
                code = int(ended.code or 0)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def at_work(self, **variables: str) -> Iterator[None]:
        """Context manager in which commands work in the folder. Instead of starting a session, they get this one."""
        environment = {name: os.environ[name] for name in os.environ if not name.startswith("CONSISTENT_")}
        with (
            contextlib.chdir(self.path),
            patch.dict(os.environ, {**environment, "COLUMNS": "250", **variables}, clear=True),
            patch.object(sys, "path", list(sys.path)),
            # The package loads its names from the module, which must be restored first.
            patch.object(runtime.spark, "build_session", self._session),
            patch.object(start, "build_session", self._session),
            patch.object(type(self.spark), "stop", lambda _: None),
        ):
            try:
                yield
            finally:
                forget_modules(self.path)  # the next command is like a process of its own

    def _session(self, *_: object, **__: object) -> SparkSession:
        return self.spark


@pytest.fixture(scope="module")
def workplace(_home: Path, spark: SparkSession) -> Iterator[Workplace]:
    """Yield the folder of the session to the tests of one module. The folder is empty."""
    yield Workplace(_home, spark)
    for path in _home.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
