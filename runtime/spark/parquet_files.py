"""Files of Parquet as a DataFrame: by Spark's own reader from disks and HDFS, elsewhere by workers, through pyarrow.

A worker opens an object store with the url and the credentials with which it has written there. So Spark needs no
package and no configuration for it, and reads what was written a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from runtime.file_systems import open_folder
from runtime.spark.schemas import STORED_OUTCOME
from runtime.spark.workers.parts import SUFFIX
from runtime.urls import within

_FILE = "folder string, name string, round int"
_ROUND = "round"


class File(NamedTuple):
    """A file of Parquet, and for outcomes their round."""

    folder: str
    name: str
    round: int = 0


def read_outcomes(spark: SparkSession, batch: str, rounds: Mapping[int, str]) -> DataFrame:
    """Return the outcomes of some rounds of a batch, whose folders are given."""
    if not rounds:
        return spark.createDataFrame([], STORED_OUTCOME)
    if open_folder(batch).moves_whole:
        reader = spark.read.schema(STORED_OUTCOME).option("basePath", batch)
        return reader.parquet(*rounds.values())
    files = [
        File(folder, name, number)
        for number, folder in rounds.items()
        for name in sorted(open_folder(folder).sizes())
        if name.endswith(SUFFIX)
    ]
    return read_by_workers(spark, files, STORED_OUTCOME)


def read_file(spark: SparkSession, folder: str, name: str, schema: StructType) -> DataFrame:
    """Return the columns of a schema that are in a file."""
    if open_folder(folder).moves_whole:
        return spark.read.schema(schema).parquet(within(folder, name))
    return read_by_workers(spark, [File(folder, name)], schema)


def read_by_workers(spark: SparkSession, files: Sequence[File], schema: StructType) -> DataFrame:
    """Return the columns of a schema that are in some files; `round` is that of the file. Costs a task for each."""
    rows = spark.createDataFrame(list(files), _FILE).repartition(max(1, len(files)))
    return rows.mapInArrow(FileReader(tuple(schema.fieldNames())).run, schema)


@dataclass(frozen=True)
class FileReader:
    """Reads the columns of files, each of which comes in as a row."""

    columns: Sequence[str]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give what is in the files, as it lies there."""
        from pyarrow import parquet  # noqa: PLC0415 - takes time, and the driver has other uses for this module

        stored = [name for name in self.columns if name != _ROUND]
        for file in (File(**row) for batch in batches for row in batch.to_pylist()):
            with open_folder(file.folder).read(file.name) as opened:
                for found in parquet.ParquetFile(opened).iter_batches(columns=stored):
                    yield found if _ROUND not in self.columns else _in_round(found, file.round)


def _in_round(found: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return found.append_column(_ROUND, pa.repeat(pa.scalar(number, pa.int32()), found.num_rows))
