"""As docs/streaming.md says, a checkpoint holds Spark's own stateful operators to their parallelism and their code."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

PARTITIONS = "spark.sql.shuffle.partitions"

pytestmark = pytest.mark.thorough


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "incoming").mkdir()
    return tmp_path


@pytest.fixture
def partitions(spark):
    before = spark.conf.get(PARTITIONS)
    yield lambda number: spark.conf.set(PARTITIONS, number)
    spark.conf.set(PARTITIONS, before)


def come(folder, number):
    (folder / "incoming" / f"{number}.jsonl").write_text(json.dumps({"till": "north", "price": number}))


def run(spark, folder, *aggregates):
    """Run a query over what is there that keeps counts in Spark's own state."""
    sales = spark.readStream.schema("till string, price int").json(str(folder / "incoming"))
    query = (
        sales.groupBy("till").agg(*aggregates).writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.collect() and None)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def parts_of_state(folder):
    return {each.name for each in (folder / "checkpoint" / "state" / "0").iterdir() if each.name.isdecimal()}


def test_their_parallelism_is_that_of_the_first_start(spark, folder, partitions):
    # Given a query that began with two partitions
    partitions(2)
    come(folder, 1)
    run(spark, folder, sf.count("*"))
    assert parts_of_state(folder) == {"0", "1"}

    # When it goes on with five
    partitions(5)
    come(folder, 2)
    run(spark, folder, sf.count("*"))

    # Then it has two
    assert parts_of_state(folder) == {"0", "1"}


def test_their_code_is_that_of_the_first_start(spark, folder, partitions):
    # Given a query that counts
    partitions(2)
    come(folder, 1)
    run(spark, folder, sf.count("*"))

    # When it is to sum up, too
    come(folder, 2)
    with pytest.raises(StreamingQueryException, match="STATE_STORE"):
        run(spark, folder, sf.count("*"), sf.sum("price"))
