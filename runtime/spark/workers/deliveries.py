"""Deliveries as they reach a worker: Arrow batches, cut into groups of one stream each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from runtime.messages.envelope import Envelope
from runtime.messages.envelopes import Envelopes
from runtime.messages.outcome import Output
from runtime.messages.too_large import size_of, size_of_headers

MAX_DELIVERIES = 49_152
MAX_TEXT_BYTES = 32 * 2**20
DELIVERY_BYTES = 2048
"""What a delivery takes in memory beside its text, from when it is read until its outcome is written; measured."""

HARD_LIMIT = 2
"""How many times as large copies of its last message may make a group."""


@dataclass(slots=True)
class Group:
    """Deliveries of one stream in their order, each with what is wrong with its envelope, if anything is.

    `business_id` is the one that they were routed by; their envelopes have what the log names, if it does.

    A stream that is too long for one group makes several: `follows` says that the group before was of the same stream,
    `is_followed` that the next one is. In a redrive, `letters` are the numbers of the letters that the deliveries are.
    """

    handler: str | None
    business_id: str | None
    follows: bool = False
    is_followed: bool = False
    envelopes: Envelopes = field(default_factory=Envelopes)
    problems: list[str | None] = field(default_factory=list)
    text_bytes: int = 0
    letters: list[int] | None = None

    @property
    def size(self) -> int:
        """How many bytes it takes in memory, about."""
        return self.text_bytes + DELIVERY_BYTES * len(self.problems)

    def has_room(self, deliveries: int, text: int) -> bool:
        """Say whether so many more deliveries may be added, with so many bytes of text, one at a time."""
        return len(self.problems) + deliveries <= MAX_DELIVERIES and self.text_bytes + text <= MAX_TEXT_BYTES

    def has_room_for(self, message_id: str) -> bool:
        """Say whether another delivery may be added. Copies of a message stay together as far as that goes."""
        count = len(self.problems)
        if count < MAX_DELIVERIES and self.text_bytes < MAX_TEXT_BYTES:
            return True
        is_copy = self.envelopes.message_ids[-1] == message_id
        return (
            is_copy and count < HARD_LIMIT * MAX_DELIVERIES and self.text_bytes < HARD_LIMIT * MAX_TEXT_BYTES
        )


def groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Cut the sorted rows of a partition into groups; a stream that is very long gives several."""
    group: Group | None = None
    for batch in batches:
        rows = _Rows(batch)
        for first, end, handler, business_id in rows.stretches():
            if group is None or group.handler != handler or group.business_id != business_id:
                if group is not None:
                    yield group
                group = Group(handler, business_id)
            if group.has_room(end - first, rows.text_bytes(first, end)):
                rows.add_to(group, first, end)
                continue
            for row in range(first, end):
                if not group.has_room_for(rows.envelopes.message_ids[row]):
                    group.is_followed = True
                    yield group
                    group = Group(handler, business_id, follows=True)
                rows.add_to(group, row, row + 1)
    if group is not None:
        yield group


class _Rows:
    """The rows of an Arrow batch, column by column, with the bytes of text before each row and after the last."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        lines, bodies = batch.column("line"), batch.column("body")
        texts = bodies.to_pylist()
        if lines.null_count < len(lines):
            # What is no message keeps its line in place of a body: text, whatever the bodies are.
            pairs = zip(lines.to_pylist(), texts, strict=True)
            texts = [body if line is None else line for line, body in pairs]
        self._handlers = batch.column("handler")
        self._business_ids = batch.column("business_id")
        self.problems = _texts(batch.column("problem"))
        self.envelopes = Envelopes(
            batch.column("message_id").to_pylist(),
            _shared(batch.column("type")),
            texts,
            _texts(batch.column("given")),
            batch.column("sequence").to_pylist(),
            batch.column("enqueued_at").cast(pa.int64()).to_pylist(),
            _headers(batch.column("headers")),
        )
        text = pc.fill_null(pc.coalesce(pc.binary_length(lines), pc.binary_length(bodies)), 0)
        beside = pc.fill_null(pc.binary_length(batch.column("headers")), 0)
        self._text_before: list[int] = list(accumulate(pc.add(text, beside).to_pylist(), initial=0))

    def stretches(self) -> Iterator[tuple[int, int, str | None, str | None]]:
        """Give the first row of each stretch of one stream, the row after its last, handler and business id."""
        count = len(self.envelopes)
        if count == 0:
            return
        changes = pc.or_(_differ_from_next(self._handlers), _differ_from_next(self._business_ids))
        begins = [0, *(end + 1 for end in pc.indices_nonzero(changes).to_pylist())]
        handlers, business_ids = (
            column.take(pa.array(begins)).to_pylist() for column in (self._handlers, self._business_ids)
        )
        yield from zip(begins, [*begins[1:], count], handlers, business_ids, strict=True)

    def text_bytes(self, first: int, end: int) -> int:
        """Return the bytes of body and headers of some rows."""
        return self._text_before[end] - self._text_before[first]

    def add_to(self, group: Group, first: int, end: int) -> None:
        """Add some rows to a group."""
        added = self.envelopes[first:end]
        if group.problems:
            group.envelopes.extend(added)
        else:
            group.envelopes = added
        group.problems += self.problems[first:end]
        group.text_bytes += self.text_bytes(first, end)


def _differ_from_next(column: pa.Array) -> pa.Array:
    """Say for each value but the last whether the next one is another; null is a value here."""
    these, following = column[:-1], column[1:]
    differ = pc.fill_null(pc.not_equal(these, following), False)
    return pc.or_(differ, pc.xor(pc.is_null(these), pc.is_null(following))) if column.null_count else differ


def text_bytes(message: Envelope | Output) -> int:
    """Return the bytes of body and headers."""
    return size_of(message.body) + size_of_headers(message.headers)


def _texts(column: pa.Array) -> list[str | None]:
    """Return the values of a column that is empty in most logs."""
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def _shared(column: pa.Array) -> list[str]:
    """Return the values of a column that has few: equal ones are one object, made and hashed once."""
    if column.null_count:
        texts: list[str] = column.to_pylist()
        return texts
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    return [values[index] for index in encoded.indices.to_pylist()]


def _headers(column: pa.Array) -> list[Mapping[str, str] | None]:
    return [(json.loads(text) or None) if text else None for text in _texts(column)]
