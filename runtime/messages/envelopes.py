"""Envelopes of one stream, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.columnar import Columnar
from runtime.messages.envelope import Envelope


@dataclass(slots=True)
class Envelopes(Columnar[Envelope]):
    """Deliveries as a log holds them: each list has one field of `Envelope` for all of them."""

    row = Envelope

    message_ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    bodies: list[str | bytes] = field(default_factory=list)
    business_ids: list[str | None] = field(default_factory=list)
    sequences: list[int | None] = field(default_factory=list)
    enqueued_at: list[int | None] = field(default_factory=list)
    headers: list[Mapping[str, str] | None] = field(default_factory=list)
