"""A place of its own for each test, in the Spark session of all."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from handlers import App
from runtime.batch_options import TablePlace
from runtime.clock import system_clock
from runtime.file_systems import open_folder
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.spark import run_batch
from runtime.spark.outbox import Issued, issue_tokens
from runtime.spark.worker.connection import open_table
from samples.shooting_range import app as shooting_range
from tests.support.clocks import FrozenClock
from tests.support.logs import generated
from tests.support.outcomes import heads, without_tokens

if TYPE_CHECKING:
    from tests.support.topics import Topic

_numbers = itertools.count(1)


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

    def run(self, messages: DataFrame | str | list[str], **options: Any) -> DataFrame:
        where = {"app": self.app, "store": self.store, "table": self.table, "out": self.out}
        return run_batch(self.spark, messages, **{**where, "partitions": 2, **options})

    def issue(self, log: str, name: str = "with-tokens", **options: Any) -> Issued:
        """Give the messages of a log their tokens."""
        tokens = options.pop("place", None) or TablePlace(self.store, self.table)
        return issue_tokens(self.spark, log, self.app, tokens, str(self.folder / name), **options)

    def batches(self) -> Sequence[BatchRecord]:
        """Return the batches of the table, the last one first."""
        connection = open_table(self.store, self.table)
        return connection.run(Ledger(connection.table, system_clock).batches(9))

    def beside(self, name: str) -> Place:
        """Return a store and a folder of their own beside this one."""
        folder = self.folder / name
        folder.mkdir()
        return replace(self, store=f"sqlite:///{folder}/store.db", folder=folder)


@dataclass(frozen=True)
class Night:
    """A log with duplicates, in no order, and what a state-based batch over it gave that nothing disturbed."""

    log: str
    frame: DataFrame
    outcomes: Sequence[tuple[Any, ...]]
    heads: Mapping[str, tuple[int, bytes]]

    @property
    def states(self) -> Mapping[str, bytes]:
        return {key: state for key, (_, state) in self.heads.items()}


NIGHT = FrozenClock.at("2026-03-01T12:00:00")


@pytest.fixture(scope="session")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("night")
    log = generated(folder / "log.jsonl", games=5, messages=60, duplicates=0.2, shuffle=True)
    place = Place(spark, f"sqlite:///{folder}/store.db", "night", folder)
    outcomes = place.run(log, batch_id="night", cascade=True, clock=NIGHT, partitions=2)
    return Night(log, outcomes, without_tokens(outcomes), heads(place.store, place.table))


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, f"sqlite:///{tmp_path}/store.db", f"table{next(_numbers)}", tmp_path)


@pytest.fixture(scope="module")
def lasting_place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a place to the tests of a module that all look at the same batch."""
    folder = tmp_path_factory.mktemp("place")
    return Place(spark, f"sqlite:///{folder}/store.db", f"table{next(_numbers)}", folder)


@pytest.fixture(params=["sqlite", pytest.param("azurite", marks=pytest.mark.thorough)])
def any_place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    store = (
        f"sqlite:///{tmp_path}/store.db"
        if request.param == "sqlite"
        else request.getfixturevalue("azurite_url")
    )
    return Place(spark, store, f"table{next(_numbers)}x{os.getpid()}", tmp_path)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Topic:
    """Give a topic of two partitions."""
    from tests.support.topics import Topic

    made = Topic(request.getfixturevalue("kafka"), f"shots-{next(_numbers)}")
    made.make()
    return made


@pytest.fixture(params=["azurite", "s3"])
def object_store(request: pytest.FixtureRequest) -> str:
    """Give the url of a folder of its own on a store that moves no folders."""
    if request.param == "s3":
        s3: str = request.getfixturevalue("s3_url")
        return s3.replace("/papers", f"/the out folder {next(_numbers)}")
    container = f"container-{next(_numbers)}"
    url = f"azurite://{request.getfixturevalue('azurite_blobs')}/{container}"
    open_folder(url).files.create_dir(container)
    return f"{url}/the out folder"
