"""The columns of outcomes, and their files: each task attempt writes a Parquet file.

A file counts only if the row that describes it reaches the driver. The row is sent after the file was closed and
fsynced, and Spark accepts one attempt per task, so files of failed, killed or late attempts do not count. The attempt
does not create its folder, so it cannot restore one that was discarded.
"""

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
from runtime.messages.outcome import Outcome, Outcomes, Outputs, Reason, Status
from runtime.messages.sizes import is_note, kept_as_json, size_of, size_of_headers
from runtime.telemetry import OFF, Metrics

_TEXT, _NUMBER = pa.string(), pa.int64()

ARROW_OUTPUT = pa.struct(
    [
        ("message_id", _TEXT),
        ("type", _TEXT),
        ("body", _TEXT),
        ("sequence", _NUMBER),
        ("enqueued_at", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(_TEXT, _TEXT)),
    ]
)
"""An output. Also the columns of a message log."""

ARROW_OUTCOME = pa.schema(
    [
        *((name, _TEXT) for name in ("message_id", "type", "handler", "business_id")),
        *((name, _TEXT) for name in ("status", "reason", "error")),
        ("version", _NUMBER),
        ("outputs", pa.list_(ARROW_OUTPUT)),
        ("delivery", _TEXT),
        ("made_by", _TEXT),
        ("made_by_number", _NUMBER),
    ]
)
"""`delivery` is set for a delivery that was not handled: JSON with its handler, or the line of the log.

`made_by` and `made_by_number` name the batch that made the version of a duplicate.
"""

_ROUND = pa.field("round", pa.int32())

OUTPUT = from_arrow_schema(pa.schema(list(ARROW_OUTPUT)))
OUTCOME = from_arrow_schema(ARROW_OUTCOME)

STORED_OUTCOME = from_arrow_schema(ARROW_OUTCOME.append(_ROUND))

OUTCOMES = from_arrow_schema(ARROW_OUTCOME.append(pa.field("batch_id", _TEXT)).append(_ROUND))
"""The schema of all batches in a folder, for a stream that reads them."""

MAX_ROWS = 8192
MAX_BYTES = 8 * 2**20
OUTPUT_BYTES = 512  # estimated memory of an output without its text
MAX_PART_ROWS = 65_536  # the size of a row group; about two are in memory
SUFFIX = ".parquet"

Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Processes a partition, and yields outcomes with the columns of `ARROW_OUTCOME`."""

_PART = pa.schema(
    [
        ("name", _TEXT),
        ("size", _NUMBER),
        ("statuses", pa.map_(_TEXT, _NUMBER)),
        ("outputs", _NUMBER),
        ("routable", _NUMBER),
        ("metrics", _TEXT),
    ]
)
PART = from_arrow_schema(_PART)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


class _Piece(NamedTuple):
    """Outcomes of one stream. `counts`: the number of outputs of each outcome. `size`: bytes in memory."""

    outcomes: Outcomes
    counts: Sequence[int]
    outputs: Outputs
    size: int


class OutcomeWriter:
    """Collects outcomes into Arrow batches."""

    def __init__(self) -> None:
        self._collected: deque[_Piece] = deque()
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, outcomes: Outcomes) -> None:
        for piece in _pieces(outcomes):
            self._collected.append(piece)
            self._rows += len(piece.counts)
            self._bytes += piece.size

    def flush(self) -> pa.RecordBatch:
        """Return the oldest outcomes, up to `MAX_ROWS` and `MAX_BYTES`, as one batch."""
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
    return _to_arrow([_piece(outcomes) for outcomes in collected])


def _to_arrow(pieces: Sequence[_Piece]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {name: [] for name in ARROW_OUTCOME.names}
    outputs = Outputs()
    for outcomes, counts, sent, _ in pieces:
        first, count = len(columns["message_id"]), len(counts)
        columns["message_id"] += outcomes.envelopes.message_ids[:count]
        columns["type"] += outcomes.envelopes.types[:count]
        columns["handler"] += [outcomes.handler] * count
        columns["business_id"] += outcomes.business_ids or [outcomes.business_id] * count
        columns["status"] += outcomes.statuses
        columns["version"] += outcomes.versions
        columns["outputs"] += counts
        for name in ("reason", "error", "delivery", "made_by", "made_by_number"):
            columns[name] += [None] * count
        for position, made_by in outcomes.makers.items():
            columns["made_by"][first + position], columns["made_by_number"][first + position] = made_by
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
    text = sum(map(len, outputs.bodies)) + sum(map(size_of_headers, filter(None, outputs.headers)))
    return OUTPUT_BYTES * len(outputs) + text


def outputs_array(counts: Sequence[int], outputs: Outputs) -> pa.ListArray:
    """Return a list column of outputs. `counts`: the length of each list."""
    columns = outputs.columns()
    arrays = [pa.array(column, item.type) for column, item in zip(columns[:-1], ARROW_OUTPUT, strict=False)]
    if any(outputs.headers):
        items = [list(headers.items()) for headers in outputs.headers]
        arrays.append(pa.array(items, ARROW_OUTPUT.field("headers").type))
    else:
        nothing = pa.array([], _TEXT)
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


class OutcomeFile(NamedTuple):
    """A file of outcomes. `routable`: how many outputs the app handles. `metrics`: the metrics of its task, as text."""

    name: str
    size: int
    statuses: Mapping[str, int]
    outputs: int
    routable: int
    metrics: str = ""


def totals(parts: Iterable[OutcomeFile]) -> tuple[Mapping[str, int], int]:
    """Return the counts of outcomes by status, with all outputs as `outputs`, and the number of routable outputs."""
    counts: Counter[str] = Counter(outputs=0)
    routable = 0
    for part in parts:
        counts.update(part.statuses)
        counts["outputs"] += part.outputs
        routable += part.routable
    return counts, routable


def written(folder: str, names: Iterable[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the outcomes in files of a folder. `partial(written, folder, names)` is a `Fold` that ignores its input."""
    from pyarrow import parquet  # noqa: PLC0415 - as in `OutcomeFileWriter.open`

    for _ in batches:
        pass
    source = open_folder(folder)
    try:
        for name in names:
            with source.read(name) as file:
                for outcomes in parquet.ParquetFile(file).iter_batches():
                    yield outcomes.cast(ARROW_OUTCOME)
    except FileNotFoundError as error:
        raise BatchFailedError(f"Files that other workers wrote to {source.path} are missing.") from error


@dataclass(frozen=True)
class PartJob:
    """Runs `fold` over a partition, and writes the outcomes to a file. `metrics`: counts the outcomes of the task."""

    fold: Fold
    folder: str
    types: Collection[str]
    metrics: Metrics = OFF

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the row that describes the file, once it is fsynced. Without outcomes, write and yield nothing."""
        file = OutcomeFileWriter(open_folder(self.folder), self.types, self.metrics)
        try:
            for outcomes in self.fold(batches):
                if outcomes.num_rows:
                    file.add(outcomes)
                del outcomes  # releases memory before the next streams are handled
            part = file.close() if file.is_open else None
        except BaseException:
            file.discard()
            raise
        if part is not None:
            yield pa.RecordBatch.from_pylist(
                [part._asdict() | {"statuses": list(part.statuses.items())}], _PART
            )


class OutcomeFileWriter:
    """Writes a Parquet file of outcomes, in row groups of bounded size."""

    def __init__(self, folder: Folder, types: Collection[str], metrics: Metrics = OFF) -> None:
        self._folder, self._metrics = folder, metrics
        self._name = f"part-{uuid.uuid4().hex}{SUFFIX}"
        self._types = pa.array(sorted(types), _TEXT)
        self._statuses: Counter[str] = Counter()
        self._outputs = self._routable = 0
        self._held: list[pa.RecordBatch] = []
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def open(self) -> None:
        """Create the file. Raises `BatchFailedError` if its folder is missing."""
        from pyarrow import parquet  # noqa: PLC0415 - takes time, and many workers write nothing

        try:
            self._stream = self._folder.write(self._name)
        except FileNotFoundError as error:
            raise self._gone() from error
        # The Arrow schema is left out, so that readers see the types that Spark would write.
        self._writer = parquet.ParquetWriter(
            self._stream, ARROW_OUTCOME, compression="zstd", write_page_checksum=True, store_schema=False
        )

    def add(self, outcomes: pa.RecordBatch) -> None:
        if not self.is_open:
            self.open()
        table = pa.Table.from_batches([outcomes]).select(["handler", "status", "reason"])
        for row in table.group_by(table.column_names).aggregate([([], "count_all")]).to_pylist():
            self._statuses[row["status"]] += row["count_all"]
            self._metrics.count(row["handler"], row["status"], row["reason"], row["count_all"])
        types = outcomes.column("outputs").flatten().field("type")
        self._outputs += len(types)
        self._routable += pc.sum(pc.is_in(types, self._types)).as_py() or 0
        self._held.append(outcomes)
        rows, size = (sum(getattr(each, name) for each in self._held) for name in ("num_rows", "nbytes"))
        if rows >= MAX_PART_ROWS or size >= MAX_BYTES:
            self._write()

    def close(self) -> OutcomeFile:
        """Finish and fsync the file, and return its description. Raises `BatchFailedError` if the folder is missing."""
        self._write()
        self._writer.close()
        self._stream.close()
        try:
            self._folder.flush(self._name)
            size = self._folder.size(self._name)
        except FileNotFoundError as error:
            raise self._gone() from error
        metrics = self._metrics.dump()
        return OutcomeFile(self._name, size, dict(self._statuses), self._outputs, self._routable, metrics)

    def discard(self) -> None:
        """Delete the file if possible. A file that remains is harmless, because no driver reads it."""
        if self.is_open:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
                self._stream.close()
            with suppress(OSError):
                self._folder.delete_file(self._name)

    def _gone(self) -> BatchFailedError:
        return BatchFailedError(
            f"A worker does not see the folder {self._folder.path} for its outcomes: it was deleted, or driver and "
            f"workers do not share its disk."
        )

    def _write(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, ARROW_OUTCOME))
            self._held = []
