"""A contender with a Spark session, the same for all of them."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.contender import Contender
from benchmarks.logs import Log
from runtime.spark import build_session


class SparkContender(Contender):
    """Starts a session with the settings that the command line's sessions have."""

    spark: SparkSession
    log: Log
    folder: Path

    def start(self) -> None:
        """Start the JVM."""
        os.environ["SPARK_LOCAL_DIRS"] = str(self.setting.folder / "spark")
        self.spark = build_session(
            f"local[{self.setting.cores}]",
            log_file=self.setting.folder / "spark.log",
            settings={"spark.sql.shuffle.partitions": str(self.partitions)},
        )

    @property
    def partitions(self) -> int:
        """The number of partitions that messages are shuffled to: what a batch takes by default."""
        return 2 * self.setting.cores

    def prepare(self, log: Log, folder: Path) -> None:
        """Take note of the log and the folder."""
        self.log, self.folder = log, folder

    def close(self) -> None:
        """End the JVM."""
        self.spark.stop()
