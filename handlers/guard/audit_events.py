"""Files, sockets, processes and other I/O, guarded through Python's audit events, whatever function raises them."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Callable
from threading import get_ident
from typing import Any

from handlers.guard.nondeterministic import EVENT_FAMILIES, EVENTS, IO
from handlers.guard.running import running
from handlers.guard.violation import check


def guard_audit_events() -> None:
    """Listen to audit events, once for this process. Costs a tenth of a microsecond for each event."""
    sys.addaudithook(_hear)


def _hear(
    event: str,
    given: tuple[Any, ...],
    # Bound here, as the interpreter empties modules before it raises the last events.
    threads: dict[int, Any] = running,
    get_thread: Callable[[], int] = get_ident,
) -> None:
    if not threads or get_thread() not in threads:
        return
    if event in EVENTS:
        check(f"{event.removeprefix('builtins.')}()", EVENTS[event])
    elif event.partition(".")[0] in EVENT_FAMILIES and not _is_time_zone(event, given):
        check(f"{event.removesuffix('.__new__')}()", IO)


def _is_time_zone(event: str, given: tuple[Any, ...]) -> bool:
    """Return whether a time zone file is opened, which `ZoneInfo` does once for each zone."""
    return event == "open" and isinstance(given[0], str) and given[0].startswith(tuple(zoneinfo.TZPATH))
