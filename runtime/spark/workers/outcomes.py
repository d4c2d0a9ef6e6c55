"""Outcomes as Arrow batches: built column by column, nested outputs from offsets and flat lists."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import pyarrow as pa

from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.spark.schemas import ARROW_OUTPUT, OUTCOME
from runtime.spark.workers.deliveries import text_bytes

MAX_ROWS = 8192
MAX_BYTES = 8 * 2**20
OUTPUT_BYTES = 512
"""What an output takes in memory beside its text."""


_NAMES = OUTCOME.fieldNames()
_STRING = pa.string()


class OutcomeWriter:
    """Collects outcomes until there are enough for a batch."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []
        self._sizes: list[int] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._outcomes) >= MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Take outcomes."""
        added = list(outcomes)
        sizes = [text_bytes(each.envelope) + outputs_bytes(each.outputs) for each in added]
        self._outcomes += added
        self._sizes += sizes
        self._bytes += sum(sizes)

    def flush(self) -> pa.RecordBatch:
        """Return the first of what was collected, up to `MAX_ROWS` and about `MAX_BYTES`, as one batch."""
        count = self._fitting()
        taken = self._outcomes[:count]
        self._bytes -= sum(self._sizes[:count])
        del self._outcomes[:count], self._sizes[:count]
        return to_arrow(taken)

    def _fitting(self) -> int:
        """Return how many outcomes a batch may have; the last of them may go over the limit."""
        size = 0
        for count, each in enumerate(self._sizes[:MAX_ROWS], 1):
            size += each
            if size >= MAX_BYTES:
                return count
        return MAX_ROWS


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


def outputs_bytes(outputs: Iterable[Output]) -> int:
    """Return how many bytes outputs take in memory, about."""
    return sum(OUTPUT_BYTES + text_bytes(output) for output in outputs)


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
