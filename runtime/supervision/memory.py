"""The memory of a worker: bounded by the operating system, so that a handler that takes more gets a `MemoryError`."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_KIB = 1024


@contextmanager
def bounded_memory(size: int | None) -> Iterator[None]:
    """Let this process take so many bytes more than it has, within the block; None sets no bound.

    Counted is the data that it may write to. Elsewhere than on Linux nothing is bounded.
    """
    taken = _taken()
    if size is None or taken is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit = taken + size
    most = before[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _taken() -> int | None:
    """Return the bytes of data of this process, None where that is not known."""
    try:
        lines = _STATUS.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * _KIB for line in lines if line.startswith("VmData:")), None)
