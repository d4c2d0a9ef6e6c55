"""Python's cyclic garbage collector in workers.

Handling messages makes no reference cycles, but many objects that live for a while: the collector would traverse them,
and all loaded modules, repeatedly, which takes a tenth of the time. It still runs, in case a handler makes cycles,
only less often.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 50_000
"""How many new objects there are before the collector looks at them; Python's default is 700."""

_frozen: set[int] = set()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector run rarely, and never over objects older than the first use in a process."""
    if os.getpid() not in _frozen:
        gc.collect()
        gc.freeze()
        _frozen.add(os.getpid())
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
