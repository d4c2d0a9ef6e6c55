"""Outcomes on their way out of a worker: a Parquet file for each attempt at a task, and a row that says what it holds.

A file counts only if its row reaches the driver. The row exists once the file is closed and on disk, and Spark takes
the row of one attempt at each task. So a file of an attempt that failed, was killed or came too late is named by
nobody. It is in a hidden folder, which the attempt does not create, and so cannot bring back.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from runtime.errors import BatchFailedError
from runtime.file_systems import Folder, open_folder
from runtime.spark.schemas import ARROW_OUTCOME

MAX_ROWS = 65_536
MAX_BYTES = 8 * 2**20
"""When a row group is written; with the batch that makes it full, about twice as much is held."""

SUFFIX = ".parquet"

Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Gives the outcomes of a partition, in the columns of `ARROW_OUTCOME`."""

PART = StructType(
    [
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("statuses", MapType(StringType(), LongType())),
        StructField("outputs", LongType()),
        StructField("routable", LongType()),
    ]
)


class Part(NamedTuple):
    """A file of outcomes: its name and size, and how many outcomes of each status and how many outputs it has.

    `routable` counts the outputs of types that a handler of the app takes.
    """

    name: str
    size: int
    statuses: Mapping[str, int]
    outputs: int
    routable: int


def totals(parts: Iterable[Part]) -> tuple[Mapping[str, int], int]:
    """Return what files hold together: the outcomes by status and `outputs`, and the routable outputs."""
    counts: Counter[str] = Counter(outputs=0)
    routable = 0
    for part in parts:
        counts.update(part.statuses)
        counts["outputs"] += part.outputs
        routable += part.routable
    return counts, routable


@dataclass(frozen=True)
class Merge:
    """Gives the outcomes in some files of a folder, in place of a fold, so that they are written to one file."""

    folder: str
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give what the files hold; the rows that come in only make the task."""
        from pyarrow import parquet  # noqa: PLC0415 - see below

        for _ in batches:
            pass
        folder = open_folder(self.folder)
        try:
            for name in self.names:
                with folder.read(name) as file:
                    for outcomes in parquet.ParquetFile(file).iter_batches():
                        yield outcomes.cast(ARROW_OUTCOME)
        except FileNotFoundError as error:
            raise BatchFailedError(f"Files that other workers wrote to {folder.path} are gone.") from error


@dataclass(frozen=True)
class PartJob:
    """Folds a partition, and writes its outcomes to a file in a folder, given by its url."""

    fold: Fold
    folder: str
    types: Collection[str]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the row of the file, once it is on disk; none when there are no outcomes."""
        file = PartFile(open_folder(self.folder), self.types)
        try:
            for outcomes in self.fold(batches):
                if outcomes.num_rows:
                    file.add(outcomes)
                del outcomes  # or they would be kept while the next streams are handled
            part = file.close() if file.is_open else None
        except BaseException:
            file.discard()
            raise
        if part is not None:
            yield pa.RecordBatch.from_pylist(
                [part._asdict() | {"statuses": list(part.statuses.items())}], _ARROW
            )


class PartFile:
    """A Parquet file in the making, with a name of its own, in row groups of bounded size."""

    def __init__(self, folder: Folder, types: Collection[str]) -> None:
        self._folder = folder
        self._name = f"part-{uuid.uuid4().hex}{SUFFIX}"
        self._counts = OutcomeCounts(types)
        self._held: list[pa.RecordBatch] = []
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        """Whether there is a file."""
        return self._writer is not None

    def open(self) -> None:
        """Create the file. Raises `BatchFailedError` when its folder is gone."""
        from pyarrow import parquet  # noqa: PLC0415 - takes time, and many workers have nothing to write

        try:
            self._stream = self._folder.write(self._name)
        except FileNotFoundError as error:
            raise self._gone() from error
        # Without Arrow's own schema the file has what Spark would have written, and is read alike by all.
        self._writer = parquet.ParquetWriter(
            self._stream, ARROW_OUTCOME, compression="zstd", write_page_checksum=True, store_schema=False
        )

    def add(self, outcomes: pa.RecordBatch) -> None:
        """Count outcomes, and write them when there are enough for a row group."""
        if not self.is_open:
            self.open()
        self._counts.add(outcomes)
        self._held.append(outcomes)
        rows, size = (sum(getattr(each, name) for each in self._held) for name in ("num_rows", "nbytes"))
        if rows >= MAX_ROWS or size >= MAX_BYTES:
            self._write()

    def close(self) -> Part:
        """Write what is held, and return what the file has when it is on disk.

        Raises `BatchFailedError` when its folder is gone.
        """
        self._write()
        self._writer.close()
        self._stream.close()
        try:
            self._folder.flush(self._name)
            return self._counts.part(self._name, self._folder.size(self._name))
        except FileNotFoundError as error:
            raise self._gone() from error

    def discard(self) -> None:
        """Delete what was written, as far as that is possible: nobody is going to look at it."""
        if self.is_open:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
                self._stream.close()
            with suppress(OSError):
                self._folder.delete_file(self._name)

    def _gone(self) -> BatchFailedError:
        """Return the error that a driver of the same batch that has ended it, or somebody else, deleted the folder."""
        return BatchFailedError(
            f"A worker does not see the folder {self._folder.path}, to which it should write outcomes: it was "
            f"deleted, or is on a disk that the driver and the workers do not share."
        )

    def _write(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, ARROW_OUTCOME))
            self._held = []


class OutcomeCounts:
    """Counts outcomes by status, their outputs, and those of types that a handler takes."""

    def __init__(self, types: Collection[str]) -> None:
        self._types = pa.array(sorted(types), pa.string())
        self._statuses: Counter[str] = Counter()
        self._outputs = 0
        self._routable = 0

    def add(self, outcomes: pa.RecordBatch) -> None:
        """Count outcomes, of which the status and the types of outputs are enough."""
        from pyarrow import compute  # noqa: PLC0415 - as `parquet` above

        for row in compute.value_counts(outcomes.column("status")).to_pylist():
            self._statuses[row["values"]] += row["counts"]
        types = outcomes.column("outputs").flatten().field("type")
        self._outputs += len(types)
        self._routable += compute.sum(compute.is_in(types, self._types)).as_py() or 0

    def part(self, name: str, size: int) -> Part:
        """Return what was counted, as that of a file."""
        return Part(name, size, dict(self._statuses), self._outputs, self._routable)


_ARROW = pa.schema(
    [
        ("name", pa.string()),
        ("size", pa.int64()),
        ("statuses", pa.map_(pa.string(), pa.int64())),
        ("outputs", pa.int64()),
        ("routable", pa.int64()),
    ]
)
