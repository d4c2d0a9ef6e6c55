"""One Spark session for all tests, and a place of its own for each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from handlers import App
from runtime.spark import run_batch
from runtime.spark.session import build_session
from samples.shooting_range import app as shooting_range

# Small jobs end before the JVM's optimising compiler and its parallel collector have paid for themselves.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    session = build_session("local[2]", log_file=log_file, settings=QUICK)
    yield session
    session.stop()


@dataclass
class Place:
    """A store, a table and a folder, and a short way to run batches there."""

    spark: SparkSession
    store: str
    table: str
    folder: Path
    app: App = field(default=shooting_range)

    @property
    def out(self) -> str:
        return str(self.folder / "out")

    def run(self, messages: DataFrame | str, **options: Any) -> DataFrame:
        options = {"app": self.app, "store": self.store, "table": self.table, "out": self.out, **options}
        return run_batch(self.spark, messages, **options)


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, f"sqlite:///{tmp_path}/store.db", f"table{next(_numbers)}", tmp_path)


@pytest.fixture(params=["sqlite", "azurite"])
def any_place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    store = (
        f"sqlite:///{tmp_path}/store.db"
        if request.param == "sqlite"
        else request.getfixturevalue("azurite_url")
    )
    return Place(spark, store, f"table{next(_numbers)}x{os.getpid()}", tmp_path)
