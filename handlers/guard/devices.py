"""Files, sockets, processes and other devices, guarded by Python's audit events, whichever function leads to them."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Callable
from threading import get_ident
from typing import Any

from handlers.guard.entrances import DEVICES, EVENTS, OUTSIDE
from handlers.guard.running import running
from handlers.guard.violation import check


def guard_devices() -> None:
    """Listen to audit events, once for this process. Costs a tenth of a microsecond for each."""
    sys.addaudithook(_hear)


def _hear(
    event: str,
    given: tuple[Any, ...],
    # Bound here, as modules are emptied before the last events come.
    threads: dict[int, Any] = running,
    get_thread: Callable[[], int] = get_ident,
) -> None:
    if not threads or get_thread() not in threads:
        return
    if event in EVENTS:
        check(f"{event.removeprefix('builtins.')}()", EVENTS[event])
    elif event.partition(".")[0] in DEVICES and not _is_time_zone(event, given):
        check(f"{event.removesuffix('.__new__')}()", OUTSIDE)


def _is_time_zone(event: str, given: tuple[Any, ...]) -> bool:
    """Say whether a file of the time zones is opened, which `ZoneInfo` does when it first meets one."""
    return event == "open" and isinstance(given[0], str) and given[0].startswith(tuple(zoneinfo.TZPATH))
