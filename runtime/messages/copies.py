"""Copies: tell whether a delivery is a copy of a message that was handled, or another message with its id.

The name of the type is part of a message's fingerprint. A type that was renamed takes messages under its old names
too (`aliases`), so a copy may have another name than the message that was handled first.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.messages.deliveries import Prepared
from runtime.messages.envelope import Envelope
from runtime.messages.fingerprint import fingerprint


def is_copy(delivery: Prepared, recorded: bytes) -> bool:
    """Say whether a delivery has the recorded fingerprint of its id, under any name of its type."""
    if delivery.fingerprint == recorded:
        return True
    envelope = delivery.envelope
    return recorded in _fingerprints(
        envelope, [name for name in delivery.route.names if name != envelope.type]
    )


def has_fingerprint(envelope: Envelope, names: Iterable[str], recorded: bytes) -> bool:
    """Say whether a body that its type refuses has the recorded fingerprint, under any of the type's names.

    A body that does not parse has none.
    """
    try:
        return recorded in _fingerprints(envelope, names)
    except Exception:  # noqa: BLE001 - a body may hold anything
        return False


def _fingerprints(envelope: Envelope, names: Iterable[str]) -> list[bytes]:
    packed = isinstance(envelope.body, bytes)
    return [fingerprint(name, envelope.body, packed=packed) for name in names]
