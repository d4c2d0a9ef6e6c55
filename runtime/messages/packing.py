"""Packing with msgpack, by a packer for each thread: making one takes longer than packing a small body."""

from __future__ import annotations

import threading
from typing import Any

import msgpack


class _Packer(threading.local):
    def __init__(self) -> None:
        self.pack = msgpack.Packer().pack


_packer = _Packer()


def pack(value: Any) -> bytes:  # noqa: ANN401 - plain data of any kind
    """Return plain data as msgpack."""
    packed: bytes = _packer.pack(value)
    return packed
