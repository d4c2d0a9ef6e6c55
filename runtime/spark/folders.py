"""The folders of a batch's outcomes: workers write to a hidden staging folder, the driver puts what counts in place.

`OUT/batch_id=ID/round=N` holds the outcomes of a round as Parquet. Attempts at its tasks write under `OUT/_staging`,
which Spark ignores. Only the files that the driver was told of are put in place. On a disk they are gathered in a
folder, which is moved as a whole. On an object store they are copied one by one, and last comes an empty file, the
mark, whose name says what a whole folder has. What is not whole is never committed, and is replaced when the batch
goes on.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from runtime.batches.dead_letter_limit import HELD_BACK
from runtime.batches.marks import MARK, mark_of, mark_prefix
from runtime.batches.record import BatchRecord
from runtime.errors import BatchFailedError, BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.spark.schemas import STORED_OUTCOME
from runtime.spark.workers.parts import SUFFIX, Part, PartFile, count_file

_UNFINISHED = "-unfinished"
_GATHERED = "_gathered"
_PATTERN = "*?[]{}"


@dataclass(frozen=True)
class BatchFolders:
    """Where a batch keeps the outcomes of its rounds."""

    spark: SparkSession
    record: BatchRecord

    def stage(self, number: int) -> str:
        """Create a new folder for the attempts at the tasks of a round."""
        name = f"{self.record.batch_id}-round-{number}-{uuid.uuid4().hex}"
        staged = f"{self.record.out}/_staging/{name}"
        open_folder(staged).create()
        return staged

    def round(self, number: int) -> str:
        """Return where the outcomes of a round are when they are in place."""
        return f"{self._batch()}/round={number}"

    def is_in_place(self, number: int) -> bool:
        """Say whether the outcomes of a round are there as a whole, from an earlier attempt of this batch.

        What is there of an incomplete one, which was copied file by file, is deleted. Raises `BatchRefusedError` when
        another batch of the same id has left its outcomes there.
        """
        folder = open_folder(self.round(number))
        sizes = folder.sizes()
        found = _parts(sizes)
        marks = [name for name in sizes if name.startswith(MARK)]
        if any(not name.startswith(mark_prefix(self.record.token)) for name in marks) or (
            found and not marks
        ):
            raise of_another(self.round(number), self.record.batch_id)
        if self._mark(found) in marks:
            return True
        for name in sizes:  # by name: what another driver has put there since has other names
            folder.delete_file(name)
        return False

    def put_in_place(
        self, staged: str, number: int, parts: Sequence[Part], types: Collection[str]
    ) -> Sequence[Part]:
        """Move the files that count into place, unless another driver of the same batch was faster.

        Return what is in place then. A round without outcomes gets a file without rows, so that whoever reads the
        folder finds the columns. Files of other attempts are deleted, and stay hidden if they come later.
        """
        source, target = open_folder(staged), open_folder(self.round(number))
        parts = parts or [_write_empty(source, types)]
        failure: Exception | None = None
        if not self.is_in_place(number):
            try:
                self._move(source, target, parts)
            except OSError as error:
                failure = error
        if not self.is_in_place(number):
            why = f"could not be moved there: {failure}" if failure else "were changed by another driver"
            message = f"The outcomes of {self.round(number)} {why}. Run the batch again with its id."
            raise BatchFailedError(message) from failure
        with suppress(OSError):
            source.delete()
        is_ours = parts[0].name in target.sizes()
        return parts if is_ours else self.parts(number, types)

    def parts(self, number: int, types: Collection[str]) -> Sequence[Part]:
        """Return the files of a round that is in place, and count what they hold, for which they are read."""
        folder = open_folder(self.round(number))
        return [count_file(folder, name, types) for name in sorted(_parts(folder.sizes()))]

    def flush(self, number: int) -> None:
        """Make the names of the folders of a round survive a power cut. Those of its files do, and the files."""
        for folder in (self.round(number), self._batch(), self.record.out):
            open_folder(folder).flush()

    def hold_back(self) -> None:
        """Mark the batch as one that is not to be published as it is; Spark does not see the mark."""
        open_folder(self._batch()).touch(HELD_BACK)

    def release(self) -> None:
        """Take the mark away, if there is one."""
        open_folder(self._batch()).delete_file(HELD_BACK)

    def remove_staging(self) -> None:
        """Delete the staging folders of failed attempts of this batch; a concurrent change is ignored.

        Another batch may create its folder beside this one at the same moment. What is left then is hidden.
        """
        folder = open_folder(f"{self.record.out}/_staging")
        ours = re.compile(re.escape(self.record.batch_id) + r"-round-\d+-[0-9a-f]{32}")
        with suppress(OSError):
            for name in filter(ours.fullmatch, folder.names()):
                folder.sub(name).delete()
            folder.delete_if_empty()

    def outcomes(self, number: int | None = None) -> DataFrame:
        """Return the outcomes of a round, or of all rounds that are committed."""
        rounds = range(self.record.rounds) if number is None else [number]
        paths = [self.round(each) for each in rounds]
        reader = self.spark.read.schema(STORED_OUTCOME).option("basePath", self._batch())
        return reader.parquet(*paths) if paths else self.spark.createDataFrame([], STORED_OUTCOME)

    def _move(self, source: Folder, target: Folder, parts: Sequence[Part]) -> None:
        written = source.sizes()
        changed = [part.name for part in parts if written.get(part.name) != part.size]
        if changed:
            raise OSError(f"{', '.join(changed)} are not as they were written.")
        mark = self._mark({part.name: part.size for part in parts})
        if target.moves_whole:
            _move_whole(source, target, open_folder(self._batch()), parts, mark)
        else:
            self._copy_one_by_one(source, target, parts, mark)

    def _copy_one_by_one(self, source: Folder, target: Folder, parts: Sequence[Part], mark: str) -> None:
        """Copy file by file, and take all back when another driver does the same: it may have committed its own."""
        unfinished = f"{mark}{_UNFINISHED}"
        target.create()
        target.touch(unfinished)
        names = [part.name for part in parts]
        for name in names:
            source.copy_file(name, target)
        if set(_parts(target.sizes())) == set(names):
            target.touch(mark)
        if set(_parts(target.sizes())) != set(names):
            for name in (*names, mark):
                target.delete_file(name)
        target.delete_file(unfinished)

    def _batch(self) -> str:
        return f"{self.record.out}/batch_id={self.record.batch_id}"

    def _mark(self, found: dict[str, int]) -> str:
        """Return the name of an empty file that says which files a whole folder has, and of what sizes."""
        return mark_of(self.record.token, found)


def check_unused(out: str, batch_id: str) -> None:
    """Raise `BatchRefusedError` when a batch that the ledger does not have left outcomes in a folder."""
    folder = f"{out}/batch_id={batch_id}"
    if open_folder(folder).names():
        raise of_another(folder, batch_id)


def of_another(folder: str, batch_id: str) -> BatchRefusedError:
    """Return the error that a folder holds outcomes of a batch that the ledger does not have."""
    return BatchRefusedError(
        f"{folder} holds outcomes of another batch with the id {batch_id}, from another store, or pruned from the "
        f"ledger of this one: choose another --out or another --batch-id."
    )


def absolute_folder(folder: str) -> str:
    """Return the absolute path of a folder.

    Raises `UsageError` for a name that Spark would read as a pattern, and for a file system that is not known.
    """
    if any(character in folder for character in _PATTERN):
        signs = " ".join(_PATTERN)
        message = (
            f"The folder {folder} cannot be written to: its name holds one of {signs}, a pattern to Spark."
        )
        raise UsageError(message)
    if "://" not in folder and not folder.startswith("file:"):
        return str(Path(folder).absolute())
    url = folder.rstrip("/")
    open_folder(url)
    return url


def _move_whole(source: Folder, target: Folder, parent: Folder, parts: Sequence[Part], mark: str) -> None:
    """Gather the files in a folder of their own, where no late attempt writes, and move that at once."""
    gathered = source.sub(_GATHERED)
    gathered.create()
    for part in parts:
        source.move_file(part.name, gathered)
    gathered.touch(mark)
    gathered.flush(mark)
    gathered.flush()
    parent.create()
    try:
        gathered.move_to(target)
    finally:
        # Onto a folder that another driver has put there in this moment, HDFS moves the folder inside it.
        target.sub(_GATHERED).delete()


def _write_empty(folder: Folder, types: Collection[str]) -> Part:
    file = PartFile(folder, types)
    file.open()
    return file.close()


def _parts(sizes: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name.endswith(SUFFIX)}
