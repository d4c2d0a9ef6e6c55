"""Copies: tell whether a delivery is a copy of the message that made a version, or another message with its id.

The name of the type is part of a message's fingerprint. A type that was renamed takes messages under its old names
too (`aliases`), so a copy may have another name than the message that was handled first.
"""

from __future__ import annotations

from runtime.columns import StateVersion
from runtime.fingerprint import fingerprint
from runtime.preparation import Prepared


def is_copy(delivery: Prepared, version: StateVersion) -> bool:
    """Say whether a delivery with the id of a version is the message that made it, under any name of its type."""
    if delivery.fingerprint == version.fingerprint:
        return True
    return _renamed(delivery, version) == version.fingerprint


def _renamed(delivery: Prepared, version: StateVersion) -> bytes | None:
    """Return the fingerprint of a delivery under the recorded name, None when its type does not have that name."""
    envelope = delivery.envelope
    if version.type == envelope.type or version.type not in delivery.route.names:
        return None
    return fingerprint(version.type, envelope.body, packed=isinstance(envelope.body, bytes))
