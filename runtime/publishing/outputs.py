"""The committed outputs of a batch, as they lie in the files of its outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runtime.batches.marks import MARK, mark_of
from runtime.batches.record import BatchRecord, BatchStatus
from runtime.errors import BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.publishing.slices import Slices, cut

_SUFFIX = ".parquet"
_OF_OUTCOME = ("business_id", "handler")
_PER_SLICE = 1_000
_MOST_SLICES = 256


class OutcomeFile(NamedTuple):
    """A file with outcomes of a round."""

    folder: Folder
    name: str


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
        check_ended(record)
        batch = open_folder(out).sub(f"batch_id={record.batch_id}")
        rounds = [batch.sub(f"round={number}") for number in range(record.rounds)]
        for folder in rounds:
            _check(folder, record.token)
        return cls(rounds, types)

    def default_slices(self) -> int:
        """Return into how many slices the outputs are cut by default: one for each 1,000 deliveries, at most 256."""
        rows = 0
        for each in self.files():
            with each.folder.read(each.name) as opened, pq.ParquetFile(opened) as file:
                rows += file.metadata.num_rows
        return min(max(-(-rows // _PER_SLICE), 1), _MOST_SLICES)

    def tables(self, files: Iterable[OutcomeFile] | None = None) -> Iterator[pa.Table]:
        """Give the outputs in some files, by default all, as tables with the columns of `CommittedOutput`."""
        for each in self.files() if files is None else files:
            with each.folder.read(each.name) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches(columns=[*_OF_OUTCOME, "outputs"]):
                    found = _flattened(batch)
                    if self.types:
                        found = found.filter(pc.is_in(found["type"], value_set=pa.array(self.types)))
                    if found.num_rows:
                        yield found

    def with_ids(self, message_ids: Sequence[str]) -> Iterator[pa.Table]:
        """Give the outputs with some ids, as `tables` does."""
        wanted = pa.array(message_ids, pa.string())
        for table in self.tables():
            found = table.filter(pc.is_in(table["message_id"], value_set=wanted))
            if found.num_rows:
                yield found

    def sliced(self, count: int) -> AbstractContextManager[Slices]:
        """Cut the outputs into slices; see `cut`. Reads all outcomes once."""
        return cut(self.tables(), count)

    def files(self) -> list[OutcomeFile]:
        """Return all files with outcomes, in an order that never changes."""
        return [
            OutcomeFile(folder, name)
            for folder in self.rounds
            for name in sorted(each for each in folder.sizes() if each.endswith(_SUFFIX))
        ]


def check_ended(record: BatchRecord) -> None:
    """Raise `BatchRefusedError` for a batch that has not ended."""
    if record.status is not BatchStatus.PUBLISHED:
        message = (
            f"Batch {record.batch_id} is {record.status}, and nothing leaves a batch that is not done: "
            f"run it to its end first."
        )
        raise BatchRefusedError(message)


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
