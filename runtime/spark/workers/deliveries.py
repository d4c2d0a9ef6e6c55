"""Deliveries as they reach a worker: Arrow batches, cut into groups of one stream each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Output

MAX_DELIVERIES = 49_152
MAX_TEXT_BYTES = 32 * 2**20
DELIVERY_BYTES = 2048
"""What a delivery takes in memory beside its text, from when it is read until its outcome is written; measured."""

HARD_LIMIT = 2
"""How many times as large copies of its last message may make a group."""


@dataclass(slots=True)
class Group:
    """Deliveries of one stream in their order, each with what is wrong with its envelope, if anything is.

    `follows` says that the group before was of the same stream, which was too long for one group.
    """

    handler: str | None
    business_id: str | None
    follows: bool = False
    deliveries: list[tuple[Envelope, str | None]] = field(default_factory=list)
    text_bytes: int = 0

    @property
    def size(self) -> int:
        """How many bytes it takes in memory, about."""
        return self.text_bytes + DELIVERY_BYTES * len(self.deliveries)

    def add(self, envelope: Envelope, problem: str | None) -> None:
        """Take a delivery."""
        self.deliveries.append((envelope, problem))
        self.text_bytes += text_bytes(envelope)

    def has_room(self, message_id: str) -> bool:
        """Say whether another delivery may be added. Copies of a message stay together as far as that goes."""
        count = len(self.deliveries)
        if count < MAX_DELIVERIES and self.text_bytes < MAX_TEXT_BYTES:
            return True
        is_copy = self.deliveries[-1][0].message_id == message_id
        return (
            is_copy and count < HARD_LIMIT * MAX_DELIVERIES and self.text_bytes < HARD_LIMIT * MAX_TEXT_BYTES
        )


def groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Cut the sorted rows of a partition into groups; a stream that is very long gives several."""
    group: Group | None = None
    for batch in batches:
        for handler, business_id, envelope, problem in _rows(batch):
            if group is None or group.handler != handler or group.business_id != business_id:
                if group is not None:
                    yield group
                group = Group(handler, business_id)
            elif not group.has_room(envelope.message_id):
                yield group
                group = Group(handler, business_id, follows=True)
            group.add(envelope, problem)
    if group is not None:
        yield group


def text_bytes(message: Envelope | Output) -> int:
    """Return the bytes of body and headers."""
    headers = message.headers or {}
    return _length(message.body) + sum(_length(name) + _length(value) for name, value in headers.items())


def _length(text: str | bytes | None) -> int:
    if isinstance(text, str) and not text.isascii():
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text or "")


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str | None, str | None, Envelope, str | None]]:
    columns: dict[str, list[Any]] = {
        name: batch.column(number).to_pylist()
        for number, name in enumerate(batch.schema.names)
        if name not in ("enqueued_at", "headers")
    }
    times = batch.column("enqueued_at").cast(pa.int64()).to_pylist()
    headers = _headers(batch.column("headers"))
    for handler, business_id, message_id, type_, body, sequence, time, header, problem, line in zip(
        columns["handler"],
        columns["business_id"],
        columns["message_id"],
        columns["type"],
        columns["body"],
        columns["sequence"],
        times,
        headers,
        columns["problem"],
        columns["line"],
        strict=True,
    ):
        # What is no message keeps its line in place of a body.
        envelope = Envelope(
            message_id, type_, body if line is None else line, business_id, sequence, time, header
        )
        yield handler, business_id, envelope, problem


def _headers(column: pa.Array) -> list[dict[str, str] | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    return [(json.loads(text) or None) if text else None for text in column.to_pylist()]
