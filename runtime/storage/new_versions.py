"""New versions: what handlers made of messages, from then on until it is stored.

While handlers run a version is one tuple. Its record has the rest from the delivery of its message, and digests; that
is made for many versions at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from handlers import Published
from runtime.messages.deliveries import Deliveries
from runtime.messages.digests import digest_outputs, digest_state
from runtime.storage.columns import VersionColumns

Made = tuple[int, int, int, Mapping[str, bytes] | None, Sequence[Published]]
"""What a handler made: the position of the delivery, the time, the revision, what was captured and published."""


def columns_of(deliveries: Deliveries, made: Sequence[Made], states: Sequence[bytes]) -> VersionColumns:
    """Return the records of consecutive versions; `states` are the encoded states before each and after the last."""
    positions, nows, revisions, captured, published = zip(*made, strict=True)
    envelopes = deliveries.envelopes
    given = (
        deliveries.keys,
        envelopes.types,
        deliveries.fingerprints,
        envelopes.enqueued_at,
        envelopes.headers,
    )
    keys, types, fingerprints, enqueued_at, headers = (_at(positions, column) for column in given)
    return VersionColumns(
        keys,
        types,
        fingerprints,
        list(nows),
        enqueued_at,
        [dict(each) if each else None for each in headers],
        list(captured),
        list(revisions),
        [digest_outputs(each) for each in published],
        [digest_state(after) for after in states[1:]],
        [None if after == before else after for before, after in pairwise(states)],
    )


def _at(positions: Sequence[int], column: Sequence[Any]) -> list[Any]:
    """Return the values at some positions, which are in order and most often in a row."""
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions):
        return list(column[first : last + 1])
    return [column[position] for position in positions]
