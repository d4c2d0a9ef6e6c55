"""The folders of a batch's outcomes: written to a hidden staging folder, then renamed into place.

`OUT/batch_id=ID/round=N` holds the outcomes of a round as Parquet. They are staged under `OUT/_staging`, which Spark
ignores, so that a folder in place is always complete. Works on any file system that Hadoop knows; the rename
is atomic on local disks and HDFS.
"""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from runtime.batches.ledger import BatchRecord
from runtime.errors import BatchFailedError, BatchRefusedError, UsageError
from runtime.spark.schemas import STORED_OUTCOME

_MARK = "_batch"
_PATTERN = "*?[]{}"


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
        """Say whether the outcomes of a round are there as a whole, from an earlier attempt of this batch.

        An incomplete folder, which a file system without atomic rename may leave, is deleted. Raises
        `BatchRefusedError` when another store's batch of the same id has left its outcomes there.
        """
        path = self._path(self.round(number))
        files = self._files(path)
        if not files.exists(path):
            return False
        found = self._data_files(path)
        marks = [name for name in self._names(path) if name.startswith(_MARK)]
        if any(not name.startswith(self._mark_prefix()) for name in marks) or (found and not marks):
            message = (
                f"{self.round(number)} holds outcomes of another batch with the id {self.record.batch_id}, from "
                f"another store: choose another --out or another --batch-id."
            )
            raise BatchRefusedError(message)
        if self._mark(found) in marks:
            return True
        files.delete(path, True)
        return False

    def put_in_place(self, staged: str, number: int) -> None:
        """Rename a staged folder into place, unless another driver of the same batch has done so."""
        source, target = self._path(staged), self._path(self.round(number))
        files = self._files(target)
        files.create(self._path(f"{staged}/{self._mark(self._data_files(source))}")).close()
        _flush_to_disk(staged)
        files.mkdirs(target.getParent())
        if self.is_in_place(number):
            files.delete(source, True)
            return
        renamed = files.rename(source, target)
        # Onto a folder that another driver has put there in this moment, a local rename moves the folder inside it.
        files.delete(self._path(f"{self.round(number)}/{source.getName()}"), True)
        files.delete(source, True)
        if not self.is_in_place(number):
            what = "were changed by another driver" if renamed else "could not be renamed"
            message = f"The outcomes of {self.round(number)} {what}: run the batch again with its id."
            raise BatchFailedError(message)
        _flush_to_disk(self.record.out, self._batch(), self.round(number))

    def remove_staging(self) -> None:
        """Delete the staging folders of failed attempts of this batch; a concurrent change is ignored.

        Another batch may create its folder beside this one, or remove the empty parent, at the same moment. What is
        left then is hidden.
        """
        with suppress(Py4JJavaError):
            self._remove_staging()

    def _remove_staging(self) -> None:
        folder = self._path(f"{self.record.out}/_staging")
        files = self._files(folder)
        if not files.exists(folder):
            return
        ours = re.compile(re.escape(self.record.batch_id) + r"-round-\d+-[0-9a-f]{32}")
        for name in filter(ours.fullmatch, self._names(folder)):
            files.delete(self._path(f"{folder}/{name}"), True)
        if not self._names(folder):
            files.delete(folder, False)

    def outcomes(self, number: int | None = None) -> DataFrame:
        """Return the outcomes of a round, or of all rounds that are committed."""
        rounds = range(self.record.rounds) if number is None else [number]
        paths = [self.round(each) for each in rounds]
        reader = self.spark.read.schema(STORED_OUTCOME).option("basePath", self._batch())
        return reader.parquet(*paths) if paths else self.spark.createDataFrame([], STORED_OUTCOME)

    def _batch(self) -> str:
        return f"{self.record.out}/batch_id={self.record.batch_id}"

    def _mark_prefix(self) -> str:
        return f"{_MARK}-{self.record.token}-"

    def _mark(self, found: dict[str, int]) -> str:
        """Return the name of an empty file that says which files a whole folder has, and of what sizes."""
        return self._mark_prefix() + sha256(repr(sorted(found.items())).encode()).hexdigest()[:32]

    def _data_files(self, path: Any) -> dict[str, int]:  # noqa: ANN401 - a Java object
        found = {status.getPath().getName(): status.getLen() for status in self._files(path).listStatus(path)}
        return {name: size for name, size in found.items() if name.endswith(".parquet")}

    def _names(self, path: Any) -> list[str]:  # noqa: ANN401 - a Java object
        return [status.getPath().getName() for status in self._files(path).listStatus(path)]

    def _path(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        jvm: Any = self.spark._jvm  # noqa: SLF001 - there is no public way to Hadoop's files
        return jvm.org.apache.hadoop.fs.Path(path)

    def _files(self, path: Any) -> Any:  # noqa: ANN401 - Java objects
        return path.getFileSystem(self.spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above


def absolute_folder(folder: str) -> str:
    """Return the absolute path of a folder.

    Raises `UsageError` for a name that Spark would read as a pattern.
    """
    if any(character in folder for character in _PATTERN):
        signs = " ".join(_PATTERN)
        message = (
            f"The folder {folder} cannot be written to: its name holds one of {signs}, a pattern to Spark."
        )
        raise UsageError(message)
    return (
        folder.rstrip("/") if "://" in folder or folder.startswith("file:") else str(Path(folder).absolute())
    )


def _flush_to_disk(*folders: str) -> None:
    """Make files, and the names of folders, survive a power cut; file systems that are not local do so themselves."""
    for folder in folders:
        path = Path(folder.removeprefix("file:"))
        for file in [*path.iterdir(), path] if path.is_dir() else []:
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except FileNotFoundError:  # another batch has cleaned up its own
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
