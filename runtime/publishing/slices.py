"""Slices of the committed outputs of a batch: all outputs of a business object are in one slice, in order.

A batch that is published is immutable, so a slice has the same outputs in the same order whenever it is read, for the
same number of slices: whoever resumes must use that one. Within a slice outputs are sorted by business id, handler and
sequence, so those of one stream come in the order of its versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

_IN_ORDER = [("business_id", "ascending"), ("handler", "ascending"), ("sequence", "ascending")]
_ROWS_AT_ONCE = 1_000


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


@contextmanager
def cut(tables: Iterable[pa.Table], count: int) -> Iterator[Slices]:
    """Cut outputs into slices, in temporary files that are deleted at the end.

    `tables` have the columns of `CommittedOutput`, and in all of them each slice is there as a whole or not at all.
    """
    with TemporaryDirectory(prefix="consistent-slices-") as folder:
        counts: Counter[int] = Counter()
        types: set[str] = set()
        with ExitStack() as stack:
            files: dict[int, pa.RecordBatchFileWriter] = {}
            for table in tables:
                types.update(pc.unique(table["type"]).to_pylist())
                for number, part in _by_slice(table, count):
                    if number not in files:
                        path = _path(Path(folder), number)
                        files[number] = stack.enter_context(pa.ipc.new_file(str(path), part.schema))
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
        """Give the outputs of a slice, each once, in order. The slice is sorted in memory."""
        path = _path(self.folder, number)
        if not path.exists():
            return
        with pa.memory_map(str(path)) as opened:
            found = pa.ipc.open_file(opened).read_all().sort_by(_IN_ORDER)
            known: set[str] = set()
            for batch in found.to_batches(max_chunksize=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    if row["message_id"] not in known:
                        known.add(row["message_id"])
                        yield CommittedOutput(**{**row, "headers": dict(row["headers"] or ())})


def slice_of(business_id: str, count: int) -> int:
    """Return the number of the slice that has the outputs of a business object."""
    return int.from_bytes(blake2b(business_id.encode(), digest_size=8).digest()) % count


def slice_numbers(table: pa.Table, count: int) -> pa.Array:
    """Return the number of the slice that each output of a table is in."""
    ids = table["business_id"].combine_chunks().dictionary_encode()
    places = pa.array([slice_of(each, count) for each in ids.dictionary.to_pylist()], pa.int32())
    return places.take(ids.indices)


def _by_slice(table: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    numbers = slice_numbers(table, count)
    for number in sorted(pc.unique(numbers).to_pylist()):
        yield number, table.filter(pc.equal(numbers, number))


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number}.arrow"
