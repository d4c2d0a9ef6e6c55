"""How far the work of a Spark session is: by default the tasks of its active stages, counted in the JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from pyspark.sql import SparkSession

from runtime.spark.sessions.failures import SPARK_FAILURES

_EVERY_SECONDS = 0.25
_GONE = (*SPARK_FAILURES, OSError)

Show = Callable[[int, int], None]
"""Called with the number of tasks, or of whatever is counted, that are done, and of all."""


class Watch:
    """Looks at something four times a second in a thread of its own, until it is closed or the session is gone."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-progress", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Count no more. To be called before the session is stopped."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            try:
                self._look()
            except _GONE:
                return


class TaskWatch(Watch):
    """Counts the tasks of a session. Costs a few calls into the JVM each time, and nothing in the workers."""

    def __init__(self, spark: SparkSession, show: Show) -> None:
        super().__init__(lambda: show(*count_tasks(spark)))


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the active stages are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
