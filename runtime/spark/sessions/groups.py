"""A group of jobs that is cancelled when the driver stops waiting, so that nothing goes on behind its back."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import Self

from pyspark.sql import SparkSession

from runtime.spark.sessions.failures import SPARK_FAILURES

_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_GONE = (*SPARK_FAILURES, OSError)
_LONGEST_SECONDS = 10.0
_PAUSE_SECONDS = 0.1


class JobGroup:
    """The jobs that are started in a `with` block, by the thread that entered it.

    They are cancelled when the block is left by an exception.
    """

    def __init__(self, spark: SparkSession, description: str) -> None:
        self._context = spark.sparkContext
        self._description = description
        self._id = uuid.uuid4().hex
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        self._before = {name: self._context.getLocalProperty(name) for name in _PROPERTIES}
        self._context.setJobGroup(self._id, self._description, interruptOnCancel=True)
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.cancel()
        with suppress(*_GONE):
            for name, value in self._before.items():
                self._context.setLocalProperty(name, value)  # type: ignore[arg-type] # None unsets it

    def cancel(self) -> None:
        """Cancel the jobs, and wait until their tasks have ended, but no longer than ten seconds."""
        with suppress(*_GONE):  # a session that is gone has no jobs
            self._context.cancelJobGroup(self._id)
            until = time.monotonic() + _LONGEST_SECONDS
            while self._active_tasks() and time.monotonic() < until:
                time.sleep(_PAUSE_SECONDS)

    def _active_tasks(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._id)]
        numbers = {number for job in jobs if job is not None for number in job.stageIds}
        stages = [tracker.getStageInfo(number) for number in numbers]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)
