"""The folders of a batch's outcomes: workers write to a hidden staging folder, the driver puts what counts in place.

`OUT/batch_id=ID/round=N` holds the outcomes of a round as Parquet. Attempts write to folders of their own under
`OUT/_staging`, which Spark ignores. Only the files that the driver was told of are put in place: on a disk they are
gathered in a folder, which is moved as a whole; on an object store they are copied, once the ledger says that this
attempt counts (`runtime.spark.decided`). Beside them is an empty file, the mark, whose name says what a whole folder
has. What is not whole is never committed, and is replaced when the batch goes on.
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
from runtime.spark.decided import DecidedAttempt
from runtime.spark.parquet_files import read_outcomes
from runtime.spark.workers.parts import Part, PartFile, count_file, parts_among
from runtime.urls import path_and_options, within

_GATHERED = "_gathered"
_PATTERN = "*?[]{}"


@dataclass(frozen=True)
class BatchFolders:
    """Where a batch keeps the outcomes of its rounds. An attempt at a round is known by the name of its folder."""

    spark: SparkSession
    record: BatchRecord

    @property
    def moves_whole(self) -> bool:
        """Whether a round is put in place by moving its folder; otherwise the ledger decides which attempt counts."""
        return open_folder(self.record.out).moves_whole

    def stage(self, number: int) -> str:
        """Create the folder of a new attempt at a round."""
        attempt = f"{self.record.batch_id}-round-{number}-{uuid.uuid4().hex}"
        open_folder(self.staged(attempt)).create()
        return attempt

    def staged(self, attempt: str) -> str:
        """Return where an attempt is written."""
        return within(self.record.out, "_staging", attempt)

    def round(self, number: int) -> str:
        """Return where the outcomes of a round are when they are in place."""
        return within(self._batch(), f"round={number}")

    def is_in_place(self, number: int) -> bool:
        """Say whether the outcomes of a round are there as a whole, from an earlier attempt of this batch.

        Raises `BatchRefusedError` when another batch of the same id has left its outcomes there.
        """
        sizes = open_folder(self.round(number)).sizes()
        found = parts_among(sizes)
        marks = [name for name in sizes if name.startswith(MARK)]
        if any(not name.startswith(mark_prefix(self.record.token)) for name in marks) or (
            found and not marks
        ):
            raise of_another(self.round(number), self.record.batch_id)
        return mark_of(self.record.token, found) in marks

    def write_empty(self, attempt: str, types: Collection[str]) -> Part:
        """Write a file without rows, so that whoever reads a round without outcomes finds the columns."""
        file = PartFile(open_folder(self.staged(attempt)), types)
        file.open()
        return file.close()

    def check_written(self, attempt: str, parts: Sequence[Part]) -> None:
        """Raise `OSError` unless the files of an attempt are as they were written."""
        written = open_folder(self.staged(attempt)).sizes()
        changed = [part.name for part in parts if written.get(part.name) != part.size]
        if changed:
            raise OSError(f"{', '.join(changed)} are not as they were written.")

    def propose(self, attempt: str, parts: Sequence[Part]) -> None:
        """Write down which files an attempt has, so that the ledger can say that it counts."""
        self._attempt(attempt).write_manifest({part.name: part.size for part in parts})

    def take_over(self, number: int, types: Collection[str]) -> Sequence[Part] | None:
        """Return the files of a round that an earlier driver has put in place, or has had decided.

        None when there are none: then the round is to be run.
        """
        if self.is_in_place(number):
            return self.parts(number, types)
        attempt = self.record.attempt
        if not attempt or not self._attempt(attempt).is_there():
            return None
        return self.put_in_place(attempt, number, (), types)

    def put_in_place(
        self, attempt: str, number: int, parts: Sequence[Part], types: Collection[str]
    ) -> Sequence[Part]:
        """Put the files that count in place, unless another driver of the same batch was faster.

        `parts` are those of this driver's own attempt. Return what is in place then. Files of other attempts are
        deleted, and stay hidden if they come later.
        """
        source, target = open_folder(self.staged(attempt)), open_folder(self.round(number))
        failure: Exception | None = None
        if not self.is_in_place(number):
            try:
                if target.moves_whole:
                    self.check_written(attempt, parts)
                    self._move(source, target, parts)
                else:
                    self._attempt(attempt).put_in_place(target)
            except OSError as error:
                failure = error
        if not self.is_in_place(number):
            raise self.failed(number, failure) from failure
        with suppress(OSError):
            source.delete()
        is_ours = bool(parts) and parts[0].name in target.sizes()
        return parts if is_ours else self.parts(number, types)

    def parts(self, number: int, types: Collection[str]) -> Sequence[Part]:
        """Return the files of a round that is in place, and count what they hold, for which they are read."""
        folder = open_folder(self.round(number))
        return [count_file(folder, name, types) for name in sorted(parts_among(folder.sizes()))]

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
        folder = open_folder(within(self.record.out, "_staging"))
        ours = re.compile(re.escape(self.record.batch_id) + r"-round-\d+-[0-9a-f]{32}")
        with suppress(OSError):
            for name in filter(ours.fullmatch, folder.names()):
                folder.sub(name).delete()
            folder.delete_if_empty()

    def outcomes(self, number: int | None = None) -> DataFrame:
        """Return the outcomes of a round, or of all rounds that are committed."""
        rounds = range(self.record.rounds) if number is None else [number]
        return read_outcomes(self.spark, self._batch(), {each: self.round(each) for each in rounds})

    def _move(self, source: Folder, target: Folder, parts: Sequence[Part]) -> None:
        mark = mark_of(self.record.token, {part.name: part.size for part in parts})
        self._clear(target)
        _move_whole(source, target, open_folder(self._batch()), parts, mark)

    def _clear(self, target: Folder) -> None:
        """Delete what is there of a round that is not whole, such as one that was copied from elsewhere in part.

        By name: what another driver puts there meanwhile has other names.
        """
        sizes = target.sizes()
        if mark_of(self.record.token, parts_among(sizes)) not in sizes:
            for name in sizes:
                target.delete_file(name)

    def _attempt(self, attempt: str) -> DecidedAttempt:
        return DecidedAttempt(open_folder(self.staged(attempt)), self.record.token)

    def failed(self, number: int, failure: Exception | None) -> BatchFailedError:
        """Return the error that the outcomes of a round could not be put in place."""
        why = f"could not be put there: {failure}" if failure else "were changed by another driver"
        return BatchFailedError(
            f"The outcomes of {self.round(number)} {why}. Run the batch again with its id."
        )

    def _batch(self) -> str:
        return within(self.record.out, f"batch_id={self.record.batch_id}")


def check_unused(out: str, batch_id: str) -> None:
    """Raise `BatchRefusedError` when a batch that the ledger does not have left outcomes in a folder."""
    folder = within(out, f"batch_id={batch_id}")
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
    path, options = path_and_options(folder)
    if any(character in path for character in _PATTERN):
        signs = " ".join(_PATTERN)
        message = (
            f"The folder {folder} cannot be written to: its name holds one of {signs}, a pattern to Spark."
        )
        raise UsageError(message)
    if "://" not in folder and not folder.startswith("file:"):
        return str(Path(folder).absolute())
    url = path.rstrip("/") + options
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
