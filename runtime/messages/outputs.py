"""Outputs: published messages as messages of a log, in the order of versions, at the recorded time of their parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import add

from handlers import Published
from runtime.columnar import Columnar
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Output


@dataclass(slots=True)
class Outputs(Columnar[Output]):
    """Outputs, column by column: each list has one field of `Output` for all of them. A body may be text or UTF-8."""

    row = Output

    message_ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    bodies: list[str | bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    enqueued_at: list[int] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)


def outputs_of(published: Sequence[Published], version: int, now: int) -> tuple[Output, ...]:
    """Return what the message published that made a version at a time."""
    numbered = enumerate(published, version << OUTPUT_INDEX_BITS)
    return tuple(
        [
            Output(message_id, name, body.decode(), number, now, headers)
            for number, (message_id, name, body, headers) in numbered
        ]
    )


def outputs_of_all(
    published: Sequence[Sequence[Published]], versions: Sequence[int | None], nows: Sequence[int]
) -> tuple[list[int], Outputs]:
    """Return how many outputs each of some messages has, and what `outputs_of` gives for each, column by column.

    A version is None only where nothing is published.
    """
    counts = list(map(len, published))
    flat = list(chain.from_iterable(published))
    if not flat:
        return counts, Outputs()
    message_ids, types, bodies, headers = map(list, zip(*flat, strict=True))
    sequences = [(version or 0) << OUTPUT_INDEX_BITS for version in compress(versions, counts)]
    times = list(compress(nows, counts))
    if len(flat) > len(sequences):
        several = list(filter(None, counts))
        sequences = list(chain.from_iterable(map(range, sequences, map(add, sequences, several))))
        times = list(chain.from_iterable(map(repeat, times, several)))
    return counts, Outputs(message_ids, types, bodies, sequences, times, headers)
