"""How the outcomes of a round become visible: as a whole, and only those that the ledger has decided on.

`OUT/batch_id=ID/round=N` holds the outcomes of a round as Parquet. An attempt at a round writes to a folder of its own,
`OUT/_staging/ATTEMPT`, which readers ignore. Then:

1. `propose` writes the manifest of the attempt: its files, their sizes, and what they hold.
2. The ledger takes the name of the attempt into the row of the batch, unless it has that of another one.
3. `put_in_place` makes exactly the files of the manifest visible. It is idempotent and safe to run concurrently.
4. The ledger commits the round, and `discard` deletes the attempt.

After step 2 there is one thing that can be put in place, and whoever resumes the batch does that. Disks and HDFS move a
folder at once; object stores copy an object at once, so a round is merged into one object there (docs/decisions/0023).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from runtime.errors import BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder, path_and_options, within
from runtime.ledger.batch import HELD_BACK_MARKER
from runtime.ledger.ledger import MARK, BatchRecord, mark_of, mark_prefix
from runtime.spark.worker.outcomes import STORED_OUTCOME, SUFFIX, Part, PartFile

_ROUND = "round"


def read_file(spark: SparkSession, folder: str, name: str, schema: StructType) -> DataFrame:
    """Return the columns of a schema that are in a file."""
    if open_folder(folder).moves_whole:
        return spark.read.schema(schema).parquet(within(folder, name))
    return _read_by_workers(spark, [(folder, name, 0)], schema)


def _read_by_workers(
    spark: SparkSession, files: Sequence[tuple[str, str, int]], schema: StructType
) -> DataFrame:
    """Return the columns of a schema that are in some files, each with its folder and round. Costs a task for each.

    A worker opens an object store with the url and the credentials with which it has written there. So Spark needs no
    package and no configuration for it, and reads what was written a moment ago.
    """
    rows = spark.createDataFrame(list(files), "folder string, name string, round int")
    return rows.repartition(max(1, len(files))).mapInArrow(partial(_read, schema.fieldNames()), schema)


def _read(columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what is in the files that come in."""
    from pyarrow import parquet  # noqa: PLC0415 - takes time, and the driver has other uses for this module

    stored = [name for name in columns if name != _ROUND]
    for file in (row for batch in batches for row in batch.to_pylist()):
        with open_folder(file["folder"]).read(file["name"]) as opened:
            for found in parquet.ParquetFile(opened).iter_batches(columns=stored):
                if _ROUND in columns:
                    number = pa.repeat(pa.scalar(file[_ROUND], pa.int32()), found.num_rows)
                    yield found.append_column(_ROUND, number)
                else:
                    yield found


MERGED_UP_TO = 4 * 2**30
"""Where folders cannot be moved, the files of a round become one up to so many bytes: S3 copies up to 5 GB at once."""

_MANIFEST = "_files"
_GATHERED = "_gathered"
_PATTERN = "*?[]{}"


@dataclass(frozen=True)
class BatchFolders:
    """Where a batch keeps the outcomes of its rounds. An attempt is known by the name of its folder."""

    spark: SparkSession
    record: BatchRecord

    @property
    def moves_whole(self) -> bool:
        """Whether the file system moves a folder at once."""
        return open_folder(self.record.out).moves_whole

    def stage(self) -> str:
        """Create the folder of a new attempt at the next round."""
        attempt = f"{self.record.batch_id}-round-{self.record.rounds}-{uuid.uuid4().hex}"
        open_folder(self.staged(attempt)).create()
        return attempt

    def staged(self, attempt: str) -> str:
        """Return where an attempt is written."""
        return within(self.record.out, "_staging", attempt)

    def round(self, number: int) -> str:
        """Return where the outcomes of a round are once they are visible."""
        return within(self._batch(), f"round={number}")

    def write_empty(self, attempt: str, types: Collection[str]) -> Part:
        """Write a file without rows, so that whoever reads a round without outcomes finds the columns."""
        file = PartFile(open_folder(self.staged(attempt)), types)
        file.open()
        return file.close()

    def check_written(self, attempt: str, parts: Sequence[Part]) -> None:
        """Raise `OSError` unless the files of an attempt have their recorded sizes."""
        written = open_folder(self.staged(attempt)).sizes()
        changed = [part.name for part in parts if written.get(part.name) != part.size]
        if changed:
            raise OSError(f"{', '.join(changed)} are not as they were written.")

    def propose(self, attempt: str, parts: Sequence[Part]) -> None:
        """Write the manifest of an attempt. Raises `OSError` as `check_written` does."""
        self.check_written(attempt, parts)
        folder = open_folder(self.staged(attempt))
        folder.put(_MANIFEST, json.dumps([part._asdict() for part in parts]).encode())
        folder.flush(_MANIFEST)
        folder.flush()

    def is_decided(self) -> bool:
        """Return whether the ledger has decided on an attempt at the next round whose files are still there."""
        attempt = self.record.attempt
        if not attempt or _MANIFEST not in (staged := open_folder(self.staged(attempt)).sizes()):
            return False
        # A file may be staged, gathered to be moved, or in place already.
        gathered = open_folder(self.staged(attempt)).sub(_GATHERED).sizes()
        there = staged | gathered | open_folder(self.round(self.record.rounds)).sizes()
        return all(there.get(part.name) == part.size for part in self._decided())

    def _decided(self) -> Sequence[Part]:
        """Return the files in the manifest of the decided attempt."""
        with open_folder(self.staged(self.record.attempt)).read(_MANIFEST) as file:
            return [Part(**each) for each in json.loads(file.read())]

    def put_in_place(self) -> Sequence[Part]:
        """Make the files of the decided attempt visible, and return them.

        Raises `OSError` when the attempt is gone, as another driver has committed the round, and `BatchRefusedError`
        when a batch of the same id from another store has its outcomes there.
        """
        source = open_folder(self.staged(self.record.attempt))
        target = open_folder(self.round(self.record.rounds))
        parts = self._decided()
        sizes = {part.name: part.size for part in parts}
        mark = mark_of(self.record.token, sizes)
        there = target.sizes()
        marks = [name for name in there if name.startswith(MARK)]
        if any(not name.startswith(mark_prefix(self.record.token)) for name in marks) or (
            there and not marks
        ):
            raise of_another(target.path, self.record.batch_id)
        if mark in there:
            return parts
        (_move if target.moves_whole else _copy)(source, target, there, sizes, mark)
        return parts

    def damaged(self) -> str | None:
        """Return the first committed round whose files are not those that were put in place, None when all are."""
        for folder in map(self.round, range(self.record.rounds)):
            there = open_folder(folder).sizes()
            sizes = {name: size for name, size in there.items() if name.endswith(SUFFIX)}
            if mark_of(self.record.token, sizes) not in there:
                return folder
        return None

    def remove_rounds(self) -> None:
        """Delete the committed rounds, but for what a batch of the same id from another store has put there."""
        for folder in (open_folder(self.round(number)) for number in range(self.record.rounds)):
            marks = [name for name in folder.sizes() if name.startswith(MARK)]
            if all(name.startswith(mark_prefix(self.record.token)) for name in marks):
                folder.delete()

    def flush(self, number: int) -> None:
        """Fsync the directory entries of a round; its files were fsynced when they were written."""
        for folder in (self.round(number), self._batch(), self.record.out):
            open_folder(folder).flush()

    def discard(self, attempt: str) -> None:
        """Delete the folder of an attempt. Files that a late task writes there are not visible."""
        with suppress(OSError):
            open_folder(self.staged(attempt)).delete()

    def remove_staging(self) -> None:
        """Delete the folders of all attempts at rounds of this batch.

        Errors are ignored: another batch may create its folder beside this one at the same moment.
        """
        folder = open_folder(within(self.record.out, "_staging"))
        ours = re.compile(re.escape(self.record.batch_id) + r"-round-\d+-[0-9a-f]{32}")
        with suppress(OSError):
            for name in filter(ours.fullmatch, folder.names()):
                folder.sub(name).delete()
            folder.delete_if_empty()

    def hold_back(self) -> None:
        """Mark the batch as one that is not to be published as it is; Spark ignores the mark."""
        open_folder(self._batch()).touch(HELD_BACK_MARKER)

    def release(self) -> None:
        """Remove the mark of `hold_back`, if there is one."""
        open_folder(self._batch()).delete_file(HELD_BACK_MARKER)

    def outcomes(self, number: int | None = None) -> DataFrame:
        """Return the outcomes of a round, or of all rounds that are committed."""
        rounds = range(self.record.rounds) if number is None else [number]
        folders = {each: self.round(each) for each in rounds}
        if not folders:
            return self.spark.createDataFrame([], STORED_OUTCOME)
        if self.moves_whole:
            reader = self.spark.read.schema(STORED_OUTCOME).option("basePath", self._batch())
            return reader.parquet(*folders.values())
        files = [
            (folder, name, each)
            for each, folder in folders.items()
            for name in sorted(open_folder(folder).sizes())
            if name.endswith(SUFFIX)
        ]
        return _read_by_workers(self.spark, files, STORED_OUTCOME)

    def rows(self, number: int) -> int:
        """Return how many outcomes a round has, from the footers of its files."""
        from pyarrow import parquet  # noqa: PLC0415 - takes time, and is seldom needed

        folder, count = open_folder(self.round(number)), 0
        for name in folder.sizes():
            if not name.startswith("_"):
                with folder.read(name) as file:
                    count += parquet.ParquetFile(file).metadata.num_rows
        return count

    def _batch(self) -> str:
        return within(self.record.out, f"batch_id={self.record.batch_id}")


def _move(
    source: Folder, target: Folder, there: Mapping[str, int], sizes: Mapping[str, int], mark: str
) -> None:
    """Gather the files in a folder of their own, where no late task writes, and move that at once."""
    gathered = source.sub(_GATHERED)
    try:
        for name in there.keys() - sizes.keys():  # not what the ledger has decided on
            target.delete_file(name)
        gathered.create()
        for name in sizes.keys() - gathered.sizes().keys():
            with suppress(FileNotFoundError):  # another driver of the batch moves the same files
                source.move_file(name, gathered)
        if sizes.keys() - gathered.sizes().keys():
            raise FileNotFoundError(f"files of {source.path} are gone")
        gathered.touch(mark)
        gathered.flush(mark)
        gathered.flush()
        target.parent.create()
        gathered.move_to(target)
    except OSError:
        if mark not in target.sizes():  # else another driver was faster
            raise
    finally:
        # Onto a folder that another driver has put there at this moment, HDFS moves the folder inside it.
        target.sub(_GATHERED).delete()


def _copy(
    source: Folder, target: Folder, there: Mapping[str, int], sizes: Mapping[str, int], mark: str
) -> None:
    """Copy the files, guarded by a mark that says while they are not complete."""
    unfinished = f"{mark}-unfinished"
    target.create()
    target.touch(unfinished)
    for name in there.keys() - {*sizes, unfinished}:
        target.delete_file(name)
    for name, size in sizes.items():
        if there.get(name) != size:
            source.copy_file(name, target)
    target.touch(mark)
    target.delete_file(unfinished)


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


def absolute_folder(folder: str | PathLike[str]) -> str:
    """Return the absolute path of a folder.

    Raises `UsageError` for what is no name, for one that Spark would read as a pattern, and for a file system that is
    not known.
    """
    if not isinstance(folder, str | PathLike):
        raise UsageError(f"A folder (out, checkpoint) is a str or a Path, not {folder!r}.")
    folder = fspath(folder)
    path, options = path_and_options(folder)
    if any(character in path for character in _PATTERN):
        signs = " ".join(_PATTERN)
        raise UsageError(
            f"The folder {folder} cannot be written to: its name holds one of {signs}, a pattern to Spark."
        )
    if "://" not in folder and not folder.startswith("file:"):
        return str(Path(folder).absolute())
    url = path.rstrip("/") + options
    open_folder(url)
    return url
