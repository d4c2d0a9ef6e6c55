"""Outcomes as Arrow batches: built column by column, nested outputs from offsets and flat lists."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import pyarrow as pa

from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.spark.schemas import ARROW_OUTPUT, OUTCOME

MAX_ROWS = 8192
MAX_BYTES = 8 * 2**20

_NAMES = OUTCOME.fieldNames()
_STRING = pa.string()


class OutcomeWriter:
    """Collects outcomes until there are enough for a batch."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._outcomes) >= MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Take outcomes."""
        added = list(outcomes)
        self._outcomes += added
        self._bytes += _size(added)

    def flush(self) -> pa.RecordBatch:
        """Return the first of what was collected, up to `MAX_ROWS`, as one batch."""
        taken = self._outcomes[:MAX_ROWS]
        del self._outcomes[:MAX_ROWS]
        self._bytes -= _size(taken)
        return to_arrow(taken)


def to_arrow(outcomes: list[Outcome]) -> pa.RecordBatch:
    """Return outcomes in the columns of `OUTCOME`."""
    columns = [
        pa.array([outcome.envelope.message_id for outcome in outcomes], _STRING),
        pa.array([outcome.envelope.type for outcome in outcomes], _STRING),
        pa.array([outcome.handler for outcome in outcomes], _STRING),
        pa.array([outcome.business_id for outcome in outcomes], _STRING),
        pa.array([outcome.status for outcome in outcomes], _STRING),
        pa.array([outcome.reason for outcome in outcomes], _STRING),
        pa.array([outcome.error for outcome in outcomes], _STRING),
        pa.array([outcome.version for outcome in outcomes], pa.int64()),
        outputs_array([outcome.outputs for outcome in outcomes]),
        pa.array([_delivery(outcome) for outcome in outcomes], _STRING),
    ]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def _size(outcomes: list[Outcome]) -> int:
    return sum(100 + sum(len(output.body) for output in outcome.outputs) for outcome in outcomes)


def outputs_array(of_outcomes: list[tuple[Output, ...]]) -> pa.ListArray:
    """Return a column of lists of outputs."""
    outputs = [output for outputs in of_outcomes for output in outputs]
    columns: list[Any] = list(zip(*outputs, strict=True)) or [()] * len(ARROW_OUTPUT)
    arrays = [pa.array(column, item.type) for column, item in zip(columns[:-1], ARROW_OUTPUT, strict=False)]
    headers = pa.array([list(header.items()) for header in columns[-1]], ARROW_OUTPUT.field("headers").type)
    flat = pa.StructArray.from_arrays([*arrays, headers], fields=list(ARROW_OUTPUT))
    return pa.ListArray.from_arrays(pa.array(_offsets(of_outcomes), pa.int32()), flat)


def _offsets(lists: list[tuple[Output, ...]]) -> list[int]:
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
    return envelope.to_json()
