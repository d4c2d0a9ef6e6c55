"""Make the outcomes of a round visible atomically. Only the attempt that the ledger chose counts.

In the output folder, `batch_id=ID/round=N` holds the outcomes of a round as Parquet. Each attempt writes to
`_staging/ATTEMPT`, which readers ignore. Then:

1. `propose` writes the manifest of the attempt: its files with sizes and counts.
2. The ledger records the attempt, unless another attempt at the round is already recorded.
3. `put_in_place` makes the files of the manifest visible. It is idempotent and safe to run concurrently.
4. The ledger commits the round, and `discard` deletes the attempt.

A driver that resumes after step 2 continues with the chosen attempt. Disks and HDFS move a folder atomically. Object
stores only copy single objects atomically, so a round is merged into one object there (docs/decisions/0023).
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from runtime.errors import BatchRefusedError, UsageError
from runtime.file_systems import Folder, is_url, open_folder, path_and_options, within
from runtime.ledger.batch import HELD_BACK_MARKER
from runtime.ledger.ledger import MARK, BatchRecord, mark_of, mark_prefix
from runtime.spark.worker.outcomes import STORED_OUTCOME, SUFFIX, OutcomeFile, rows_of

_ROUND = "round"


def read_files(spark: SparkSession, files: Sequence[tuple[str, str, int]], schema: StructType) -> DataFrame:
    """Read the columns of `schema` from Parquet files, on workers. `files`: the folder, name and round of each."""
    # Workers open an object store as they did for writing. Spark itself would need a package and configuration for it.
    rows = spark.createDataFrame(list(files), "folder string, name string, round int")
    return rows.repartition(max(1, len(files))).mapInArrow(partial(_read, schema.fieldNames()), schema)


def _read(columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    stored = [name for name in columns if name != _ROUND]
    for file in rows_of(batches):
        with open_folder(file["folder"]).read(file["name"]) as opened:
            for found in parquet.ParquetFile(opened).iter_batches(columns=stored):
                if _ROUND in columns:
                    number = pa.repeat(pa.scalar(file[_ROUND], pa.int32()), found.num_rows)
                    yield found.append_column(_ROUND, number)
                else:
                    yield found


MERGED_UP_TO = 4 * 2**30
"""The maximum size of a merged file where folders cannot be moved. S3 copies up to 5 GB at once."""

_LOOKED_AT, _LINKS = 1024, 64  # outcomes that are read for links to producers, and the maximum of links
_MANIFEST = "_files"
_GATHERED = "_gathered"
_PATTERN = "*?[]{}\\"


@dataclass(frozen=True)
class BatchFolders:
    """The folders of the outcomes of a batch. An attempt is identified by its folder name."""

    spark: SparkSession
    record: BatchRecord

    @property
    def moves_whole(self) -> bool:
        """Whether the file system moves a folder atomically."""
        return open_folder(self.record.out).moves_whole

    def stage(self) -> str:
        """Create the folder of a new attempt at the next round. Return the name of the attempt."""
        attempt = f"{self.record.batch_id}-round-{self.record.rounds}-{uuid.uuid4().hex}"
        open_folder(self.staged(attempt)).create()
        return attempt

    def staged(self, attempt: str) -> str:
        return within(self.record.out, "_staging", attempt)

    def round(self, number: int) -> str:
        return within(self._batch(), f"round={number}")

    def check_written(self, attempt: str, parts: Sequence[OutcomeFile]) -> None:
        """Raise `OSError` unless the files of an attempt have their recorded sizes."""
        written = open_folder(self.staged(attempt)).sizes()
        changed = [part.name for part in parts if written.get(part.name) != part.size]
        if changed:
            raise OSError(f"{', '.join(changed)} changed after they were written.")

    def propose(self, attempt: str, parts: Sequence[OutcomeFile]) -> None:
        """Write the manifest of an attempt. Raises `OSError` if the files of the attempt have changed."""
        self.check_written(attempt, parts)
        folder = open_folder(self.staged(attempt))
        folder.put(_MANIFEST, json.dumps([part._asdict() for part in parts]).encode())
        folder.flush(_MANIFEST)
        folder.flush()

    def is_decided(self) -> bool:
        """Return whether the ledger chose an attempt at the next round, and all files of the attempt still exist."""
        if not self.record.attempt:
            return False
        staged = open_folder(self.staged(self.record.attempt))
        sizes = staged.sizes()
        if _MANIFEST not in sizes:
            return False
        # A file is in the staging folder, gathered for the move, or already in place.
        sizes |= staged.sub(_GATHERED).sizes() | open_folder(self.round(self.record.rounds)).sizes()
        with suppress(FileNotFoundError):  # another driver deletes the manifest
            return all(sizes.get(part.name) == part.size for part in self._decided())
        return False

    def _decided(self) -> Sequence[OutcomeFile]:
        with open_folder(self.staged(self.record.attempt)).read(_MANIFEST) as file:
            return [OutcomeFile(**each) for each in json.loads(file.read())]

    def put_in_place(self) -> Sequence[OutcomeFile]:
        """Make the files of the chosen attempt visible. Return the files. Raises `OSError` if files are gone."""
        source = open_folder(self.staged(self.record.attempt))
        target = open_folder(self.round(self.record.rounds))
        parts = self._decided()
        sizes = {part.name: part.size for part in parts}
        mark, there = mark_of(self.record.token, sizes), target.sizes()
        if there and not self._is_ours(there):
            raise of_another(target.path, self.record.batch_id)
        if mark in there:
            return parts
        (_move if target.moves_whole else _copy)(source, target, there, sizes, mark)
        return parts

    def damaged(self) -> str | None:
        """Return the folder of the first committed round with missing or changed files, or `None` if all are intact."""
        for folder in map(self.round, range(self.record.rounds)):
            there = open_folder(folder).sizes()
            sizes = {name: size for name, size in there.items() if name.endswith(SUFFIX)}
            if mark_of(self.record.token, sizes) not in there:
                return folder
        return None

    def in_place(self) -> list[tuple[Folder, Iterable[str]]]:
        """Return the folder and file names of each committed round, and of the next round.

        Leaves out rounds of a different batch with the same id, which another store records or whose record was pruned.
        """
        folders = [open_folder(self.round(number)) for number in range(self.record.rounds + 1)]
        listed = [(each, each.sizes()) for each in folders]
        return [(each, names) for each, names in listed if self._is_ours(names, marked=each is folders[-1])]

    def remove(self, files: Iterable[tuple[Folder, Iterable[str]]]) -> None:
        """Delete files that `in_place` has returned, and the marker of `hold_back`."""
        for folder, names in files:
            for name in _marks_last(names):
                folder.delete_file(name)
            folder.delete_if_empty()
        self.release()
        open_folder(self._batch()).delete_if_empty()

    def _is_ours(self, names: Iterable[str], *, marked: bool = True) -> bool:
        """Return whether all marks are of this batch, and, if `marked`, there is one."""
        marks = [name for name in names if name.startswith(MARK)]
        are_ours = all(name.startswith(mark_prefix(self.record.token)) for name in marks)
        return are_ours and bool(marks or not marked)

    def flush(self, number: int) -> None:
        """Fsync the directory entries of a round, whose files were fsynced when they were written."""
        for folder in (self.round(number), self._batch(), self.record.out):
            open_folder(folder).flush()

    def discard(self, attempt: str) -> None:
        with suppress(OSError):
            open_folder(self.staged(attempt)).delete()

    def remove_staging(self) -> None:
        with suppress(OSError):  # another batch may create its folder concurrently
            self.revoke()
            open_folder(within(self.record.out, "_staging")).delete_if_empty()

    def revoke(self) -> None:
        """Delete all attempts, so that a suspended driver puts none in place later. Raises `OSError` if one is left."""
        folder = open_folder(within(self.record.out, "_staging"))
        ours = re.compile(re.escape(self.record.batch_id) + r"-round-\d+-[0-9a-f]{32}")
        for attempt in map(folder.sub, filter(ours.fullmatch, folder.names())):
            attempt.delete()
            if attempt.exists():
                raise OSError(f"{attempt.path} cannot be deleted")

    def hold_back(self) -> None:
        """Mark the batch as held back (for too many dead letters), in a file that Spark ignores."""
        open_folder(self._batch()).touch(HELD_BACK_MARKER)

    def release(self) -> None:
        """Delete the marker file of `hold_back`."""
        open_folder(self._batch()).delete_file(HELD_BACK_MARKER)

    def outcomes(self, number: int | None = None) -> DataFrame:
        """Read the outcomes of a round. If `number` is None, read all committed rounds."""
        rounds = range(self.record.rounds) if number is None else [number]
        if rounds and self.moves_whole:
            reader = self.spark.read.schema(STORED_OUTCOME).option("basePath", self._batch())
            return reader.parquet(*map(self.round, rounds))
        files = [(self.round(each), name, each) for each in rounds for name in self._names(each)]
        return read_files(self.spark, files, STORED_OUTCOME)

    def rows(self, number: int) -> int:
        """Count the outcomes of a round from the file footers."""
        return sum(file.metadata.num_rows for file in self._opened(number))

    def causes(self, number: int) -> list[str]:
        """Return up to 64 distinct `traceparent` headers of some outputs of a round, to link to their traces."""
        for file in self._opened(number):
            rows = next(file.iter_batches(_LOOKED_AT, columns=["outputs"]), None)
            headers = [] if rows is None else rows.column("outputs").flatten().field("headers").to_pylist()
            found = {dict(each or ()).get("traceparent") for each in headers}
            if found:
                return sorted(filter(None, found))[:_LINKS]
        return []

    def _opened(self, number: int) -> Iterator[parquet.ParquetFile]:
        folder = open_folder(self.round(number))
        for name in self._names(number):
            with folder.read(name) as file:
                yield parquet.ParquetFile(file)

    def _names(self, number: int) -> list[str]:
        return sorted(name for name in open_folder(self.round(number)).sizes() if name.endswith(SUFFIX))

    def _batch(self) -> str:
        return within(self.record.out, f"batch_id={self.record.batch_id}")


def _move(
    source: Folder, target: Folder, there: Mapping[str, int], sizes: Mapping[str, int], mark: str
) -> None:
    """Gather the files of an attempt in a subfolder of `source`, and move the subfolder to `target` atomically.

    `there`: the sizes of the files in `target`. `sizes`: those of the attempt. `mark`: the file that marks completion.
    """
    gathered = source.sub(_GATHERED)
    try:
        gathered.create()
        for name in sizes.keys() - gathered.sizes().keys():
            with suppress(FileNotFoundError):  # another driver moves the same files
                source.move_file(name, gathered)
        _check_whole(source, gathered.sizes(), sizes)
        for name in _marks_last(there.keys() - sizes.keys()):  # left by another attempt
            target.delete_file(name)
        gathered.touch(mark)
        gathered.flush(mark)
        gathered.flush()
        target.parent.create()
        gathered.move_to(target)
    except OSError:
        if mark not in target.sizes():  # otherwise another driver was faster
            raise
    finally:
        # If the target already exists, HDFS moves the folder inside it.
        target.sub(_GATHERED).delete()


def _copy(
    source: Folder, target: Folder, there: Mapping[str, int], sizes: Mapping[str, int], mark: str
) -> None:
    """Copy an attempt's files, then create `mark`. Until then, another file marks an unfinished copy. See `_move`."""
    unfinished = f"{mark}-unfinished"
    _check_whole(source, {**there, **source.sizes()}, sizes)
    target.create()
    target.touch(unfinished)
    for name in there.keys() - {*sizes, unfinished}:
        target.delete_file(name)
    for name, size in sizes.items():
        if there.get(name) != size:
            source.copy_file(name, target)
    target.touch(mark)
    target.delete_file(unfinished)


def _marks_last(names: Iterable[str]) -> list[str]:
    """Sort names of files for deletion. Without its mark, a round is not known as that of the batch."""
    return sorted(names, key=lambda name: name.startswith(MARK))


def _check_whole(source: Folder, found: Mapping[str, int], sizes: Mapping[str, int]) -> None:
    """Raise `FileNotFoundError` if the manifest of an attempt, or one of its files, is gone. `found`: those that exist.

    An attempt is replaced only after it was revoked or damaged. So if it is whole, files that were listed in the target
    before this check are not of a later attempt, and may be deleted.
    """
    if _MANIFEST not in source.sizes() or not sizes.items() <= found.items():
        raise FileNotFoundError(f"files of {source.path} are gone")


def check_unused(out: str, batch_id: str) -> None:
    """Raise `BatchRefusedError` if `out` has outcomes under this id. Call only if the id is not in the ledger."""
    folder = within(out, f"batch_id={batch_id}")
    if open_folder(folder).names():
        raise of_another(folder, batch_id)


def of_another(folder: str, batch_id: str) -> BatchRefusedError:
    """Return the error for a folder with outcomes of a batch that is not in the ledger."""
    return BatchRefusedError(
        f"{folder} holds outcomes of another batch with the id {batch_id}, which is in another store, or was pruned "
        f"from this ledger: choose another --out or another --batch-id."
    )


def absolute_folder(folder: str | PathLike[str]) -> str:
    """Make a path absolute. Raises `UsageError` if Spark reads it as a pattern, or if its file system is unknown."""
    if not isinstance(folder, str | PathLike):
        raise UsageError(f"A folder (out, checkpoint) must be a str or a Path, not {folder!r}.")
    folder = fspath(folder)
    path, options = path_and_options(folder)
    if any(character in path for character in _PATTERN):
        signs = " ".join(_PATTERN)
        raise UsageError(
            f"The folder {folder} cannot be written to: to Spark, {signs} in its name are a pattern. Rename it."
        )
    if not is_url(folder):
        return str(Path(folder).absolute())
    url = path.rstrip("/") + options
    open_folder(url)
    return url
