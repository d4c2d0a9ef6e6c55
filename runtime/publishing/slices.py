"""The committed outputs of a batch, by slices: all outputs of a business object are in one slice, in order.

A batch that is published is immutable, so a slice has the same outputs in the same order whenever it is read, for the
same number of slices: whoever resumes must use that one. Within a slice outputs are sorted by business id, handler and
sequence, so those of one stream come in the order of its versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runtime.batches.marks import MARK, mark_of
from runtime.batches.record import BatchRecord, BatchStatus
from runtime.errors import BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder

_SUFFIX = ".parquet"
_OF_OUTCOME = ("business_id", "handler")
_IN_ORDER = [("business_id", "ascending"), ("handler", "ascending"), ("sequence", "ascending")]
_PER_SLICE = 1_000
_MOST_SLICES = 256


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """An output, with the handler and the business object that published it. `body` is JSON."""

    message_id: str
    type: str
    body: str
    business_id: str
    handler: str
    sequence: int
    enqueued_at: datetime
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchOutputs:
    """The outputs of all rounds of a batch, or of those of some types."""

    rounds: Sequence[Folder]
    types: Sequence[str] = ()

    @classmethod
    def of(cls, record: BatchRecord, out: str, types: Sequence[str] = ()) -> BatchOutputs:
        """Return the outputs of a batch whose outcomes are in a folder.

        Raises `BatchRefusedError` for a batch that has not ended, and `UsageError` when its outcomes are not in the
        folder as the ledger has them.
        """
        if record.status is not BatchStatus.PUBLISHED:
            message = (
                f"Batch {record.batch_id} is {record.status}, and nothing leaves a batch that is not done: "
                f"run it to its end first."
            )
            raise BatchRefusedError(message)
        batch = open_folder(out).sub(f"batch_id={record.batch_id}")
        rounds = [batch.sub(f"round={number}") for number in range(record.rounds)]
        for folder in rounds:
            _check(folder, record.token)
        return cls(rounds, types)

    def default_slices(self) -> int:
        """Return into how many slices the outputs are cut by default: one for each 1,000 deliveries, at most 256."""
        rows = 0
        for folder, name in self._files():
            with folder.read(name) as opened, pq.ParquetFile(opened) as file:
                rows += file.metadata.num_rows
        return min(max(-(-rows // _PER_SLICE), 1), _MOST_SLICES)

    def tables(self) -> Iterator[pa.Table]:
        """Give the outputs as tables with the columns of `CommittedOutput`. Reads each file once."""
        for folder, name in self._files():
            with folder.read(name) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches(columns=[*_OF_OUTCOME, "outputs"]):
                    found = _flattened(batch)
                    if self.types:
                        found = found.filter(pc.is_in(found["type"], value_set=pa.array(self.types)))
                    if found.num_rows:
                        yield found

    @contextmanager
    def sliced(self, count: int) -> Iterator[Slices]:
        """Cut the outputs into slices, in temporary files that are deleted at the end. Reads all outcomes once."""
        with TemporaryDirectory(prefix="consistent-slices-") as folder:
            with ExitStack() as stack:
                files: dict[int, pa.RecordBatchFileWriter] = {}
                types: set[str] = set()
                for table in self.tables():
                    types.update(pc.unique(table["type"]).to_pylist())
                    for number, part in _by_slice(table, count):
                        if number not in files:
                            path = _path(Path(folder), number)
                            files[number] = stack.enter_context(pa.ipc.new_file(str(path), part.schema))
                        files[number].write_table(part)
            yield Slices(Path(folder), count, frozenset(types))

    def _files(self) -> Iterator[tuple[Folder, str]]:
        for folder in self.rounds:
            for name in sorted(each for each in folder.sizes() if each.endswith(_SUFFIX)):
                yield folder, name


@dataclass(frozen=True)
class Slices:
    """The outputs of a batch, cut into `count` slices that are numbered from 0."""

    folder: Path
    count: int
    types: frozenset[str]

    def outputs(self, number: int) -> Iterator[CommittedOutput]:
        """Give the outputs of a slice, each once, in order. The slice is sorted in memory."""
        path = _path(self.folder, number)
        if not path.exists():
            return
        with pa.memory_map(str(path)) as opened:
            found = pa.ipc.open_file(opened).read_all().sort_by(_IN_ORDER)
            known: set[str] = set()
            for batch in found.to_batches(max_chunksize=_PER_SLICE):
                for row in batch.to_pylist():
                    if row["message_id"] not in known:
                        known.add(row["message_id"])
                        yield CommittedOutput(**{**row, "headers": dict(row["headers"] or ())})


def slice_of(business_id: str, count: int) -> int:
    """Return the number of the slice that has the outputs of a business object."""
    return int.from_bytes(blake2b(business_id.encode(), digest_size=8).digest()) % count


def _check(folder: Folder, token: str) -> None:
    """Raise `UsageError` unless a round is in place as a whole."""
    sizes = folder.sizes()
    marks = [name for name in sizes if name.startswith(MARK)]
    if mark_of(token, {name: size for name, size in sizes.items() if name.endswith(_SUFFIX)}) not in marks:
        message = (
            f"{folder.path} does not hold the outcomes that were committed: files are missing or were changed, "
            f"or they are another batch's. Name the folder that the batch wrote to with --out."
        )
        raise UsageError(message)


def _flattened(batch: pa.RecordBatch) -> pa.Table:
    outputs = batch["outputs"]
    parents = pc.list_parent_indices(outputs)
    items = pc.list_flatten(outputs)
    columns = {items.type.field(place).name: column for place, column in enumerate(items.flatten())}
    of_outcome = {name: pc.fill_null(batch[name].take(parents), "") for name in _OF_OUTCOME}
    return pa.table({**columns, **of_outcome})


def _by_slice(table: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    ids = table["business_id"].combine_chunks().dictionary_encode()
    places = pa.array([slice_of(each, count) for each in ids.dictionary.to_pylist()], pa.int32())
    numbers = places.take(ids.indices)
    for number in sorted(pc.unique(numbers).to_pylist()):
        yield number, table.filter(pc.equal(numbers, number))


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number}.arrow"
