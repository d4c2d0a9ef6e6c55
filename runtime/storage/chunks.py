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
    """Return the bytes that were split. Raises `KeyError`, `TypeError`, and `ValueError` when some of them lack."""
    first = properties[names[0]]
    is_whole = (
        isinstance(first, bytes) and len(first) < CHUNK and (len(names) == 1 or names[1] not in properties)
    )
    if is_whole or not isinstance(first, bytes):
        return first  # type: ignore[return-value] # whoever reads it tells
    there = [name for name in names if name in properties]
    parts: list[bytes] = [properties[name] for name in there]  # type: ignore[misc] # bytes were written
    if there != list(names[: len(there)]) or any(len(part) != CHUNK for part in parts[:-1]):
        message = f"some of the bytes lack that begin with {names[0]}"
        raise ValueError(message)
    return b"".join(parts)
