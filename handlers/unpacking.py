"""Unpack untrusted msgpack: its memory is bounded, whatever the bytes say.

An empty array is one byte of msgpack and 56 of memory, and an array may announce more items than it has. So items are
counted while they are unpacked, and larger data is looked through before any memory is set aside for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

MAX_ITEMS = 2**20
"""How many arrays, maps and items of these may be in one piece of data."""

MAX_DEPTH = 200
"""How deep arrays and maps may be nested: what pydantic allows for JSON."""

_TRUSTED_BYTES = 4 * 2**10
"""Up to here the arrays that data announces are no danger, even if it has none of their items."""


def unpack(
    data: bytes,
    *,
    most: int | None = None,
    ext_hook: Callable[[int, bytes], Any] = msgpack.ExtType,
    unicode_errors: str | None = None,
    strict_map_key: bool = True,
) -> Any:  # noqa: ANN401 - any value that msgpack knows
    """Return what `msgpack.unpackb` does for trusted data. Raises `ValueError`, `TypeError` and what msgpack raises.

    `most` is how many items an array or map may have, of which there are few in data that says so: it is not looked
    through before.

    Raises `msgpack.StackError`, which is a `ValueError`, for what is nested too deeply.
    """
    budget = _Budget()
    limit = min(MAX_ITEMS, len(data)) if most is None else most
    if len(data) > _TRUSTED_BYTES and most is None:
        unpacker = msgpack.Unpacker(
            max_buffer_size=len(data), max_array_len=limit, max_map_len=limit, unicode_errors=unicode_errors
        )
        unpacker.feed(data)
        unpacker.skip()
    unpacked = msgpack.unpackb(
        data,
        object_hook=budget.count,
        list_hook=budget.count,
        max_array_len=limit,
        max_map_len=limit,
        ext_hook=ext_hook,
        unicode_errors=unicode_errors,
        strict_map_key=strict_map_key,
    )
    if budget.containers > MAX_DEPTH and is_deeper(unpacked, MAX_DEPTH + 1):
        message = f"it is nested deeper than {MAX_DEPTH} levels"
        raise msgpack.StackError(message)
    return unpacked


def is_deeper(value: Any, depth: int) -> bool:  # noqa: ANN401 - what was unpacked
    """Return whether lists and dicts are nested to a greater depth."""
    level: list[Any] = [[value]]
    for _ in range(depth + 1):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if type(item) in (list, dict)
        ]
        if not level:
            return False
    return True


class _Budget:
    """Counts what was unpacked."""

    __slots__ = ("_items", "containers")

    def __init__(self) -> None:
        self.containers = 0
        self._items = 0

    def count(self, container: Any) -> Any:  # noqa: ANN401 - a list or a dict
        self.containers += 1
        self._items += 1 + len(container)
        if self._items > MAX_ITEMS:
            message = f"it holds more than {MAX_ITEMS} items"
            raise ValueError(message)
        return container
