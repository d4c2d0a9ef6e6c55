"""The folders of a batch's outcomes: written out of sight, then renamed into place.

`OUT/batch_id=ID/round=N` holds the outcomes of a round as Parquet. They are staged under `OUT/_staging`, where Spark
does not look, so that a folder in place is always whole. Works on any file system that Hadoop knows; the rename
is atomic on local disks and HDFS.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from runtime.errors import BatchRefusedError
from runtime.ledger import BatchRecord
from runtime.spark.schemas import STORED_OUTCOME

_MARK = "_batch"


@dataclass(frozen=True)
class BatchFolders:
    """Where a batch keeps the outcomes of its rounds."""

    spark: SparkSession
    record: BatchRecord

    def staging(self, number: int) -> str:
        """Return a new folder to write a round to."""
        return f"{self.record.out}/_staging/{self.record.batch_id}-round-{number}-{uuid.uuid4().hex}"

    def round(self, number: int) -> str:
        """Return where the outcomes of a round are when they are in place."""
        return f"{self._batch()}/round={number}"

    def is_in_place(self, number: int) -> bool:
        """Say whether a round was staged and renamed earlier, by this batch.

        Raises `BatchRefusedError` when another store's batch of the same id has left its outcomes there.
        """
        path = self._path(self.round(number))
        files = self._files(path)
        if not files.exists(path):
            return False
        if not files.exists(self._path(f"{self.round(number)}/{self._mark()}")):
            message = (
                f"{self.round(number)} holds outcomes of another batch with the id {self.record.batch_id}, from "
                f"another store: choose another --out or another --batch-id."
            )
            raise BatchRefusedError(message)
        return True

    def put_in_place(self, staged: str, number: int) -> None:
        """Rename a staged folder into place, unless another driver of the batch was faster."""
        mark, target = self._path(f"{staged}/{self._mark()}"), self._path(self.round(number))
        files = self._files(target)
        files.create(mark).close()
        _flush_to_disk(staged)
        files.mkdirs(target.getParent())
        # Renaming onto a folder that is there would move it inside: whoever comes second leaves the first in place.
        if self.is_in_place(number) or not files.rename(self._path(staged), target):
            files.delete(self._path(staged), True)
            if not self.is_in_place(number):
                message = f"The outcomes could not be renamed to {self.round(number)}: is {self.record.out} writable?"
                raise BatchRefusedError(message)

    def remove_staging(self) -> None:
        """Delete what attempts that died have left of this batch."""
        pattern = self._path(f"{self.record.out}/_staging/{self.record.batch_id}-round-*")
        files = self._files(pattern)
        for status in files.globStatus(pattern) or []:
            files.delete(status.getPath(), True)
        folder = pattern.getParent()
        if files.exists(folder) and not files.listStatus(folder):
            files.delete(folder, False)

    def outcomes(self, number: int | None = None) -> DataFrame:
        """Return the outcomes of a round, or of all rounds that are committed."""
        rounds = range(self.record.rounds) if number is None else [number]
        paths = [self.round(each) for each in rounds]
        reader = self.spark.read.schema(STORED_OUTCOME).option("basePath", self._batch())
        return reader.parquet(*paths) if paths else self.spark.createDataFrame([], STORED_OUTCOME)

    def _batch(self) -> str:
        return f"{self.record.out}/batch_id={self.record.batch_id}"

    def _mark(self) -> str:
        return f"{_MARK}-{self.record.token}"

    def _path(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        jvm: Any = self.spark._jvm  # noqa: SLF001 - there is no public way to Hadoop's files
        return jvm.org.apache.hadoop.fs.Path(path)

    def _files(self, path: Any) -> Any:  # noqa: ANN401 - Java objects
        return path.getFileSystem(self.spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above


def absolute_folder(folder: str) -> str:
    """Return a folder under a name that means the same in every working directory."""
    return folder.rstrip("/") if "://" in folder or folder.startswith("file:") else str(Path(folder).absolute())


def _flush_to_disk(folder: str) -> None:
    """Make files on a local disk survive a power cut; other file systems do this when a file is closed."""
    path = Path(folder.removeprefix("file:"))
    if not path.is_dir():
        return
    for file in [*path.rglob("*"), path]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
