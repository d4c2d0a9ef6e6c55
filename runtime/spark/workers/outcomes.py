"""Outcomes as Arrow batches: built column by column, nested outputs from offsets and flat lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.messages.outcomes import Outcomes
from runtime.spark.schemas import ARROW_OUTPUT, OUTCOME
from runtime.spark.workers.deliveries import headers_bytes

MAX_ROWS = 8192
MAX_BYTES = 8 * 2**20
OUTPUT_BYTES = 512
"""What an output takes in memory beside its text."""


_NAMES = OUTCOME.fieldNames()
_STRING = pa.string()


class OutcomeWriter:
    """Collects outcomes until there are enough for a batch."""

    def __init__(self) -> None:
        self._collected: deque[tuple[Outcomes, int]] = deque()
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, outcomes: Outcomes) -> None:
        """Take outcomes of one stream."""
        for piece, size in _pieces(outcomes):
            self._collected.append((piece, size))
            self._rows += len(piece)
            self._bytes += size

    def flush(self) -> pa.RecordBatch:
        """Return the first of what was collected, up to `MAX_ROWS` and `MAX_BYTES`, as one batch."""
        taken: list[Outcomes] = []
        rows = size = 0
        while self._collected:
            piece, piece_size = self._collected[0]
            if taken and (rows + len(piece) > MAX_ROWS or size + piece_size > MAX_BYTES):
                break
            self._collected.popleft()
            taken.append(piece)
            rows += len(piece)
            size += piece_size
        self._rows -= rows
        self._bytes -= size
        return to_arrow(taken)


def to_arrow(collected: Sequence[Outcomes]) -> pa.RecordBatch:
    """Return outcomes in the columns of `OUTCOME`."""
    columns: list[list[Any]] = [[] for _ in range(6)]
    ids, types, handlers, business_ids, ends, refused = columns
    for each in collected:
        count = len(each)
        refused += [(len(ids) + position, outcome) for position, outcome in each.refused.items()]
        ids += each.envelopes.message_ids[:count]
        types += each.envelopes.types[:count]
        handlers += [each.handler] * count
        business_ids += [each.business_id] * count
        ends += each.ends
    statuses, versions, of_outcomes = zip(*ends, strict=True) if ends else ((), (), ())
    beside: list[list[str | None]] = [[None] * len(ids) for _ in range(3)]
    reasons, errors, delivered = beside
    for row, outcome in refused:
        handlers[row], business_ids[row] = outcome.handler, outcome.business_id
        reasons[row], errors[row], delivered[row] = outcome.reason, outcome.error, _delivery(outcome)
    texts = [
        pa.array(column, _STRING)
        for column in (ids, types, handlers, business_ids, statuses, reasons, errors)
    ]
    columns = [
        *texts,
        pa.array(versions, pa.int64()),
        outputs_array(of_outcomes),
        pa.array(delivered, _STRING),
    ]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def _pieces(outcomes: Outcomes) -> Iterator[tuple[Outcomes, int]]:
    """Give outcomes in pieces of up to `MAX_ROWS` and `MAX_BYTES`, with their sizes; one alone may take more bytes."""
    if len(outcomes) > MAX_ROWS:
        for first in range(0, len(outcomes), MAX_ROWS):
            yield from _pieces(outcomes[first : first + MAX_ROWS])
        return
    size = _size(outcomes)
    if len(outcomes) <= 1 or size <= MAX_BYTES:
        yield outcomes, size
        return
    middle = len(outcomes) // 2
    yield from _pieces(outcomes[:middle])
    yield from _pieces(outcomes[middle:])


def _size(outcomes: Outcomes) -> int:
    """Return how many bytes outcomes take in memory, about: those of their deliveries and of their outputs."""
    envelopes = outcomes.envelopes
    size = sum(map(len, envelopes.bodies)) + sum(map(headers_bytes, filter(None, envelopes.headers)))
    return size + outputs_bytes([output for _, _, outputs in outcomes.ends for output in outputs])


def outputs_bytes(outputs: Sequence[Output]) -> int:
    """Return how many bytes outputs take in memory, about."""
    text = sum([len(output.body) for output in outputs])
    return (
        OUTPUT_BYTES * len(outputs)
        + text
        + sum(map(headers_bytes, [each.headers for each in outputs if each.headers]))
    )


def outputs_array(of_outcomes: Sequence[Sequence[Output]]) -> pa.ListArray:
    """Return a column of lists of outputs."""
    outputs = [output for outputs in of_outcomes for output in outputs]
    columns: list[Any] = list(zip(*outputs, strict=True)) or [()] * len(ARROW_OUTPUT)
    arrays = [pa.array(column, item.type) for column, item in zip(columns[:-1], ARROW_OUTPUT, strict=False)]
    headers = _headers_array(columns[-1])
    flat = pa.StructArray.from_arrays([*arrays, headers], fields=list(ARROW_OUTPUT))
    return pa.ListArray.from_arrays(pa.array(_offsets(of_outcomes), pa.int32()), flat)


def _headers_array(of_outputs: Sequence[Mapping[str, str]]) -> pa.MapArray:
    if any(of_outputs):
        return pa.array([list(headers.items()) for headers in of_outputs], ARROW_OUTPUT.field("headers").type)
    nothing = pa.array([], _STRING)
    return pa.MapArray.from_arrays(pa.array([0] * (len(of_outputs) + 1), pa.int32()), nothing, nothing)


def _offsets(lists: Sequence[Sequence[Output]]) -> list[int]:
    return list(accumulate(map(len, lists), initial=0))


def _delivery(outcome: Outcome) -> str | None:
    if outcome.status not in (Status.DEAD_LETTER, Status.TOO_LATE):
        return None
    envelope = outcome.envelope
    if (
        outcome.reason is Reason.INVALID_ENVELOPE
        and outcome.handler is None
        and isinstance(envelope.body, str)
    ):
        return envelope.body
    return envelope.to_json(outcome.handler)
