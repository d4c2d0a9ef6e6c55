"""New versions: what handlers made of messages, from then on until it is stored.

While handlers run a version is a row of `MadeColumns`. Its record has the rest from the delivery of its message, and
digests; that is made for many versions at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from handlers import Published
from runtime.columnar import Columnar
from runtime.messages.deliveries import Deliveries
from runtime.messages.digests import digests_of_outputs, digests_of_states
from runtime.storage.columns import VersionColumns


class Made(NamedTuple):
    """What a handler made of the delivery at a position: when, by which revision, what was captured and published."""

    position: int
    now: int
    revision: int
    captured: Mapping[str, bytes] | None
    published: Sequence[Published]


@dataclass(slots=True)
class MadeColumns(Columnar[Made]):
    """What handlers made, column by column: each list has one field of `Made` for all of them."""

    row = Made

    positions: list[int] = field(default_factory=list)
    nows: list[int] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    captured: list[Mapping[str, bytes] | None] = field(default_factory=list)
    published: list[Sequence[Published]] = field(default_factory=list)


def columns_of(deliveries: Deliveries, made: MadeColumns, states: Sequence[bytes]) -> VersionColumns:
    """Return the records of consecutive versions; `states` are the encoded states before each and after the last."""
    envelopes = deliveries.envelopes
    given = (
        deliveries.keys,
        envelopes.types,
        deliveries.fingerprints,
        envelopes.enqueued_at,
        envelopes.headers,
    )
    keys, types, fingerprints, enqueued_at, headers = (_at(made.positions, column) for column in given)
    return VersionColumns(
        keys,
        types,
        fingerprints,
        list(made.nows),
        enqueued_at,
        [dict(each) if each else None for each in headers],
        list(made.captured),
        list(made.revisions),
        digests_of_outputs(made.published),
        digests_of_states(states[1:]),
        [None if after == before else after for before, after in pairwise(states)],
    )


def _at(positions: Sequence[int], column: Sequence[Any]) -> list[Any]:
    """Return the values at some positions, which are in order and most often in a row."""
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions):
        return list(column[first : last + 1])
    return [column[position] for position in positions]
