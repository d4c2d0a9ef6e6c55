"""As docs/streaming.md says, a checkpoint holds Spark's own stateful operators to their parallelism and their code."""

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

PARTITIONS = "spark.sql.shuffle.partitions"

pytestmark = pytest.mark.thorough


def come(folder, number):
    (folder / "incoming").mkdir(exist_ok=True)
    (folder / "incoming" / f"{number}.jsonl").write_text(json.dumps({"till": "north", "price": number}))


def run(spark, folder, *aggregates):
    """Run a query over what is there that keeps counts in Spark's own state; return the parts of that."""
    sales = spark.readStream.schema("till string, price int").json(str(folder / "incoming"))
    query = (
        sales.groupBy("till").agg(*aggregates).writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.collect() and None)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return {each.name for each in (folder / "checkpoint" / "state" / "0").iterdir() if each.name.isdecimal()}


def test_their_parallelism_and_their_code_are_those_of_the_first_start(spark, tmp_path):
    before = spark.conf.get(PARTITIONS)
    try:
        for number, partitions in enumerate((2, 5)):
            spark.conf.set(PARTITIONS, partitions)
            come(tmp_path, number)
            assert run(spark, tmp_path, sf.count("*")) == {"0", "1"}

        # When the query is to sum up, too
        come(tmp_path, 2)
        with pytest.raises(StreamingQueryException, match="STATE_STORE"):
            run(spark, tmp_path, sf.count("*"), sf.sum("price"))
    finally:
        spark.conf.set(PARTITIONS, before)
