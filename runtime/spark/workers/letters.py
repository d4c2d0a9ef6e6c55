"""Letters as they reach a worker of a redrive: each the delivery as it was, in the order in which they are handled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from runtime.messages.envelopes import Envelopes
from runtime.messages.letters import unpack_envelope
from runtime.spark.workers.deliveries import Group, text_bytes

ARROW_REDRIVEN = pa.schema(
    [
        ("handler", pa.string()),
        ("business_id", pa.string()),
        ("letter", pa.int64()),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.int64()),
        ("delivery", pa.binary()),
        ("problem", pa.string()),
        ("row", pa.string()),
        ("etag", pa.string()),
    ]
)
"""A letter that is redriven, to one handler.

`letter` is its number in its stream, and behind all of these for a letter of the table, which is in a `row`.
"""

BEHIND_ALL = 2**62


def letter_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Cut the sorted letters of a partition into groups of one stream each."""
    group: Group | None = None
    letters: list[int] = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        envelope = unpack_envelope(row["delivery"])
        size = text_bytes(envelope)
        place = (row["handler"], row["business_id"])
        if group is None or (group.handler, group.business_id) != place:
            if group is not None:
                yield group
            group = Group(*place, letters=(letters := []))
        elif not group.has_room(1, size):
            group.is_followed = True
            yield group
            group = Group(*place, follows=True, letters=(letters := []))
        group.envelopes.extend(Envelopes.of([envelope]))
        group.problems.append(row["problem"])
        letters.append(row["letter"])
        group.text_bytes += size
    if group is not None:
        yield group
