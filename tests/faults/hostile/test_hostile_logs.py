"""Each line and each message of the corpus ends as it says, in whatever form a log is given, on either store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from runtime.spark import run_batch
from tests.faults.hostile.app import app
from tests.faults.hostile.corpus import HostileLine, HostileMessage, lines, messages, packed_messages
from tests.support.names import new_name


def table(given: Sequence[HostileMessage], body: Any) -> pa.Table:
    """Return messages as a table with the columns of a log."""
    headers = pa.map_(pa.string(), pa.string())
    types = {"message_id": pa.string(), "type": pa.string(), "body": body, "business_id": pa.string()}
    rows = [{**each.columns, "headers": list((each.columns.get("headers") or {}).items())} for each in given]
    return pa.Table.from_pylist(rows, pa.schema([*types.items(), ("headers", headers)]))


def in_lines(folder: Path, given: Sequence[HostileLine]) -> str:
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(each.content + b"\n" for each in given))
    return str(log)


def in_parquet(folder: Path, given: pa.Table) -> str:
    parquet.write_table(given, folder / "log.parquet")
    return str(folder / "log.parquet")


@dataclass(frozen=True)
class Place:
    """A session, a folder for the log and the outcomes of a batch, and the store of its states."""

    spark: SparkSession
    folder: Path
    store: str


@pytest.fixture
def on_sqlite(spark, tmp_path) -> Place:
    return Place(spark, tmp_path, f"sqlite:///{tmp_path}/store.db")


@pytest.fixture(params=["sqlite", "azurite"])
def place(request, on_sqlite: Place) -> Place:
    """Give each store in turn."""
    if request.param == "sqlite":
        return on_sqlite
    return replace(on_sqlite, store=request.getfixturevalue("azurite_url"))


def check(place: Place, log: Any, given: Sequence[HostileLine | HostileMessage]) -> None:
    """Run a batch, and compare how deliveries end."""
    outcomes = run_batch(
        place.spark,
        log,
        app,
        store=place.store,
        table=new_name(),
        out=str(place.folder / "out"),
        handler_timeout=timedelta(seconds=3),
    ).collect()

    found = Counter((row.message_id, row.reason or row.status) for row in outcomes)
    expected = Counter(end for each in given for end in each.ends)
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.mark.thorough
def test_as_lines(on_sqlite):
    given = [*lines(), *(message.line() for message in messages())]

    check(on_sqlite, in_lines(on_sqlite.folder, given), given)


@pytest.mark.thorough
def test_as_parquet_with_text(place):
    check(place, in_parquet(place.folder, table(messages(), pa.string())), messages())


@pytest.mark.thorough
def test_as_parquet_with_msgpack(place):
    given = packed_messages()

    check(place, in_parquet(place.folder, table(given, pa.binary())), given)


@pytest.mark.thorough
def test_as_a_table_in_memory(on_sqlite):
    check(on_sqlite, table(messages(), pa.string()), messages())


@pytest.mark.thorough
def test_as_a_data_frame_of_spark(place):
    check(place, place.spark.createDataFrame(table(messages(), pa.string())), messages())
