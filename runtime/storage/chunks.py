"""Bytes that are more than a property holds, split over several and joined again."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore import Properties, Value

CHUNK = 64 * 2**10


def chunk_names(name: str, count: int) -> list[str]:
    """Return the names of properties that bytes of so many times 64 KiB are split into."""
    return [name, *(f"{name}{number}" for number in range(1, count))]


def split(properties: dict[str, Value], names: Sequence[str], data: bytes) -> None:
    """Put bytes into properties of 64 KiB. Raises `ValueError` when there are too few names."""
    if len(data) > len(names) * CHUNK:
        message = f"{len(data)} bytes are more than a row of a run can hold"
        raise ValueError(message)
    for name, at in zip(names, range(0, len(data), CHUNK), strict=False):
        properties[name] = data[at : at + CHUNK]


def join(properties: Properties, names: Sequence[str]) -> bytes:
    """Return the bytes that were split. Raises `KeyError`."""
    first = properties[names[0]]
    if len(names) == 1 or names[1] not in properties:
        return first  # type: ignore[return-value] # bytes were written
    return b"".join(properties[name] for name in names if name in properties)  # type: ignore[misc] # as above
