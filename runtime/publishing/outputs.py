"""The committed outputs of a batch, read from the files of its outcomes, and cut into slices.

All outputs of a business object are in one slice, sorted by business id, handler and sequence: those of one stream come
in the order of its versions. A batch that is published is immutable, so a slice has the same outputs in the same order
whenever it is read, for the same number of slices: whoever resumes must use that one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runtime.errors import BatchRefusedError, OutcomesMissingError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.ledger.ledger import HIDDEN_EPOCHS, BatchRecord, BatchStatus, mark_of
from runtime.publishing.publisher import CommittedOutput

_NO_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|NaN|-?Infinity')
"""Floats in bodies that JSON has no form for, and all strings, which may hold these words."""


@contextmanager
def cut(tables: Iterable[pa.Table], count: int) -> Iterator[Slices]:
    """Cut tables of outputs into slices, in temporary files. Tables may lack slices, but have each as a whole."""
    with TemporaryDirectory(prefix="consistent-slices-") as folder:
        counts: Counter[int] = Counter()
        types: set[str] = set()
        with ExitStack() as stack:
            files: dict[int, pa.RecordBatchFileWriter] = {}
            for table in tables:
                types.update(pc.unique(table["type"]).to_pylist())
                numbers = slice_numbers(table, count)
                for number in sorted(pc.unique(numbers).to_pylist()):
                    part = table.filter(pc.equal(numbers, number))
                    if number not in files:
                        path = f"{folder}/{number}.arrow"
                        files[number] = stack.enter_context(pa.ipc.new_file(path, part.schema))
                    files[number].write_table(part)
                    counts[number] += part.num_rows
        yield Slices(Path(folder), range(count), frozenset(types), counts)


@dataclass(frozen=True)
class Slices:
    """Slices of a batch, by number; `types` are those of their outputs, and `counts` how many each has."""

    folder: Path
    numbers: Collection[int]
    types: frozenset[str]
    counts: Mapping[int, int]

    def outputs(self, number: int) -> Iterator[CommittedOutput]:
        """Yield the outputs of a slice, each once, in order. The slice is sorted in memory."""
        path = self.folder / f"{number}.arrow"
        if not path.exists():
            return
        with pa.memory_map(str(path)) as opened:
            found = (
                pa.ipc.open_file(opened)
                .read_all()
                .sort_by([(name, "ascending") for name in ("business_id", "handler", "sequence")])
            )
            known: set[str] = set()
            for batch in found.to_batches(max_chunksize=1_000):
                for row in batch.to_pylist():
                    if row["message_id"] not in known:
                        known.add(row["message_id"])
                        body = row["body"]
                        if "NaN" in body or "Infinity" in body:
                            # protobuf and pydantic know floats that are not finite as strings
                            body = _NO_JSON.sub(lambda found: found[1] or f'"{found[0]}"', body)
                        yield CommittedOutput(**{**row, "body": body, "headers": dict(row["headers"] or ())})


def slice_of(business_id: str, count: int) -> int:
    """Return the number of the slice that has the outputs of a business object."""
    return int.from_bytes(blake2b(business_id.encode(), digest_size=8).digest()) % count


def slice_numbers(table: pa.Table, count: int) -> pa.Array:
    """Return the number of the slice that each output of a table is in."""
    ids = table["business_id"].combine_chunks().dictionary_encode()
    places = pa.array([slice_of(each, count) for each in ids.dictionary.to_pylist()], pa.int32())
    return places.take(ids.indices)


_SUFFIX = ".parquet"
_OF_OUTCOME = ("business_id", "handler")


FileLocation = tuple[Folder, str]  # the folder of a round, and the name of a file with outcomes in it


@dataclass(frozen=True)
class BatchOutputs:
    """The outputs of all rounds of a batch, or of those of some types."""

    rounds: Sequence[Folder]
    types: Sequence[str] = ()

    @classmethod
    def of(cls, record: BatchRecord, out: str, types: Sequence[str] = ()) -> BatchOutputs:
        """Return the outputs of a batch in a folder. Raises `BatchRefusedError` and `OutcomesMissingError`."""
        check_ended(record)
        batch = _folder(record, out)
        rounds = [batch.sub(f"round={number}") for number in range(record.rounds)]
        for folder in rounds:
            sizes = folder.sizes()
            written = {name: size for name, size in sizes.items() if name.endswith(_SUFFIX)}
            if mark_of(record.token, written) not in sizes:
                raise OutcomesMissingError(
                    f"{folder.path} does not hold the outcomes that were committed: files are missing or were changed, "
                    f"or they are another batch's. Name the folder that the batch wrote to with --out."
                )
        return cls(rounds, types)

    def default_slices(self) -> int:
        """Return into how many slices the outputs are cut by default: one for each 1,000 deliveries, at most 256."""
        rows = 0
        for folder, name in self.files():
            with folder.read(name) as opened, pq.ParquetFile(opened) as file:
                rows += file.metadata.num_rows
        return min(max(-(-rows // 1_000), 1), 256)

    def tables(self, files: Iterable[FileLocation] | None = None) -> Iterator[pa.Table]:
        """Yield the outputs in some files, by default all, as tables with the columns of `CommittedOutput`."""
        for folder, file_name in self.files() if files is None else files:
            with folder.read(file_name) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches(columns=[*_OF_OUTCOME, "outputs"]):
                    outputs = batch["outputs"]
                    parents, items = pc.list_parent_indices(outputs), pc.list_flatten(outputs)
                    columns = {
                        field.name: column for field, column in zip(items.type, items.flatten(), strict=True)
                    }
                    for name in _OF_OUTCOME:
                        columns[name] = pc.fill_null(batch[name].take(parents), "")
                    found = pa.table(columns)
                    if self.types:
                        found = found.filter(pc.is_in(found["type"], value_set=pa.array(self.types)))
                    if found.num_rows:
                        yield found

    def with_ids(self, message_ids: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the outputs with some ids, as `tables` does."""
        wanted = pa.array(message_ids, pa.string())
        for table in self.tables():
            found = table.filter(pc.is_in(table["message_id"], value_set=wanted))
            if found.num_rows:
                yield found

    def files(self) -> list[FileLocation]:
        """Return all files with outcomes, in an order that never changes."""
        return [
            (folder, name)
            for folder in self.rounds
            for name in sorted(each for each in folder.sizes() if each.endswith(_SUFFIX))
        ]


def check_types(batches: Iterable[BatchOutputs], types: Collection[str]) -> None:
    """Raise `UsageError` when one of some types is that of no output, but there are outputs. Reads all."""
    there: set[str] = set()
    for batch in batches:
        for table in replace(batch, types=()).tables():
            there.update(pc.unique(table["type"]).to_pylist())
    unknown = sorted({*types} - there) if there else []
    if unknown:
        raise UsageError(
            f"No output is of the type {', '.join(unknown)}: --types takes some of {', '.join(sorted(there))}."
        )


def _folder(record: BatchRecord, out: str) -> Folder:
    """Return the folder of a batch: that of an epoch is moved from a hidden folder into OUT, alone or with others."""
    name = f"batch_id={record.batch_id}"
    if not record.is_epoch:
        return open_folder(out).sub(name)
    shown = open_folder(out.removesuffix(f"/{HIDDEN_EPOCHS}"))
    folders = [each for each in (shown.sub(HIDDEN_EPOCHS).sub(name), shown.sub(name)) if each.exists()]
    query, _, epoch = record.batch_id.rpartition("-")
    for merged in shown.names() if not folders else ():
        span = re.fullmatch(rf"batch_id={re.escape(query)}-(\d+)\.\.(\d+)", merged)
        if span and int(span[1]) <= int(epoch) <= int(span[2]):
            raise BatchRefusedError(
                f"The outcomes of epoch {epoch} were merged with those of others, in {shown.path}/{merged}: which of "
                f"them are its own is not known any more. `consistent stream --publish` publishes each epoch before it "
                f"is merged."
            )
    return folders[0] if folders else shown.sub(name)


def check_ended(record: BatchRecord) -> None:
    """Raise `BatchRefusedError` for a batch that has not ended."""
    if record.status is not BatchStatus.PUBLISHED:
        raise BatchRefusedError(
            f"Batch {record.batch_id} is {record.status}, and nothing leaves a batch that is not done: "
            f"run it to its end first."
        )
