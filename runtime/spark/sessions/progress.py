"""How far the work of a Spark session is: the tasks of its active stages, counted in the JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

from runtime.spark.sessions.failures import SPARK_FAILURES

_EVERY_SECONDS = 0.25
_GONE = (*SPARK_FAILURES, OSError)

Show = Callable[[int, int], None]
"""Called with the number of tasks that are done, and of all."""


class TaskWatch:
    """Counts the tasks of a session in a thread of its own, until it is closed or the session is gone.

    Costs a few calls into the JVM four times a second, and nothing in the workers.
    """

    def __init__(self, spark: SparkSession, show: Show) -> None:
        self._spark = spark
        self._show = show
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Count no more. To be called before the session is stopped."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            try:
                self._show(*count_tasks(self._spark))
            except _GONE:
                return


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the active stages are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
