"""Copies: tell whether a delivery is a copy of a message that was handled, or another message with its id.

The name of the type is part of a message's fingerprint. A type that was renamed takes messages under its old names
too (`aliases`), so a copy may have another name than the message that was handled first.
"""

from __future__ import annotations

from runtime.messages.deliveries import Prepared
from runtime.messages.fingerprint import fingerprint


def is_copy(delivery: Prepared, recorded: bytes) -> bool:
    """Say whether a delivery has the recorded fingerprint of its id, under any name of its type."""
    return delivery.fingerprint == recorded or recorded in _under_other_names(delivery)


def _under_other_names(delivery: Prepared) -> list[bytes]:
    envelope = delivery.envelope
    packed = isinstance(envelope.body, bytes)
    others = [name for name in delivery.route.names if name != envelope.type]
    return [fingerprint(name, envelope.body, packed=packed) for name in others]
