"""Outcomes on their way out of a worker: as Arrow batches, and then in a Parquet file for each attempt at a task.

A file counts only if the row that says what it holds reaches the driver. The row exists once the file is closed and on
disk, and Spark takes the row of one attempt at each task. So no row names a file of an attempt that failed, was killed
or came too late. It is in a hidden folder, which the attempt does not create, and so cannot bring back.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from runtime.errors import BatchFailedError
from runtime.file_systems import Folder, open_folder
from runtime.messages.limits import is_note, kept_as_json, size_of, size_of_headers
from runtime.messages.outcome import Outcome, Outcomes, Outputs, Reason, Status
from runtime.spark.schemas import ARROW_OUTCOME, ARROW_OUTPUT

MAX_ROWS = 8192
MAX_BYTES = 8 * 2**20
OUTPUT_BYTES = 512
"""What an output takes in memory beside its text."""

MAX_PART_ROWS = 65_536
"""When a row group is written; with the batch that makes it full, about twice as much is held."""

SUFFIX = ".parquet"

Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Yields the outcomes of a partition, in the columns of `ARROW_OUTCOME`."""

_STRING = pa.string()
_PART = pa.schema(
    [
        ("name", _STRING),
        ("size", pa.int64()),
        ("statuses", pa.map_(_STRING, pa.int64())),
        ("outputs", pa.int64()),
        ("routable", pa.int64()),
    ]
)
PART = from_arrow_schema(_PART)


class _Piece(NamedTuple):
    """Outcomes of one stream: how many outputs each has, and all of them; and the bytes that they take in memory."""

    outcomes: Outcomes
    counts: Sequence[int]
    outputs: Outputs
    size: int


class OutcomeWriter:
    """Collects outcomes until there are enough for a batch."""

    def __init__(self) -> None:
        self._collected: deque[_Piece] = deque()
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, outcomes: Outcomes) -> None:
        """Take outcomes of one stream."""
        for piece in _pieces(outcomes):
            self._collected.append(piece)
            self._rows += len(piece.counts)
            self._bytes += piece.size

    def flush(self) -> pa.RecordBatch:
        """Return the first of what was collected, up to `MAX_ROWS` and `MAX_BYTES`, as one batch."""
        taken: list[_Piece] = []
        rows = size = 0
        while self._collected:
            piece = self._collected[0]
            if taken and (rows + len(piece.counts) > MAX_ROWS or size + piece.size > MAX_BYTES):
                break
            self._collected.popleft()
            taken.append(piece)
            rows += len(piece.counts)
            size += piece.size
        self._rows -= rows
        self._bytes -= size
        return _to_arrow(taken)


def to_arrow(collected: Sequence[Outcomes]) -> pa.RecordBatch:
    """Return outcomes in the columns of `OUTCOME`."""
    return _to_arrow([_piece(outcomes) for outcomes in collected])


def _to_arrow(pieces: Sequence[_Piece]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {name: [] for name in ARROW_OUTCOME.names}
    outputs = Outputs()
    for outcomes, counts, sent, _ in pieces:
        first, count = len(columns["message_id"]), len(counts)
        columns["message_id"] += outcomes.envelopes.message_ids[:count]
        columns["type"] += outcomes.envelopes.types[:count]
        columns["handler"] += [outcomes.handler] * count
        columns["business_id"] += [outcomes.business_id] * count
        columns["status"] += outcomes.statuses
        columns["version"] += outcomes.versions
        columns["outputs"] += counts
        for name in ("reason", "error", "delivery"):
            columns[name] += [None] * count
        for position, refused in outcomes.refused.items():
            for name in ("handler", "business_id", "reason", "error"):
                columns[name][first + position] = getattr(refused, name)
            columns["delivery"][first + position] = _delivery(refused)
        outputs.extend(sent)
    of_each = columns.pop("outputs")
    arrays = {name: pa.array(values, ARROW_OUTCOME.field(name).type) for name, values in columns.items()}
    arrays["outputs"] = outputs_array(of_each, outputs)
    return pa.RecordBatch.from_pydict(arrays, ARROW_OUTCOME)


def _pieces(outcomes: Outcomes) -> Iterator[_Piece]:
    """Give outcomes in pieces of up to `MAX_ROWS` and `MAX_BYTES`; one alone may take more bytes."""
    count = len(outcomes)
    if count > MAX_ROWS:
        for first in range(0, count, MAX_ROWS):
            yield from _pieces(outcomes[first : first + MAX_ROWS])
        return
    piece = _piece(outcomes)
    if count <= 1 or piece.size <= MAX_BYTES:
        yield piece
        return
    middle = count // 2
    yield from _pieces(outcomes[:middle])
    yield from _pieces(outcomes[middle:])


def _piece(outcomes: Outcomes) -> _Piece:
    envelopes, (counts, outputs) = outcomes.envelopes, outcomes.outputs()
    text = sum(map(len, filter(None, envelopes.bodies)))
    text += sum(map(size_of_headers, filter(None, envelopes.headers)))
    refused = sum(size_of(each.error) + size_of(_delivery(each)) for each in outcomes.refused.values())
    return _Piece(outcomes, counts, outputs, text + refused + outputs_bytes(outputs))


def outputs_bytes(outputs: Outputs) -> int:
    """Return how many bytes outputs take in memory, about."""
    text = sum(map(len, outputs.bodies)) + sum(map(size_of_headers, filter(None, outputs.headers)))
    return OUTPUT_BYTES * len(outputs) + text


def outputs_array(counts: Sequence[int], outputs: Outputs) -> pa.ListArray:
    """Return a column of lists of outputs; `counts` tells how many each list has."""
    columns = outputs.columns()
    arrays = [pa.array(column, item.type) for column, item in zip(columns[:-1], ARROW_OUTPUT, strict=False)]
    if any(outputs.headers):
        items = [list(headers.items()) for headers in outputs.headers]
        arrays.append(pa.array(items, ARROW_OUTPUT.field("headers").type))
    else:
        nothing = pa.array([], _STRING)
        offsets = pa.array([0] * (len(outputs) + 1), pa.int32())
        arrays.append(pa.MapArray.from_arrays(offsets, nothing, nothing))
    flat = pa.StructArray.from_arrays(arrays, fields=list(ARROW_OUTPUT))
    return pa.ListArray.from_arrays(pa.array(accumulate(counts, initial=0), pa.int32()), flat)


def _delivery(outcome: Outcome) -> str | None:
    if outcome.status not in (Status.DEAD_LETTER, Status.TOO_LATE):
        return None
    envelope, is_line = outcome.envelope, outcome.handler is None
    if outcome.reason is Reason.INVALID_ENVELOPE and is_line and isinstance(envelope.body, str):
        return envelope.body
    if outcome.reason is Reason.TOO_LARGE and is_note(envelope.body):
        return kept_as_json(envelope, outcome.handler)
    return envelope.to_json(outcome.handler)


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


def written(folder: str, names: Iterable[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the outcomes in some files of a folder, in place of a fold; the rows that come in only make the task."""
    from pyarrow import parquet  # noqa: PLC0415 - as in `PartFile.open`

    for _ in batches:
        pass
    source = open_folder(folder)
    try:
        for name in names:
            with source.read(name) as file:
                for outcomes in parquet.ParquetFile(file).iter_batches():
                    yield outcomes.cast(ARROW_OUTCOME)
    except FileNotFoundError as error:
        raise BatchFailedError(f"Files that other workers wrote to {source.path} are gone.") from error


@dataclass(frozen=True)
class PartJob:
    """Folds a partition, and writes its outcomes to a file in a folder, given by its url."""

    fold: Fold
    folder: str
    types: Collection[str]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the row of the file, once it is on disk; none when there are no outcomes."""
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
                [part._asdict() | {"statuses": list(part.statuses.items())}], _PART
            )


class PartFile:
    """A Parquet file in the making, with a name of its own, in row groups of bounded size."""

    def __init__(self, folder: Folder, types: Collection[str]) -> None:
        self._folder = folder
        self._name = f"part-{uuid.uuid4().hex}{SUFFIX}"
        self._types = pa.array(sorted(types), _STRING)
        self._statuses: Counter[str] = Counter()
        self._outputs = self._routable = 0
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
        for row in pc.value_counts(outcomes.column("status")).to_pylist():
            self._statuses[row["values"]] += row["counts"]
        types = outcomes.column("outputs").flatten().field("type")
        self._outputs += len(types)
        self._routable += pc.sum(pc.is_in(types, self._types)).as_py() or 0
        self._held.append(outcomes)
        rows, size = (sum(getattr(each, name) for each in self._held) for name in ("num_rows", "nbytes"))
        if rows >= MAX_PART_ROWS or size >= MAX_BYTES:
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
            size = self._folder.size(self._name)
        except FileNotFoundError as error:
            raise self._gone() from error
        return Part(self._name, size, dict(self._statuses), self._outputs, self._routable)

    def discard(self) -> None:
        """Delete what was written, as far as that is possible: no driver reads it."""
        if self.is_open:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
                self._stream.close()
            with suppress(OSError):
                self._folder.delete_file(self._name)

    def _gone(self) -> BatchFailedError:
        return BatchFailedError(
            f"A worker does not see the folder {self._folder.path}, to which it should write outcomes: it was "
            f"deleted, or is on a disk that the driver and the workers do not share."
        )

    def _write(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, ARROW_OUTCOME))
            self._held = []
