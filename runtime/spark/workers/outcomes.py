"""Outcomes as Arrow batches: built column by column, nested outputs from offsets and flat lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from runtime.messages.outcome import Outcome, Reason, Status
from runtime.messages.outcomes import Outcomes
from runtime.messages.outputs import Outputs
from runtime.messages.too_large import is_note, kept_as_json, size_of, size_of_headers
from runtime.spark.schemas import ARROW_OUTPUT, OUTCOME

MAX_ROWS = 8192
MAX_BYTES = 8 * 2**20
OUTPUT_BYTES = 512
"""What an output takes in memory beside its text."""


_NAMES = OUTCOME.fieldNames()
_STRING = pa.string()


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
    columns: list[list[Any]] = [[] for _ in range(6)]
    ids, types, statuses, versions, counts, refused = columns
    outputs = Outputs()
    for outcomes, of_each, sent, _ in pieces:
        count = len(of_each)
        refused += [(len(ids) + position, outcome) for position, outcome in outcomes.refused.items()]
        ids += outcomes.envelopes.message_ids[:count]
        types += outcomes.envelopes.types[:count]
        statuses += outcomes.statuses
        versions += outcomes.versions
        counts += of_each
        outputs.extend(sent)
    ends = list(accumulate(len(piece.counts) for piece in pieces))
    handlers = _repeated([piece.outcomes.handler for piece in pieces], ends)
    business_ids = _repeated([piece.outcomes.business_id for piece in pieces], ends)
    nothing = pa.nulls(len(ids), _STRING)
    arrays = [
        pa.array(ids, _STRING),
        pa.array(types, _STRING),
        _with(handlers, [(row, each.handler) for row, each in refused]),
        _with(business_ids, [(row, each.business_id) for row, each in refused]),
        pa.array(statuses, _STRING),
        _with(nothing, [(row, each.reason) for row, each in refused]),
        _with(nothing, [(row, each.error) for row, each in refused]),
        pa.array(versions, pa.int64()),
        outputs_array(counts, outputs),
        _with(nothing, [(row, _delivery(each)) for row, each in refused]),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_NAMES)


def _repeated(values: Sequence[str | None], ends: Sequence[int]) -> pa.Array:
    """Return a column that has each value up to the row before its end."""
    if not ends or not ends[-1]:
        return pa.array([], _STRING)
    runs = [
        (end, value)
        for (before, end), value in zip(pairwise([0, *ends]), values, strict=True)
        if end > before
    ]
    encoded = pa.RunEndEncodedArray.from_arrays(
        pa.array([end for end, _ in runs], pa.int32()), pa.array([value for _, value in runs], _STRING)
    )
    return pc.run_end_decode(encoded)


def _with(column: pa.Array, values: Sequence[tuple[int, str | None]]) -> pa.Array:
    """Return a column with other values in some rows."""
    if not values:
        return column
    changed = column.to_pylist()
    for row, value in values:
        changed[row] = value
    return pa.array(changed, _STRING)


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
    refused = sum(map(_refused_bytes, outcomes.refused.values()))
    return _Piece(outcomes, counts, outputs, text + refused + outputs_bytes(outputs))


def _refused_bytes(outcome: Outcome) -> int:
    """Return the bytes of what an outcome says beside its status: its error, and the delivery as it was."""
    return size_of(outcome.error) + size_of(_delivery(outcome))


def outputs_bytes(outputs: Outputs) -> int:
    """Return how many bytes outputs take in memory, about."""
    text = sum(map(len, outputs.bodies)) + sum(map(size_of_headers, filter(None, outputs.headers)))
    return OUTPUT_BYTES * len(outputs) + text


def outputs_array(counts: Sequence[int], outputs: Outputs) -> pa.ListArray:
    """Return a column of lists of outputs; `counts` tells how many each list has."""
    columns = outputs.columns()
    arrays = [pa.array(column, item.type) for column, item in zip(columns[:-1], ARROW_OUTPUT, strict=False)]
    flat = pa.StructArray.from_arrays([*arrays, _headers_array(outputs.headers)], fields=list(ARROW_OUTPUT))
    return pa.ListArray.from_arrays(pa.array(accumulate(counts, initial=0), pa.int32()), flat)


def _headers_array(of_outputs: Sequence[Mapping[str, str]]) -> pa.MapArray:
    if any(of_outputs):
        return pa.array([list(headers.items()) for headers in of_outputs], ARROW_OUTPUT.field("headers").type)
    nothing = pa.array([], _STRING)
    return pa.MapArray.from_arrays(pa.array([0] * (len(of_outputs) + 1), pa.int32()), nothing, nothing)


def _delivery(outcome: Outcome) -> str | None:
    if outcome.status not in (Status.DEAD_LETTER, Status.TOO_LATE):
        return None
    envelope, is_line = outcome.envelope, outcome.handler is None
    if outcome.reason is Reason.INVALID_ENVELOPE and is_line and isinstance(envelope.body, str):
        return envelope.body
    if outcome.reason is Reason.TOO_LARGE and is_note(envelope.body):
        return kept_as_json(envelope, outcome.handler)
    return envelope.to_json(outcome.handler)
